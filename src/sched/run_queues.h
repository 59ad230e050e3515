// RunQueues: what the scheduler knows of one run: its ready tasks by who may take them, and counts.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "sched/ready_queue.h"
#include "sched/types.h"
#include "sched/worker_queues.h"

namespace strata::sched {

struct RunQueues {
  std::array<ReadyQueue, WorkerQueues::kClassesMax> shared;  // by class
  uint64_t shared_classes = 0;                               // those with ready tasks
  std::vector<ReadyQueue> directed;                          // by worker
  std::vector<uint32_t> active;    // workers with directed tasks that may have room
  std::vector<bool> is_active;     // by worker: stands in `active`
  std::vector<uint32_t> stranded;  // closed workers with directed tasks
  ReadyQueue groups;
  uint32_t head_group = kNone;        // slot of the one that reserves workers
  std::vector<Assignment> launching;  // members of launched groups, not yet at their workers
  uint32_t ready = 0;                 // tasks and groups in all of these
  uint32_t live = 0;
  uint32_t submitted = 0;
  uint32_t cancel_cause = 0;
  bool cancelled = false;
  bool sealed = false;
};

}  // namespace strata::sched
