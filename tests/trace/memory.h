// Helpers of the tests of trace: a region in plain memory, and events of one number.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "trace/ring.h"

namespace strata::trace::test {

inline uint64_t ticks_of(void* now) {
  return *static_cast<uint64_t*>(now);
}

class Memory {
 public:
  explicit Memory(const Shape& shape = {.rings = 4, .events = 64, .names_bytes = 256})
      : words_(Region::bytes(shape) / 8 + 8),
        region_(Region::format(bytes(shape), shape, ClockKind::kNanoseconds)) {}
  std::span<std::byte> bytes(const Shape& shape) {
    // As a mapping begins on a page, so does this on a line.
    void* at = words_.data();
    size_t room = words_.size() * 8;
    return {static_cast<std::byte*>(std::align(64, Region::bytes(shape), at, room)),
            Region::bytes(shape)};
  }
  std::span<std::byte> bytes() { return bytes(region_.shape()); }
  const Region& region() const { return region_; }
  Host host() { return {.ticks = &ticks_of, .context = &now}; }

  uint64_t now = 0;

 private:
  std::vector<uint64_t> words_;
  Region region_;
};

inline Event task(uint64_t ticket, uint64_t start, uint64_t end) {
  Event event;
  event.kind = Kind::kTask;
  event.id = ticket;
  event.start = start;
  event.end = end;
  return event;
}

inline Event dispatch(uint16_t worker, uint64_t ticket, uint64_t start, uint64_t end) {
  Event event = task(ticket, start, end);
  event.kind = Kind::kDispatch;
  event.worker = worker;
  event.run = 1;
  event.task = static_cast<uint32_t>(ticket - 1);
  return event;
}

}  // namespace strata::trace::test
