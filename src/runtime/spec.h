// What a WorkerSpec may hold, with all Workers below it.
#pragma once

#include <cstdint>

#include "strata/result.h"
#include "strata/worker_spec.h"

namespace strata::runtime {

inline constexpr int kLowestLevel = 3;     // no Worker is below one of it
inline constexpr int kChildrenMax = 1024;  // of a Worker

// kInvalidArgument that names the field, and where a Worker below is wrong, which one.
Result<void> check_spec(const WorkerSpec& spec);
// The same for a child of a Worker of that level.
Result<void> check_child_spec(const WorkerSpec& child, int parent_level);
// How long the children of such a Worker may take to exit and to be ready: child Workers need the
// time of their own children too.
uint32_t exit_grace_ms(const WorkerSpec& spec);
uint32_t ready_limit_ms(const WorkerSpec& spec);
// What a control of a child Worker may take beside the parent's Timeouts::control_ms: it passes
// two registrations of two phases on to its children.
uint32_t control_below_ms(const WorkerSpec& child);

}  // namespace strata::runtime
