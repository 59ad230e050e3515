#include "graph/poison.h"

#include <algorithm>

#include "base/check.h"

namespace strata::graph {
namespace {

// The first row of `region` that ends after `at`; region.rows or more where none does.
uint64_t row_ending_after(const Region& region, uint64_t at) {
  if (at < region.begin + region.row_bytes) return 0;
  if (region.rows == 1) return 1;
  return (at - region.begin - region.row_bytes) / region.pitch + 1;
}

uint64_t row_begin(const Region& region, uint64_t row) {
  return region.begin + row * region.pitch;
}

}  // namespace

void PoisonMap::poison(uint32_t buffer, const Region& region, uint32_t cause) {
  if (region.empty()) return;
  std::vector<Range>& ranges = poisoned_of(buffer).ranges;
  // Those that the region meets or touches: what touches may coalesce.
  const auto low = std::partition_point(
      ranges.begin(), ranges.end(), [&](const Range& range) { return range.end < region.begin; });
  const auto high = std::partition_point(
      low, ranges.end(), [&](const Range& range) { return range.begin <= region.end(); });
  scratch_max_ = kRangesMax - (ranges.size() - static_cast<size_t>(high - low));
  if (rebuild({low, high}, region, cause)) {
    ranges.insert(ranges.erase(low, high), scratch_.begin(), scratch_.end());
    return;
  }
  const bool starts_it = ranges.empty() || region.begin < ranges.front().begin;
  const Range whole{starts_it ? region.begin : ranges.front().begin,
                    ranges.empty() ? region.end() : std::max(region.end(), ranges.back().end),
                    starts_it ? cause : ranges.front().cause};
  ranges.assign(1, whole);
}

void PoisonMap::heal(uint32_t buffer, const Region& region) {
  if (!any(buffer) || region.empty() || region.cover) return;
  std::vector<Range>& ranges = poisoned_[place_[buffer]].ranges;
  const auto low = std::partition_point(
      ranges.begin(), ranges.end(), [&](const Range& range) { return range.end <= region.begin; });
  const auto high = std::partition_point(
      low, ranges.end(), [&](const Range& range) { return range.begin < region.end(); });
  scratch_max_ = kRangesMax - (ranges.size() - static_cast<size_t>(high - low));
  if (!rebuild({low, high}, region, std::nullopt)) return;
  ranges.insert(ranges.erase(low, high), scratch_.begin(), scratch_.end());
  if (ranges.empty()) clear(buffer);
}

void PoisonMap::clear(uint32_t buffer) {
  if (!any(buffer)) return;
  const uint32_t place = place_[buffer];
  place_[buffer] = kNone;
  if (place + 1 != poisoned_.size()) {
    poisoned_[place] = std::move(poisoned_.back());
    place_[poisoned_[place].buffer] = place;
  }
  poisoned_.pop_back();
}

std::optional<uint32_t> PoisonMap::find_cause(uint32_t buffer, const Region& region) const {
  if (region.empty()) return std::nullopt;
  const std::vector<Range>& ranges = poisoned_[place_[buffer]].ranges;
  auto range = std::partition_point(ranges.begin(), ranges.end(),
                                    [&](const Range& r) { return r.end <= region.begin; });
  for (; range != ranges.end() && range->begin < region.end(); ++range) {
    const uint64_t row = row_ending_after(region, range->begin);
    if (row < region.rows && row_begin(region, row) < range->end) return range->cause;
  }
  return std::nullopt;
}

PoisonMap::Poisoned& PoisonMap::poisoned_of(uint32_t buffer) {
  if (buffer >= place_.size()) place_.resize(buffer + 1, kNone);
  if (place_[buffer] == kNone) {
    place_[buffer] = static_cast<uint32_t>(poisoned_.size());
    poisoned_.push_back({buffer, {}});
  }
  return poisoned_[place_[buffer]];
}

// Adds to scratch_; false where it is full.
bool PoisonMap::emit(uint64_t begin, uint64_t end, uint32_t cause) {
  if (!scratch_.empty() && scratch_.back().end == begin && scratch_.back().cause == cause) {
    scratch_.back().end = end;
    return true;
  }
  if (scratch_.size() >= scratch_max_) return false;
  scratch_.push_back({begin, end, cause});
  return true;
}

// Into scratch_: `old` without the bytes of `region` and, with a cause, these bytes too. False
// where that is more ranges than scratch_max_; stops there, so a region of very many rows costs no
// more than the bound.
bool PoisonMap::rebuild(std::span<const Range> old, const Region& region,
                        std::optional<uint32_t> cause) {
  scratch_.clear();
  uint64_t next_row = 0;  // the first that is not in scratch_
  const auto emit_rows = [&](uint64_t rows_end) {
    if (!cause) return true;
    for (; next_row < rows_end; ++next_row) {
      const uint64_t begin = row_begin(region, next_row);
      if (!emit(begin, begin + region.row_bytes, *cause)) return false;
    }
    return true;
  };
  for (const Range& range : old) {
    for (uint64_t at = range.begin; at < range.end;) {
      const uint64_t row = std::min(row_ending_after(region, at), region.rows);
      if (!emit_rows(row)) return false;  // all that end before `at`
      const uint64_t begin = row < region.rows ? row_begin(region, row) : range.end;
      if (at < begin && !emit(at, std::min(begin, range.end), range.cause)) return false;
      if (begin >= range.end) break;
      at = begin + region.row_bytes;
    }
  }
  return emit_rows(region.rows);
}

}  // namespace strata::graph
