// Draft: one task as it will be submitted, drawn from a seed: arguments for the engine and the same
// in the oracle's words. One thread.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "sim/level.h"
#include "sim/oracle.h"
#include "strata/task_args.h"

namespace strata::sim {

struct Draft {
  TaskArgs args;
  Oracle::Task task;
  std::vector<std::shared_ptr<SimBuffer>> buffers;
  uint32_t result_bytes = 0;
  bool invalid = false;  // a view leaves its buffer: must be refused
  // What the run of a seed is counted by.
  bool inout = false;
  bool overlaps = false;  // a view that is no tile of the common grid
};

// A view of a buffer of `bytes` bytes.
Tensor whole_of(const SimBuffer& buffer);
Tensor draw_view(base::Prng& prng, const Options& options, const SimBuffer& buffer, bool* overlaps);

// Over some of `buffers`, which is not empty. `task` is the number that the oracle will give.
Draft draw_task(base::Prng& prng, const Shared& shared,
                std::span<const std::shared_ptr<SimBuffer>> buffers, uint32_t run, uint32_t task);
// A task that only reads, or only writes, these bytes.
Draft probe(const std::shared_ptr<SimBuffer>& buffer, const Tensor& view, TensorArgType tag,
            uint32_t run, uint32_t task);

}  // namespace strata::sim
