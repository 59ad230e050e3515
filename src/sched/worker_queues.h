// WorkerQueues: what is queued at each worker, and which worker of a class takes the next task. A
// *class* is a set of workers that may take the same tasks; a worker is in any number of classes.
// In each class the workers of one length of queue form a list, so that every operation is O(1) in
// the number of workers (and O(classes of the worker)).
//
// An empty worker that is awake is always preferred, the one that became empty last first. To wake
// a sleeping (*cold*) one costs more than a short task, so the caller says when that may be; else
// the shortest queue takes the task. A *held* worker is in no list: a group has it to itself.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "sched/class_lists.h"
#include "sched/types.h"

namespace strata::sched {

class WorkerQueues {
 public:
  static constexpr uint32_t kDepthMax = ClassLists::kLists - 1;
  static constexpr uint32_t kClassesMax = 64;

  explicit WorkerQueues(uint32_t depth)
      : depth_(depth),
        ring_shift_(static_cast<uint32_t>(std::countr_zero(std::bit_ceil(depth)))),
        mask_(std::bit_ceil(depth) - 1),
        classes_(kPools) {
    STRATA_CHECK(depth >= 1 && depth < kDepthMax);
  }

  // A new worker of a pool; takes nothing before open().
  uint32_t add(uint32_t pool = 0) {
    STRATA_CHECK(pool < kPools);
    const auto worker = static_cast<uint32_t>(workers_.size());
    workers_.emplace_back();
    rings_.resize(workers_.size() << ring_shift_);
    join(worker, pool);
    return worker;
  }
  void open(uint32_t worker);
  // Takes nothing any more, or nothing until it is opened again (`returns`). What it holds stays
  // until it is removed entry by entry.
  void close(uint32_t worker, bool returns = false);
  bool is_open(uint32_t worker) const { return workers_[worker].open; }
  bool is_closed(uint32_t worker) const { return workers_[worker].closed; }
  uint32_t open_count() const { return open_; }
  uint32_t open_count(uint32_t cls) const { return classes_[cls].open; }
  // Open, or to be opened: neither open nor closed.
  uint32_t alive_count(uint32_t cls) const { return classes_[cls].open + classes_[cls].coming; }
  uint32_t size() const { return static_cast<uint32_t>(workers_.size()); }
  uint32_t length(uint32_t worker) const { return workers_[worker].length; }
  uint32_t queued() const { return queued_; }  // at all workers
  void prefetch(uint32_t worker) const { __builtin_prefetch(&workers_[worker], 1); }

  // Classes 0 to kPools - 1 are the pools. kNone where all are in use.
  uint32_t make_class(std::span<const uint32_t> workers);
  void drop_class(uint32_t cls);
  uint32_t class_count() const { return static_cast<uint32_t>(classes_.size()); }  // ever made
  bool is_in(uint32_t worker, uint32_t cls) const {
    return (workers_[worker].classes >> cls & 1) != 0;
  }
  uint64_t classes_of(uint32_t worker) const { return workers_[worker].classes; }

  // Who takes the next task; kNone where all queues are full (or all that are not are cold, and
  // `wake` is false; but where all are cold nobody else would ever take it).
  uint32_t pick(bool wake = true, uint32_t cls = 0) const {
    const Class& c = classes_[cls];
    if ((c.occupied & 1) != 0) return c.heads[0];
    if (wake || c.occupied == uint64_t{1} << kCold) {
      if (c.heads[kCold] != kNone) return c.heads[kCold];
    }
    const uint64_t lengths = c.occupied & ((uint64_t{1} << depth_) - 1);
    return lengths == 0 ? kNone : c.heads[std::countr_zero(lengths)];
  }
  // May take one more: what pick() would say of it alone, or would say were it not held.
  bool has_room(uint32_t worker) const { return !is_held(worker) && would_have_room(worker); }
  bool would_have_room(uint32_t worker) const {
    return workers_[worker].open && !workers_[worker].barred && workers_[worker].length < depth_;
  }

  // The empty worker that is thought awake and would be picked; kNone where there is none.
  uint32_t first_empty(uint32_t cls = 0) const { return classes_[cls].heads[0]; }
  // An empty one, awake or not.
  uint32_t any_empty(uint32_t cls) const {
    const Class& c = classes_[cls];
    return c.heads[0] != kNone ? c.heads[0] : c.heads[kCold];
  }
  // The shortest queue, however long.
  uint32_t shortest(uint32_t cls) const;
  bool any_awake_empty() const;
  // An empty worker was found asleep. It is cold until it is given a task.
  void chill(uint32_t worker) {
    Worker& w = workers_[worker];
    STRATA_DCHECK(w.length == 0 && !w.cold);
    unlink(worker);
    w.cold = true;
    ++cold_;
    link(worker);
  }
  // Open workers that are not known to sleep.
  uint32_t awake_count() const { return open_ - cold_; }

  void push(uint32_t worker, uint32_t slot);

  // Removes a slot wherever it stands: at the front when it completes, at the back when revoked.
  void remove(uint32_t worker, uint32_t slot);

  // Entries of the worker whose end other tasks wait for.
  uint32_t awaited(uint32_t worker) const { return workers_[worker].awaited; }
  void add_awaited(uint32_t worker) { ++workers_[worker].awaited; }
  void drop_awaited(uint32_t worker) { --workers_[worker].awaited; }

  // Takes nothing until one of its tasks is removed or unbar(): its ring has no room, be it that
  // the arguments are large or that revoked entries still stand in it.
  void bar(uint32_t worker) {
    unlink(worker);
    workers_[worker].barred = true;
  }
  void unbar(uint32_t worker) {
    if (!workers_[worker].barred) return;
    workers_[worker].barred = false;
    link(worker);
  }
  bool is_barred(uint32_t worker) const { return workers_[worker].barred; }

  // In no list until release(): a group has it.
  void hold(uint32_t worker) {
    unlink(worker);
    warm(worker);
    workers_[worker].held = true;
  }
  void release(uint32_t worker) {
    if (!workers_[worker].held) return;
    workers_[worker].held = false;
    link(worker);
  }
  bool is_held(uint32_t worker) const { return workers_[worker].held; }

  // The youngest entry that `takes(slot)` allows of the longest queue of the class, where some
  // worker of it is empty and another has two or more of which not all are known to have started.
  // `wake`: a cold worker counts as empty.
  template <class Takes>
  bool take_back_candidate(Assignment* out, bool wake, uint32_t cls, Takes&& takes);
  bool take_back_candidate(Assignment* out, bool wake = true) {
    return take_back_candidate(out, wake, 0, [](uint32_t) { return true; });
  }
  // Nothing of the worker can be taken back for the class until it is given something new.
  void note_spent(uint32_t worker, uint32_t cls = 0) {
    if (listed(workers_[worker])) unlink_in(worker, cls);
    classes_[cls].links[worker].spent = true;
    if (listed(workers_[worker])) link_in(worker, cls);
  }

  template <class Fn>
  void for_each_slot(uint32_t worker, Fn&& fn) const {
    const Worker& w = workers_[worker];
    for (uint32_t i = 0; i < w.length; ++i) fn(slot_at(w, i));
  }

 private:
  // Half a line of the cache, so that few pages hold thousands: each one's turn comes seldom.
  struct alignas(32) Worker {
    uint32_t first = 0;
    uint32_t length = 0;
    uint64_t classes = 0;  // a bit for each
    uint32_t awaited = 0;
    bool open = false;
    bool closed = false;  // was told to take nothing any more
    bool barred = false;  // in no list: its ring is full
    bool held = false;    // in no list: a group has it
    bool cold = false;    // empty and asleep
  };
  static constexpr uint32_t kCold = kDepthMax;  // the list of cold workers
  struct Class : ClassLists {
    uint32_t open = 0;
    uint32_t coming = 0;  // neither open nor closed
    bool used = true;
  };

  size_t place_of(const Worker& w, uint32_t place) const {
    const auto worker = static_cast<size_t>(&w - workers_.data());
    return (worker << ring_shift_) + ((w.first + place) & mask_);
  }
  uint32_t& slot_at(Worker& w, uint32_t place) { return rings_[place_of(w, place)]; }
  uint32_t slot_at(const Worker& w, uint32_t place) const { return rings_[place_of(w, place)]; }
  static uint32_t list_of(const Worker& w) { return w.cold ? kCold : w.length; }
  void warm(uint32_t worker) {
    if (!workers_[worker].cold) return;
    workers_[worker].cold = false;
    --cold_;
  }
  bool listed(const Worker& w) const { return w.open && !w.barred && !w.held; }

  template <class Fn>
  void for_each_class(const Worker& w, Fn&& fn) {
    for (uint64_t bits = w.classes; bits != 0; bits &= bits - 1) {
      fn(classes_[std::countr_zero(bits)]);
    }
  }
  // Before the worker is linked.
  void join(uint32_t worker, uint32_t cls) {
    classes_[cls].join(worker);
    Worker& w = workers_[worker];
    w.classes |= uint64_t{1} << cls;
    if (!w.open && !w.closed) ++classes_[cls].coming;
  }
  void clear_spent(uint32_t worker) {
    for_each_class(workers_[worker], [&](Class& c) { c.links[worker].spent = false; });
  }

  void link(uint32_t worker) {
    const Worker& w = workers_[worker];
    if (!listed(w)) return;
    for (uint64_t bits = w.classes; bits != 0; bits &= bits - 1) {
      link_in(worker, static_cast<uint32_t>(std::countr_zero(bits)));
    }
  }
  void unlink(uint32_t worker) {
    const Worker& w = workers_[worker];
    if (!listed(w)) return;
    for (uint64_t bits = w.classes; bits != 0; bits &= bits - 1) {
      unlink_in(worker, static_cast<uint32_t>(std::countr_zero(bits)));
    }
  }
  void link_in(uint32_t worker, uint32_t cls) {
    classes_[cls].link(worker, list_of(workers_[worker]));
  }
  void unlink_in(uint32_t worker, uint32_t cls) {
    classes_[cls].unlink(worker, list_of(workers_[worker]));
  }

  uint32_t depth_;
  uint32_t ring_shift_;
  uint32_t mask_;  // of places in a ring
  std::vector<Worker> workers_;
  std::vector<uint32_t> rings_;  // one for each worker, of as many as the depth asks for
  std::vector<Class> classes_;
  uint32_t open_ = 0, cold_ = 0;
  uint32_t queued_ = 0;
};

}  // namespace strata::sched

#include "sched/worker_queues_inl.h"
