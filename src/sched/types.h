// The values that the scheduler takes and gives. Not thread-safe, no I/O.
#pragma once

#include <cstdint>

#include "graph/tensor_map.h"

namespace strata::sched {

inline constexpr uint32_t kNone = ~uint32_t{0};

enum class Outcome : uint8_t {
  kOk = 0,
  kTaskFailed = 1,
  kEndpointFailed = 2,  // the worker was lost: the task may have run
  kSkipped = 3,         // never started: poisoned, cancelled or without a worker
};

// One tensor of a task: which bytes of which buffer it touches, and how. Neither reads nor writes:
// no dependency.
using Access = graph::TensorMap::Access;

// Workers that may take the same tasks, as the caller sees them: two pools, which every worker is
// in one of, and classes of some of a pool's workers.
inline constexpr uint32_t kPools = 2;

// Who may take a task: any worker of a class, or one alone.
struct Target {
  uint32_t cls = 0;
  uint32_t worker = kNone;
};

// A slot goes to the queue of a worker.
struct Assignment {
  uint32_t slot;
  uint32_t worker;
};

// A slot's life: kFree -> kWaiting (for producers) -> kReady -> kQueued (at a worker) -> kTerminal
// -> kFree. Back from kQueued to kReady when it is taken back or its worker is lost before start;
// from kWaiting or kReady straight to kTerminal when it is skipped. A group's own slot is kLaunched
// instead of kQueued: its members are at workers.
enum class SlotState : uint8_t { kFree, kWaiting, kReady, kQueued, kLaunched, kTerminal };

}  // namespace strata::sched
