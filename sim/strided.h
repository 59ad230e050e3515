// The bytes of a strided array, one by one, in row-major order of its elements. What the simulated
// tasks and the oracle agree on; written without the cores' notion of a region.
#pragma once

#include <cstdint>
#include <span>

namespace strata::sim {

// visit(int64_t byte): its distance from the first element's first byte. Elements that repeat a
// byte visit it again.
template <class Visit>
void for_each_byte(std::span<const uint64_t> shape, std::span<const int64_t> stride,
                   uint64_t element_bytes, Visit&& visit) {
  for (const uint64_t extent : shape) {
    if (extent == 0) return;
  }
  uint64_t index[8] = {};
  int64_t at = 0;  // in elements
  for (;;) {
    const int64_t first = at * static_cast<int64_t>(element_bytes);
    for (uint64_t b = 0; b < element_bytes; ++b) visit(first + static_cast<int64_t>(b));
    size_t d = shape.size();
    for (;;) {
      if (d == 0) return;
      --d;
      at += stride[d];
      if (++index[d] < shape[d]) break;
      at -= stride[d] * static_cast<int64_t>(shape[d]);
      index[d] = 0;
    }
  }
}

// A hash of one more word.
constexpr uint64_t mix(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * 0x9e3779b97f4a7c15ull;
  return hash ^ (hash >> 29);
}

// What a task writes to the `ordinal`-th byte that its accesses visit.
constexpr uint8_t written_byte(uint64_t hash, uint64_t access, uint64_t ordinal) {
  return static_cast<uint8_t>(mix(mix(hash, access + 1), ordinal) >> 17);
}

}  // namespace strata::sim
