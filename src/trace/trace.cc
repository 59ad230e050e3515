#include "trace/trace.h"

#include <algorithm>
#include <bit>

namespace strata::trace {

EventRing::EventRing(uint32_t capacity)
    : mask_(std::bit_ceil(std::clamp(capacity, 1u, 1u << 24)) - 1),
      events_(std::make_unique<Event[]>(mask_ + 1)) {}

size_t EventRing::drain(std::vector<Event>* out) {
  const uint64_t head = head_.load(std::memory_order_relaxed);
  // acquire: the events before this tail are whole.
  const uint64_t tail = tail_.load(std::memory_order_acquire);
  for (uint64_t i = head; i != tail; ++i) out->push_back(events_[i & mask_]);
  // release: the copies are made before the producer may write there.
  head_.store(tail, std::memory_order_release);
  return tail - head;
}

}  // namespace strata::trace
