// ByteRing: the bookkeeping of one byte ring, kept by the side that writes into it.
//
// Not the bytes: it deals in offsets that only grow; offset modulo capacity is the place. An
// allocation is contiguous: where the end is too short it skips to the start, and the gap is freed
// with it. Freed in order of allocation. One thread.
#pragma once

#include <cstdint>
#include <optional>

#include "base/check.h"
#include "base/mark.h"
#include "mailbox/layout.h"

namespace strata::mailbox {

class ByteRing {
 public:
  explicit ByteRing(uint64_t capacity) : capacity_(capacity) {}

  // Where an allocation of that size would begin; nothing where there is no room now. Anything up
  // to the capacity fits into an empty ring.
  std::optional<uint64_t> fit(uint64_t bytes) const {
    STRATA_DCHECK(bytes <= capacity_);
    uint64_t begin = (head_ + kBytesAlign - 1) / kBytesAlign * kBytesAlign;
    if (bytes == 0) return begin;
    const uint64_t place = begin % capacity_;
    if (place + bytes > capacity_) {
      begin += capacity_ - place;
      STRATA_MARK("mailbox: a byte ring wraps");
    }
    // An empty ring has no tail to keep clear of.
    const uint64_t tail = head_ == tail_ ? begin : tail_;
    if (begin + bytes - tail > capacity_) return std::nullopt;
    return begin;
  }
  // `begin` is what fit(bytes) gave. Gives the end, for free_to().
  uint64_t take(uint64_t begin, uint64_t bytes) {
    if (bytes == 0) return head_;
    if (head_ == tail_) tail_ = begin;
    head_ = begin + bytes;
    return head_;
  }
  void free_to(uint64_t end) {
    STRATA_DCHECK(end <= head_);
    if (end > tail_) tail_ = end;
  }

 private:
  uint64_t capacity_;
  uint64_t head_ = 0;
  uint64_t tail_ = 0;
};

// Whether [begin, begin + bytes) is contiguous inside a ring: for offsets that the other side
// wrote.
constexpr bool within_ring(uint64_t begin, uint64_t bytes, uint64_t capacity) {
  return bytes <= capacity && begin % capacity + bytes <= capacity;
}

}  // namespace strata::mailbox
