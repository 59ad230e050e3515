// Which ready task goes to which worker: directed tasks, groups, classes, rebalancing.
#include <algorithm>
#include <bit>

#include "base/check.h"
#include "base/fault.h"
#include "base/mark.h"
#include "sched/scheduler.h"

namespace strata::sched {

// ---------------------------------------------------------------- workers and classes

void Scheduler::open_worker(uint32_t worker) {
  queues_.open(worker);
  ++membership_;
  activate(worker);
}

void Scheduler::close_worker(uint32_t worker, bool returns) {
  queues_.close(worker, returns);
  ++membership_;
  for (Run& run : runs_) {
    if (!returns && worker < run.directed.size() && !run.directed[worker].empty()) {
      run.stranded.push_back(worker);
    }
    if (run.head_group == kNone) continue;
    Group& group = groups_[slots_[run.head_group].group];
    bool had = std::erase(group.reserved, worker) > 0;
    for (size_t i = 0; i < group.wanted.size(); ++i) {
      if (group.wanted[i] != worker || !group.got[i]) continue;
      group.got[i] = false;
      had = true;
    }
    if (had) queues_.release(worker);
  }
}

uint32_t Scheduler::class_of(std::span<const uint32_t> workers) {
  uint32_t unused = kNone;
  for (uint32_t cls = kPools; cls < class_workers_.size(); ++cls) {
    const std::vector<uint32_t>& known = class_workers_[cls];
    if (std::equal(known.begin(), known.end(), workers.begin(), workers.end())) return cls;
    if (!known.empty() && class_users_[cls] == 0) unused = cls;
  }
  uint32_t cls = queues_.make_class(workers);
  if (cls == kNone) {
    if (unused == kNone) return kNone;
    STRATA_MARK("sched: a class that nothing uses makes way");
    queues_.drop_class(unused);
    class_workers_[unused].clear();
    cls = queues_.make_class(workers);
  }
  class_workers_[cls].assign(workers.begin(), workers.end());
  class_stamps_[cls] = ++stamps_;
  return cls;
}

void Scheduler::activate(uint32_t worker) {
  for (Run& run : runs_) {
    if (worker >= run.directed.size() || run.directed[worker].empty()) continue;
    if (run.is_active[worker]) continue;
    run.is_active[worker] = true;
    run.active.push_back(worker);
  }
}

// ---------------------------------------------------------------- single tasks

uint32_t Scheduler::pop_shared(Run& run, uint32_t cls) {
  const uint32_t slot = run.shared[cls].pop().slot;
  if (run.shared[cls].empty()) run.shared_classes &= ~(uint64_t{1} << cls);
  --run.ready;
  return slot;
}

// What the worker may take, whether it has room or not; directed where it is of no class.
Scheduler::Oldest Scheduler::oldest_for(const Run& run, uint32_t worker) const {
  Oldest oldest;
  if (worker < run.directed.size() && !run.directed[worker].empty()) {
    oldest.order = run.directed[worker].front_order();
  }
  for (uint64_t bits = queues_.classes_of(worker) & run.shared_classes; bits != 0;
       bits &= bits - 1) {
    const auto cls = static_cast<uint32_t>(std::countr_zero(bits));
    if (run.shared[cls].front_order() < oldest.order) oldest = {run.shared[cls].front_order(), cls};
  }
  return oldest;
}

// The worker has room and something to take: the oldest. A shared task goes to whoever takes it
// best, if that one may not take an older one still.
Assignment Scheduler::give_oldest(Run& run, uint32_t worker, bool wake) {
  for (;;) {
    const Oldest oldest = oldest_for(run, worker);
    if (oldest.cls == kNone) {
      --run.ready;
      return Assignment{run.directed[worker].pop().slot, worker};
    }
    const uint32_t taker = queues_.pick(wake, oldest.cls);
    // Where nobody is awake for it this worker is woken anyway, for its own.
    if (taker == kNone || taker == worker) return Assignment{pop_shared(run, oldest.cls), worker};
    worker = taker;
  }
}

std::optional<Assignment> Scheduler::place_directed(Run& run, uint64_t before, bool wake) {
  for (size_t i = run.active.size(); i-- > 0;) {
    const uint32_t worker = run.active[i];
    ReadyQueue& queue = run.directed[worker];
    if (queue.empty() || !queues_.has_room(worker)) {
      run.is_active[worker] = false;
      run.active[i] = run.active.back();
      run.active.pop_back();
      continue;
    }
    if (queue.front_order() < before) return give_oldest(run, worker, wake);
  }
  return std::nullopt;
}

std::optional<Assignment> Scheduler::next_take_back(bool wake) {
  if (first_run_ == next_run_) return std::nullopt;
  const Run& run = run_of(first_run_);
  for (uint32_t cls = 0; cls < queues_.class_count(); ++cls) {
    if (cls >= kPools && class_users_[cls] == 0) continue;
    if ((run.shared_classes >> cls & 1) != 0) continue;  // that comes first
    Assignment out;
    const auto takes = [&](uint32_t slot) {
      return slots_[slot].cls == cls && slots_[slot].directed == kNone && !slots_[slot].member;
    };
    if (queues_.take_back_candidate(&out, wake, cls, takes)) return out;
  }
  return std::nullopt;
}

std::optional<uint32_t> Scheduler::next_stranded(bool expected) {
  if (first_run_ == next_run_) return std::nullopt;
  Run& run = run_of(first_run_);
  for (const Assignment& launch : run.launching) {
    // Members go to open workers: this one was lost, and a group goes together.
    if (!queues_.is_open(launch.worker)) return launch.slot;
  }
  while (!run.stranded.empty()) {
    const uint32_t worker = run.stranded.back();
    if (run.directed[worker].empty() || !queues_.is_closed(worker)) {
      run.stranded.pop_back();
      continue;
    }
    --run.ready;
    return run.directed[worker].pop().slot;
  }
  if (run.ready == 0) return std::nullopt;
  while (run.head_group != kNone || !run.groups.empty()) {
    head_group_order(run);
    Group& group = groups_[slots_[run.head_group].group];
    if (group.checked == membership_) break;
    if (feasible(group, expected)) {
      if (!expected) group.checked = membership_;
      break;
    }
    STRATA_MARK("sched: a group has no longer enough workers");
    give_back(group);
    --run.ready;
    return std::exchange(run.head_group, kNone);
  }
  for (uint64_t bits = run.shared_classes; bits != 0; bits &= bits - 1) {
    const auto cls = static_cast<uint32_t>(std::countr_zero(bits));
    // None comes to a class that was made of some workers.
    if (expected && cls < kPools) continue;
    if (queues_.alive_count(cls) == 0) return pop_shared(run, cls);
  }
  return std::nullopt;
}

void Scheduler::drop_ready(Run& run, uint32_t cause) {
  // A skip makes no other task ready that would not be skipped too: the run is cancelled.
  while (run.shared_classes != 0) {
    settle(pop_shared(run, static_cast<uint32_t>(std::countr_zero(run.shared_classes))),
           Outcome::kSkipped, cause);
  }
  for (ReadyQueue& queue : run.directed) {
    while (!queue.empty()) {
      --run.ready;
      settle(queue.pop().slot, Outcome::kSkipped, cause);
    }
  }
  while (run.head_group != kNone || !run.groups.empty()) {
    head_group_order(run);
    give_back(groups_[slots_[run.head_group].group]);
    --run.ready;
    settle(std::exchange(run.head_group, kNone), Outcome::kSkipped, cause);
  }
  while (!run.launching.empty()) finish(run.launching.back().slot, Outcome::kSkipped, cause);
}

}  // namespace strata::sched
