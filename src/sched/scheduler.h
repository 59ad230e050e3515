// Scheduler: from accesses to an order of execution. It knows slots, edges, runs, queues and
// groups; it knows no callable, no endpoint and no clock. The caller locks, carries out the
// assignments and reports what became of them.
//
//   while (auto a = scheduler.next_assignment(...)) { ...give it to the worker...; assigned(...) }
//   while (auto t = scheduler.next_take_back()) { ...revoke it...; requeue or take_back_failed }
//   for (uint32_t slot : scheduler.terminal()) { ...account... }
//   scheduler.release_terminal();
//
// A group is one node of the graph: a slot that holds the accesses and is never queued, and a slot
// for each member, which has none. Its members go to distinct workers, all at once.
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
#include "sched/group.h"
#include "sched/run_queues.h"
#include "sched/slot.h"
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

  using Slot = sched::Slot;

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
  uint32_t submit(uint32_t run, std::span<const Access> accesses, size_t payload_bytes,
                  Target target = {});

  struct GroupShape {
    std::span<const Access> accesses;  // of all members
    size_t payload_bytes;              // of the group's own slot
    std::span<const size_t> member_payload_bytes;
    std::span<const uint32_t> workers;  // kNone: any of the class; no worker twice
    uint32_t cls = 0;
  };
  // False for ever where the members are more than slots.
  bool could_admit_group(size_t members) const { return members < options_.slots; }
  bool admits_group(const GroupShape& shape);
  // The group's own slot. payload(member_slot(group, i)) is the payload of member i.
  uint32_t submit_group(uint32_t run, const GroupShape& shape);
  uint32_t member_slot(uint32_t slot, size_t member) const {
    return groups_[slots_[slot].group].members[member];
  }
  std::span<const uint32_t> members(uint32_t slot) const {
    return groups_[slots_[slot].group].members;
  }
  // The first failure of a member, so far.
  uint32_t group_cause(uint32_t slot) const { return groups_[slots_[slot].group].cause; }
  // Causes that groups hold whose members have not all ended.
  template <class Visit>
  void for_each_group_cause(Visit&& visit) const {
    for (const Group& group : groups_) {
      if (group.unended > 0 && group.outcome != Outcome::kOk) visit(group.cause);
    }
  }
  // Which member a slot is, of those of its group.
  uint32_t member_number(uint32_t slot) const;

  std::span<std::byte> payload(uint32_t slot);
  std::span<const Access> accesses(uint32_t slot) const;

  // --- Workers.
  uint32_t add_worker(uint32_t pool = 0) { return queues_.add(pool); }
  void open_worker(uint32_t worker);
  // It takes nothing any more, or until it is opened again where it `returns`; the caller then
  // requeues or finishes each of its slots.
  void close_worker(uint32_t worker, bool returns = false);
  // A class of these workers, made or found; classes that no live task names may be dropped for
  // it. kNone where all are in use.
  uint32_t class_of(std::span<const uint32_t> workers);
  std::span<const uint32_t> class_workers(uint32_t cls) const { return class_workers_[cls]; }
  // Another one whenever the class is made anew.
  uint64_t class_stamp(uint32_t cls) const { return class_stamps_[cls]; }
  const WorkerQueues& queues() const { return queues_; }

  // --- Actions, and what became of them.
  // `wake`: a sleeping worker may take a task that others may take. `asleep(worker)`: a look.
  template <class Asleep>
  std::optional<Assignment> next_assignment(bool wake, Asleep&& asleep);
  std::optional<Assignment> next_assignment(bool wake = true) {
    return next_assignment(wake, [](uint32_t) { return false; });
  }
  void assigned(Assignment assignment, uint64_t ticket);
  // The worker had no room for it: it is ready again, and the worker gets none until one ends.
  void refused(Assignment assignment);
  void unbar(uint32_t worker) {
    queues_.unbar(worker);
    activate(worker);
  }
  std::optional<Assignment> next_take_back(bool wake = true);
  void chill(uint32_t worker) { queues_.chill(worker); }
  // Revoked at its worker, or its worker was lost before it started: ready again. Not of a member.
  void requeue(uint32_t slot);
  void take_back_failed(Assignment candidate) {
    queues_.note_spent(candidate.worker, slots_[candidate.slot].cls);
  }
  // A queued slot has ended, or will never start (kSkipped).
  void finish(uint32_t slot, Outcome outcome, uint32_t cause);
  // A ready task or group that no worker is left for, of those it may take, nor one to be opened.
  // `expected`: others may be added, so only tasks for closed ones count. The caller skips it, or
  // fails the group.
  std::optional<uint32_t> next_stranded(bool expected);
  void skip(uint32_t slot, uint32_t cause);
  bool has_ready() const { return first_run_ != next_run_ && run_of(first_run_).ready > 0; }

  // A group of which a member has failed: its members that are queued and may not have started are
  // to be revoked. At most once for each.
  std::optional<uint32_t> take_failed_group();

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
  using Run = RunQueues;

  Run& run_of(uint32_t run) { return runs_[run % kRunsMax]; }
  const Run& run_of(uint32_t run) const { return runs_[run % kRunsMax]; }
  uint32_t take_slot(uint32_t run_number, uint64_t order, std::span<const Access> accesses,
                     size_t payload_bytes);
  void add_accesses(uint32_t index, std::span<const Access> accesses);
  void add_edge(uint32_t producer, uint32_t consumer, bool by_cover);
  // Why the task may not run although its producers are terminal.
  std::optional<uint32_t> reason_to_skip(const Slot& slot);
  void leave_queue(uint32_t slot);
  void make_ready(uint32_t slot);
  void push_ready(uint32_t slot);
  uint32_t pop_shared(Run& run, uint32_t cls);
  void settle(uint32_t slot, Outcome outcome, uint32_t cause);
  void settle_one(uint32_t slot, Outcome outcome, uint32_t cause);
  void member_ended(uint32_t slot, Outcome outcome, uint32_t cause);
  void mark_written(const Slot& slot);
  void forget_poison(const Slot& slot);
  void advance_runs();
  // The worker may have room for directed tasks again.
  void activate(uint32_t worker);
  template <class Asleep>
  std::optional<Assignment> place_single(Run& run, uint64_t before, bool wake, Asleep&& asleep);
  template <class Asleep>
  uint32_t pick(uint32_t cls, bool wake, Asleep&& asleep);
  std::optional<Assignment> place_directed(Run& run, uint64_t before, bool wake);
  struct Oldest {
    uint64_t order = ~uint64_t{0};
    uint32_t cls = kNone;
  };
  Oldest oldest_for(const Run& run, uint32_t worker) const;
  Assignment give_oldest(Run& run, uint32_t worker, bool wake);
  std::optional<Assignment> next_launch(Run& run);
  // The order of the group that comes next, or none's: larger than all.
  uint64_t head_group_order(Run& run);
  bool reserve(Group& group);
  // A held worker blocks younger work alone: an older task that it may take goes first.
  std::optional<Assignment> older_for_held(Run& run, Group& group, uint64_t before);
  void unhold(uint32_t worker);
  void launch_head(Run& run);
  void give_back(Group& group);
  bool feasible(const Group& group, bool expected) const;
  void drop_ready(Run& run, uint32_t cause);
  void forget_launch(Run& run, uint32_t slot);
  void free_group(uint32_t index);
  void skip_members(uint32_t slot);

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
  std::vector<Group> groups_;
  std::vector<uint32_t> free_groups_;
  std::vector<uint32_t> failed_groups_;
  std::array<uint32_t, WorkerQueues::kClassesMax> class_users_{};  // live slots of each class
  std::array<std::vector<uint32_t>, WorkerQueues::kClassesMax> class_workers_;  // of made ones
  std::array<uint64_t, WorkerQueues::kClassesMax> class_stamps_{};
  uint64_t stamps_ = 0;
  uint64_t membership_ = 1;  // counts openings and closings of workers
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

#include "sched/scheduler_inl.h"
