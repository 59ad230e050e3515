// Arena: hands out byte ranges of numbered segments. Never touches the bytes.
//
// Up to 256 KiB: size classes in shared slab segments of 4 MiB, cut into runs of 256 KiB that serve
// one class each; a run without a live range serves any class again, but each class keeps one such
// run while none is needed elsewhere. Above: a segment of its own,
// rounded to pages, droppable when freed. Ranges begin at multiples of 64 bytes, of 4096 from
// 4096 bytes on. The sum of all segments stays within Limits::heap_bytes.
//
//   for (;;) {
//     auto got = arena.allocate(bytes);            // Error: the heap is full
//     if (!got->needs_segment) return got->range;  // else make one of that size, add it, ask again
//     arena.add_segment(next_index, got->segment_bytes);
//   }
//
// One thread at a time; the caller locks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "strata/result.h"

namespace strata::buffer {

class Arena {
 public:
  static constexpr uint64_t kSlabBytes = 4 << 20;
  static constexpr uint64_t kRunBytes = 256 << 10;  // also the largest shared range
  static constexpr uint64_t kPageBytes = 4096;
  static constexpr uint64_t kAlignBytes = 64;

  struct Range {
    uint32_t segment = 0;
    uint64_t offset = 0;
    uint64_t bytes = 0;  // at least those asked for
    bool zero = false;   // never handed out before, so as the system gave it
  };
  struct Allocation {
    bool needs_segment = false;
    uint64_t segment_bytes = 0;  // if needs_segment; a multiple of kPageBytes
    Range range;                 // else
  };

  explicit Arena(uint64_t heap_bytes_max);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // kInvalidArgument for 0 bytes; kResourceExhausted at Limits::heap_bytes. May make idle slabs
  // droppable to find room.
  Result<Allocation> allocate(uint64_t bytes);
  // A new zeroed segment of the size asked for, under an index that is not in use here.
  void add_segment(uint32_t index, uint64_t bytes);
  // Gives back a range that allocate gave: where it begins is enough.
  void free(uint32_t segment, uint64_t offset);

  // Segments that no range is left in; forgotten here, so the index may be added again.
  void take_droppable(std::vector<uint32_t>* out) {
    out->insert(out->end(), droppable_.begin(), droppable_.end());
    droppable_.clear();
  }
  bool has_droppable() const { return !droppable_.empty(); }
  // Makes all slabs without a live range, and large segments nobody took, droppable.
  void trim();

  uint64_t segment_bytes() const { return segment_bytes_; }  // of all segments
  uint64_t used_bytes() const { return used_bytes_; }        // of live ranges, rounded

  // Bytes of the range that a request of `bytes` gets. 0 for 0.
  static uint64_t rounded(uint64_t bytes);

 private:
  struct Run;
  struct Segment;
  struct RunId {
    uint32_t segment;
    uint32_t run;
  };

  bool take_small(uint64_t size, Range* out);
  bool take_large(uint64_t size, Range* out);
  bool make_slab();
  Run& run_of(RunId id);
  void list(std::vector<RunId>& where, RunId id);
  void unlist(std::vector<RunId>& where, RunId id);
  void retire(RunId id);
  bool retire_empty_runs();
  void drop(uint32_t index);

  uint64_t heap_bytes_max_;
  uint64_t segment_bytes_ = 0;
  uint64_t used_bytes_ = 0;
  std::vector<std::unique_ptr<Segment>> segments_;  // by index; null: not in use
  std::vector<std::vector<RunId>> partial_;         // by class: runs with a free place
  std::vector<std::optional<RunId>> empty_;  // by class: the one in partial_ without a live range
  std::vector<RunId> idle_runs_;             // of no class
  std::vector<uint32_t> waiting_;            // added, neither slab nor range yet
  std::vector<uint32_t> droppable_;
};

}  // namespace strata::buffer
