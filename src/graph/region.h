// Region: which bytes of a buffer a view names, as equal runs at equal distances.
// Not a view (it forgets element type and order) and not tied to a buffer: the caller compares
// regions of one buffer only. Values and pure functions; any thread.
#pragma once

#include <cstdint>

#include "strata/result.h"
#include "strata/tensor.h"

namespace strata::graph {

// `rows` runs of `row_bytes` bytes, `pitch` bytes apart, the first at `begin`.
//
// Canonical, and so equal when the bytes are equal: one run has pitch 0; more runs have
// row_bytes < pitch; no bytes at all is Region{}. With `cover` the one run is only the smallest
// range around the bytes: some of them are not named.
struct Region {
  uint64_t begin = 0;
  uint64_t row_bytes = 0;
  uint64_t rows = 0;
  uint64_t pitch = 0;
  bool cover = false;

  // Exclusive end of the smallest range around the bytes.
  uint64_t end() const { return rows == 0 ? begin : begin + (rows - 1) * pitch + row_bytes; }
  bool empty() const { return row_bytes == 0; }

  // All bytes of [begin, end).
  static Region range(uint64_t begin, uint64_t end) {
    return begin < end ? Region{begin, end - begin, 1, 0, false} : Region{};
  }
  friend bool operator==(const Region&, const Region&) = default;
};

// The bytes that `tensor` names in a buffer of `buffer_bytes` bytes. Exact for every shape whose
// bytes are a range or a rectangle, whatever the order and sign of the strides and however its
// elements repeat bytes; else the covering range. A zero extent names no byte, wherever its offset
// points. Code::kInvalidArgument, Scope::kCall for an unknown dtype, a rank over 8, a shape that
// overflows, and a view that leaves the buffer.
Result<Region> region_of(const Tensor& tensor, uint64_t buffer_bytes);

// Of a region in its canonical form; not for data that an adversary chooses.
inline uint64_t hash_of(const Region& region) {
  const auto mix = [](uint64_t a, uint64_t b) {
    const unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  };
  const uint64_t runs = mix(region.rows ^ 0x9e3779b97f4a7c15ull,
                            (region.pitch << 1 | region.cover) ^ 0xbf58476d1ce4e5b9ull);
  return mix(region.begin ^ runs ^ 0x94d049bb133111ebull, region.row_bytes ^ 0xd6e8feb86659fd93ull);
}

enum class Overlap : uint8_t {
  kNone,   // no byte in common
  kCover,  // the covering ranges meet; the bytes may not
  kExact,  // at least one byte in common
};

// Decides where the pitches are equal or one region is one run; compares covering ranges else.
Overlap overlap_kind(const Region& a, const Region& b);

// False only if surely no byte is in both.
inline bool overlap(const Region& a, const Region& b) {
  return overlap_kind(a, b) != Overlap::kNone;
}

// True only if surely every byte that `inner` names is named by `outer`. Decides where `outer` is
// one run, `inner` is one run, or inner's pitch is a multiple of outer's; false else, and always
// false for an outer that is a cover, unless `inner` is empty.
bool contains(const Region& outer, const Region& inner);

}  // namespace strata::graph
