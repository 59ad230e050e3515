// IntervalIndex: which cells of a buffer lie near a range, without a look at all of them.
//
// Cells stand in levels by the power of two that holds their length, and within a level in buckets
// of that width by where they begin: a cell can meet a range only from the buckets that the range
// touches and the one before. A level with fewer cells than the range has buckets is looked through
// whole. For TensorMap alone; it keeps numbers of cells, and knows no region.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "graph/pool.h"

namespace strata::graph::detail {

// Open addressing from a non-zero key to a number; without tombstones.
class FlatMap {
 public:
  uint32_t find(uint64_t key) const {
    if (slots_.empty()) return kNil;
    for (uint64_t i = hash(key) & mask(); slots_[i].value != kNil; i = (i + 1) & mask()) {
      if (slots_[i].key == key) return slots_[i].value;
    }
    return kNil;
  }
  // The place of the key's number, which is kNil for a new one and must then be set.
  uint32_t& at(uint64_t key) {
    if (2 * (used_ + 1) > slots_.size()) grow();
    uint64_t i = hash(key) & mask();
    while (slots_[i].value != kNil && slots_[i].key != key) i = (i + 1) & mask();
    if (slots_[i].value == kNil) ++used_;
    slots_[i].key = key;
    return slots_[i].value;
  }
  void erase(uint64_t key) {
    uint64_t gap = hash(key) & mask();
    while (slots_[gap].key != key || slots_[gap].value == kNil) gap = (gap + 1) & mask();
    for (uint64_t i = (gap + 1) & mask(); slots_[i].value != kNil; i = (i + 1) & mask()) {
      const uint64_t home = hash(slots_[i].key) & mask();
      if (((i - home) & mask()) < ((i - gap) & mask())) continue;
      slots_[gap] = slots_[i];
      gap = i;
    }
    slots_[gap] = {};
    --used_;
  }

 private:
  struct Slot {
    uint64_t key = 0;
    uint32_t value = kNil;
  };
  uint64_t mask() const { return slots_.size() - 1; }
  static uint64_t hash(uint64_t key) { return (key * 0x9e3779b97f4a7c15ull) >> 20; }
  void grow() {
    std::vector<Slot> old(slots_.empty() ? 64 : 2 * slots_.size());
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.value == kNil) continue;
      uint64_t i = hash(slot.key) & mask();
      while (slots_[i].value != kNil) i = (i + 1) & mask();
      slots_[i] = slot;
    }
  }
  std::vector<Slot> slots_;
  uint64_t used_ = 0;
};

// The index of one buffer.
class IntervalIndex {
 public:
  // `cell` is a small number, dense over all buffers: it names a place in the caller's tables.
  struct Entry {
    uint64_t begin;
    uint64_t end;
    uint32_t cell;
    uint32_t next;  // entry of the same bucket
    uint32_t previous;
  };

  // Gives the place by which the entry is erased; it changes when another one is (moved).
  uint32_t insert(uint64_t begin, uint64_t end, uint32_t cell) {
    const uint32_t level = level_of(begin, end);
    Level& of = level_at(level);
    const auto at = static_cast<uint32_t>(of.entries.size());
    uint32_t& head = buckets_.at(key(level, begin >> level));
    of.entries.push_back({begin, end, cell, head, kNil});
    if (head != kNil) of.entries[head].previous = at;
    head = at;
    ++size_;
    return at;
  }

  // moved(cell, place): another entry has taken the gap.
  template <class Moved>
  void erase(uint64_t begin, uint64_t end, uint32_t place, Moved&& moved) {
    const uint32_t level = level_of(begin, end);
    Level& of = level_at(level);
    unlink(level, of, place);
    const auto last = static_cast<uint32_t>(of.entries.size() - 1);
    if (place != last) {
      of.entries[place] = of.entries[last];
      Entry& entry = of.entries[place];
      if (entry.next != kNil) of.entries[entry.next].previous = place;
      if (entry.previous != kNil) {
        of.entries[entry.previous].next = place;
      } else {
        buckets_.at(key(level, entry.begin >> level)) = place;
      }
      moved(entry.cell, place);
    }
    of.entries.pop_back();
    if (of.entries.empty()) levels_used_ &= ~(uint64_t{1} << level);
    --size_;
  }

  // visit(cell) for every entry that meets [begin, end), in an order that calls alone decide.
  template <class Visit>
  void for_each_near(uint64_t begin, uint64_t end, Visit&& visit) const {
    for (uint64_t left = levels_used_; left != 0; left &= left - 1) {
      const auto level = static_cast<uint32_t>(std::countr_zero(left));
      const Level& of = levels_[level];
      const uint64_t first = begin >> level == 0 ? 0 : (begin >> level) - 1;
      const uint64_t last = (end - 1) >> level;
      const auto meets = [&](const Entry& e) { return e.begin < end && begin < e.end; };
      if (last - first >= of.entries.size()) {
        for (const Entry& entry : of.entries) {
          if (meets(entry)) visit(entry.cell);
        }
        continue;
      }
      for (uint64_t bucket = first; bucket <= last; ++bucket) {
        uint32_t at = buckets_.find(key(level, bucket));
        for (; at != kNil; at = of.entries[at].next) {
          if (meets(of.entries[at])) visit(of.entries[at].cell);
        }
      }
    }
  }

  template <class Visit>
  void for_each(Visit&& visit) const {
    for (uint64_t left = levels_used_; left != 0; left &= left - 1) {
      for (const Entry& entry : levels_[std::countr_zero(left)].entries) visit(entry.cell);
    }
  }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  // Any one of its cells.
  uint32_t any() const { return levels_[std::countr_zero(levels_used_)].entries.back().cell; }

 private:
  struct Level {
    std::vector<Entry> entries;
  };

  static uint32_t level_of(uint64_t begin, uint64_t end) {
    STRATA_DCHECK(begin < end);
    return static_cast<uint32_t>(std::bit_width(end - begin - 1));
  }
  static uint64_t key(uint32_t level, uint64_t bucket) { return (bucket << 6 | level) + 1; }
  Level& level_at(uint32_t level) {
    if (level >= levels_.size()) levels_.resize(level + 1);
    levels_used_ |= uint64_t{1} << level;
    return levels_[level];
  }
  void unlink(uint32_t level, Level& of, uint32_t place) {
    const Entry entry = of.entries[place];
    if (entry.next != kNil) of.entries[entry.next].previous = entry.previous;
    if (entry.previous != kNil) {
      of.entries[entry.previous].next = entry.next;
    } else if (entry.next != kNil) {
      buckets_.at(key(level, entry.begin >> level)) = entry.next;
    } else {
      buckets_.erase(key(level, entry.begin >> level));
    }
  }

  std::vector<Level> levels_;
  uint64_t levels_used_ = 0;
  FlatMap buckets_;  // the first entry of each bucket
  size_t size_ = 0;
};

}  // namespace strata::graph::detail
