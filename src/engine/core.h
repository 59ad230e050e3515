// Core: one level's engine: graph, queues, callables and buffers of one Worker, stepped by whoever
// holds the step token. No thread, no clock, no system call; time is handed in.
//
// Every call needs the token. step() moves what the endpoints brought and hands out what is ready;
// afterwards the caller carries out take_wakes(), take_kills() and take_punches() without the
// token.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/core_data.h"
#include "registry/registry.h"
#include "sched/scheduler.h"
#include "strata/task_args.h"

namespace strata::engine {

class Core final : private CoreData, private EndpointSink {
 public:
  using NewBuffer = engine::NewBuffer;
  using WorkerState = engine::WorkerState;

  explicit Core(CoreOptions options);

  // --- Workers. `endpoint` lives as long as its incarnation, and longer where a thread looks at
  // it.
  uint32_t add_worker(std::unique_ptr<WorkerEndpoint> endpoint, WorkerCaps caps = {});
  // Its process stands: it is greeted, callables are replayed to it, then it takes tasks.
  void start_worker(uint32_t worker, base::Instant now);
  // Its process is gone: what it had not started goes back, the rest is an endpoint failure, whose
  // text ends with `last_lines`. CoreOptions::restarts, without `final`: it is to be replaced.
  void lose_worker(uint32_t worker, const std::string& reason, std::string last_lines = {},
                   bool final = false);
  // Workers to replace; for each then renew_worker, if it still wants that, or lose_worker.
  std::vector<uint32_t> take_replacements() { return std::exchange(replacements_, {}); }
  bool is_ending(uint32_t worker) const { return workers_[worker].exiting; }  // was told to
  bool wants_replacement(uint32_t worker) const {
    return workers_[worker].state == WorkerState::kReplaced;
  }
  // The next incarnation: as add_worker, under the same number.
  void renew_worker(uint32_t worker, std::unique_ptr<WorkerEndpoint> endpoint);
  const WorkerEndpoint& endpoint(uint32_t worker) const { return *workers_[worker].endpoint; }
  uint32_t incarnation(uint32_t worker) const { return workers_[worker].incarnation; }
  // It was ready, and is to be ready again; and how many such workers there are.
  bool is_returning(uint32_t worker) const;
  uint32_t returning() const { return returning_; }
  // Endpoints of past incarnations, kept while a thread without the token may look at them.
  bool has_retired() const { return !retired_.empty(); }
  void drop_retired();
  WorkerState worker_state(uint32_t worker) const { return workers_[worker].state; }
  const std::string& loss_reason(uint32_t worker) const { return workers_[worker].rest->loss; }
  uint64_t tasks_done(uint32_t worker) const { return workers_[worker].tasks_done; }
  uint32_t worker_count() const { return static_cast<uint32_t>(workers_.size()); }
  // For workers that note their news, from any thread: completions, and answers to controls.
  NewsSet& news() { return news_; }
  void name_worker(uint32_t worker, std::string where) {
    workers_[worker].endpoint->set_where(std::move(where));
  }
  std::string worker_name(uint32_t worker) const;
  // Asks a child Worker that is ready for more children below it. The name of the answer.
  Result<uint64_t> ask_worker(uint32_t worker, Question question, base::Instant now);
  std::optional<Result<std::vector<std::byte>>> take_answer(uint64_t id);
  void end_worker(uint32_t worker, std::string reason);  // and nobody takes its place
  // From here on a task that no live worker can take is skipped, instead of waiting for one.
  void expect_no_more_workers() { workers_expected_ = false; }
  // Tells every live worker to end; what is left of them is the driver's.
  void ask_exit(base::Instant now);
  void ask_exit(uint32_t worker, base::Instant now);  // it is given nothing more

  // --- Buffers.
  Result<NewBuffer> create_buffer(uint64_t bytes);
  void release_buffer(uint32_t index);
  void clear_error(uint32_t index) { sched_.poison().clear(index); }
  // From here on submit refuses every tag that writes it.
  void make_read_only(uint32_t index) { buffers_.make_read_only(index); }
  const buffer::BufferTable& buffers() const { return buffers_; }
  // Lends the arguments of one task of the Worker above to the tasks of the next run; gives the
  // index of each one's buffer here. Ended when that run is done. One at a time.
  Result<void> begin_imports(std::span<const ImportedArg> args, std::vector<uint32_t>* indices);
  void end_imports();

  // --- Callables. One registration at a time: begin, then wait for its outcome. On the listed
  // workers, or where none is listed on all that can run its kind (of an inner one: on all that are
  // Workers), later ones too.
  Result<void> begin_register(const registry::PreparePayload& payload, base::Instant now,
                              std::span<const uint32_t> listed = {});
  std::optional<Result<registry::EntryRef>> take_register_outcome();
  Result<void> unregister(registry::EntryRef entry, base::Instant now);
  // An inner callable that was registered inactive becomes usable below; the names of the answers.
  Result<std::vector<uint64_t>> activate(registry::EntryRef entry, base::Instant now);
  const registry::Registry& registry() const { return registry_; }

  // --- Runs. One is built at a time; the caller sees to that.
  bool can_open_run() const { return sched_.can_open_run(); }
  std::shared_ptr<RunRecord> open_run();
  void seal_run(RunRecord& run, std::optional<Error> build_error);
  void cancel_run(RunRecord& run, base::Instant kill_at = base::Instant::never());
  void cancel_all();
  std::deque<std::shared_ptr<RunRecord>>& done_calls() { return endings_.done_calls; }

  enum class Submitted : uint8_t { kDone, kFull, kRefused };
  // kFull: no room now; step and try again. kRefused: *error says why.
  Submitted submit(RunRecord& run, const Job& job, const TaskArgs& args, TaskRef* out,
                   std::optional<Error>* error);
  // One node of the graph whose members start together on distinct workers. `workers`: none, or
  // one for each member (-1: any); where.worker means nothing.
  Submitted submit_group(RunRecord& run, const Job& job, std::span<const TaskArgs> members,
                         std::span<const int32_t> workers, TaskRef* out,
                         std::optional<Error>* error);
  // Each OUTPUT without storage gets some in the innermost scope; on an Error none has.
  Result<void> give_storage(TaskArgs& args, std::vector<size_t>* given);
  // What it gave, of a submit that was refused then.
  void take_storage(TaskArgs& args, std::span<const size_t> given);
  // Why a submit that found no room will never find any, if that is so.
  std::optional<Error> stuck() const;

  static constexpr size_t kScopesMax = 64;
  // A name for end_scope, never given again.
  Result<uint64_t> begin_scope();
  // With all scopes inside it. Nothing where it has ended already.
  void end_scope(uint64_t scope);
  Result<NewBuffer> create_temporary(uint64_t bytes);  // of the innermost scope
  // The last create_temporary was refused, but tasks in flight give memory back: step, try again.
  bool memory_to_come() const { return wants_memory_ && buffers_.releasing() > 0 && !stuck(); }

  // --- Stepping.
  // `now` may be anything unless wants_time(). `streaming`: the caller's next call follows soon, so
  // completions that nothing waits for are taken by the half queue.
  void step(base::Instant now, bool streaming = false);
  // Before the leader sleeps: its core becomes free, so sleeping workers are woken for what waits
  // behind others. True: there are wakes to carry out.
  bool spread();
  void add_waiter(Wake wake) { ++waiters_[static_cast<size_t>(wake)]; }
  void drop_waiter(Wake wake) { --waiters_[static_cast<size_t>(wake)]; }
  // Tells the workers which completions are worth a wake-up of the sleeping engine; before the
  // hub's flag is set. And: of all again, because another thread has changed what is in flight.
  void set_wake_points();
  void clear_wake_points();
  bool wants_time() const {
    return controls_open_ > 0 || registry_waits() || !dropped_.empty() || endings_.wait();
  }
  base::Instant next_deadline() const;
  // No run is open or unfinished.
  bool can_drain() const { return !runs_[0] && !runs_[1]; }
  bool idle() const { return sched_.live() == 0 && !wants_time(); }
  // And no replacement is on its way.
  bool at_rest() const { return idle() && returning_ == 0; }
  bool has_news() const;
  // A worker's full ring may empty without a word: look again soon.
  bool has_barred() const { return !barred_.empty(); }
  void busy_endpoints(std::vector<Awaited>* out) const;
  // An inline worker with something to run: take() it, run() it without the token, put() it.
  InlineEndpoint* inline_work() const;
  std::string describe_work(base::Instant now);  // what runs where; for a report of a stall
  // Whether something ended since the last call: a task, a run, a registration.
  bool take_notable() { return std::exchange(notable_, false); }
  // Something else has ended that a thread may wait for.
  void note() { notable_ = true; }

  bool has_wakes() const { return !wakes_.empty(); }
  bool has_chores() const {
    return !kills_.empty() || heap_.has_punches() || !replacements_.empty();
  }
  void take_wakes(std::vector<WorkerEndpoint*>* out) { out->swap(wakes_), wakes_.clear(); }
  std::vector<Kill> take_kills() { return std::exchange(kills_, {}); }
  std::vector<Punch> take_punches() { return heap_.take_punches(); }
  void segment_punched(const Punch& punch) { heap_.punched(punch); }

  const sched::Scheduler& scheduler() const { return sched_; }
  const CoreOptions& options() const { return options_; }
  CoreTrace& trace() { return trace_; }

 private:
  void on_completion(const mailbox::Completion& completion) override;
  void on_reply(uint32_t command, uint32_t code, std::span<const std::byte> bytes) override;
  void on_abandoned(uint64_t task, uint64_t ticket, bool started) override;

  void poll_workers(base::Instant now, bool streaming);
  void poll_noted(base::Instant now);
  void take_news(uint32_t worker, base::Instant now);
  void dispatch_ready();
  bool may_wake() const;
  void assign_all();
  uint64_t wake_point(uint32_t worker) const;
  uint32_t ahead_of(uint32_t worker) const;
  void dispatch(sched::Assignment assignment);
  void take_back();
  void strand(uint32_t slot);
  void stop_group(uint32_t slot);
  struct Eligible;  // core_eligible.cc: who may take a task
  bool check_members(const Job& job, const std::string& stays, size_t members,
                     std::span<const int32_t> workers, const sched::Target& any,
                     std::optional<Error>* error);
  bool collect_members(const Job& job, std::span<const TaskArgs> members,
                       std::vector<size_t>* payload_bytes, std::optional<Error>* error);
  void write_payload(uint32_t slot, const Job& job, const TaskArgs& args, size_t first_placement);
  void unbar_workers();
  void account_terminal();
  void account(uint32_t slot);
  void finish_runs();
  void pump_registry(base::Instant now);
  bool registry_waits() const { return registry_.has_actions() || registry_.has_ready(); }
  void post_controls(uint32_t worker, base::Instant now);
  void on_answer(uint32_t worker, const Question& question, uint32_t code,
                 std::span<const std::byte> bytes);
  uint64_t ask(uint32_t worker, Question question, base::Instant now);
  void replay(uint32_t worker);
  void replay_callables(uint32_t worker);
  void control_posted(uint32_t worker, base::Instant now);
  std::optional<uint32_t> control_limit_ms(const WorkerEntry& entry) const;
  void check_control_deadlines(base::Instant now);
  void doubt(uint32_t worker, std::string reason);
  void refuse_worker(uint32_t worker, const std::string& reason);
  bool may_return(const WorkerEntry& entry) const;
  bool will_have(const Job& job, uint32_t worker) const;
  struct Overdue;  // core_overdue.cc: tasks past their deadlines, cancelled runs past their grace
  void left_worker(uint32_t slot);
  void note_busy(uint32_t worker);
  void drop_controls(uint32_t worker);
  void collect_freed();
  uint32_t add_cause(Error error);
  std::string task_name(const sched::Scheduler::Slot& slot, const TaskHead& head) const;
  std::string task_where(const sched::Scheduler::Slot& slot, uint32_t worker) const;
  const TaskHead& head_of(uint32_t slot);
  CoreTrace::Task traced(uint32_t slot);
  // Tickets begin again with each incarnation.
  CoreTrace::Place placed(uint32_t worker, uint64_t ticket) const {
    return {worker, trace::ticket_of(workers_[worker].incarnation, ticket)};
  }
  bool slot_is(uint32_t worker, uint64_t task, uint64_t ticket) const;
  // Appends to accesses_ and placements_.
  bool accesses_of(const TaskArgs& args, Pool pool, std::optional<Error>* error);
  std::optional<uint8_t> transfer_of(size_t number, const TensorArg& arg, uint32_t index, Pool pool,
                                     std::optional<Error>* error);
  bool maps_apart(const TaskArgs& args, size_t first, std::optional<Error>* error) const;
  void drop_mappings(base::Instant now);
  std::optional<Error> wrong_kind(const Job& job) const;
  Result<uint32_t> import_of(const ImportedArg& arg);
  // Tasks for child Workers and chips say which memory their tensors are.
  bool with_refs(const Job& job) const { return refs_ && job.where.pool == Pool::kNext; }
  void end_innermost_scope();
};

}  // namespace strata::engine
