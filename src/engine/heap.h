// Heap: which bytes of the shared heap are whose: an Arena whose segments have places in the
// heap's address space. What it drops becomes free again once its pages are given back. The caller
// locks.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "buffer/arena.h"
#include "engine/core_types.h"
#include "engine/segment_space.h"
#include "strata/result.h"

namespace strata::engine {

class Heap {
 public:
  explicit Heap(const CoreOptions& options)
      : bytes_(options.limits.heap_bytes),
        page_bytes_(options.heap_page_bytes),
        reserve_(options.reserve),
        arena_(bytes_),
        space_(heap_address_bytes(options.limits)) {}

  struct Range {
    uint32_t segment;
    uint64_t segment_offset;
    uint64_t heap_offset;
    bool dirty;  // the bytes are not zero
  };
  // kResourceExhausted where the heap is full, or the pages of a new segment cannot be had.
  Result<Range> allocate(uint64_t bytes);
  void free(uint32_t segment, uint64_t segment_offset) { arena_.free(segment, segment_offset); }
  uint64_t offset_of(uint32_t segment) const { return offsets_[segment]; }

  // Pages to give back; each then told by punched().
  void collect();
  bool has_punches() const { return !punches_.empty(); }
  std::vector<Punch> take_punches() { return std::exchange(punches_, {}); }
  void punched(const Punch& punch) { space_.give(punch.heap_offset, punch.bytes); }

 private:
  uint64_t bytes_;
  uint64_t page_bytes_;
  ReserveHeap reserve_;
  buffer::Arena arena_;
  SegmentSpace space_;
  std::vector<uint64_t> offsets_;  // of the arena's segments in the heap
  std::vector<uint64_t> lengths_;
  std::vector<uint32_t> free_;  // segment numbers
  std::vector<Punch> punches_;
};

}  // namespace strata::engine
