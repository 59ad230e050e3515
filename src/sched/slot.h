// Slot: a task's place in the scheduler. Read by the engine, written by the scheduler alone.
#pragma once

#include <cstdint>

#include "base/block_pool.h"
#include "sched/types.h"

namespace strata::sched {

struct Slot {
  uint64_t order = 0;   // submission number at this Worker, from 1
  uint64_t ticket = 0;  // the endpoint's name for it, while kQueued
  uint32_t generation = 0;
  uint32_t run = 0;
  uint32_t run_task = 0;  // number within the run
  uint32_t worker = kNone;
  uint32_t cause = 0;  // why, for outcomes other than kOk
  SlotState state = SlotState::kFree;
  Outcome outcome = Outcome::kOk;
  uint8_t cls = 0;       // who may take it
  bool member = false;   // of the group in `group`
  uint32_t pending = 0;  // producers that are not terminal
  uint32_t first_edge = kNone;
  uint64_t counted_by = 0;  // order of the last task that counted this one as a producer
  uint32_t access_count = 0;
  uint32_t payload_bytes = 0;
  base::BlockPool::Block body;  // the accesses, then the caller's payload
  uint32_t directed = kNone;    // the one worker that may take it
  uint32_t group = kNone;       // of a group's own slot and of its members
};

}  // namespace strata::sched
