// Level: one simulated Worker: the cores under test (Core and Front over LevelWorld), its children,
// its heap, and the model of what users made of it: buffers, callables, runs.
//
// Not the users (user.h) and not the faults (nemesis in simulation.cc). From fibers of the parent.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/core.h"
#include "engine/front.h"
#include "engine/local_mailbox_endpoint.h"
#include "mailbox/hub.h"
#include "sim/child.h"
#include "sim/level_world.h"
#include "sim/pages.h"
#include "sim/shared.h"
#include "sim/timeline.h"
#include "strata/task_args.h"

namespace strata::sim {

// Larger ones exist to come and go; no task names them.
inline constexpr uint64_t kUsedBytesMax = 4096;

struct SimBuffer {
  uint32_t oracle = 0;
  engine::Core::NewBuffer made;
  bool live = true;  // its owner has not let go
  bool temporary = false;
};

struct SimCallable {
  registry::EntryRef ref;
  uint32_t which = 0;             // the name of its function
  std::vector<uint32_t> workers;  // that it was registered on; none: on all
  bool live = true;               // this handle
};

inline bool has_callable(const SimCallable& callable, uint32_t worker) {
  const std::vector<uint32_t>& on = callable.workers;
  return on.empty() || std::find(on.begin(), on.end(), worker) != on.end();
}

struct SimRun {
  std::shared_ptr<engine::RunRecord> record;
  uint32_t number = 0;          // of this simulation, from 0
  std::vector<uint32_t> tasks;  // the oracle's numbers, in order of submission
  bool cancelled = false;
  base::Instant kill_at = base::Instant::never();  // the end of the cancel's grace
  bool build_error = false;
  uint32_t calls_set = 0;  // callbacks
  uint32_t calls_made = 0;
};

class Level {
 public:
  using SimFront = engine::Front<LevelWorld>;

  explicit Level(Shared* shared);
  ~Level();
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;

  engine::Core& core() { return core_; }  // look at it, under the token
  SimFront& front() { return front_; }
  LevelWorld& world() { return world_; }
  Shared& shared() { return *shared_; }
  const Options& options() const { return shared_->options; }

  // --- Workers.
  void add_first_workers();  // before anything runs
  void add_late_worker();
  bool late_workers_left() const { return late_left_ > 0; }
  std::vector<std::unique_ptr<Child>>& children() { return children_; }
  bool all_children_lost() const;
  bool all_workers_settled() const;  // none is on its way to be ready
  bool no_more_workers() const { return no_more_; }
  void note_fewest();  // how many workers there are now
  // It takes tasks, and nothing has ended it.
  bool is_up(uint32_t worker) const;
  std::vector<uint32_t> pool_workers(engine::Pool pool) const;  // ever added
  uint32_t worker_count() const { return static_cast<uint32_t>(children_.size()); }
  // From here on no replacement comes.
  void expect_no_more();

  // --- What users do; each checks what it is told.
  // No buffer where a limit was reached.
  std::shared_ptr<SimBuffer> create_buffer(uint64_t bytes);
  std::shared_ptr<SimBuffer> create_temporary(uint64_t bytes);
  void release_buffer(SimBuffer& buffer);
  void clear_error(SimBuffer& buffer);
  bool register_callable(uint32_t which);
  void unregister_callable(SimCallable& callable);
  // Where a function may be registered at all; nothing: on all workers.
  std::optional<uint64_t> callable_on(uint32_t which) const;
  // OUTPUTs without storage get some: false where a limit was reached. `given`: what they got, and
  // which arguments they are.
  struct Storage {
    size_t argument;
    std::shared_ptr<SimBuffer> buffer;
  };
  bool give_storage(TaskArgs& args, std::vector<Storage>* given);
  void take_storage(TaskArgs& args, std::span<const Storage> given);
  SimRun* open_run();
  void cancel(SimRun& run);
  bool terminal(uint32_t task) const;

  std::vector<std::shared_ptr<SimBuffer>>& buffers() { return buffers_; }
  std::vector<std::shared_ptr<SimCallable>>& callables() { return callables_; }
  std::vector<std::unique_ptr<SimRun>>& runs() { return runs_; }
  // By the oracle's number: the run, and the task's number in it.
  void note_task(SimRun& run, Oracle::Task task, PlaceRule rule, uint32_t deadline_ms = 0);
  void withdraw_task(SimRun& run);

  // After all callables were unregistered and all controls answered.
  void check_forgotten();
  // Nothing may be left: after all workers are lost.
  void check_quiet();

 private:
  struct Waker {
    Level* level;
    uint32_t worker;
    void operator()(const uint32_t* sleep_word) const;
  };
  using Endpoint = engine::LocalMailboxEndpoint<SimMemory, Waker>;

  LevelWorld::Hooks hooks();
  void end_by_engine(engine::Core& core, const engine::Kill& kill);
  bool ended_overdue(const engine::Kill& kill);
  void arrived(engine::Core& core, const LevelWorld::Arrival& arrival);
  uint32_t add_child(engine::Core& core, engine::Pool pool);
  std::unique_ptr<engine::WorkerEndpoint> make_endpoint(uint32_t worker);
  bool spawn(engine::Core& core, uint32_t worker);
  void add_inline(engine::Core& core);
  void update_expectations(engine::Core& core);
  void await_settled();
  Placement::Known known(uint32_t task) const;
  std::shared_ptr<SimBuffer> adopt(const engine::Core::NewBuffer& made, bool temporary);
  void check_refusal(const Error& error);

  Shared* shared_;
  Process* parent_;
  Pages heap_;
  Pages hub_pages_;
  SimTimeline timeline_;
  SimMemory memory_;
  mailbox::Hub<SimMemory> hub_;
  engine::Core core_;
  LevelWorld world_;
  SimFront front_;
  std::vector<std::unique_ptr<Pages>> regions_;
  std::vector<std::byte*> mailboxes_;             // by worker: of the incarnation that is made last
  std::vector<std::unique_ptr<Child>> children_;  // by worker; null for inline ones
  std::vector<std::unique_ptr<Child>> past_;      // dead ones whose worker has another
  std::vector<std::unique_ptr<TaskCode>> inline_code_;
  uint32_t late_left_;
  bool no_more_ = false;
  bool awaits_settled_ = false;
  std::vector<std::shared_ptr<SimBuffer>> buffers_;
  std::vector<std::shared_ptr<SimCallable>> callables_;
  std::vector<std::unique_ptr<SimRun>> runs_;
  std::vector<std::pair<SimRun*, uint32_t>> tasks_;  // by the oracle's number
};

}  // namespace strata::sim
