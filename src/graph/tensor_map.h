// TensorMap: which live tasks a new access of bytes must come after.
// Reader after writer, writer after readers, writer after writer, over all regions of a buffer
// that overlap. Knows tasks and buffers by the caller's indices only; knows nothing of their
// states: an access lives from `add` to `remove`.
// Pure; one thread at a time.
//
// Order of removal: a task may leave only after every producer that `add` reported for it has
// left. A writer stands for all that it was ordered after, so a task that is skipped or cancelled
// early must stay in the map until its producers are terminal.
//
// Each distinct region that is accessed has a *cell*, found by hash. A cell knows its last writer,
// the readers since, and its *neighbours*: the cells that overlap it, found once when a cell is
// made. An access of a known region therefore costs O(1 + neighbours). A cell without accesses is
// idle and is kept for the next access, within the limits below.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "base/result.h"
#include "graph/cell.h"
#include "graph/pool.h"
#include "graph/region.h"

namespace strata::graph {

class TensorMap {
 public:
  struct Limits {
    uint32_t tasks = 16'384;           // task indices are below this
    uint32_t buffers = 65'536;         // buffer indices are below this
    uint32_t accesses = 262'144;       // accesses of all live tasks
    uint32_t idle_cells = 32'768;      // idle cells in all buffers, about
    uint32_t idle_of_buffer = 16'384;  // idle cells of one buffer, about
    uint32_t links = 1'048'576;        // pairs of overlapping cells
  };
  // A new cell is linked to all overlapping live cells and at most this many idle ones; the idle
  // ones beyond, oldest first, are dropped. Bounds the cost of a region that grows step by step.
  static constexpr uint32_t kIdleNeighboursMax = 64;

  struct Access {
    uint32_t buffer;
    Region region;
    bool reads;
    bool writes;
  };

  explicit TensorMap(const Limits& limits);
  TensorMap(const TensorMap&) = delete;
  TensorMap& operator=(const TensorMap&) = delete;

  // Whether one task may add all of `accesses` now: after ok, these adds succeed if nothing else
  // is added between. Code::kResourceExhausted, Scope::kCall else. Call it before the first add of
  // a task with more than one access: a task that is half added cannot be taken back, because a
  // write drops what it is ordered after.
  Result<void> reserve(std::span<const Access> accesses);

  // Records an access and calls on_edge(producer, by_cover) for every live task that it must come
  // after; never for `task` itself; a producer may come more than once. by_cover: only covering
  // ranges say that the two meet. An access of no bytes, or one that neither reads nor writes, is
  // nothing. Code::kResourceExhausted, Scope::kCall: a limit is reached, and nothing is recorded.
  template <class OnEdge>
  Result<void> add(uint32_t task, uint32_t buffer, const Region& region, bool reads, bool writes,
                   OnEdge&& on_edge);

  // The task is terminal: its accesses leave. O(its accesses). Nothing if it has none.
  void remove(uint32_t task);

  // The buffer is gone; its index may be used for another. No access of it is live.
  void drop_buffer(uint32_t buffer);

  // Whether an access of exactly `region` finds its cell.
  bool has_cell(uint32_t buffer, const Region& region) const {
    return find(buffer, region, hash_of(buffer, region)) != kNil;
  }
  uint32_t cells() const { return cells_.in_use(); }         // live and idle
  uint32_t live_cells() const;                               // O(cells)
  uint32_t live_accesses() const { return uses_.in_use(); }  // of tasks that were not removed
  uint32_t links() const { return links_.in_use(); }         // pairs of overlapping cells

 private:
  using Use = detail::Use;
  using Cell = detail::Cell;
  using Side = detail::Side;
  using Link = detail::Link;
  using BufferCells = detail::BufferCells;
  using TableSlot = detail::TableSlot;
  using Candidate = detail::Candidate;

  static uint32_t hash_of(uint32_t buffer, const Region& region) {
    const uint64_t hash = graph::hash_of(region) ^ buffer * 0x9e3779b97f4a7c15ull;
    return static_cast<uint32_t>(hash >> 32 ^ hash);
  }
  uint32_t find(uint32_t buffer, const Region& region, uint32_t hash) const {
    for (uint32_t i = hash & table_mask_;; i = (i + 1) & table_mask_) {
      const TableSlot slot = table_[i];
      if (slot.cell == kNil) return kNil;
      if (slot.hash != hash) continue;
      const Cell& cell = cells_[slot.cell];
      if (cell.buffer == buffer && cell.region == region) return slot.cell;
    }
  }
  const Side& side(uint32_t at) const { return links_[at >> 1].sides[at & 1]; }
  Side& side(uint32_t at) { return links_[at >> 1].sides[at & 1]; }

  uint32_t take_use(uint32_t task, uint32_t cell) {
    const uint32_t at = uses_.take();
    uses_[at] = {first_use_[task], task, cell, kNil, kNil};
    first_use_[task] = at;
    return at;
  }
  template <class OnEdge>
  void read(uint32_t task, uint32_t at, OnEdge& on_edge);
  template <class OnEdge>
  void write(uint32_t task, uint32_t at, OnEdge& on_edge);
  // Reports the writer (and the readers) of a cell, except `task`; tells whether `task` writes it.
  template <class OnEdge>
  bool report(const Cell& cell, uint32_t task, bool readers_too, bool by_cover, OnEdge& on_edge);

  void forget_uses(Cell& cell);
  Result<uint32_t> make_cell(uint32_t buffer, const Region& region, uint32_t hash);
  void find_neighbours(uint32_t buffer, const Region& region);
  void drop_idle_neighbours();
  void connect(uint32_t a, uint32_t b, bool by_cover);
  void unlink_side(uint32_t at);
  void drop_cell(uint32_t at);
  void drop_oldest(uint32_t keep);
  void sweep_buffer(BufferCells& of);
  void sweep_all(uint32_t keep);
  uint64_t links_for(std::span<const Access> accesses, bool exact) const;
  void table_insert(uint32_t hash, uint32_t cell);
  void table_erase(uint32_t hash, uint32_t cell);
  Error accesses_reached(uint64_t wanted) const;
  Error links_reached(uint64_t wanted) const;

  Limits limits_;
  uint32_t now_ = 0;           // adds so far, wrapping
  uint32_t sweep_all_at_ = 0;  // cells in use at which idle ones are looked for
  uint32_t table_mask_ = 0;
  std::vector<TableSlot> table_;       // open addressing, linear probes, at most half full
  std::vector<uint32_t> first_use_;    // by task
  std::vector<BufferCells> buffers_;   // by buffer; grows to the largest index seen
  std::vector<Candidate> candidates_;  // scratch of make_cell and of the sweeps
  Pool<Use> uses_;
  Pool<Cell> cells_;
  Pool<Link> links_;
};

template <class OnEdge>
Result<void> TensorMap::add(uint32_t task, uint32_t buffer, const Region& region, bool reads,
                            bool writes, OnEdge&& on_edge) {
  STRATA_DCHECK(task < first_use_.size());
  if (region.empty() || !(reads || writes)) return {};
  if (uses_.left() == 0) return accesses_reached(1);
  const uint32_t hash = hash_of(buffer, region);
  uint32_t at = find(buffer, region, hash);
  if (at == kNil) {
    STRATA_ASSIGN(at, make_cell(buffer, region, hash));
  }
  cells_[at].stamp = ++now_;
  if (writes) {
    write(task, at, on_edge);
  } else {
    read(task, at, on_edge);
  }
  return {};
}

template <class OnEdge>
bool TensorMap::report(const Cell& cell, uint32_t task, bool readers_too, bool by_cover,
                       OnEdge& on_edge) {
  bool own = false;
  if (cell.writer != kNil) {
    const uint32_t producer = uses_[cell.writer].task;
    own = producer == task;
    if (!own) on_edge(producer, by_cover);
  }
  if (!readers_too) return own;
  for (uint32_t use = cell.readers; use != kNil; use = uses_[use].older) {
    if (uses_[use].task != task) on_edge(uses_[use].task, by_cover);
  }
  return own;
}

template <class OnEdge>
void TensorMap::read(uint32_t task, uint32_t at, OnEdge& on_edge) {
  Cell& cell = cells_[at];
  const bool writes_it = report(cell, task, false, cell.region.cover, on_edge);
  for (uint32_t i = cell.links; i != kNil; i = side(i).next) {
    report(cells_[side(i).cell], task, false, side(i).by_cover, on_edge);
  }
  // Its write, or its other read, stands for this one.
  if (writes_it || (cell.readers != kNil && uses_[cell.readers].task == task)) return;
  const uint32_t use = take_use(task, at);
  uses_[use].older = cell.readers;
  if (cell.readers != kNil) uses_[cell.readers].newer = use;
  cell.readers = use;
}

// The new writer stands for every access that it is ordered after and whose bytes it covers: who
// meets those bytes later meets the writer too.
template <class OnEdge>
void TensorMap::write(uint32_t task, uint32_t at, OnEdge& on_edge) {
  Cell& cell = cells_[at];
  report(cell, task, true, cell.region.cover, on_edge);
  if (!cell.idle()) forget_uses(cell);
  for (uint32_t i = cell.links; i != kNil; i = side(i).next) {
    Cell& other = cells_[side(i).cell];
    if (other.idle()) continue;
    report(other, task, true, side(i).by_cover, on_edge);
    if (side(i).contained) forget_uses(other);
  }
  cell.writer = take_use(task, at);
}

}  // namespace strata::graph
