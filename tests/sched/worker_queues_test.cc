#include "sched/worker_queues.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <vector>

#include "base/prng.h"

namespace strata::sched {
namespace {

WorkerQueues opened(uint32_t workers, uint32_t depth) {
  WorkerQueues queues(depth);
  for (uint32_t i = 0; i < workers; ++i) queues.open(queues.add());
  return queues;
}

std::vector<uint32_t> slots_of(const WorkerQueues& queues, uint32_t worker) {
  std::vector<uint32_t> slots;
  queues.for_each_slot(worker, [&](uint32_t slot) { slots.push_back(slot); });
  return slots;
}

std::optional<Assignment> candidate(WorkerQueues& queues) {
  Assignment out;
  if (!queues.take_back_candidate(&out)) return std::nullopt;
  return out;
}

TEST(WorkerQueues, NobodyTakesATaskWhereThereIsNoWorker) {
  EXPECT_EQ(WorkerQueues(4).pick(), kNone);
}

TEST(WorkerQueues, AWorkerTakesNothingBeforeItIsOpen) {
  WorkerQueues queues(4);
  const uint32_t worker = queues.add();
  EXPECT_EQ(queues.pick(), kNone);
  EXPECT_FALSE(queues.is_open(worker));
  EXPECT_EQ(queues.open_count(), 0u);
  queues.open(worker);
  EXPECT_EQ(queues.pick(), worker);
  EXPECT_EQ(queues.open_count(), 1u);
}

TEST(WorkerQueues, AnEmptyWorkerIsPreferredToAnyOther) {
  WorkerQueues queues = opened(3, 4);
  queues.push(queues.pick(), 10);
  queues.push(queues.pick(), 11);
  queues.push(queues.pick(), 12);
  for (uint32_t worker = 0; worker < 3; ++worker) EXPECT_EQ(queues.length(worker), 1u);
}

TEST(WorkerQueues, TheWorkerThatBecameEmptyLastIsTakenFirst) {
  WorkerQueues queues = opened(3, 4);
  for (uint32_t worker = 0; worker < 3; ++worker) queues.push(worker, worker);
  queues.remove(1, 1);
  queues.remove(0, 0);
  queues.remove(2, 2);
  for (const uint32_t worker : {2u, 0u, 1u}) {
    EXPECT_EQ(queues.pick(), worker);
    queues.push(worker, 9);
  }
}

TEST(WorkerQueues, AWorkerWhoseTasksHadAllStartedIsTakenFirstWhenItBecomesEmpty) {
  WorkerQueues queues = opened(2, 4);
  queues.push(0, 1);
  queues.push(0, 2);
  queues.note_spent(0);
  queues.remove(0, 1);
  queues.remove(0, 2);
  EXPECT_EQ(queues.pick(), 0u);
}

TEST(WorkerQueues, WhereNoneIsEmptyTheShortestQueueTakesTheTask) {
  WorkerQueues queues = opened(3, 4);
  for (const uint32_t worker : {0u, 0u, 1u, 2u, 2u}) queues.push(worker, 5);
  EXPECT_EQ(queues.pick(), 1u);
}

TEST(WorkerQueues, FullQueuesTakeNothing) {
  WorkerQueues queues = opened(2, 2);
  for (int i = 0; i < 4; ++i) queues.push(queues.pick(), static_cast<uint32_t>(i));
  EXPECT_EQ(queues.pick(), kNone);
  queues.remove(1, slots_of(queues, 1).front());
  EXPECT_EQ(queues.pick(), 1u);
}

TEST(WorkerQueues, TheGreatestDepthCanBeFilledAndEmptied) {
  constexpr uint32_t kDepth = WorkerQueues::kDepthMax - 1;
  WorkerQueues queues = opened(1, kDepth);
  for (uint32_t round = 0; round < 3; ++round) {
    for (uint32_t i = 0; i < kDepth; ++i) {
      ASSERT_EQ(queues.pick(), 0u);
      queues.push(0, i);
    }
    ASSERT_EQ(queues.pick(), kNone);
    for (uint32_t i = 0; i < kDepth; ++i) queues.remove(0, i);
    ASSERT_EQ(queues.length(0), 0u);
  }
}

TEST(WorkerQueues, ASlotIsRemovedFromTheMiddleAndTheOthersKeepTheirOrder) {
  WorkerQueues queues = opened(1, 8);
  for (uint32_t slot = 1; slot <= 5; ++slot) queues.push(0, slot);
  queues.remove(0, 3);
  EXPECT_EQ(slots_of(queues, 0), (std::vector<uint32_t>{1, 2, 4, 5}));
  queues.remove(0, 5);
  queues.remove(0, 1);
  EXPECT_EQ(slots_of(queues, 0), (std::vector<uint32_t>{2, 4}));
}

TEST(WorkerQueues, ABarredWorkerTakesNothingUntilItIsUnbarred) {
  WorkerQueues queues = opened(1, 4);
  queues.bar(0);
  EXPECT_EQ(queues.pick(), kNone);
  queues.bar(0);
  queues.unbar(0);
  EXPECT_EQ(queues.pick(), 0u);
  queues.unbar(0);
  EXPECT_EQ(queues.pick(), 0u);
}

TEST(WorkerQueues, ABarredWorkerTakesTasksAgainWhenOneOfItsOwnEnds) {
  WorkerQueues queues = opened(1, 4);
  queues.push(0, 1);
  queues.push(0, 2);
  queues.bar(0);
  EXPECT_EQ(queues.pick(), kNone);
  queues.remove(0, 1);
  EXPECT_EQ(queues.pick(), 0u);
  EXPECT_EQ(slots_of(queues, 0), (std::vector<uint32_t>{2}));
}

TEST(WorkerQueues, AClosedWorkerTakesNothingAndGivesUpWhatItHoldsOneByOne) {
  WorkerQueues queues = opened(2, 4);
  queues.push(0, 1);
  queues.push(0, 2);
  queues.close(0);
  queues.close(0);
  EXPECT_EQ(queues.open_count(), 1u);
  EXPECT_EQ(queues.pick(), 1u);
  queues.remove(0, 2);
  queues.remove(0, 1);
  EXPECT_EQ(queues.length(0), 0u);
  queues.push(1, 3);
  EXPECT_EQ(queues.pick(), 1u);
}

TEST(WorkerQueues, ABarredWorkerThatIsClosedDoesNotComeBackByUnbar) {
  WorkerQueues queues = opened(1, 4);
  queues.push(0, 1);
  queues.bar(0);
  queues.close(0);
  queues.unbar(0);
  EXPECT_EQ(queues.pick(), kNone);
  queues.remove(0, 1);
  EXPECT_EQ(queues.pick(), kNone);
}

TEST(WorkerQueues, NothingIsTakenBackWhereNoWorkerIsEmpty) {
  WorkerQueues queues = opened(2, 4);
  queues.push(0, 1);
  queues.push(0, 2);
  queues.push(1, 3);
  EXPECT_FALSE(candidate(queues));
}

TEST(WorkerQueues, NothingIsTakenBackFromAWorkerWithOneTask) {
  WorkerQueues queues = opened(2, 4);
  queues.push(0, 1);
  EXPECT_FALSE(candidate(queues));
}

TEST(WorkerQueues, TheYoungestTaskOfTheLongestQueueIsTakenBack) {
  WorkerQueues queues = opened(3, 4);
  for (const uint32_t slot : {1u, 2u}) queues.push(0, slot);
  for (const uint32_t slot : {3u, 4u, 5u}) queues.push(1, slot);
  const auto found = candidate(queues);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->worker, 1u);
  EXPECT_EQ(found->slot, 5u);
}

TEST(WorkerQueues, AWorkerWhoseTasksHaveAllStartedIsPassedOver) {
  WorkerQueues queues = opened(4, 4);
  for (const uint32_t slot : {1u, 2u, 3u}) queues.push(0, slot);
  for (const uint32_t slot : {4u, 5u, 6u}) queues.push(1, slot);
  for (const uint32_t slot : {7u, 8u}) queues.push(2, slot);
  queues.note_spent(1);
  EXPECT_EQ(candidate(queues)->worker, 0u);
  queues.note_spent(0);
  EXPECT_EQ(candidate(queues)->worker, 2u);
  queues.note_spent(2);
  EXPECT_FALSE(candidate(queues));
}

TEST(WorkerQueues, ANewTaskMakesAWorkerACandidateAgain) {
  WorkerQueues queues = opened(2, 4);
  for (const uint32_t slot : {1u, 2u}) queues.push(0, slot);
  queues.note_spent(0);
  EXPECT_FALSE(candidate(queues));
  queues.push(0, 3);
  EXPECT_EQ(candidate(queues)->slot, 3u);
}

// The same, without lists: looks at every worker.
struct NaiveQueues {
  struct Worker {
    std::deque<uint32_t> slots;
    bool open = false;
    bool barred = false;
    bool all_started = false;
    bool listed() const { return open && !barred; }
  };
  uint32_t depth;
  std::vector<Worker> workers;

  // The shortest length that takes a task.
  std::optional<size_t> shortest() const {
    std::optional<size_t> best;
    for (const Worker& worker : workers) {
      if (!worker.listed() || worker.slots.size() >= depth) continue;
      if (!best || worker.slots.size() < *best) best = worker.slots.size();
    }
    return best;
  }
  // The longest length of two or more with something to take back.
  std::optional<size_t> longest_candidate() const {
    std::optional<size_t> best;
    bool empty = false;
    for (const Worker& worker : workers) {
      if (!worker.listed()) continue;
      empty = empty || worker.slots.empty();
      if (worker.slots.size() < 2 || worker.all_started) continue;
      if (!best || worker.slots.size() > *best) best = worker.slots.size();
    }
    return empty ? best : std::nullopt;
  }
};

void compare(WorkerQueues& queues, const NaiveQueues& model) {
  const auto shortest = model.shortest();
  const uint32_t picked = queues.pick();
  ASSERT_EQ(picked != kNone, shortest.has_value());
  if (shortest) {
    ASSERT_TRUE(model.workers[picked].listed());
    ASSERT_EQ(model.workers[picked].slots.size(), *shortest);
  }
  const auto longest = model.longest_candidate();
  const auto found = candidate(queues);
  ASSERT_EQ(found.has_value(), longest.has_value());
  if (found) {
    const NaiveQueues::Worker& worker = model.workers[found->worker];
    ASSERT_TRUE(worker.listed() && !worker.all_started);
    ASSERT_EQ(worker.slots.size(), *longest);
    ASSERT_EQ(worker.slots.back(), found->slot);
  }
  uint32_t open = 0;
  for (uint32_t i = 0; i < model.workers.size(); ++i) {
    open += model.workers[i].open;
    ASSERT_EQ(queues.is_open(i), model.workers[i].open);
    ASSERT_EQ(queues.length(i), model.workers[i].slots.size());
    ASSERT_TRUE(std::ranges::equal(slots_of(queues, i), model.workers[i].slots));
  }
  ASSERT_EQ(queues.open_count(), open);
}

void random_step(base::Prng& prng, WorkerQueues& queues, NaiveQueues& model, uint32_t* next_slot) {
  const uint32_t at = static_cast<uint32_t>(prng.below(model.workers.size()));
  NaiveQueues::Worker& worker = model.workers[at];
  switch (prng.below(12)) {
    case 0:
      if (worker.open) break;
      queues.open(at);
      worker.open = true;
      break;
    case 1:
      if (!prng.chance(1, 8)) break;
      queues.close(at);
      worker.open = false;
      break;
    case 2:
      if (!worker.open) break;
      queues.bar(at);
      worker.barred = true;
      break;
    case 3:
      queues.unbar(at);
      worker.barred = false;
      break;
    case 4:
      queues.note_spent(at);
      worker.all_started = true;
      break;
    case 5:
    case 6:
    case 7: {
      if (worker.slots.empty()) break;
      const size_t which = prng.chance(1, 2) ? 0 : prng.below(worker.slots.size());
      queues.remove(at, worker.slots[which]);
      worker.slots.erase(worker.slots.begin() + static_cast<std::ptrdiff_t>(which));
      worker.barred = false;
      break;
    }
    default: {
      const uint32_t picked = queues.pick();
      if (picked == kNone) break;
      queues.push(picked, ++*next_slot);
      model.workers[picked].slots.push_back(*next_slot);
      model.workers[picked].all_started = false;
      break;
    }
  }
}

TEST(WorkerQueues, RandomStepsAgreeWithAModelThatLooksAtEveryWorker) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    base::Prng prng(seed);
    const uint32_t depth = static_cast<uint32_t>(prng.between(1, 6));
    WorkerQueues queues(depth);
    NaiveQueues model{depth, {}};
    model.workers.resize(prng.between(1, 7));
    for (size_t i = 0; i < model.workers.size(); ++i) queues.add();
    uint32_t next_slot = 0;
    for (int i = 0; i < 3000; ++i) {
      random_step(prng, queues, model, &next_slot);
      ASSERT_NO_FATAL_FAILURE(compare(queues, model)) << "seed " << seed << " step " << i;
    }
  }
}

}  // namespace
}  // namespace strata::sched
