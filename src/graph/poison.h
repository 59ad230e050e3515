// PoisonMap: which bytes of which buffers were never written because their producer failed, and
// for which cause. Knows no task and no text: a cause is a number that the caller gave out.
// Told in execution order: `poison` when a writer failed or was skipped, `heal` when one succeeded.
// Pure; one thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "graph/region.h"

namespace strata::graph {

class PoisonMap {
 public:
  // Poison is kept as ranges that coalesce. A rectangle needs one for each of its rows, so the
  // bound is far above the rows of a tile: with 64, one failed tile of 256 rows would poison all
  // between its first row and its last, and with it the tiles beside it. A buffer that would need
  // more is poisoned from its lowest poisoned byte to its highest, with the cause of the lowest.
  static constexpr size_t kRangesMax = 4096;

  struct Range {
    uint64_t begin;
    uint64_t end;
    uint32_t cause;
    friend bool operator==(const Range&, const Range&) = default;
  };

  // The bytes of `region` were not written. The newest cause explains a byte. A cover poisons its
  // whole range.
  void poison(uint32_t buffer, const Region& region, uint32_t cause);

  // The bytes of `region` were written. A cover heals nothing: which bytes it wrote is not known.
  // A heal that would leave more than kRangesMax ranges is left out: poison is never understated.
  void heal(uint32_t buffer, const Region& region);

  // The cause of the lowest poisoned byte that `region` names; of a cover, in its range.
  std::optional<uint32_t> cause_of(uint32_t buffer, const Region& region) const {
    if (!any(buffer)) return std::nullopt;
    return find_cause(buffer, region);
  }

  // Whether any byte of `buffer` is poisoned. O(1).
  bool any(uint32_t buffer) const { return buffer < place_.size() && place_[buffer] != kNone; }
  // Whether any byte of any buffer is poisoned. O(1).
  bool any() const { return !poisoned_.empty(); }

  // Forgets the buffer's poison: the user said so, or the buffer is gone.
  void clear(uint32_t buffer);
  void drop_buffer(uint32_t buffer) { clear(buffer); }

  // Calls visit(cause) for every cause that a byte still has, some more than once, in an order
  // that depends on the calls alone. Who owns the texts marks with it, and drops what is unmarked.
  template <class Visit>
  void for_each_cause(Visit&& visit) const {
    for (const Poisoned& poisoned : poisoned_) {
      for (const Range& range : poisoned.ranges) visit(range.cause);
    }
  }

  // The poisoned ranges of `buffer`, sorted, apart or of different causes. Until the next change.
  std::span<const Range> ranges(uint32_t buffer) const {
    if (!any(buffer)) return {};
    return poisoned_[place_[buffer]].ranges;
  }

 private:
  static constexpr uint32_t kNone = ~uint32_t{0};
  struct Poisoned {
    uint32_t buffer;
    std::vector<Range> ranges;  // never empty
  };

  std::optional<uint32_t> find_cause(uint32_t buffer, const Region& region) const;
  Poisoned& poisoned_of(uint32_t buffer);
  bool emit(uint64_t begin, uint64_t end, uint32_t cause);
  bool rebuild(std::span<const Range> old, const Region& region, std::optional<uint32_t> cause);

  std::vector<uint32_t> place_;     // by buffer: its place in poisoned_, or kNone
  std::vector<Poisoned> poisoned_;  // only buffers with poison; removal moves the last one down
  std::vector<Range> scratch_;      // what replaces a part of a buffer's ranges
  size_t scratch_max_ = 0;          // ranges that scratch_ may hold
};

}  // namespace strata::graph
