// Who goes first among directed tasks, classes and groups, and what becomes of those that nobody is
// left for: each test is a case that simulations found.
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "scheduler_rig.h"

namespace strata::sched {
namespace {

struct PlacesRig : Rig {
  using Rig::Rig;

  // The next one to be handed out, handed out; kNone where there is none.
  Assignment next(bool wake = true, std::optional<uint32_t> asleep = {}) {
    const auto assignment =
        scheduler.next_assignment(wake, [&](uint32_t worker) { return worker == asleep; });
    if (!assignment) return {kNone, kNone};
    scheduler.assigned(*assignment, ++ticket);
    return *assignment;
  }
  uint32_t cls(std::vector<uint32_t> workers) { return scheduler.class_of(workers); }
};

#define EXPECT_GIVES(assignment, to_slot, to_worker) \
  do {                                               \
    const Assignment given = (assignment);           \
    EXPECT_EQ(given.slot, to_slot);                  \
    EXPECT_EQ(given.worker, to_worker);              \
  } while (false)

TEST(Places, ASleepingWorkerIsWokenWhereNoOtherOfItsClassIsAwake) {
  PlacesRig rig(1);
  rig.scheduler.open_worker(rig.scheduler.add_worker(1));  // of the other pool, awake and idle
  const uint32_t run = rig.scheduler.open_run();
  const uint32_t task = rig.submit(run, {});
  EXPECT_GIVES(rig.next(false, 0), task, 0u);
}

TEST(Places, ASleepingWorkerSleepsOnWhileAnotherOfItsClassIsAwakeAndFull) {
  PlacesRig rig(2, {.slots = 64, .depth = 1, .buffers = 64});
  const uint32_t run = rig.scheduler.open_run();
  rig.scheduler.chill(0);
  rig.submit_to(run, {0, 1});
  EXPECT_EQ(rig.next(false).worker, 1u);
  rig.submit(run, {});
  EXPECT_EQ(rig.next(false).slot, kNone);
  EXPECT_EQ(rig.next(true).worker, 0u);
}

TEST(Places, AWorkerThatIsWokenForItsOwnTaskTakesAnOlderSharedOneFirst) {
  PlacesRig rig(2, {.slots = 64, .depth = 1, .buffers = 64});
  const uint32_t run = rig.scheduler.open_run();
  rig.scheduler.chill(0);
  rig.submit_to(run, {0, 1});
  EXPECT_EQ(rig.next(false).worker, 1u);
  const uint32_t shared = rig.submit(run, {});
  rig.submit_to(run, {0, 0});
  EXPECT_GIVES(rig.next(false), shared, 0u);
}

TEST(Places, ASharedTaskDoesNotGoToAWorkerBeforeAnOlderOneOfItsOwn) {
  PlacesRig rig(2, {.slots = 64, .depth = 1, .buffers = 64});
  const uint32_t run = rig.scheduler.open_run();
  const uint32_t first = rig.submit_to(run, {0, 0});
  const uint32_t second = rig.submit_to(run, {0, 1});
  rig.dispatch();
  const uint32_t own = rig.submit_to(run, {0, 0});
  const uint32_t shared = rig.submit(run, {});
  rig.submit_to(run, {0, 1});
  rig.end(second);
  rig.end(first);
  std::vector<uint32_t> at(2, kNone);
  for (Assignment a = rig.next(); a.slot != kNone; a = rig.next()) at[a.worker] = a.slot;
  EXPECT_EQ(at, (std::vector<uint32_t>{own, shared}));
}

// ---------------------------------------------------------------- groups

TEST(Places, AReaderOfAGroupThatHasStartedWaitsForItsMembers) {
  PlacesRig rig(2);
  const uint32_t run = rig.scheduler.open_run();
  const uint32_t group = rig.group(run, {kNone, kNone}, {output(1)});
  rig.dispatch();
  const uint32_t reader = rig.submit(run, {input(1)});
  EXPECT_EQ(rig.state(reader), SlotState::kWaiting);
  for (const uint32_t worker : {0u, 1u}) EXPECT_EQ(rig.scheduler.queues().awaited(worker), 0u);
  rig.end(rig.scheduler.member_slot(group, 0));
  rig.end(rig.scheduler.member_slot(group, 1));
  EXPECT_EQ(rig.dispatch(), (Slots{reader}));
}

TEST(Places, AMemberThatHasEndedKeepsItsSlotUntilItsGroupEnds) {
  PlacesRig rig(3);
  const uint32_t run = rig.scheduler.open_run();
  const uint32_t group = rig.group(run, {0, 1});
  rig.dispatch();
  const uint32_t ended = rig.scheduler.member_slot(group, 0);
  rig.end(ended);
  EXPECT_TRUE(rig.release().empty());
  EXPECT_EQ(rig.state(ended), SlotState::kTerminal);
  for (int i = 0; i < 3; ++i) EXPECT_NE(rig.submit(run, {}), ended);
  rig.fail(rig.scheduler.member_slot(group, 1), 5);
  EXPECT_EQ(rig.release().size(), 3u);
  EXPECT_EQ(rig.causes.at(group), 5u);
}

TEST(Places, AWorkerThatAGroupHoldsStillTakesAnOlderDirectedTask) {
  PlacesRig rig(2);
  const uint32_t run = rig.scheduler.open_run();
  const uint32_t writer = rig.submit_to(run, {0, 1}, {output(1)});
  const uint32_t older = rig.submit_to(run, {0, 0}, {input(1)});
  rig.dispatch();
  const uint32_t group = rig.group(run, {kNone, kNone});
  EXPECT_TRUE(rig.dispatch().empty());  // it has worker 0 and waits for worker 1
  rig.end(writer);
  EXPECT_EQ(rig.dispatch(), (Slots{older}));
  EXPECT_EQ(rig.scheduler.slot(older).worker, 0u);
  rig.end(older);
  EXPECT_EQ(rig.dispatch().size(), 2u);
  EXPECT_EQ(rig.state(group), SlotState::kLaunched);
}

TEST(Places, AnOlderSharedTaskGoesBeforeAGroupThatHoldsAllWorkers) {
  PlacesRig rig(3);
  const uint32_t run = rig.scheduler.open_run();
  const uint32_t first = rig.submit_to(run, {0, 0}, {output(1)});
  const uint32_t second = rig.submit_to(run, {0, 1});
  const uint32_t older = rig.submit_to(run, {rig.cls({1, 2}), kNone}, {input(1)});
  rig.dispatch();
  rig.group(run, {0, 1, 2});
  EXPECT_TRUE(rig.dispatch().empty());
  rig.end(first);
  EXPECT_GIVES(rig.next(), older, 2u);
  EXPECT_EQ(rig.next().slot, kNone);
  rig.end(second);
  rig.end(older);
  EXPECT_EQ(rig.dispatch().size(), 3u);
}

TEST(Places, AGroupThatReservesMakesWayForAnOlderOneThatBecomesReady) {
  PlacesRig rig(2);
  const uint32_t run = rig.scheduler.open_run();
  const uint32_t writer = rig.submit_to(run, {0, 1}, {output(1)});
  const uint32_t older = rig.group(run, {kNone, kNone}, {input(1)});
  rig.dispatch();
  const uint32_t younger = rig.group(run, {kNone, kNone});
  EXPECT_TRUE(rig.dispatch().empty());
  rig.end(writer);
  EXPECT_EQ(rig.dispatch().size(), 2u);
  EXPECT_EQ(rig.state(older), SlotState::kLaunched);
  EXPECT_EQ(rig.state(younger), SlotState::kReady);
  for (size_t i = 0; i < 2; ++i) rig.end(rig.scheduler.member_slot(older, i));
  EXPECT_EQ(rig.dispatch().size(), 2u);
  EXPECT_EQ(rig.state(younger), SlotState::kLaunched);
}

// ---------------------------------------------------------------- nobody is left

TEST(Places, ATaskOfAMadeClassIsStrandedAlthoughOtherWorkersMayCome) {
  PlacesRig rig(2);
  const uint32_t some = rig.cls({0});
  const uint32_t run = rig.scheduler.open_run();
  rig.scheduler.close_worker(0);
  const uint32_t task = rig.submit_to(run, {some, kNone});
  EXPECT_EQ(rig.scheduler.next_stranded(true), task);
  rig.scheduler.skip(task, 1);
  EXPECT_EQ(rig.scheduler.next_stranded(true), std::nullopt);
}

TEST(Places, AGroupOfAMadeClassFailsAlthoughOtherWorkersMayCome) {
  PlacesRig rig(3);
  const uint32_t some = rig.cls({0, 1});
  const uint32_t run = rig.scheduler.open_run();
  const uint32_t group = rig.group(run, {kNone, kNone}, {}, some);
  rig.scheduler.close_worker(0);
  EXPECT_EQ(rig.scheduler.next_stranded(true), group);
  rig.scheduler.skip(group, 1);
  EXPECT_EQ(rig.release().size(), 3u);
  EXPECT_FALSE(rig.scheduler.queues().is_held(1));
}

TEST(Places, AGroupOfAPoolWaitsForWorkersThatMayCome) {
  PlacesRig rig(2);
  const uint32_t run = rig.scheduler.open_run();
  const uint32_t group = rig.group(run, {kNone, kNone});
  rig.scheduler.close_worker(0);
  EXPECT_EQ(rig.scheduler.next_stranded(true), std::nullopt);
  EXPECT_EQ(rig.scheduler.next_stranded(false), group);
}

}  // namespace
}  // namespace strata::sched
