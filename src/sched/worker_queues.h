// WorkerQueues: what is queued at each worker, and which worker takes the next task. The workers of
// one length of queue form a list, so that every operation is O(1) in the number of workers.
//
// An empty worker that is awake is always preferred, the one that became empty last first. To wake
// a sleeping (*cold*) one costs more than a short task, so the caller says when that may be; else
// the shortest queue takes the task.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "sched/types.h"

namespace strata::sched {

class WorkerQueues {
 public:
  static constexpr uint32_t kDepthMax = 63;

  explicit WorkerQueues(uint32_t depth) : depth_(depth) {
    STRATA_CHECK(depth >= 1 && depth < kDepthMax);
    static_assert(kCold < 64);
    heads_.fill(kNone);
    tails_.fill(kNone);
  }

  // A new worker; takes nothing before open().
  uint32_t add() {
    workers_.emplace_back();
    return static_cast<uint32_t>(workers_.size() - 1);
  }
  void open(uint32_t worker) {
    STRATA_CHECK(!workers_[worker].open);
    workers_[worker].open = true;
    ++open_;
    link(worker);
  }
  // Takes nothing any more. What it holds stays until it is removed entry by entry.
  void close(uint32_t worker) {
    if (!workers_[worker].open) return;
    unlink(worker);
    warm(worker);
    workers_[worker].open = false;
    --open_;
  }
  bool is_open(uint32_t worker) const { return workers_[worker].open; }
  uint32_t open_count() const { return open_; }
  uint32_t size() const { return static_cast<uint32_t>(workers_.size()); }
  uint32_t length(uint32_t worker) const { return workers_[worker].length; }

  // Who takes the next task; kNone where all queues are full (or all that are not are cold, and
  // `wake` is false).
  uint32_t pick(bool wake = true) const {
    if ((occupied_ & 1) != 0) return heads_[0];
    if (wake && heads_[kCold] != kNone) return heads_[kCold];
    const uint64_t lengths = occupied_ & ((uint64_t{1} << depth_) - 1);
    return lengths == 0 ? kNone : heads_[std::countr_zero(lengths)];
  }

  // The empty worker that is thought awake and would be picked; kNone where there is none.
  uint32_t first_empty() const { return heads_[0]; }
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

  void push(uint32_t worker, uint32_t slot) {
    Worker& w = workers_[worker];
    unlink(worker);
    warm(worker);
    w.slots[(w.first + w.length++) % kDepthMax] = slot;
    w.all_started = false;
    link(worker);
  }

  // Removes a slot wherever it stands: at the front when it completes, at the back when revoked.
  void remove(uint32_t worker, uint32_t slot) {
    Worker& w = workers_[worker];
    STRATA_CHECK(w.length > 0);
    unlink(worker);
    if (w.slots[w.first] == slot) {
      w.first = (w.first + 1) % kDepthMax;
    } else {
      uint32_t at = w.length - 1;
      while (w.slots[(w.first + at) % kDepthMax] != slot) {
        STRATA_CHECK(at > 0);
        --at;
      }
      for (; at + 1 < w.length; ++at) {
        w.slots[(w.first + at) % kDepthMax] = w.slots[(w.first + at + 1) % kDepthMax];
      }
    }
    --w.length;
    w.barred = false;
    if (w.length == 0) w.all_started = false;  // else it would stand behind the other empty ones
    link(worker);
  }

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

  // The youngest entry of the longest queue, where some worker is empty and another has two or more
  // of which not all are known to have started. `wake`: a cold worker counts as empty.
  bool take_back_candidate(Assignment* out, bool wake = true) const {
    if ((occupied_ & 1) == 0 && !(wake && heads_[kCold] != kNone)) return false;
    uint64_t lengths = occupied_ & ~uint64_t{3} & ~(uint64_t{1} << kCold);
    while (lengths != 0) {
      const int length = 63 - std::countl_zero(lengths);
      const uint32_t worker = heads_[length];
      const Worker& w = workers_[worker];
      if (!w.all_started) {
        *out = {w.slots[(w.first + w.length - 1) % kDepthMax], worker};
        return true;
      }
      lengths &= ~(uint64_t{1} << length);
    }
    return false;
  }
  // The youngest entry has started, so all have.
  void note_all_started(uint32_t worker) {
    unlink(worker);
    workers_[worker].all_started = true;
    link(worker);
  }

  template <class Fn>
  void for_each_slot(uint32_t worker, Fn&& fn) const {
    const Worker& w = workers_[worker];
    for (uint32_t i = 0; i < w.length; ++i) fn(w.slots[(w.first + i) % kDepthMax]);
  }

 private:
  struct Worker {
    std::array<uint32_t, kDepthMax> slots;
    uint32_t first = 0;
    uint32_t length = 0;
    uint32_t awaited = 0;
    uint32_t next = kNone;
    uint32_t previous = kNone;
    bool open = false;
    bool barred = false;       // in no list: its ring is full
    bool all_started = false;  // nothing to take back
    bool cold = false;         // empty and asleep
  };

  static constexpr uint32_t kCold = kDepthMax;  // the list of cold workers
  static uint32_t list_of(const Worker& w) { return w.cold ? kCold : w.length; }
  void warm(uint32_t worker) {
    if (!workers_[worker].cold) return;
    workers_[worker].cold = false;
    --cold_;
  }

  bool listed(const Worker& w) const { return w.open && !w.barred; }

  // At the head, or at the tail where there is nothing to take back: candidates come first.
  void link(uint32_t worker) {
    Worker& w = workers_[worker];
    if (!listed(w)) return;
    uint32_t& head = heads_[list_of(w)];
    uint32_t& tail = tails_[list_of(w)];
    if (w.all_started) {
      w.previous = tail;
      w.next = kNone;
      (tail == kNone ? head : workers_[tail].next) = worker;
      tail = worker;
    } else {
      w.next = head;
      w.previous = kNone;
      (head == kNone ? tail : workers_[head].previous) = worker;
      head = worker;
    }
    occupied_ |= uint64_t{1} << list_of(w);
  }
  void unlink(uint32_t worker) {
    Worker& w = workers_[worker];
    if (!listed(w)) return;
    const uint32_t list = list_of(w);
    (w.previous == kNone ? heads_[list] : workers_[w.previous].next) = w.next;
    (w.next == kNone ? tails_[list] : workers_[w.next].previous) = w.previous;
    if (heads_[list] == kNone) occupied_ &= ~(uint64_t{1} << list);
  }

  uint32_t depth_;
  std::vector<Worker> workers_;
  uint32_t open_ = 0;
  uint32_t cold_ = 0;
  uint64_t occupied_ = 0;  // bit n: some listed worker has n entries
  std::array<uint32_t, kDepthMax + 1> heads_;
  std::array<uint32_t, kDepthMax + 1> tails_;
};

}  // namespace strata::sched
