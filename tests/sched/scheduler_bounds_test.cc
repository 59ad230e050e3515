// The Scheduler's bounds, and what it keeps for each task.
#include <algorithm>

#include "scheduler_rig.h"

namespace strata::sched {
namespace {

TEST(Scheduler, AFullTableAdmitsNothingUntilASlotIsReleased) {
  Rig rig(1, {.slots = 2, .buffers = 4});
  const uint32_t run = rig.scheduler.open_run();
  const uint32_t a = rig.submit(run, {});
  rig.submit(run, {});
  EXPECT_FALSE(rig.scheduler.admits({}, 0));
  rig.dispatch();
  rig.end(a);
  EXPECT_FALSE(rig.scheduler.admits({}, 0)) << "terminal, but not released";
  rig.release();
  EXPECT_TRUE(rig.scheduler.admits({}, 0));
}

TEST(Scheduler, TheMemoryOfBodiesIsBoundedAndComesBack) {
  Rig rig(1, {.slots = 64, .buffers = 4, .body_bytes_max = 128 << 10});
  const uint32_t run = rig.scheduler.open_run();
  uint32_t submitted = 0;
  while (rig.scheduler.admits({}, 60'000)) {
    rig.scheduler.submit(run, {}, 60'000);
    ++submitted;
  }
  EXPECT_EQ(submitted, 2u);
  rig.drain();
  EXPECT_TRUE(rig.scheduler.admits({}, 60'000));
}

TEST(Scheduler, SmallTasksAreAdmittedAfterLargeOnesHaveHadAllTheMemory) {
  Rig rig(1, {.slots = 64, .buffers = 4, .body_bytes_max = 128 << 10});
  const uint32_t run = rig.scheduler.open_run();
  while (rig.scheduler.admits({}, 60'000)) rig.scheduler.submit(run, {}, 60'000);
  rig.drain();
  EXPECT_TRUE(rig.scheduler.admits({}, 8));
}

TEST(Scheduler, LargeTasksAreAdmittedAfterSmallOnesHaveHadAllTheMemory) {
  Rig rig(1, {.slots = 2048, .buffers = 4, .body_bytes_max = 128 << 10});
  const uint32_t run = rig.scheduler.open_run();
  while (rig.scheduler.admits({}, 8)) rig.scheduler.submit(run, {}, 8);
  rig.drain();
  EXPECT_TRUE(rig.scheduler.admits({}, 120'000));
}

TEST(Scheduler, EdgesAreBoundedAndComeBack) {
  // 256 slots have 8192 edges. A reader of what 128 tasks write makes 128 of them, so that less
  // than 64 readers find room, and no more slots are taken.
  Rig rig(1, {.slots = 256, .depth = 62, .buffers = 128});
  const uint32_t run = rig.scheduler.open_run();
  for (int round = 0; round < 5; ++round) {
    std::vector<Access> all;
    for (uint32_t buffer = 0; buffer < 128; ++buffer) {
      rig.submit(run, {output(buffer)});
      all.push_back(input(buffer));
    }
    uint32_t readers = 0;
    for (; rig.scheduler.admits(all, 8); ++readers) rig.scheduler.submit(run, all, 8);
    ASSERT_GT(readers, 40u);
    ASSERT_LT(readers, 64u);
    EXPECT_EQ(rig.scheduler.edges_made(), (round + 1) * readers * 128u);
    rig.drain();
    ASSERT_EQ(rig.scheduler.live(), 0u);
  }
}

TEST(Scheduler, PayloadAndAccessesAreKeptUntilTheRelease) {
  Rig rig;
  const uint32_t run = rig.scheduler.open_run();
  const std::vector<Access> accesses{input(3, 8, 24), output(4)};
  ASSERT_TRUE(rig.scheduler.admits(accesses, 1000));
  const uint32_t task = rig.scheduler.submit(run, accesses, 1000);
  const std::span<std::byte> payload = rig.scheduler.payload(task);
  ASSERT_EQ(payload.size(), 1000u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(payload.data()) % 8, 0u);
  std::ranges::fill(payload, std::byte{0x5a});
  rig.dispatch();
  rig.end(task);
  EXPECT_EQ(rig.scheduler.payload(task)[999], std::byte{0x5a});
  ASSERT_EQ(rig.scheduler.accesses(task).size(), 2u);
  EXPECT_EQ(rig.scheduler.accesses(task)[0].buffer, 3u);
  EXPECT_EQ(rig.scheduler.accesses(task)[0].region, graph::Region::range(8, 24));
  EXPECT_TRUE(rig.scheduler.accesses(task)[1].writes);
}

TEST(Scheduler, ASlotThatIsUsedAgainHasAnotherGeneration) {
  Rig rig(1, {.slots = 1, .buffers = 4});
  const uint32_t run = rig.scheduler.open_run();
  const uint32_t first = rig.submit(run, {});
  const uint32_t generation = rig.scheduler.slot(first).generation;
  rig.drain();
  const uint32_t second = rig.submit(run, {});
  EXPECT_EQ(first, second);
  EXPECT_NE(rig.scheduler.slot(second).generation, generation);
}

TEST(Scheduler, TheSlotsOfAClosedWorkerAreRequeuedOrFinished) {
  Rig rig(1);
  const uint32_t run = rig.scheduler.open_run();
  const uint32_t started = rig.submit(run, {output(1)});
  const uint32_t queued = rig.submit(run, {});
  rig.dispatch();
  rig.scheduler.close_worker(0);
  rig.scheduler.finish(started, Outcome::kEndpointFailed, 4);
  rig.scheduler.requeue(queued);
  EXPECT_EQ(rig.dispatch(), Slots{});
  EXPECT_TRUE(rig.scheduler.has_ready());
  rig.scheduler.open_worker(rig.scheduler.add_worker());
  EXPECT_EQ(rig.dispatch(), (Slots{queued}));
  EXPECT_EQ(rig.scheduler.slot(queued).worker, 1u);
}

}  // namespace
}  // namespace strata::sched
