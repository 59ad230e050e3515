#include "sched/ready_queue.h"

#include <gtest/gtest.h>

#include <set>

#include "base/prng.h"

namespace strata::sched {
namespace {

TEST(ReadyQueue, ANewQueueIsEmpty) {
  ReadyQueue queue;
  EXPECT_TRUE(queue.empty());
  EXPECT_EQ(queue.size(), 0u);
}

TEST(ReadyQueue, EntriesInOrderComeOutInOrder) {
  ReadyQueue queue;
  for (uint32_t i = 1; i <= 1000; ++i) queue.push({i, i + 7});
  EXPECT_EQ(queue.size(), 1000u);
  for (uint32_t i = 1; i <= 1000; ++i) {
    const ReadyQueue::Entry entry = queue.pop();
    EXPECT_EQ(entry.order, i);
    EXPECT_EQ(entry.slot, i + 7);
  }
  EXPECT_TRUE(queue.empty());
}

TEST(ReadyQueue, AnEntryOlderThanAllOthersComesOutFirst) {
  ReadyQueue queue;
  for (const uint64_t order : {5, 6, 9, 2, 7, 1, 10}) queue.push({order, 0});
  for (const uint64_t order : {1, 2, 5, 6, 7, 9, 10}) EXPECT_EQ(queue.pop().order, order);
}

TEST(ReadyQueue, AnEntryThatWasTakenAndPutBackKeepsItsPlace) {
  ReadyQueue queue;
  for (const uint64_t order : {1, 2, 3}) queue.push({order, 0});
  queue.push(queue.pop());
  for (const uint64_t order : {1, 2, 3}) EXPECT_EQ(queue.pop().order, order);
}

TEST(ReadyQueue, GrowthInTheMiddleOfAWrapLosesNothing) {
  ReadyQueue queue;
  uint64_t pushed = 0;
  uint64_t popped = 0;
  // The ring begins with 256 places: leave its front in the middle, then fill it beyond.
  for (int i = 0; i < 200; ++i) queue.push({++pushed, 0});
  for (int i = 0; i < 150; ++i) ASSERT_EQ(queue.pop().order, ++popped);
  for (int i = 0; i < 5000; ++i) queue.push({++pushed, 0});
  while (!queue.empty()) ASSERT_EQ(queue.pop().order, ++popped);
  EXPECT_EQ(popped, pushed);
}

TEST(ReadyQueue, RandomOrdersComeOutAsFromASortedSet) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    base::Prng prng(seed);
    ReadyQueue queue;
    std::set<uint64_t> model;
    uint64_t next = 0;
    for (int i = 0; i < 20'000; ++i) {
      if (prng.chance(1, 2)) {
        // Mostly newer than all, sometimes one that was left out before.
        const uint64_t order = prng.chance(1, 4) ? prng.below(next + 1) : next += prng.below(3) + 1;
        if (!model.insert(order).second) continue;
        queue.push({order, static_cast<uint32_t>(order)});
      } else if (!model.empty()) {
        const ReadyQueue::Entry entry = queue.pop();
        ASSERT_EQ(entry.order, *model.begin()) << "seed " << seed;
        ASSERT_EQ(entry.slot, static_cast<uint32_t>(entry.order));
        model.erase(model.begin());
      }
      ASSERT_EQ(queue.size(), model.size());
      ASSERT_EQ(queue.empty(), model.empty());
    }
  }
}

}  // namespace
}  // namespace strata::sched
