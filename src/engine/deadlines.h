// Deadlines: which workers have tasks with a deadline, and when each is to be looked at next.
//
// Not a judge: Core looks, and says when to look again. A child runs one task at a time, so what
// counts of a worker is the oldest entry of its queue. Costs nothing while no task has a deadline.
// The caller locks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/time.h"

namespace strata::engine {

class Deadlines {
 public:
  bool any() const { return !watched_.empty(); }
  // When a look is due; may be early.
  base::Instant next() const { return next_; }

  // A task with a deadline was given to the worker. `now` may not be known: then a look is due.
  void given(uint32_t worker, uint32_t deadline_ms, std::optional<base::Instant> now) {
    const base::Instant look_at =
        now ? *now + base::Duration::from_ms(deadline_ms) : base::Instant{};
    Watched* const known = find(worker);
    if (known != nullptr) {
      ++known->tasks;
      known->look_at = std::min(known->look_at, look_at);
    } else {
      watched_.push_back({worker, 1, look_at});
      if (places_.size() <= worker) places_.resize(worker + 1);
      places_[worker] = static_cast<uint32_t>(watched_.size());
    }
    next_ = std::min(next_, look_at);
  }
  // One of these is no longer at the worker.
  void gone(uint32_t worker) {
    Watched* const known = find(worker);
    if (known == nullptr) return;
    if (--known->tasks > 0) {
      // The next one begins perhaps, with a shorter deadline.
      known->look_at = next_ = base::Instant{};
      return;
    }
    *known = watched_.back();
    places_[known->worker] = places_[worker];
    places_[worker] = 0;
    watched_.pop_back();
    if (watched_.empty()) next_ = base::Instant::never();
  }

  // look(worker) gives when to look at it again; it may call gone().
  template <class Look>
  void check(base::Instant now, Look&& look) {
    if (now < next_) return;
    due_.clear();
    for (const Watched& one : watched_) {
      if (one.look_at <= now) due_.push_back(one.worker);
    }
    for (const uint32_t worker : due_) {
      if (find(worker) == nullptr) continue;
      const base::Instant again = look(worker);
      if (Watched* const known = find(worker)) known->look_at = again;
    }
    next_ = base::Instant::never();
    for (const Watched& one : watched_) next_ = std::min(next_, one.look_at);
  }

 private:
  struct Watched {
    uint32_t worker;
    uint32_t tasks;  // with a deadline, in its queue
    base::Instant look_at;
  };
  Watched* find(uint32_t worker) {
    if (worker >= places_.size() || places_[worker] == 0) return nullptr;
    return &watched_[places_[worker] - 1];
  }

  std::vector<Watched> watched_;
  std::vector<uint32_t> places_;  // by worker: where in watched_, from 1; 0: not there
  std::vector<uint32_t> due_;
  base::Instant next_ = base::Instant::never();
};

}  // namespace strata::engine
