// The parts of Scheduler that look at workers through the caller; see scheduler.h.
#pragma once

#include "sched/scheduler.h"

namespace strata::sched {

// What is older than the oldest group goes first; the group then reserves; what is younger takes
// what the group leaves.
template <class Asleep>
std::optional<Assignment> Scheduler::next_assignment(bool wake, Asleep&& asleep) {
  if (first_run_ == next_run_) return std::nullopt;
  Run& run = run_of(first_run_);
  if (!run.launching.empty()) {
    if (const auto launch = next_launch(run)) return launch;
  }
  if (run.ready == 0) return std::nullopt;
  if (run.head_group != kNone || !run.groups.empty()) [[unlikely]] {
    const uint64_t order = head_group_order(run);
    if (const auto older = place_single(run, order, wake, asleep)) return older;
    Group& group = groups_[slots_[run.head_group].group];
    const bool complete = reserve(group);
    if (const auto older = older_for_held(run, group, order)) return older;
    if (complete) {
      launch_head(run);
      return next_assignment(wake, asleep);
    }
  }
  return place_single(run, ~uint64_t{0}, wake, asleep);
}

// The oldest task that some worker takes now, among those submitted before `before`.
template <class Asleep>
std::optional<Assignment> Scheduler::place_single(Run& run, uint64_t before, bool wake,
                                                  Asleep&& asleep) {
  if (!run.active.empty()) {
    if (const auto directed = place_directed(run, before, wake)) return directed;
  }
  uint64_t left = run.shared_classes;
  while (left != 0) {
    uint32_t oldest = kNone;
    uint64_t order = before;
    for (uint64_t bits = left; bits != 0; bits &= bits - 1) {
      const auto cls = static_cast<uint32_t>(std::countr_zero(bits));
      const uint64_t front = run.shared[cls].front_order();
      if (front >= order) continue;
      oldest = cls;
      order = front;
    }
    if (oldest == kNone) return std::nullopt;
    const uint32_t worker = pick(oldest, wake, asleep);
    if (worker != kNone && left == run.shared_classes) {
      return Assignment{pop_shared(run, oldest), worker};
    }
    // No awake worker has room for what is older; this one may be of its class too, and asleep.
    if (worker != kNone) return give_oldest(run, worker, wake);
    left &= ~(uint64_t{1} << oldest);
  }
  return std::nullopt;
}

template <class Asleep>
uint32_t Scheduler::pick(uint32_t cls, bool wake, Asleep&& asleep) {
  for (;;) {
    const uint32_t first = queues_.first_empty(cls);
    if (first == kNone || !asleep(first)) return queues_.pick(wake, cls);
    queues_.chill(first);
  }
}

}  // namespace strata::sched
