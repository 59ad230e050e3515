#include "engine/heap.h"

#include <fmt/format.h>

#include "base/result.h"

namespace strata::engine {

Result<Heap::Range> Heap::allocate(uint64_t bytes) {
  for (;;) {
    STRATA_ASSIGN(const buffer::Arena::Allocation got, arena_.allocate(bytes));
    if (!got.needs_segment) {
      return Range{got.range.segment, got.range.offset,
                   offsets_[got.range.segment] + got.range.offset, !got.range.zero};
    }
    collect();  // idle ones that made way for this one
    const uint64_t pages = (got.segment_bytes + page_bytes_ - 1) / page_bytes_;
    const uint64_t bytes_of_pages = pages * page_bytes_;
    const auto offset = space_.take(bytes_of_pages);
    if (!offset) {
      return Error(Code::kResourceExhausted, Scope::kCall,
                   fmt::format("no gap for a segment of {} bytes in the shared heap of {} bytes; "
                               "Limits::heap_bytes enlarges it",
                               got.segment_bytes, bytes_));
    }
    if (reserve_) {
      if (Result<void> there = reserve_(*offset, bytes_of_pages); !there) {
        space_.give(*offset, bytes_of_pages);
        return std::move(there).error();
      }
    }
    uint32_t segment = static_cast<uint32_t>(offsets_.size());
    if (free_.empty()) {
      offsets_.push_back(*offset);
      lengths_.push_back(bytes_of_pages);
    } else {
      segment = free_.back();
      free_.pop_back();
      offsets_[segment] = *offset;
      lengths_[segment] = bytes_of_pages;
    }
    arena_.add_segment(segment, got.segment_bytes);
  }
}

void Heap::collect() {
  if (!arena_.has_droppable()) return;
  std::vector<uint32_t> droppable;
  arena_.take_droppable(&droppable);
  for (const uint32_t segment : droppable) {
    punches_.push_back({offsets_[segment], lengths_[segment]});
    free_.push_back(segment);
  }
}

}  // namespace strata::engine
