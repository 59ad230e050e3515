#include "trace/ring.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <set>
#include <thread>

#include "base/prng.h"
#include "tests/trace/memory.h"

namespace strata::trace {
namespace {

using test::Memory;
using test::task;

TEST(TimelineRing, KeepsTheBeginningInOrderAndCountsWhatDoesNotFit) {
  Memory memory({.rings = 1, .events = 4, .names_bytes = 64});
  Recorder recorder(memory.region(), memory.host(), {7, Role::kSub, "L3/0"});
  ASSERT_TRUE(recorder.on());
  for (uint64_t i = 0; i < 6; ++i) recorder.push(task(i, i, i + 1));
  const std::vector<Region::RingInfo> rings = memory.region().rings();
  ASSERT_EQ(rings.size(), 1u);
  EXPECT_EQ(rings[0].pid, 7u);
  EXPECT_EQ(rings[0].role, Role::kSub);
  EXPECT_EQ(rings[0].path, "L3/0");
  EXPECT_EQ(rings[0].events, 4u);
  EXPECT_EQ(rings[0].dropped, 2u);
  for (uint32_t i = 0; i < 4; ++i) EXPECT_EQ(memory.region().event(0, i).id, i);
}

TEST(TimelineRing, IsOfOneWriterAndTheWritersBeyondTheLastAreCounted) {
  Memory memory({.rings = 2, .events = 4, .names_bytes = 64});
  Recorder first(memory.region(), memory.host(), {1, Role::kParent, "L3"});
  Recorder second(memory.region(), memory.host(), {2, Role::kSub, "L3/0"});
  Recorder third(memory.region(), memory.host(), {3, Role::kSub, "L3/1"});
  EXPECT_FALSE(third.on());
  third.push(task(1, 1, 2));
  third.begin(0, task(1, 1, 2));
  third.end(0, task(1, 1, 2));
  third.mark(task(1, 1, 2));
  EXPECT_EQ(third.name("a"), 0u);
  first.push(task(1, 1, 2));
  ASSERT_EQ(memory.region().rings().size(), 2u);
  EXPECT_EQ(memory.region().rings()[0].events, 1u);
  EXPECT_EQ(memory.region().rings()[1].events, 0u);
  EXPECT_EQ(memory.region().refused(), 1u);
}

TEST(TimelineRing, GivesOneNumberToOneNameUntilItsTableIsFull) {
  Memory memory({.rings = 1, .events = 4, .names_bytes = 16});
  Recorder recorder(memory.region(), memory.host(), {1, Role::kSub, "L3/0"});
  EXPECT_EQ(recorder.name(""), 0u);
  EXPECT_EQ(recorder.name("gemm"), 1u);
  EXPECT_EQ(recorder.name("scale"), 2u);
  EXPECT_EQ(recorder.name("gemm"), 1u);
  EXPECT_EQ(recorder.name("another"), 0u);
  EXPECT_EQ(recorder.name("add"), 3u);
  EXPECT_EQ(memory.region().names(0), (std::vector<std::string>{"", "gemm", "scale", "add"}));
  EXPECT_EQ(memory.region().rings()[0].names_dropped, 1u);
}

TEST(TimelineRing, CutsLongNamesAndPathsOnACharacter) {
  Memory memory({.rings = 1, .events = 4, .names_bytes = 1024});
  const std::string path(1000, 'p');
  Recorder recorder(memory.region(), memory.host(), {1, Role::kSub, path});
  EXPECT_EQ(recorder.name(std::string(254, 'n') + "\xc3\xa4"), 1u);
  EXPECT_EQ(memory.region().names(0)[1], std::string(254, 'n'));
  EXPECT_EQ(memory.region().rings()[0].path, std::string(layout::kPathBytesMax, 'p'));
}

TEST(TimelineRing, AnOpenSpanIsSeenUntilItsEnd) {
  Memory memory;
  Recorder recorder(memory.region(), memory.host(), {1, Role::kSub, "L3/0"});
  recorder.begin(0, task(5, 10, 0));
  ASSERT_EQ(memory.region().open_spans(0).size(), 1u);
  EXPECT_EQ(memory.region().open_spans(0)[0].id, 5u);
  recorder.begin(0, task(6, 20, 0));  // replaces it
  ASSERT_EQ(memory.region().open_spans(0).size(), 1u);
  EXPECT_EQ(memory.region().open_spans(0)[0].id, 6u);
  recorder.end(0, task(6, 20, 30));
  EXPECT_TRUE(memory.region().open_spans(0).empty());
  EXPECT_EQ(memory.region().rings()[0].events, 1u);
}

TEST(TimelineRing, AttachRefusesWhatIsNotThisLayout) {
  Memory memory;
  EXPECT_TRUE(Region::attach(memory.bytes()).ok());
  EXPECT_EQ(Region::attach(memory.bytes())->clock(), ClockKind::kNanoseconds);
  const auto refused = [&](auto&& change) {
    auto* const header = reinterpret_cast<layout::RegionHeader*>(memory.bytes().data());
    const layout::RegionHeader before = *header;
    change(*header);
    const Result<Region> attached = Region::attach(memory.bytes());
    *header = before;
    return !attached.ok() && attached.error().code() == Code::kCorrupt;
  };
  EXPECT_TRUE(refused([](auto& header) { header.magic = 1; }));
  EXPECT_TRUE(refused([](auto& header) { ++header.version; }));
  EXPECT_TRUE(refused([](auto& header) { header.clock = 9; }));
  EXPECT_TRUE(refused([](auto& header) { header.shape.rings = 0; }));
  EXPECT_TRUE(refused([](auto& header) { header.shape.rings = ~0u; }));
  EXPECT_TRUE(refused([](auto& header) { ++header.shape.rings; }));
  EXPECT_TRUE(refused([](auto& header) { header.shape.events = ~0u; }));
  EXPECT_TRUE(refused([](auto& header) { header.shape.names_bytes = ~0u; }));
  EXPECT_FALSE(Region::attach(memory.bytes().first(100)).ok());
  EXPECT_FALSE(Region::attach(memory.bytes().first(memory.bytes().size() - 1)).ok());
  EXPECT_TRUE(Region::attach(memory.bytes()).ok());
}

TEST(TimelineRing, OneThreadMayReadWhileAnotherWrites) {
  constexpr uint64_t kEvents = 100'000;
  Memory memory({.rings = 1, .events = kEvents, .names_bytes = 64});
  std::atomic<bool> end{false};
  std::thread writer([&] {
    Recorder recorder(memory.region(), memory.host(), {1, Role::kSub, "L3/0"});
    for (uint64_t i = 0; i < kEvents; ++i) recorder.push(task(i, i, i + 1));
    end.store(true, std::memory_order_release);
  });
  uint32_t seen = 0;
  for (bool last = false; !last;) {
    last = end.load(std::memory_order_acquire);
    for (const Region::RingInfo& ring : memory.region().rings()) {
      for (; seen < ring.events; ++seen) {
        const Event event = memory.region().event(0, seen);
        ASSERT_EQ(event.id, seen);
        ASSERT_EQ(event.end, uint64_t{seen} + 1);
      }
    }
  }
  writer.join();
  EXPECT_EQ(seen, kEvents);
}

TEST(TimelineRing, ManyThreadsClaimDifferentRings) {
  constexpr uint32_t kThreads = 4;
  constexpr uint32_t kEach = 50;
  Memory memory({.rings = kThreads * kEach, .events = 1, .names_bytes = 8});
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (uint32_t i = 0; i < kEach; ++i) {
        Recorder(memory.region(), memory.host(), {1 + t * kEach + i, Role::kSub, "L3/0"})
            .push(task(t * kEach + i, 1, 2));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::set<uint32_t> pids;
  for (const Region::RingInfo& ring : memory.region().rings()) {
    EXPECT_EQ(memory.region().event(ring.ring, 0).id + 1, ring.pid);
    pids.insert(ring.pid);
  }
  EXPECT_EQ(pids.size(), kThreads * kEach);
  EXPECT_EQ(memory.region().refused(), 0u);
}

// A process is killed while it writes: what is counted is whole, and at most one task is open.
TEST(TimelineRing, AWriterThatIsKilledLeavesWholeEvents) {
  const Shape shape{.rings = 40, .events = 1u << 16, .names_bytes = 4096};
  const size_t bytes = Region::bytes(shape);
  void* const at =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(at, MAP_FAILED);
  const Region region =
      Region::format({static_cast<std::byte*>(at), bytes}, shape, ClockKind::kNanoseconds);
  base::Prng prng(3);
  for (uint32_t round = 0; round < shape.rings; ++round) {
    const uint32_t wanted = static_cast<uint32_t>(prng.below(2000));
    const pid_t pid = ::fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      uint64_t now = 0;
      Recorder recorder(region, {.ticks = &test::ticks_of, .context = &now},
                        {round + 1, Role::kSub, "L3/0"});
      for (uint64_t i = 1;; ++i) {
        Event event = task(i, 3 * i, 3 * i + 1);
        event.name = recorder.name("task " + std::to_string(i % 100));
        recorder.begin(0, event);
        recorder.end(0, event);
      }
    }
    for (bool there = false; !there;) {
      const std::vector<Region::RingInfo> rings = region.rings();
      there = rings.size() == round + 1 && rings.back().events >= wanted;
    }
    ASSERT_EQ(::kill(pid, SIGKILL), 0);
    ASSERT_EQ(::waitpid(pid, nullptr, 0), pid);
    const Region::RingInfo ring = region.rings().back();
    ASSERT_EQ(ring.ring, round);
    const size_t names = region.names(round).size();
    for (uint32_t i = 0; i < ring.events; ++i) {
      const Event event = region.event(round, i);
      ASSERT_EQ(event.id, i + 1u);
      ASSERT_EQ(event.start, 3 * event.id);
      ASSERT_EQ(event.end, 3 * event.id + 1);
      ASSERT_LT(event.name, names);
      ASSERT_GT(event.name, 0u);
    }
    const std::vector<Event> open = region.open_spans(round);
    ASSERT_LE(open.size(), 1u);
    if (!open.empty() && ring.dropped == 0) {
      // The one after the last whole one, or the last where the kill came before its end was told.
      ASSERT_GE(open[0].id, ring.events);
      ASSERT_LE(open[0].id, ring.events + 1u);
    }
  }
  ::munmap(at, bytes);
}

}  // namespace
}  // namespace strata::trace
