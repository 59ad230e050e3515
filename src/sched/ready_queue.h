// ReadyQueue: ready slots of one run, oldest submission first. Most become ready in the order of
// their submission and take the FIFO; the others take a heap. Pop takes the older of the two
// fronts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <vector>

#include "base/check.h"

namespace strata::sched {

class ReadyQueue {
 public:
  struct Entry {
    uint64_t order;
    uint32_t slot;
  };

  bool empty() const { return head_ == tail_ && late_.empty(); }
  size_t size() const { return tail_ - head_ + late_.size(); }

  void push(Entry entry) {
    if (head_ == tail_ || ring_[(tail_ - 1) & mask_].order < entry.order) {
      if (tail_ - head_ == ring_.size()) grow();
      ring_[tail_++ & mask_] = entry;
    } else {
      late_.push_back(entry);
      std::push_heap(late_.begin(), late_.end(), older_last);
    }
  }

  // Of the next one to pop.
  uint64_t front_order() const {
    STRATA_DCHECK(!empty());
    return from_heap() ? late_.front().order : ring_[head_ & mask_].order;
  }

  Entry pop() {
    STRATA_DCHECK(!empty());
    if (!from_heap()) return ring_[head_++ & mask_];
    std::pop_heap(late_.begin(), late_.end(), older_last);
    const Entry entry = late_.back();
    late_.pop_back();
    return entry;
  }

 private:
  static bool older_last(const Entry& a, const Entry& b) { return a.order > b.order; }

  bool from_heap() const {
    return !late_.empty() && (head_ == tail_ || late_.front().order < ring_[head_ & mask_].order);
  }

  void grow() {
    std::vector<Entry> larger(ring_.empty() ? 16 : 2 * ring_.size());
    for (uint64_t i = head_; i != tail_; ++i) larger[i - head_] = ring_[i & mask_];
    tail_ -= head_;
    head_ = 0;
    ring_ = std::move(larger);
    mask_ = ring_.size() - 1;
  }

  std::vector<Entry> ring_;
  uint64_t mask_ = 0;
  uint64_t head_ = 0;
  uint64_t tail_ = 0;
  std::vector<Entry> late_;
};

}  // namespace strata::sched
