// The records that TensorMap keeps in its pools; plain values that name each other by index.
// For TensorMap alone, which says what they mean together.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/interval_index.h"
#include "graph/pool.h"
#include "graph/region.h"

namespace strata::graph::detail {

// One access that add recorded. In its task's list until remove; in its cell, as the writer or
// in the list of readers, until a later writer stands for it (then cell is kNil).
struct Use {
  uint32_t next;  // of the same task
  uint32_t task;
  uint32_t cell;
  uint32_t newer;  // readers of the same cell
  uint32_t older;
};

// A distinct region of a buffer with its live accesses, or idle.
struct alignas(64) Cell {
  union {
    uint32_t next;   // not in use: the free list
    uint32_t links;  // in use: the first of its sides of links
  };
  uint32_t buffer;   // kNil in a cell that is not in use
  uint32_t writer;   // Use of the last live writer
  uint32_t readers;  // Use of the newest live reader since
  uint32_t stamp;    // now_ at its last access: its age, by difference
  uint32_t place;    // in its buffer's index
  Region region;
  bool idle() const { return writer == kNil && readers == kNil; }
};
static_assert(sizeof(Cell) == 64, "one cache line");

// Two overlapping cells; side i is in the list of one and names the other. Side i of link n has
// the index 2n + i.
struct Side {
  uint32_t cell;
  uint32_t next;
  uint32_t previous;
  bool by_cover;
  bool contained;  // the cell that it names lies surely inside the one whose list it is in
};
struct Link {
  uint32_t next;  // free list only
  Side sides[2];
};

struct BufferCells {
  IntervalIndex cells;    // all of them
  uint32_t sweep_at = 0;  // how many at which idle ones are looked for
};

// Of the open-addressing table; empty where cell is kNil.
struct TableSlot {
  uint32_t hash;
  uint32_t cell;
};

// A cell that is to be linked or dropped.
struct Candidate {
  uint32_t cell;
  uint32_t age;
  bool by_cover;
};

}  // namespace strata::graph::detail
