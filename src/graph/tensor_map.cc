#include "graph/tensor_map.h"

#include <algorithm>
#include <string>

namespace strata::graph {
namespace {

constexpr uint32_t kTableSlotsMin = 1024;

// Cells in use never pass this: live ones have an access each, and idle ones are swept before half
// of their limit was made anew.
uint32_t cells_max(const TensorMap::Limits& limits) {
  return limits.accesses + limits.idle_cells + limits.idle_cells / 2 + 2;
}

}  // namespace

TensorMap::TensorMap(const Limits& limits)
    : limits_(limits),
      sweep_all_at_(limits.idle_cells),
      table_mask_(kTableSlotsMin - 1),
      table_(kTableSlotsMin, TableSlot{0, kNil}),
      first_use_(limits.tasks, kNil),
      uses_(limits.accesses),
      cells_(cells_max(limits)),
      links_(limits.links) {}

void TensorMap::remove(uint32_t task) {
  STRATA_DCHECK(task < first_use_.size());
  uint32_t at = first_use_[task];
  first_use_[task] = kNil;
  while (at != kNil) {
    const Use use = uses_[at];
    if (use.cell != kNil) {
      Cell& cell = cells_[use.cell];
      if (cell.writer == at) {
        cell.writer = kNil;
      } else {
        if (use.older != kNil) uses_[use.older].newer = use.newer;
        (use.newer != kNil ? uses_[use.newer].older : cell.readers) = use.older;
      }
    }
    uses_.give(at);
    at = use.next;
  }
}

void TensorMap::drop_buffer(uint32_t buffer) {
  if (buffer >= buffers_.size()) return;
  BufferCells& of = buffers_[buffer];
  while (!of.cells.empty()) {
    const uint32_t at = of.cells.any();
    STRATA_CHECK(cells_[at].idle());
    drop_cell(at);
  }
  of = BufferCells{};
}

uint32_t TensorMap::live_cells() const {
  uint32_t live = 0;
  for (uint32_t at = 0; at < cells_.size(); ++at) {
    live += cells_[at].buffer != kNil && !cells_[at].idle();
  }
  return live;
}

Result<void> TensorMap::reserve(std::span<const Access> accesses) {
  if (accesses.size() > uses_.left()) return accesses_reached(accesses.size());
  // The cheap bound first, the count of what overlaps only where it does not fit, and only then
  // the loss of the idle cells.
  if (links_for(accesses, false) <= links_.left()) return {};
  if (links_for(accesses, true) <= links_.left()) return {};
  sweep_all(0);
  const uint64_t wanted = links_for(accesses, true);
  if (wanted > links_.left()) return links_reached(wanted);
  return {};
}

// The most pairs that the adds of `accesses` can make. Counts cells that exist too: an idle one may
// be dropped by the add before it and be made again.
uint64_t TensorMap::links_for(std::span<const Access> accesses, bool exact) const {
  uint64_t most = 0;
  for (const Access& access : accesses) {
    most += accesses.size();
    if (access.buffer >= buffers_.size()) continue;
    const detail::IntervalIndex& near = buffers_[access.buffer].cells;
    if (!exact) {
      most += near.size();
    } else if (!access.region.empty()) {
      near.for_each_near(access.region.begin, access.region.end(),
                         [&](uint32_t at) { most += overlap(cells_[at].region, access.region); });
    }
  }
  return most;
}

Error TensorMap::accesses_reached(uint64_t wanted) const {
  return Error(Code::kResourceExhausted, Scope::kCall,
               "the live tasks have " + std::to_string(uses_.in_use()) + " tensor accesses and " +
                   std::to_string(wanted) + " more are wanted; the limit `accesses` is " +
                   std::to_string(limits_.accesses));
}

Error TensorMap::links_reached(uint64_t wanted) const {
  return Error(Code::kResourceExhausted, Scope::kCall,
               "the tensors of the live tasks overlap in " + std::to_string(links_.in_use()) +
                   " pairs and " + std::to_string(wanted) +
                   " more are wanted; the limit `links` is " + std::to_string(limits_.links));
}

void TensorMap::forget_uses(Cell& cell) {
  if (cell.writer != kNil) uses_[cell.writer].cell = kNil;
  for (uint32_t use = cell.readers; use != kNil; use = uses_[use].older) uses_[use].cell = kNil;
  cell.writer = kNil;
  cell.readers = kNil;
}

// Changes nothing but idle cells until it is sure to succeed.
Result<uint32_t> TensorMap::make_cell(uint32_t buffer, const Region& region, uint32_t hash) {
  STRATA_CHECK(buffer < limits_.buffers);
  STRATA_DCHECK(region.rows == 1 ? region.pitch == 0 : region.row_bytes < region.pitch);
  if (buffer >= buffers_.size()) buffers_.resize(buffer + 1);
  if (cells_.in_use() >= sweep_all_at_) {
    sweep_all(limits_.idle_cells / 2);
    sweep_all_at_ = cells_.in_use() + limits_.idle_cells / 2 + 1;
  }
  BufferCells& of = buffers_[buffer];
  if (of.cells.size() >= std::max(of.sweep_at, limits_.idle_of_buffer)) sweep_buffer(of);
  find_neighbours(buffer, region);
  drop_idle_neighbours();
  if (candidates_.size() > links_.left()) {
    sweep_all(0);
    find_neighbours(buffer, region);
    if (candidates_.size() > links_.left()) return links_reached(candidates_.size());
  }

  const uint32_t at = cells_.take();
  Cell& cell = cells_[at];
  cell.links = kNil;
  cell.buffer = buffer;
  cell.writer = kNil;
  cell.readers = kNil;
  cell.place = of.cells.insert(region.begin, region.end(), at);
  cell.region = region;
  for (const Candidate& candidate : candidates_) connect(at, candidate.cell, candidate.by_cover);
  table_insert(hash, at);
  return at;
}

// Into candidates_: the cells of `buffer` that overlap `region`.
void TensorMap::find_neighbours(uint32_t buffer, const Region& region) {
  candidates_.clear();
  buffers_[buffer].cells.for_each_near(region.begin, region.end(), [&](uint32_t at) {
    const Cell& cell = cells_[at];
    const Overlap kind = overlap_kind(cell.region, region);
    if (kind == Overlap::kNone) return;
    candidates_.push_back({at, now_ - cell.stamp, kind == Overlap::kCover});
  });
}

// Drops the oldest idle ones among the candidates beyond kIdleNeighboursMax, from the map and from
// the candidates.
void TensorMap::drop_idle_neighbours() {
  if (candidates_.size() <= kIdleNeighboursMax) return;
  const auto idle = std::partition(candidates_.begin(), candidates_.end(),
                                   [this](Candidate c) { return !cells_[c.cell].idle(); });
  if (candidates_.end() - idle <= kIdleNeighboursMax) return;
  const auto first_dropped = idle + kIdleNeighboursMax;
  std::nth_element(idle, first_dropped, candidates_.end(), [](Candidate a, Candidate b) {
    return a.age != b.age ? a.age < b.age : a.cell < b.cell;
  });
  for (auto it = first_dropped; it != candidates_.end(); ++it) drop_cell(it->cell);
  candidates_.erase(first_dropped, candidates_.end());
}

void TensorMap::connect(uint32_t a, uint32_t b, bool by_cover) {
  const uint32_t link = links_.take();
  const auto place = [&](uint32_t i, Cell& of, uint32_t named) {
    const uint32_t at = 2 * link + i;
    side(at) = {named, of.links, kNil, by_cover, contains(of.region, cells_[named].region)};
    if (of.links != kNil) side(of.links).previous = at;
    of.links = at;
  };
  place(0, cells_[a], b);
  place(1, cells_[b], a);
}

// Takes the side out of the list of the cell that its twin names.
void TensorMap::unlink_side(uint32_t at) {
  const Side& out = side(at);
  if (out.next != kNil) side(out.next).previous = out.previous;
  (out.previous != kNil ? side(out.previous).next : cells_[side(at ^ 1).cell].links) = out.next;
}

void TensorMap::drop_cell(uint32_t at) {
  Cell& cell = cells_[at];
  STRATA_DCHECK(cell.idle());
  for (uint32_t i = cell.links; i != kNil;) {
    const uint32_t next = side(i).next;
    unlink_side(i ^ 1);
    links_.give(i >> 1);
    i = next;
  }
  buffers_[cell.buffer].cells.erase(
      cell.region.begin, cell.region.end(), cell.place,
      [this](uint32_t moved, uint32_t place) { cells_[moved].place = place; });
  table_erase(hash_of(cell.buffer, cell.region), at);
  cell.buffer = kNil;
  cells_.give(at);
}

// Of the idle cells in candidates_, drops all but the `keep` youngest.
void TensorMap::drop_oldest(uint32_t keep) {
  if (candidates_.size() <= keep) return;
  const auto first_dropped = candidates_.begin() + keep;
  std::nth_element(
      candidates_.begin(), first_dropped, candidates_.end(),
      [](Candidate a, Candidate b) { return a.age != b.age ? a.age < b.age : a.cell < b.cell; });
  for (auto it = first_dropped; it != candidates_.end(); ++it) drop_cell(it->cell);
}

// Looks at all cells of a buffer, and again only when it has got half the limit more: each cell
// that is made pays for a few that are looked at.
void TensorMap::sweep_buffer(BufferCells& of) {
  candidates_.clear();
  of.cells.for_each([this](uint32_t at) {
    const Cell& cell = cells_[at];
    if (cell.idle()) candidates_.push_back({at, now_ - cell.stamp, false});
  });
  if (candidates_.size() >= limits_.idle_of_buffer) drop_oldest(limits_.idle_of_buffer / 2);
  of.sweep_at = static_cast<uint32_t>(of.cells.size()) + limits_.idle_of_buffer / 2 + 1;
}

void TensorMap::sweep_all(uint32_t keep) {
  candidates_.clear();
  for (uint32_t at = 0; at < cells_.size(); ++at) {
    const Cell& cell = cells_[at];
    if (cell.buffer != kNil && cell.idle()) {
      candidates_.push_back({at, now_ - cell.stamp, false});
    }
  }
  drop_oldest(keep);
}

void TensorMap::table_insert(uint32_t hash, uint32_t cell) {
  if (2 * uint64_t{cells_.in_use()} > table_.size()) {
    std::vector<TableSlot> old(2 * table_.size(), TableSlot{0, kNil});
    old.swap(table_);
    table_mask_ = static_cast<uint32_t>(table_.size() - 1);
    for (const TableSlot& slot : old) {
      if (slot.cell == kNil) continue;
      uint32_t i = slot.hash & table_mask_;
      while (table_[i].cell != kNil) i = (i + 1) & table_mask_;
      table_[i] = slot;
    }
  }
  uint32_t i = hash & table_mask_;
  while (table_[i].cell != kNil) i = (i + 1) & table_mask_;
  table_[i] = {hash, cell};
}

// Moves later entries of the probe back into the gap, so that a lookup may stop at the first one.
void TensorMap::table_erase(uint32_t hash, uint32_t cell) {
  uint32_t gap = hash & table_mask_;
  while (table_[gap].cell != cell) gap = (gap + 1) & table_mask_;
  for (uint32_t i = (gap + 1) & table_mask_; table_[i].cell != kNil; i = (i + 1) & table_mask_) {
    const uint32_t home = table_[i].hash & table_mask_;
    if (((i - home) & table_mask_) < ((i - gap) & table_mask_)) continue;
    table_[gap] = table_[i];
    gap = i;
  }
  table_[gap] = {0, kNil};
}

}  // namespace strata::graph
