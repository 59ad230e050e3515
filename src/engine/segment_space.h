// SegmentSpace: which ranges of the heap's address space hold segments. First fit over a map of
// free ranges; segments are few and large. The caller locks.
#pragma once

#include <cstdint>
#include <iterator>
#include <map>
#include <optional>

#include "base/check.h"

namespace strata::engine {

class SegmentSpace {
 public:
  explicit SegmentSpace(uint64_t bytes) { free_.emplace(0, bytes); }

  std::optional<uint64_t> take(uint64_t bytes) {
    for (auto it = free_.begin(); it != free_.end(); ++it) {
      if (it->second < bytes) continue;
      const auto [offset, length] = *it;
      free_.erase(it);
      if (length > bytes) free_.emplace(offset + bytes, length - bytes);
      return offset;
    }
    return std::nullopt;
  }

  void give(uint64_t offset, uint64_t bytes) {
    const auto next = free_.lower_bound(offset);
    STRATA_CHECK(next == free_.end() || offset + bytes <= next->first);
    auto it = free_.emplace_hint(next, offset, bytes);
    if (next != free_.end() && offset + bytes == next->first) {
      it->second += next->second;
      free_.erase(next);
    }
    if (it == free_.begin()) return;
    const auto before = std::prev(it);
    STRATA_CHECK(before->first + before->second <= offset);
    if (before->first + before->second != offset) return;
    before->second += it->second;
    free_.erase(it);
  }

 private:
  std::map<uint64_t, uint64_t> free_;  // offset to bytes; neighbours are merged
};

}  // namespace strata::engine
