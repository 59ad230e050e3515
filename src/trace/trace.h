// Timeline events and the bounded ring that a process or thread writes them to.
//
// Not a log and not a counter. Times come from the caller's clock, in nanoseconds. One thread
// pushes, one other may drain at the same time.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace strata::trace {

// What happened from start to end on one lane. `name` and `lane` are indices into the tables that
// the writer of the file is given.
struct Event {
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  uint64_t task = 0;
  uint32_t name = 0;
  uint32_t lane = 0;
};
static_assert(sizeof(Event) == 32);

class EventRing {
 public:
  // Room for `capacity` events, rounded up to a power of two; at least 1, at most 2^24.
  explicit EventRing(uint32_t capacity);
  EventRing(const EventRing&) = delete;
  EventRing& operator=(const EventRing&) = delete;

  // The producer. A full ring drops the new event and counts it: what is kept is the beginning.
  bool push(const Event& event) {
    const uint64_t tail = tail_.load(std::memory_order_relaxed);
    // acquire: the drain has copied the slot before it gave it back.
    if (tail - head_.load(std::memory_order_acquire) > mask_) {
      dropped_.store(dropped_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
      return false;
    }
    events_[tail & mask_] = event;
    tail_.store(tail + 1, std::memory_order_release);
    return true;
  }
  // The consumer: appends all events that are complete, oldest first.
  size_t drain(std::vector<Event>* out);

  uint64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }
  uint32_t capacity() const { return static_cast<uint32_t>(mask_ + 1); }

 private:
  uint64_t mask_;
  std::unique_ptr<Event[]> events_;
  alignas(128) std::atomic<uint64_t> tail_{0};
  std::atomic<uint64_t> dropped_{0};
  alignas(128) std::atomic<uint64_t> head_{0};
};

// Pushes an event for its own life. `clock()` gives nanoseconds; a null ring costs nothing.
template <class Clock>
class Span {
 public:
  struct What {
    uint32_t name = 0;
    uint32_t lane = 0;
    uint64_t task = 0;
  };
  Span(EventRing* ring, Clock& clock, What what) : ring_(ring), clock_(clock), what_(what) {
    if (ring_ != nullptr) start_ns_ = clock_();
  }
  ~Span() {
    if (ring_ != nullptr) ring_->push({start_ns_, clock_(), what_.task, what_.name, what_.lane});
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

 private:
  EventRing* ring_;
  Clock& clock_;
  What what_;
  int64_t start_ns_ = 0;
};

}  // namespace strata::trace
