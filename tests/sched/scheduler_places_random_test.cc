// The Scheduler under random directed tasks, classes and groups, with failures, losses, cancels,
// full rings and take-backs, against a model that keeps every task and looks at every pair: who may
// take what, who goes first, what stands beside a member, and that all comes to its end.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "base/prng.h"
#include "sched/scheduler.h"

namespace strata::sched {
namespace {

constexpr uint32_t kBuffers = 3;
constexpr uint64_t kBytes = 16;

struct Part {
  uint32_t slot = kNone;
  uint32_t wanted = kNone;
  uint32_t at = kNone;  // the worker whose queue it stands in
  bool ended = false;
};
struct Task {
  uint32_t run = 0;
  uint32_t own = kNone;
  uint32_t cls = 0;
  bool is_group = false;
  bool launched = false;
  bool deferred = false;  // a ring had no room for a part of it
  bool terminal = false;
  bool stranded = false;
  Outcome outcome = Outcome::kOk;
  std::vector<Access> accesses;
  std::vector<size_t> after;
  std::vector<Part> parts;
};

bool conflict(const Task& a, const Task& b) {
  for (const Access& x : a.accesses) {
    for (const Access& y : b.accesses) {
      if (x.buffer == y.buffer && (x.writes || y.writes) && x.region.begin < y.region.end() &&
          y.region.begin < x.region.end()) {
        return true;
      }
    }
  }
  return false;
}

class World {
 public:
  explicit World(uint64_t seed)
      : prng_(seed),
        scheduler_({.slots = 32, .depth = static_cast<uint32_t>(1 + seed % 3), .buffers = 3}) {
    const uint64_t workers = prng_.between(2, 6);
    for (uint64_t i = 0; i < workers; ++i) add_worker(static_cast<uint32_t>(prng_.below(2)));
    for (auto& bytes : poison_) bytes.fill(0);
  }

  void random_step() {
    const uint64_t kind = prng_.below(20);
    if (kind == 0) open_or_seal();
    if (kind == 1 && prng_.chance(1, 15)) cancel();
    if (kind == 2 && prng_.chance(1, 3)) lose();
    if (kind == 3) scheduler_.unbar(static_cast<uint32_t>(prng_.below(pools_.size())));
    if (kind == 4) take_back();
    if (kind >= 5 && kind < 8) submit_one();
    if (kind == 8) submit_group();
    if (kind >= 9 && kind < 13) dispatch(true);
    if (kind >= 13) finish_one();
    settle();
  }

  void drain() {
    if (open_run_) seal();
    expected_ = false;
    for (int i = 0; i < 2000 && scheduler_.live() > 0; ++i) {
      for (uint32_t worker = 0; worker < pools_.size(); ++worker) scheduler_.unbar(worker);
      settle();
      dispatch(false);
      if (const auto part = any_queued()) finish(*part, Outcome::kOk, 0);
      settle();
    }
    ASSERT_EQ(scheduler_.live(), 0u) << "something never goes on";
    for (const Task& task : tasks_) ASSERT_TRUE(task.terminal);
    for (uint32_t worker = 0; worker < pools_.size(); ++worker) {
      ASSERT_EQ(scheduler_.queues().length(worker), 0u);
      ASSERT_FALSE(scheduler_.queues().is_held(worker)) << worker;
    }
    ASSERT_FALSE(scheduler_.has_ready());
    ASSERT_FALSE(scheduler_.take_failed_group());
  }
  size_t launched() const { return launched_; }
  size_t failed() const { return failed_; }
  size_t stranded() const { return stranded_; }
  size_t tasks() const { return tasks_.size(); }

 private:
  using Name = std::pair<size_t, size_t>;  // task, part

  void add_worker(uint32_t pool) {
    scheduler_.open_worker(scheduler_.add_worker(pool));
    pools_.push_back(pool);
  }
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

  // ---- submission

  std::vector<Access> draw_accesses() {
    std::vector<Access> out;
    for (uint64_t n = prng_.below(3); n > 0; --n) {
      const uint64_t begin = prng_.below(kBytes / 4) * 4;
      const uint64_t kind = prng_.below(4);
      out.push_back({static_cast<uint32_t>(prng_.below(kBuffers)),
                     graph::Region::range(begin, begin + 4), kind != 0, kind < 2});
    }
    return out;
  }
  std::vector<uint32_t> open_workers(uint32_t pool) {
    std::vector<uint32_t> out;
    for (uint32_t worker = 0; worker < pools_.size(); ++worker) {
      if (pools_[worker] == pool && scheduler_.queues().is_open(worker)) out.push_back(worker);
    }
    return out;
  }
  // A pool, or some of its workers.
  Task draw_task(std::vector<uint32_t>* may) {
    Task task;
    task.run = *open_run_;
    task.cls = static_cast<uint32_t>(prng_.below(2));
    *may = open_workers(task.cls);
    std::vector<uint32_t> some;
    for (const uint32_t worker : *may) {
      if (prng_.chance(1, 2)) some.push_back(worker);
    }
    if (!some.empty() && prng_.chance(1, 3)) {
      const uint32_t cls = scheduler_.class_of(some);
      if (cls != kNone) {
        task.cls = cls;
        classes_[cls] = std::set<uint32_t>(some.begin(), some.end());
        *may = some;
      }
    }
    task.accesses = draw_accesses();
    return task;
  }
  void note(Task task) {
    for (size_t i = 0; i < tasks_.size(); ++i) {
      if (!tasks_[i].terminal && conflict(tasks_[i], task)) task.after.push_back(i);
    }
    by_slot_[task.own] = {tasks_.size(), 0};
    for (size_t part = 0; part < task.parts.size(); ++part) {
      by_slot_[task.parts[part].slot] = {tasks_.size(), part};
    }
    tasks_.push_back(std::move(task));
  }
  void submit_one() {
    if (!open_run_) return;
    std::vector<uint32_t> may;
    Task task = draw_task(&may);
    if (may.empty() || !scheduler_.admits(task.accesses, 8)) return;
    Target target{task.cls, kNone};
    if (prng_.chance(1, 3)) target.worker = may[prng_.below(may.size())];
    task.own = scheduler_.submit(task.run, task.accesses, 8, target);
    task.parts.push_back({task.own, target.worker, kNone, false});
    note(std::move(task));
  }
  void submit_group() {
    if (!open_run_) return;
    std::vector<uint32_t> may;
    Task task = draw_task(&may);
    if (may.empty()) return;
    for (size_t i = may.size(); i > 1; --i) std::swap(may[i - 1], may[prng_.below(i)]);
    const std::vector<size_t> bytes(prng_.between(1, may.size()), 8);
    std::vector<uint32_t> wanted(bytes.size(), kNone);
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (prng_.chance(1, 3)) wanted[i] = may[i];
    }
    const Scheduler::GroupShape shape{.accesses = task.accesses,
                                      .payload_bytes = 8,
                                      .member_payload_bytes = bytes,
                                      .workers = wanted,
                                      .cls = task.cls};
    if (!scheduler_.admits_group(shape)) return;
    task.is_group = true;
    task.own = scheduler_.submit_group(task.run, shape);
    for (size_t i = 0; i < wanted.size(); ++i) {
      task.parts.push_back({scheduler_.member_slot(task.own, i), wanted[i], kNone, false});
    }
    note(std::move(task));
  }

  // ---- dispatch

  bool may_take(const Task& task, size_t part, uint32_t worker) const {
    if (task.parts[part].wanted != kNone) return task.parts[part].wanted == worker;
    if (task.cls < kPools) return pools_[worker] == task.cls;
    return classes_.at(task.cls).contains(worker);
  }
  bool is_ready(const Task& task) const {
    return !task.terminal && !task.launched &&
           std::ranges::all_of(task.after, [&](size_t i) { return tasks_[i].terminal; }) &&
           !poison_read_by(task) && !cancelled_.contains(task.run);
  }
  void dispatch(bool may_refuse) {
    while (const auto assignment = scheduler_.next_assignment()) {
      const auto [number, part] = by_slot_.at(assignment->slot);
      ASSERT_NO_FATAL_FAILURE(check_dispatch(number, part, assignment->worker));
      Task& task = tasks_[number];
      launched_ += task.is_group && !task.launched;
      task.launched = true;
      if (may_refuse && prng_.chance(1, 15)) {
        scheduler_.refused(*assignment);
        task.launched = task.is_group;
        task.deferred = true;
        continue;
      }
      scheduler_.assigned(*assignment, ++ticket_);
      task.parts[part].at = assignment->worker;
    }
  }
  void check_dispatch(size_t number, size_t part, uint32_t worker) {
    const Task& task = tasks_[number];
    for (const size_t producer : task.after) ASSERT_TRUE(tasks_[producer].terminal);
    ASSERT_FALSE(poison_read_by(task));
    ASSERT_FALSE(task.terminal);
    ASSERT_TRUE(may_take(task, part, worker)) << "worker " << worker;
    ASSERT_TRUE(scheduler_.queues().is_open(worker));
    ASSERT_FALSE(scheduler_.queues().is_barred(worker));
    for (size_t other = 0; other < task.parts.size(); ++other) {
      ASSERT_TRUE(other == part || task.parts[other].at != worker) << "two members";
    }
    ASSERT_LT(scheduler_.queues().length(worker), task.is_group ? 1u : 3u);
    scheduler_.queues().for_each_slot(worker, [&](uint32_t slot) {
      ASSERT_FALSE(tasks_[by_slot_.at(slot).first].is_group) << "behind a member";
    });
    if (task.deferred || (task.is_group && task.launched)) return;
    for (size_t older = 0; older < number; ++older) {
      const Task& other = tasks_[older];
      ASSERT_TRUE(other.terminal || other.run >= task.run) << "an earlier run is not done";
      if (!is_ready(other)) continue;
      if (!other.is_group) {
        ASSERT_FALSE(may_take(other, 0, worker))
            << "the oldest goes first: task " << older << " before " << number;
      } else if (task.is_group && other.cls == task.cls) {
        ASSERT_FALSE(could_start(other, task)) << "the oldest group goes first";
      }
    }
  }
  // On the workers of the other one.
  bool could_start(const Task& task, const Task& other) {
    std::set<uint32_t> workers;
    for (const Part& part : other.parts) workers.insert(scheduler_.slot(part.slot).worker);
    if (task.parts.size() > workers.size()) return false;
    return std::ranges::all_of(task.parts, [&](const Part& part) {
      return part.wanted == kNone || workers.contains(part.wanted);
    });
  }

  // ---- ends

  std::optional<Name> any_queued() {
    std::vector<Name> queued;
    for (const auto& [slot, name] : by_slot_) {
      const Task& task = tasks_[name.first];
      if (task.parts[name.second].slot == slot && task.parts[name.second].at != kNone) {
        queued.push_back(name);
      }
    }
    if (queued.empty()) return std::nullopt;
    return queued[prng_.below(queued.size())];
  }
  void finish(Name name, Outcome outcome, uint32_t cause) {
    Part& part = tasks_[name.first].parts[name.second];
    part.at = kNone;
    part.ended = true;
    scheduler_.finish(part.slot, outcome, cause);
  }
  void back(Name name) {
    Task& task = tasks_[name.first];
    task.parts[name.second].at = kNone;
    task.launched = false;
    scheduler_.requeue(task.parts[name.second].slot);
  }
  void finish_one() {
    const auto name = any_queued();
    if (!name) return;
    if (prng_.chance(1, 8)) {
      ++failed_;
      finish(*name, Outcome::kTaskFailed, ++causes_);
    } else {
      finish(*name, Outcome::kOk, 0);
    }
  }
  // Members of failed groups that can still be revoked, and what nobody is left for.
  void settle() {
    while (const auto own = scheduler_.take_failed_group()) {
      const size_t number = by_slot_.at(*own).first;
      for (size_t part = 0; part < tasks_[number].parts.size(); ++part) {
        const Part& is = tasks_[number].parts[part];
        if (scheduler_.slot(is.slot).state == SlotState::kTerminal) continue;
        if (is.at != kNone && prng_.chance(1, 2)) continue;
        finish({number, part}, Outcome::kSkipped, scheduler_.group_cause(*own));
      }
    }
    while (const auto slot = scheduler_.next_stranded(expected_)) {
      ++stranded_;
      const auto name = by_slot_.at(*slot);
      if (scheduler_.slot(*slot).member) {
        finish(name, Outcome::kEndpointFailed, ++causes_);
        continue;
      }
      tasks_[name.first].stranded = true;
      ASSERT_TRUE(lacks_workers(tasks_[name.first]));
      scheduler_.skip(*slot, ++causes_);
    }
    account();
  }
  bool lacks_workers(const Task& task) {
    size_t any = 0;
    size_t open = 0;
    for (const Part& part : task.parts) {
      any += part.wanted == kNone;
      if (part.wanted != kNone && !scheduler_.queues().is_open(part.wanted)) return true;
    }
    for (uint32_t worker = 0; worker < pools_.size(); ++worker) {
      Task one = task;
      one.parts.assign(1, Part{});
      open += scheduler_.queues().is_open(worker) && may_take(one, 0, worker);
    }
    return any > 0 && open < task.parts.size();
  }

  void cancel() {
    if (runs_.empty()) return;
    const uint32_t run = runs_[runs_.size() - 1 - prng_.below(std::min<size_t>(2, runs_.size()))];
    if (scheduler_.run_done(run) || cancelled_.contains(run)) return;
    cancelled_.insert(run);
    const uint32_t cause = ++causes_;
    scheduler_.cancel_run(run, cause);
    for (size_t number = 0; number < tasks_.size(); ++number) {
      Task& task = tasks_[number];
      if (task.run != run || task.terminal) continue;
      for (size_t part = 0; part < task.parts.size(); ++part) {
        if (task.parts[part].at == kNone || prng_.chance(1, 2)) continue;
        if (task.is_group) {
          finish({number, part}, Outcome::kSkipped, cause);
        } else {
          back({number, part});
        }
      }
    }
  }
  void lose() {
    const uint32_t worker = static_cast<uint32_t>(prng_.below(pools_.size()));
    if (!scheduler_.queues().is_open(worker)) return;
    scheduler_.close_worker(worker);
    std::vector<uint32_t> slots;
    scheduler_.queues().for_each_slot(worker, [&](uint32_t slot) { slots.push_back(slot); });
    for (const uint32_t slot : slots) {
      const Name name = by_slot_.at(slot);
      if (tasks_[name.first].is_group || prng_.chance(1, 2)) {
        finish(name, Outcome::kEndpointFailed, ++causes_);
      } else {
        back(name);
      }
    }
    if (prng_.chance(7, 8)) add_worker(pools_[worker]);
  }
  void take_back() {
    const auto candidate = scheduler_.next_take_back();
    if (!candidate) return;
    const Name name = by_slot_.at(candidate->slot);
    ASSERT_EQ(tasks_[name.first].parts[name.second].at, candidate->worker);
    ASSERT_FALSE(tasks_[name.first].is_group);
    ASSERT_EQ(tasks_[name.first].parts[0].wanted, kNone);
    if (prng_.chance(1, 3)) {
      scheduler_.take_back_failed(*candidate);
    } else {
      back(name);
    }
  }

  bool poison_read_by(const Task& task) const {
    for (const Access& access : task.accesses) {
      for (uint64_t at = access.region.begin; access.reads && at < access.region.end(); ++at) {
        if (poison_[access.buffer][at] != 0) return true;
      }
    }
    return false;
  }
  void account() {
    for (const uint32_t slot : scheduler_.terminal()) {
      const Scheduler::Slot& is = scheduler_.slot(slot);
      const auto [number, part] = by_slot_.at(slot);
      Task& task = tasks_[number];
      by_slot_.erase(slot);
      if (is.member) continue;
      ASSERT_FALSE(task.terminal);
      for (const size_t producer : task.after) ASSERT_TRUE(tasks_[producer].terminal);
      if (is.outcome == Outcome::kSkipped) {
        ASSERT_TRUE(cancelled_.contains(task.run) || task.stranded || poison_read_by(task));
      }
      if (is.outcome == Outcome::kOk) {
        for (const Part& one : task.parts) ASSERT_TRUE(one.ended);
      }
      task.terminal = true;
      for (const Access& access : task.accesses) {
        if (!access.writes) continue;
        for (uint64_t at = access.region.begin; at < access.region.end(); ++at) {
          poison_[access.buffer][at] = is.outcome == Outcome::kOk ? 0 : is.cause;
        }
      }
    }
    scheduler_.release_terminal();
    ASSERT_EQ(scheduler_.live(), by_slot_.size());
  }

  base::Prng prng_;
  Scheduler scheduler_;
  bool expected_ = true;
  std::vector<uint32_t> pools_;                     // by worker
  std::map<uint32_t, std::set<uint32_t>> classes_;  // made ones
  std::vector<Task> tasks_;
  std::map<uint32_t, Name> by_slot_;  // of live slots
  std::vector<uint32_t> runs_;
  std::set<uint32_t> cancelled_;
  std::optional<uint32_t> open_run_;
  std::array<std::array<uint32_t, kBytes>, kBuffers> poison_;
  uint32_t causes_ = 0;
  uint64_t ticket_ = 0;
  size_t launched_ = 0;
  size_t failed_ = 0;
  size_t stranded_ = 0;
};

TEST(SchedulerPlacesRandom, PlacesOrderAndEndsAgreeWithAModelThatKeepsEverything) {
  size_t launched = 0;
  size_t failed = 0;
  size_t stranded = 0;
  for (uint64_t seed = 1; seed <= 220; ++seed) {
    World world(seed);
    for (int i = 0; i < 800; ++i) {
      ASSERT_NO_FATAL_FAILURE(world.random_step()) << "seed " << seed << " step " << i;
    }
    ASSERT_NO_FATAL_FAILURE(world.drain()) << "seed " << seed;
    launched += world.launched();
    failed += world.failed();
    stranded += world.stranded();
  }
  EXPECT_GT(launched, 1000u);
  EXPECT_GT(failed, 1000u);
  EXPECT_GT(stranded, 100u);
}

}  // namespace
}  // namespace strata::sched
