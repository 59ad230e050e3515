// The Scheduler under random tasks, outcomes, cancels, losses and take-backs, against a model that
// knows bytes only: it keeps every task for ever and looks at every pair.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <vector>

#include "base/prng.h"
#include "sched/scheduler.h"

namespace strata::sched {
namespace {

constexpr uint32_t kBuffers = 3;
constexpr uint64_t kBytes = 24;

struct Task {
  uint32_t run = 0;
  uint32_t slot = 0;
  std::vector<Access> accesses;
  std::vector<size_t> after;  // tasks that it must come after
  bool terminal = false;
  Outcome outcome = Outcome::kOk;
  uint32_t cause = 0;
};

bool conflict(const Access& a, const Access& b) {
  return a.buffer == b.buffer && (a.writes || b.writes) && (a.reads || a.writes) &&
         (b.reads || b.writes) && a.region.begin < b.region.end() &&
         b.region.begin < a.region.end();
}
bool conflict(const Task& a, const Task& b) {
  for (const Access& x : a.accesses) {
    for (const Access& y : b.accesses) {
      if (conflict(x, y)) return true;
    }
  }
  return false;
}

class World {
 public:
  World(uint64_t seed, uint32_t workers)
      : prng_(seed), scheduler_({.slots = 24, .depth = 3, .buffers = kBuffers}) {
    for (uint32_t i = 0; i < workers; ++i) scheduler_.open_worker(scheduler_.add_worker());
    for (auto& bytes : poison_) bytes.fill(0);
  }

  void random_step() {
    switch (prng_.below(16)) {
      case 0:
        open_or_seal();
        break;
      case 1:
        if (prng_.chance(1, 20)) cancel();
        break;
      case 2:
        refuse_or_unbar();
        break;
      case 3:
        if (prng_.chance(1, 4)) lose_and_replace();
        break;
      case 4:
        take_back();
        break;
      case 5:
      case 6:
      case 7:
        submit();
        break;
      case 8:
      case 9:
      case 10:
        dispatch();
        break;
      default:
        finish_one();
        break;
    }
    check();
  }

  void drain() {
    if (open_run_) seal();
    for (int i = 0; i < 1000 && scheduler_.live() > 0; ++i) {
      for (uint32_t worker = 0; worker < scheduler_.queues().size(); ++worker) {
        scheduler_.unbar(worker);
      }
      dispatch();
      while (!queued_.empty()) end(queued_.begin()->first, Outcome::kOk, 0);
      check();
    }
    ASSERT_EQ(scheduler_.live(), 0u);
    for (const Task& task : tasks_) ASSERT_TRUE(task.terminal);
    ASSERT_EQ(scheduler_.tensor_map().live_accesses(), 0u);
    for (const uint32_t run : runs_) ASSERT_TRUE(scheduler_.run_done(run));
    ASSERT_TRUE(scheduler_.can_open_run());
    ASSERT_FALSE(scheduler_.has_ready());
    ASSERT_TRUE(scheduler_.admits({}, 100'000));
  }
  size_t tasks() const { return tasks_.size(); }
  size_t skipped() const { return skipped_; }

 private:
  void seal() {
    scheduler_.seal_run(*open_run_);
    open_run_.reset();
  }
  void open_or_seal() {
    if (open_run_) {
      seal();
    } else if (scheduler_.can_open_run()) {
      open_run_ = scheduler_.open_run();
      runs_.push_back(*open_run_);
    }
  }

  void submit() {
    if (!open_run_) return;
    Task task;
    task.run = *open_run_;
    for (uint64_t n = prng_.below(4); n > 0; --n) {
      const uint64_t begin = prng_.below(kBytes / 4) * 4;
      const uint64_t end = std::min(kBytes, begin + 4 * prng_.between(1, 4));
      const uint64_t kind = prng_.below(8);
      task.accesses.push_back({static_cast<uint32_t>(prng_.below(kBuffers)),
                               graph::Region::range(begin, end), kind < 5 && kind != 0,
                               kind < 1 || (kind >= 3 && kind < 7)});
    }
    if (!scheduler_.admits(task.accesses, 16)) return;
    for (size_t i = 0; i < tasks_.size(); ++i) {
      if (!tasks_[i].terminal && conflict(tasks_[i], task)) task.after.push_back(i);
    }
    task.slot = scheduler_.submit(task.run, task.accesses, 16);
    by_slot_[task.slot] = tasks_.size();
    tasks_.push_back(std::move(task));
  }

  void dispatch() {
    std::optional<uint64_t> last_order;
    while (const auto assignment = scheduler_.next_assignment()) {
      const Task& task = tasks_[by_slot_.at(assignment->slot)];
      for (const size_t producer : task.after) ASSERT_TRUE(tasks_[producer].terminal);
      for (const Task& other : tasks_) {
        ASSERT_TRUE(other.terminal || other.run >= task.run) << "an earlier run is not done";
      }
      ASSERT_FALSE(reads_poison(task)) << "it was to be skipped";
      ASSERT_FALSE(cancelled_.contains(task.run));
      const uint64_t order = scheduler_.slot(assignment->slot).order;
      ASSERT_TRUE(!last_order || order > *last_order) << "the oldest goes first";
      last_order = order;
      scheduler_.assigned(*assignment, ++ticket_);
      queued_[assignment->slot] = assignment->worker;
    }
  }

  void finish_one() {
    if (queued_.empty()) return;
    auto it = queued_.begin();
    std::advance(it, static_cast<std::ptrdiff_t>(prng_.below(queued_.size())));
    if (prng_.chance(1, 6)) {
      const bool task = prng_.chance(1, 2);
      end(it->first, task ? Outcome::kTaskFailed : Outcome::kEndpointFailed, ++causes_);
    } else {
      end(it->first, Outcome::kOk, 0);
    }
  }
  void end(uint32_t slot, Outcome outcome, uint32_t cause) {
    queued_.erase(slot);
    scheduler_.finish(slot, outcome, cause);
  }

  void cancel() {
    if (runs_.empty()) return;
    const uint32_t run = runs_[runs_.size() - 1 - prng_.below(std::min<size_t>(2, runs_.size()))];
    if (scheduler_.run_done(run)) return;
    cancelled_.emplace(run, ++causes_);
    scheduler_.cancel_run(run, cancelled_.at(run));
    // Those at workers go back where they can still be revoked.
    for (auto it = queued_.begin(); it != queued_.end();) {
      const auto at = it++;
      if (tasks_[by_slot_.at(at->first)].run != run || prng_.chance(1, 2)) continue;
      const uint32_t slot = at->first;
      queued_.erase(at);
      scheduler_.requeue(slot);
    }
  }

  void refuse_or_unbar() {
    if (prng_.chance(1, 2)) {
      if (const auto assignment = scheduler_.next_assignment()) scheduler_.refused(*assignment);
    } else {
      scheduler_.unbar(static_cast<uint32_t>(prng_.below(scheduler_.queues().size())));
    }
  }

  void lose_and_replace() {
    const uint32_t worker = static_cast<uint32_t>(prng_.below(scheduler_.queues().size()));
    if (!scheduler_.queues().is_open(worker)) return;
    scheduler_.close_worker(worker);
    std::vector<uint32_t> slots;
    scheduler_.queues().for_each_slot(worker, [&](uint32_t slot) { slots.push_back(slot); });
    for (const uint32_t slot : slots) {
      queued_.erase(slot);
      if (prng_.chance(1, 2)) {
        scheduler_.requeue(slot);
      } else {
        scheduler_.finish(slot, Outcome::kEndpointFailed, ++causes_);
      }
    }
    scheduler_.open_worker(scheduler_.add_worker());
  }

  void take_back() {
    const auto candidate = scheduler_.next_take_back();
    if (!candidate) return;
    ASSERT_EQ(queued_.at(candidate->slot), candidate->worker);
    if (prng_.chance(1, 3)) {
      scheduler_.take_back_failed(*candidate);
      return;
    }
    queued_.erase(candidate->slot);
    scheduler_.requeue(candidate->slot);
  }

  bool reads_poison(const Task& task) const {
    for (const Access& access : task.accesses) {
      if (!access.reads) continue;
      for (uint64_t at = access.region.begin; at < access.region.end(); ++at) {
        if (poison_[access.buffer][at] != 0) return true;
      }
    }
    return false;
  }

  // Accounts for what became terminal, in that order, and so in an order of execution.
  void check() {
    for (const uint32_t slot : scheduler_.terminal()) {
      Task& task = tasks_[by_slot_.at(slot)];
      const Scheduler::Slot& is = scheduler_.slot(slot);
      ASSERT_FALSE(task.terminal);
      for (const size_t producer : task.after) ASSERT_TRUE(tasks_[producer].terminal);
      if (is.outcome == Outcome::kSkipped) {
        ++skipped_;
        const auto cancel = cancelled_.find(task.run);
        ASSERT_TRUE(cancel != cancelled_.end() ? cancel->second == is.cause
                                               : is_poison_it_reads(task, is.cause))
            << "skipped for nothing";
      }
      task.terminal = true;
      for (const Access& access : task.accesses) {
        if (!access.writes) continue;
        for (uint64_t at = access.region.begin; at < access.region.end(); ++at) {
          poison_[access.buffer][at] = is.outcome == Outcome::kOk ? 0 : is.cause;
        }
      }
      by_slot_.erase(slot);
    }
    scheduler_.release_terminal();
    for (uint32_t buffer = 0; buffer < kBuffers; ++buffer) {
      for (uint64_t at = 0; at < kBytes; ++at) {
        const auto cause = scheduler_.poison().cause_of(buffer, graph::Region::range(at, at + 1));
        ASSERT_EQ(cause.value_or(0), poison_[buffer][at]);
      }
    }
    ASSERT_EQ(scheduler_.live(), by_slot_.size());
    // Whoever waits, waits for somebody.
    for (const auto& [slot, index] : by_slot_) {
      const Task& task = tasks_[index];
      const bool blocked = std::ranges::any_of(
          task.after, [&](size_t producer) { return !tasks_[producer].terminal; });
      ASSERT_EQ(scheduler_.slot(slot).state == SlotState::kWaiting, blocked);
    }
  }
  bool is_poison_it_reads(const Task& task, uint32_t cause) const {
    for (const Access& access : task.accesses) {
      if (!access.reads) continue;
      for (uint64_t at = access.region.begin; at < access.region.end(); ++at) {
        if (poison_[access.buffer][at] == cause) return true;
      }
    }
    return false;
  }

  base::Prng prng_;
  Scheduler scheduler_;
  std::vector<Task> tasks_;
  std::map<uint32_t, size_t> by_slot_;   // live tasks
  std::map<uint32_t, uint32_t> queued_;  // slot to worker
  std::vector<uint32_t> runs_;
  std::map<uint32_t, uint32_t> cancelled_;  // run to cause
  std::optional<uint32_t> open_run_;
  std::array<std::array<uint32_t, kBytes>, kBuffers> poison_;
  uint32_t causes_ = 0;
  uint64_t ticket_ = 0;
  size_t skipped_ = 0;
};

TEST(SchedulerRandom, OrderPoisonAndAccountsAgreeWithAModelOfBytes) {
  size_t tasks = 0;
  size_t skipped = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    World world(seed, static_cast<uint32_t>(1 + seed % 4));
    for (int i = 0; i < 1500; ++i) {
      ASSERT_NO_FATAL_FAILURE(world.random_step()) << "seed " << seed << " step " << i;
      if (::testing::Test::HasFatalFailure()) FAIL() << "seed " << seed << " step " << i;
    }
    ASSERT_NO_FATAL_FAILURE(world.drain()) << "seed " << seed;
    tasks += world.tasks();
    skipped += world.skipped();
  }
  EXPECT_GT(tasks, 5000u);
  EXPECT_GT(skipped, 500u);
  EXPECT_LT(skipped, tasks);
}

// Long runs of one scheduler: nothing is used up that does not come back.
TEST(SchedulerRandom, AFullSchedulerAdmitsAsMuchAfterManyTasksAsAtFirst) {
  Scheduler scheduler({.slots = 16, .depth = 4, .buffers = 8});
  scheduler.open_worker(scheduler.add_worker());
  base::Prng prng(7);
  const uint32_t run = scheduler.open_run();
  uint64_t ticket = 0;
  for (int round = 0; round < 600; ++round) {
    uint32_t submitted = 0;
    for (;; ++submitted) {
      std::vector<Access> accesses;
      for (uint64_t n = prng.between(1, 6); n > 0; --n) {
        const uint64_t begin = prng.below(1000);
        accesses.push_back({static_cast<uint32_t>(prng.below(8)),
                            graph::Region::range(begin, begin + prng.between(1, 300)),
                            prng.chance(1, 2), prng.chance(1, 2)});
      }
      const size_t payload = prng.below(5000);
      if (!scheduler.admits(accesses, payload)) break;
      scheduler.submit(run, accesses, payload);
    }
    ASSERT_EQ(submitted, 16u) << "round " << round;
    while (scheduler.live() > 0) {
      std::vector<uint32_t> slots;
      while (const auto assignment = scheduler.next_assignment()) {
        scheduler.assigned(*assignment, ++ticket);
        slots.push_back(assignment->slot);
      }
      for (const uint32_t slot : slots) {
        const bool fails = prng.chance(1, 8);
        scheduler.finish(slot, fails ? Outcome::kTaskFailed : Outcome::kOk, fails ? 1 : 0);
      }
      scheduler.release_terminal();
    }
    for (uint32_t buffer = 0; buffer < 8; ++buffer) scheduler.poison().clear(buffer);
  }
}

}  // namespace
}  // namespace strata::sched
