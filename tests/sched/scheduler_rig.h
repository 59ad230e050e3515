// A Scheduler whose workers run nothing: the test says what becomes of each task.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <map>
#include <vector>

#include "sched/scheduler.h"

namespace strata::sched {

inline Access input(uint32_t buffer, uint64_t begin = 0, uint64_t end = 8) {
  return {buffer, graph::Region::range(begin, end), true, false};
}
inline Access output(uint32_t buffer, uint64_t begin = 0, uint64_t end = 8) {
  return {buffer, graph::Region::range(begin, end), false, true};
}
inline Access inout(uint32_t buffer, uint64_t begin = 0, uint64_t end = 8) {
  return {buffer, graph::Region::range(begin, end), true, true};
}
inline Access no_dep(uint32_t buffer) {
  return {buffer, graph::Region::range(0, 8), false, false};
}

struct Rig {
  explicit Rig(uint32_t workers = 1, Scheduler::Options options = {.slots = 64, .buffers = 64})
      : scheduler(options) {
    for (uint32_t i = 0; i < workers; ++i) scheduler.open_worker(scheduler.add_worker());
  }

  uint32_t submit(uint32_t run, std::initializer_list<Access> accesses) {
    const std::vector<Access> list(accesses);
    EXPECT_TRUE(scheduler.admits(list, 8));
    return scheduler.submit(run, list, 8);
  }
  uint32_t submit_to(uint32_t run, Target target, std::initializer_list<Access> accesses = {}) {
    const std::vector<Access> list(accesses);
    EXPECT_TRUE(scheduler.admits(list, 8));
    return scheduler.submit(run, list, 8, target);
  }
  uint32_t group(uint32_t run, const std::vector<uint32_t>& workers,
                 std::initializer_list<Access> accesses = {}, uint32_t cls = 0) {
    const std::vector<Access> list(accesses);
    const std::vector<size_t> bytes(workers.size(), 8);
    const Scheduler::GroupShape shape{.accesses = list,
                                      .payload_bytes = 8,
                                      .member_payload_bytes = bytes,
                                      .workers = workers,
                                      .cls = cls};
    EXPECT_TRUE(scheduler.admits_group(shape));
    return scheduler.submit_group(run, shape);
  }
  // Hands out all that can be handed out; the slots in that order.
  std::vector<uint32_t> dispatch() {
    std::vector<uint32_t> slots;
    while (const auto assignment = scheduler.next_assignment()) {
      scheduler.assigned(*assignment, ++ticket);
      slots.push_back(assignment->slot);
    }
    return slots;
  }
  void end(uint32_t slot) { scheduler.finish(slot, Outcome::kOk, 0); }
  void fail(uint32_t slot, uint32_t cause) { scheduler.finish(slot, Outcome::kTaskFailed, cause); }
  // What became terminal since the last call.
  std::vector<uint32_t> release() {
    std::vector<uint32_t> slots = scheduler.terminal();
    for (const uint32_t slot : slots) {
      outcomes[slot] = scheduler.slot(slot).outcome;
      causes[slot] = scheduler.slot(slot).cause;
    }
    scheduler.release_terminal();
    return slots;
  }
  // Runs everything to its end.
  void drain() {
    for (;;) {
      const std::vector<uint32_t> slots = dispatch();
      for (const uint32_t slot : slots) end(slot);
      if (release().empty() && slots.empty()) return;
    }
  }
  SlotState state(uint32_t slot) const { return scheduler.slot(slot).state; }

  Scheduler scheduler;
  uint64_t ticket = 0;
  std::map<uint32_t, Outcome> outcomes;
  std::map<uint32_t, uint32_t> causes;
};

using Slots = std::vector<uint32_t>;

}  // namespace strata::sched
