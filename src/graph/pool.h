// Pool: items of one type by 32-bit index, with a free list. Never moves an item and never takes
// memory after its construction; pages that were never used cost nothing.
// Not a container: it does not know which items are in use. One thread at a time.
#pragma once

#include <cstdint>
#include <type_traits>
#include <vector>

#include "base/check.h"

namespace strata::graph {

inline constexpr uint32_t kNil = ~uint32_t{0};

// An item that is not in use holds the free list in its member `next`.
template <class T>
class Pool {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  explicit Pool(uint32_t items_max) : items_max_(items_max) { items_.reserve(items_max); }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // The index of an item with any content; not to be called when full.
  uint32_t take() {
    ++in_use_;
    if (free_ != kNil) {
      const uint32_t at = free_;
      free_ = items_[at].next;
      return at;
    }
    STRATA_CHECK(items_.size() < items_max_);
    items_.emplace_back();
    return static_cast<uint32_t>(items_.size() - 1);
  }
  void give(uint32_t at) {
    --in_use_;
    items_[at].next = free_;
    free_ = at;
  }
  T& operator[](uint32_t at) { return items_[at]; }
  const T& operator[](uint32_t at) const { return items_[at]; }

  uint32_t in_use() const { return in_use_; }
  uint32_t left() const { return items_max_ - in_use_; }
  // One more than the largest index ever taken.
  uint32_t size() const { return static_cast<uint32_t>(items_.size()); }

 private:
  std::vector<T> items_;
  uint32_t items_max_;
  uint32_t in_use_ = 0;
  uint32_t free_ = kNil;
};

}  // namespace strata::graph
