// Overdue: what the simulation knows of tasks with deadlines and of cancels with a grace: whether
// the engine may end a worker now, and whether a failure by a deadline is true.
//
// Its own notion, from what passes the endpoints and from what the children do; it shares nothing
// with engine::Deadlines. Not checked: inline workers, which nothing ends. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/time.h"
#include "sim/checks.h"

namespace strata::sim {

class Overdue {
 public:
  void init(uint32_t grace_ms) { grace_ = base::Duration::from_ms(grace_ms); }

  // The next task that the oracle is told of has this deadline (0: none); and: it was refused.
  void add_task(uint32_t deadline_ms) { deadlines_ms_.push_back(deadline_ms); }
  void withdraw_task() { deadlines_ms_.pop_back(); }

  // It is in the worker's queue from `now` on.
  void on_given(uint32_t worker, Checks::Name name, uint64_t ticket, base::Instant now);
  // It never starts there: it was taken back, or its worker was lost before.
  void on_back(uint32_t worker, uint64_t ticket);
  // The parent has seen its completion.
  void on_seen(uint32_t worker, uint64_t ticket);
  // Its code begins; `told` is when its child says that it began, which is after it was taken.
  void on_start(uint32_t worker, Checks::Name name, int64_t told_ns);
  // Its process is gone.
  void on_death(uint32_t worker);
  // Of every task. `ended_ns`: as the child will say.
  void on_end(uint32_t worker, Checks::Name name, int64_t ended_ns);

  // Why the engine may not end the worker for a deadline; empty where it may. `alive`: its child
  // is; else what that had when it died counts, for the engine may have decided before.
  std::string why_not(uint32_t worker, bool alive, base::Instant now);
  // Whether the task has passed its deadline, or its worker was ended for it.
  bool is_overdue(uint32_t task) const;
  // Whether it surely has, so that it cannot have succeeded.
  bool ended_late(uint32_t task) const;

 private:
  struct Part {
    uint32_t worker = ~0u;
    uint64_t ticket = 0;
    base::Instant given{};
    bool seen = false;
    bool dead = false;     // its worker is
    int64_t began_ns = 0;  // 0: not known
    int64_t ended_ns = 0;
    int64_t free_ns = 0;  // when its worker had ended the task before it
    bool condemned = false;
  };
  uint32_t deadline_ms(uint32_t task) const {
    return task < deadlines_ms_.size() ? deadlines_ms_[task] : 0;
  }
  using Key = std::pair<uint32_t, uint32_t>;  // task, part

  base::Duration grace_{};
  std::vector<uint32_t> deadlines_ms_;  // by task
  std::map<Key, Part> parts_;           // of tasks with a deadline
  std::map<uint32_t, int64_t> free_;    // by worker: when its last task ended
};

}  // namespace strata::sim
