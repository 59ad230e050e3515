#include "sim/memory.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>

namespace strata::sim {
namespace {

// Two processes each store to their own word and load the other's; gives what they loaded, over
// many seeds.
std::set<std::pair<int, int>> store_buffering(bool fenced) {
  std::set<std::pair<int, int>> seen;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    Scheduler scheduler(seed);
    World world(&scheduler, seed + 1000);
    uint32_t words[2] = {0, 0};
    int loaded[2] = {-1, -1};
    for (int me = 0; me < 2; ++me) {
      Process* const process = world.make_process();
      process->adopt(scheduler.spawn("process", [&, me, process] {
        const SimMemory memory(process);
        memory.store_relaxed(&words[me], 1u);
        if (fenced) memory.fence();
        loaded[me] = static_cast<int>(memory.load_relaxed(&words[1 - me]));
      }));
    }
    EXPECT_EQ(scheduler.run(10'000), Scheduler::Stop::kEnded);
    seen.emplace(loaded[0], loaded[1]);
  }
  return seen;
}

TEST(SimMemory, WithoutFencesBothMayMissTheOthersStore) {
  EXPECT_TRUE(store_buffering(false).contains({0, 0}));
}

TEST(SimMemory, WithFencesOneOfThemSeesTheOther) {
  const auto seen = store_buffering(true);
  EXPECT_FALSE(seen.contains({0, 0}));
  EXPECT_EQ(seen.size(), 3u);
}

TEST(SimMemory, StoresOfOneProcessAreSeenInTheirOrder) {
  bool saw_second = false;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    Scheduler scheduler(seed);
    World world(&scheduler, seed + 1000);
    uint32_t first = 0;
    uint32_t second = 0;
    Process* const writer = world.make_process();
    Process* const reader = world.make_process();
    scheduler.spawn("writer", [&] {
      const SimMemory memory(writer);
      memory.store_relaxed(&first, 1u);
      memory.store_relaxed(&second, 1u);
      for (int i = 0; i < 50; ++i) memory.load_relaxed(&first);
    });
    scheduler.spawn("reader", [&] {
      const SimMemory memory(reader);
      if (memory.load_acquire(&second) == 0) return;
      saw_second = true;
      EXPECT_EQ(memory.load_relaxed(&first), 1u);
    });
    scheduler.run(10'000);
  }
  EXPECT_TRUE(saw_second);
}

TEST(SimMemory, AProcessSeesItsOwnStoresAtOnce) {
  Scheduler scheduler(1);
  World world(&scheduler, 2);
  alignas(8) std::byte bytes[64]{};
  Process* const process = world.make_process();
  scheduler.spawn("process", [&] {
    const SimMemory memory(process);
    uint32_t* const low = reinterpret_cast<uint32_t*>(bytes);
    uint64_t* const wide = reinterpret_cast<uint64_t*>(bytes);
    memory.store_relaxed(low, 5u);
    EXPECT_EQ(memory.load_relaxed(low), 5u);
    EXPECT_EQ(memory.load_relaxed(wide), 5u);  // a part cannot be forwarded
    memory.store_relaxed(wide, uint64_t{7} << 32 | 6);
    EXPECT_EQ(memory.load_relaxed(low + 1), 7u);
    EXPECT_EQ(memory.fetch_add(low, 1u), 6u);
    EXPECT_FALSE(memory.compare_exchange(low, 6u, 9u));
    EXPECT_TRUE(memory.compare_exchange(low, 7u, 9u));
    EXPECT_EQ(memory.load_relaxed(low), 9u);
  });
  EXPECT_EQ(scheduler.run(10'000), Scheduler::Stop::kEnded);
}

// Twenty stores; death after any number of them leaves exactly a prefix.
TEST(SimMemory, DeathFallsBetweenTwoStores) {
  std::set<uint32_t> prefixes;
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    Scheduler scheduler(seed);
    World world(&scheduler, seed + 1000);
    uint32_t words[20] = {};
    Process* const process = world.make_process();
    process->adopt(scheduler.spawn("process", [&] {
      const SimMemory memory(process);
      struct AtExit {
        const SimMemory& memory;
        uint32_t* words;
        bool ended = false;
        // While it is unwound: must change nothing.
        ~AtExit() {
          if (!ended) memory.store_relaxed(words, 77u);
        }
      } at_exit{memory, words};
      for (uint32_t& word : words) memory.store_relaxed(&word, 1u);
      at_exit.ended = true;
    }));
    scheduler.spawn("death", [&] {
      for (uint64_t n = seed % 25; n > 0; --n) scheduler.yield();
      process->die();
    });
    EXPECT_EQ(scheduler.run(10'000), Scheduler::Stop::kEnded);
    uint32_t written = 0;
    while (written < 20 && words[written] == 1) ++written;
    for (uint32_t i = written; i < 20; ++i) EXPECT_EQ(words[i], 0u);
    prefixes.insert(written);
  }
  EXPECT_GT(prefixes.size(), 12u);
}

TEST(SimMemory, CopiesCanBeSeenInPieces) {
  bool torn = false;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    Scheduler scheduler(seed);
    World world(&scheduler, seed + 1000);
    std::byte to[128]{};
    std::byte from[128];
    std::fill(std::begin(from), std::end(from), std::byte{1});
    Process* const process = world.make_process();
    bool done = false;
    scheduler.spawn("process", [&] {
      SimMemory(process).write_bytes(to, from, sizeof from);
      process->drain();
      done = true;
    });
    scheduler.spawn("watcher", [&] {
      while (!done) {
        torn |= to[0] != to[127];
        scheduler.yield();
      }
    });
    EXPECT_EQ(scheduler.run(10'000), Scheduler::Stop::kEnded);
    EXPECT_EQ(to[127], std::byte{1});
  }
  EXPECT_TRUE(torn);
}

}  // namespace
}  // namespace strata::sim
