// Scheduler: from accesses to an order of execution. It knows slots, edges, runs and queues; it
// knows no callable, no endpoint and no clock. The caller locks, carries out the assignments and
// reports what became of them.
//
//   while (auto a = scheduler.next_assignment()) { ...give it to the worker...; assigned(...) }
//   while (auto t = scheduler.next_take_back()) { ...revoke it...; requeue or take_back_failed }
//   for (uint32_t slot : scheduler.terminal()) { ...account... }
//   scheduler.release_terminal();
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/block_pool.h"
#include "graph/poison.h"
#include "graph/tensor_map.h"
#include "sched/ready_queue.h"
#include "sched/types.h"
#include "sched/worker_queues.h"

namespace strata::sched {

class Scheduler {
 public:
  // Runs in flight: one executes, the next is built.
  static constexpr uint32_t kRunsMax = 2;

  struct Options {
    uint32_t slots = 16'384;
    uint32_t depth = 16;
    uint32_t buffers = 65'536;
    size_t body_bytes_max = size_t{512} << 20;  // accesses and arguments of all live tasks
  };

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
    uint32_t pending = 0;  // producers that are not terminal
    uint32_t first_edge = kNone;
    uint64_t counted_by = 0;  // order of the last task that counted this one as a producer
    uint32_t access_count = 0;
    uint32_t payload_bytes = 0;
    base::BlockPool::Block body;  // the accesses, then the caller's payload
  };

  explicit Scheduler(const Options& options);

  // --- Runs. A run executes when all earlier ones are done.
  bool can_open_run() const { return next_run_ - first_run_ < kRunsMax; }
  uint32_t open_run();
  void seal_run(uint32_t run);        // its orchestration function has returned
  bool run_done(uint32_t run) const;  // sealed, and all its tasks released
  // Ready tasks and those that become ready are skipped with `cause`. The caller revokes others.
  void cancel_run(uint32_t run, uint32_t cause);

  // --- Submission.
  // Room for one more task; else wait until some are released.
  bool admits(std::span<const Access> accesses, size_t payload_bytes);
  // Needs admits(). `payload` of the slot is the caller's until release().
  uint32_t submit(uint32_t run, std::span<const Access> accesses, size_t payload_bytes);
  std::span<std::byte> payload(uint32_t slot);
  std::span<const Access> accesses(uint32_t slot) const;

  // --- Workers.
  uint32_t add_worker() { return queues_.add(); }
  void open_worker(uint32_t worker) { queues_.open(worker); }
  // It takes nothing any more; the caller then requeues or finishes each of its slots.
  void close_worker(uint32_t worker) { queues_.close(worker); }
  const WorkerQueues& queues() const { return queues_; }

  // --- Actions, and what became of them.
  // `wake`: a sleeping worker may take it.
  std::optional<Assignment> next_assignment(bool wake = true);
  void assigned(Assignment assignment, uint64_t ticket);
  // The worker had no room for it: it is ready again, and the worker gets none until one ends.
  void refused(Assignment assignment);
  void unbar(uint32_t worker) { queues_.unbar(worker); }
  std::optional<Assignment> next_take_back(bool wake = true) const;
  void chill(uint32_t worker) { queues_.chill(worker); }
  // Revoked at its worker, or its worker was lost before it started: ready again.
  void requeue(uint32_t slot);
  void take_back_failed(uint32_t worker) { queues_.note_all_started(worker); }
  // A queued slot has ended.
  void finish(uint32_t slot, Outcome outcome, uint32_t cause);
  // All that is ready is skipped with `cause`: no worker is left.
  void skip_ready(uint32_t cause);
  bool has_ready() const;

  // --- What is terminal and not yet released, in the order in which it became so.
  const std::vector<uint32_t>& terminal() const { return terminal_; }
  void release_terminal();

  const Slot& slot(uint32_t index) const { return slots_[index]; }
  uint32_t live() const { return live_; }  // submitted, not released
  uint64_t edges_made() const { return edges_made_; }
  uint64_t cover_edges_made() const { return cover_edges_made_; }

  graph::PoisonMap& poison() { return poison_; }
  graph::TensorMap& tensor_map() { return map_; }

 private:
  struct Edge {
    uint32_t successor;
    uint32_t next;
  };
  struct Run {
    ReadyQueue ready;
    uint32_t live = 0;
    uint32_t submitted = 0;
    uint32_t cancel_cause = 0;
    bool cancelled = false;
    bool sealed = false;
  };

  Run& run_of(uint32_t run) { return runs_[run % kRunsMax]; }
  const Run& run_of(uint32_t run) const { return runs_[run % kRunsMax]; }
  void add_edge(uint32_t producer, uint32_t consumer, bool by_cover);
  // Why the task may not run although its producers are terminal.
  std::optional<uint32_t> reason_to_skip(const Slot& slot);
  void leave_queue(uint32_t slot);
  void make_ready(uint32_t slot);
  void settle(uint32_t slot, Outcome outcome, uint32_t cause);
  void settle_one(uint32_t slot, Outcome outcome, uint32_t cause);
  void mark_written(const Slot& slot);
  void forget_poison(const Slot& slot);
  void advance_runs();

  Options options_;
  std::vector<Slot> slots_;
  std::vector<uint32_t> free_slots_;
  std::vector<Edge> edges_;
  uint32_t free_edge_ = kNone;
  uint32_t edges_free_ = 0;
  base::BlockPool bodies_;
  graph::TensorMap map_;
  graph::PoisonMap poison_;
  WorkerQueues queues_;
  std::array<Run, kRunsMax> runs_;
  uint32_t first_run_ = 0;  // the one that executes; run numbers count up
  uint32_t next_run_ = 0;
  std::vector<uint32_t> terminal_;
  std::vector<uint32_t> became_ready_;
  uint64_t order_ = 0;
  uint32_t live_ = 0;
  uint64_t edges_made_ = 0;
  uint64_t cover_edges_made_ = 0;
};

}  // namespace strata::sched
