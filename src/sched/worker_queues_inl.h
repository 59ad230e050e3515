// The longer bodies of WorkerQueues; see worker_queues.h.
#pragma once

#include "sched/worker_queues.h"

namespace strata::sched {

inline void WorkerQueues::close(uint32_t worker, bool returns) {
  Worker& w = workers_[worker];
  const bool was_coming = !w.open && !w.closed;
  if (w.open) {
    unlink(worker);
    warm(worker);
    --open_;
    for_each_class(w, [](Class& c) { --c.open; });
  }
  w.open = false;
  w.closed = !returns;
  if (was_coming == returns) return;
  for_each_class(w, [&](Class& c) { returns ? ++c.coming : --c.coming; });
}

inline uint32_t WorkerQueues::make_class(std::span<const uint32_t> workers) {
  uint32_t cls = kPools;
  while (cls < classes_.size() && classes_[cls].used) ++cls;
  if (cls == kClassesMax) return kNone;
  if (cls == classes_.size()) classes_.emplace_back();
  classes_[cls].used = true;
  for (const uint32_t worker : workers) {
    unlink(worker);
    join(worker, cls);
    if (workers_[worker].open) ++classes_[cls].open;
    link(worker);
  }
  return cls;
}
inline void WorkerQueues::drop_class(uint32_t cls) {
  STRATA_CHECK(cls >= kPools && classes_[cls].used);
  for (uint32_t worker = 0; worker < workers_.size(); ++worker) {
    if (!is_in(worker, cls)) continue;
    unlink(worker);
    workers_[worker].classes &= ~(uint64_t{1} << cls);
    link(worker);
  }
  classes_[cls] = Class{};
  classes_[cls].used = false;
}

inline uint32_t WorkerQueues::shortest(uint32_t cls) const {
  const uint64_t lengths = classes_[cls].occupied & ~(uint64_t{1} << kCold);
  if (lengths == 0) return classes_[cls].heads[kCold];
  return classes_[cls].heads[std::countr_zero(lengths)];
}

inline bool WorkerQueues::any_awake_empty() const {
  for (const Class& c : classes_) {
    if ((c.occupied & 1) != 0) return true;
  }
  return false;
}

inline void WorkerQueues::push(uint32_t worker, uint32_t slot) {
  Worker& w = workers_[worker];
  unlink(worker);
  warm(worker);
  slot_at(w, w.length++) = slot;
  ++queued_;
  clear_spent(worker);
  link(worker);
}

inline void WorkerQueues::remove(uint32_t worker, uint32_t slot) {
  Worker& w = workers_[worker];
  STRATA_CHECK(w.length > 0);
  unlink(worker);
  if (slot_at(w, 0) == slot) {
    w.first = (w.first + 1) & mask_;
  } else {
    uint32_t at = w.length - 1;
    while (slot_at(w, at) != slot) {
      STRATA_CHECK(at > 0);
      --at;
    }
    for (; at + 1 < w.length; ++at) {
      slot_at(w, at) = slot_at(w, at + 1);
    }
  }
  --w.length;
  --queued_;
  w.barred = false;
  if (w.length == 0) clear_spent(worker);  // else it would stand behind the other empty ones
  link(worker);
}

template <class Takes>
bool WorkerQueues::take_back_candidate(Assignment* out, bool wake, uint32_t cls, Takes&& takes) {
  Class& c = classes_[cls];
  if ((c.occupied & 1) == 0 && !(wake && c.heads[kCold] != kNone)) return false;
  uint64_t lengths = c.occupied & ~uint64_t{3} & ~(uint64_t{1} << kCold);
  while (lengths != 0) {
    const int length = 63 - std::countl_zero(lengths);
    const uint32_t worker = c.heads[length];
    if (c.links[worker].spent) {
      lengths &= ~(uint64_t{1} << length);
      continue;
    }
    const Worker& w = workers_[worker];
    for (uint32_t i = w.length; i > 0; --i) {
      const uint32_t slot = slot_at(w, i - 1);
      if (!takes(slot)) continue;
      *out = {slot, worker};
      return true;
    }
    note_spent(worker, cls);
  }
  return false;
}

}  // namespace strata::sched
