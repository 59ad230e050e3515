// ReadyQueue: ready slots of one run, oldest submission first. The oldest stands in the object
// itself: of the queues of thousands of workers most hold one task at a time, and their memory is
// out of the nearest cache when their turn comes. Of the others most become ready in the order of
// their submission and take a FIFO, the rest a heap.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/check.h"

namespace strata::sched {

class ReadyQueue {
 public:
  struct Entry {
    uint64_t order;
    uint32_t slot;
  };

  bool empty() const { return size_ == 0; }
  size_t size() const { return size_; }

  void push(Entry entry) {
    if (size_++ == 0) {
      oldest_ = entry;
      return;
    }
    if (entry.order < oldest_.order) std::swap(entry, oldest_);
    if (rest_ == nullptr) rest_ = std::make_unique<Rest>();
    rest_->push(entry);
  }

  // Of the next one to pop.
  uint64_t front_order() const {
    STRATA_DCHECK(!empty());
    return oldest_.order;
  }

  Entry pop() {
    STRATA_DCHECK(!empty());
    const Entry entry = oldest_;
    if (--size_ > 0) oldest_ = rest_->pop();
    return entry;
  }

 private:
  class Rest {
   public:
    void push(Entry entry) {
      if (head_ == tail_ || ring_[(tail_ - 1) & mask_].order < entry.order) {
        if (tail_ - head_ == ring_.size()) grow();
        ring_[tail_++ & mask_] = entry;
      } else {
        late_.push_back(entry);
        std::push_heap(late_.begin(), late_.end(), older_last);
      }
    }
    Entry pop() {
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

  Entry oldest_{};
  uint32_t size_ = 0;
  std::unique_ptr<Rest> rest_;  // all but the oldest; kept once it was needed
};

}  // namespace strata::sched
