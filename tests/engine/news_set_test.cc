#include "engine/news_set.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <set>
#include <thread>
#include <vector>

namespace strata::engine {
namespace {

std::vector<uint32_t> drained(NewsSet& set) {
  std::vector<uint32_t> out;
  set.drain([&](uint32_t worker) { out.push_back(worker); });
  return out;
}

TEST(NewsSet, WhatIsNotedIsDrainedOnce) {
  NewsSet set;
  set.cover(9'999);
  EXPECT_FALSE(set.any());
  const std::vector<uint32_t> noted = {0, 1, 63, 64, 4'095, 4'096, 9'999};
  for (const uint32_t worker : noted) set.note(worker);
  set.note(64);
  EXPECT_TRUE(set.any());
  EXPECT_EQ(drained(set), noted);
  EXPECT_FALSE(set.any());
  EXPECT_TRUE(drained(set).empty());
}

TEST(NewsSet, ALargerCoverKeepsWhatIsNoted) {
  NewsSet set;
  set.cover(0);
  set.note(0);
  set.cover(NewsSet::kWorkersMax - 1);
  set.note(NewsSet::kWorkersMax - 1);
  EXPECT_EQ(drained(set), (std::vector<uint32_t>{0, NewsSet::kWorkersMax - 1}));
}

TEST(NewsSet, AWorkerNotedInsideItsDrainIsThereTheNextTime) {
  NewsSet set;
  set.cover(200);
  set.note(7);
  std::vector<uint32_t> first;
  set.drain([&](uint32_t worker) {
    first.push_back(worker);
    if (first.size() > 1) return;
    set.note(7);
    set.note(200);
  });
  EXPECT_EQ(first.front(), 7u);
  EXPECT_TRUE(set.any());
  std::vector<uint32_t> second = drained(set);
  second.insert(second.end(), first.begin() + 1, first.end());
  std::ranges::sort(second);
  EXPECT_EQ(second, (std::vector<uint32_t>{7, 200}));
}

TEST(NewsSetDeathTest, NoMoreWorkersThanBits) {
  NewsSet set;
  EXPECT_DEATH(set.cover(NewsSet::kWorkersMax), "");
}

// Each thread counts up what it has brought, then notes; two threads share each worker. A drain
// that comes after the last note must have seen all of it.
TEST(NewsSet, NoNoteIsLostBetweenThreads) {
  constexpr uint32_t kThreads = 4, kEach = 20'000;
  const std::vector<uint32_t> workers = {0, 5, 63, 64, 4'000, 4'096, 70'000};
  NewsSet set;
  set.cover(workers.back());
  auto brought = std::make_unique<std::atomic<uint32_t>[]>(workers.back() + 1);
  std::atomic<uint32_t> ended{0};
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (uint32_t i = 0; i < kEach; ++i) {
        const uint32_t worker = workers[(i + t) % workers.size()];
        brought[worker].fetch_add(1, std::memory_order_relaxed);
        set.note(worker);
      }
      ended.fetch_add(1, std::memory_order_release);
    });
  }
  uint32_t taken = 0;
  const auto take = [&](uint32_t worker) {
    taken += brought[worker].exchange(0, std::memory_order_relaxed);
  };
  while (ended.load(std::memory_order_acquire) < kThreads) {
    set.drain(take);
    std::this_thread::yield();
  }
  for (std::thread& thread : threads) thread.join();
  set.drain(take);
  EXPECT_EQ(taken, kThreads * kEach);
  EXPECT_FALSE(set.any());
}

}  // namespace
}  // namespace strata::engine
