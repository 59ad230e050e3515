// Draft: one task or group as it will be submitted, drawn from a seed: arguments for the engine and
// the same in the oracle's words. One thread.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "sim/level.h"
#include "sim/oracle.h"
#include "strata/task_args.h"

namespace strata::sim {

struct Draft {
  std::vector<TaskArgs> members;  // one where it is no group
  uint32_t deadline_ms = 0;
  engine::Pool pool = engine::Pool::kSub;
  std::vector<int32_t> workers;  // none, or one for each member; -1: any
  std::shared_ptr<SimCallable> callable;
  Oracle::Task task;  // access i of part p stands for argument i of member p
  std::vector<std::shared_ptr<SimBuffer>> buffers;
  bool wants_storage = false;
  bool invalid = false;  // a view leaves its buffer, or members conflict: must be refused
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
// Members whose accesses need no order among them.
Draft draw_group(base::Prng& prng, const Shared& shared,
                 std::span<const std::shared_ptr<SimBuffer>> buffers, uint32_t run, uint32_t task,
                 uint32_t members);
// One that only reads, or only writes, these bytes.
Draft probe(const std::shared_ptr<SimBuffer>& buffer, const Tensor& view, TensorArgType tag,
            uint32_t run, uint32_t task);

// Which callable, pool and members it may have, and then which workers; from what is up now.
struct Target {
  std::shared_ptr<SimCallable> callable;
  engine::Pool pool = engine::Pool::kSub;
  std::vector<uint32_t> up;  // workers of the pool that have the callable
};
Target draw_target(base::Prng& prng, const Level& level,
                   const std::shared_ptr<SimCallable>& callable);
void aim(base::Prng& prng, const Level& level, const Target& target, Draft* draft);

}  // namespace strata::sim
