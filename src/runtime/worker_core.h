// WorkerCore: everything of one Worker behind the public classes: memory, children, engine, thread.
//
// The public classes are thin over it. Any thread; see engine/front.h.
#pragma once

#include <unistd.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "device/chip_note.h"
#include "engine/front.h"
#include "os/clock.h"
#include "os/process.h"
#include "os/shared_region.h"
#include "runtime/child_spec.h"
#include "runtime/chip_executor.h"
#include "runtime/executor.h"
#include "runtime/inner_worker.h"
#include "runtime/remote_service.h"
#include "runtime/roster.h"
#include "runtime/task_trace.h"
#include "runtime/thread_world.h"
#include "runtime/timeline.h"
#include "runtime/worker_place.h"
#include "strata/worker.h"

namespace strata {

class WorkerCore {
 public:
  static Result<std::shared_ptr<WorkerCore>> create(WorkerSpec spec, WorkerPlace place = {});
  ~WorkerCore();
  WorkerCore(const WorkerCore&) = delete;
  WorkerCore& operator=(const WorkerCore&) = delete;

  Result<void> init();
  Result<void> close();
  // A signal that asks for the end of the program: no run begins from then on. 0: none came. The
  // flag and a write to the descriptor are all that a signal handler touches.
  int draining() const { return draining_.load(std::memory_order_relaxed); }
  std::atomic<int>* drain_flag() { return &draining_; }
  int wake_fd() const { return world_->signal_fd(); }

  Result<engine::Core::NewBuffer> create_buffer(size_t nbytes);
  void release_buffer(uint32_t index);
  Result<void> clear_error(const Tensor& any_of_buffer);
  void make_read_only(uint32_t index);
  Result<ChipUsage> chip_usage(int chip) const;
  std::byte* heap() const { return heap_.data(); }

  Result<CallableHandle> register_callable(const Callable& callable,
                                           const std::vector<int>& workers);
  Result<void> unregister_callable(const CallableHandle& handle);
  Result<InnerReceipt> register_inner(const Callable& callable, const std::vector<int>& workers);
  Result<void> unregister_inner(const InnerReceipt& receipt);
  StartReport start_report() const;
  // The worker ids of the new children, which are ready.
  Result<std::vector<int>> add_children(runtime::ChildOrder order);
  Result<int> add_remote(RemoteWorkerSpec spec);
  Result<void> remove_remote(int worker);

  // --- for the half that a Worker above drives (runtime/inner_worker.h).
  const std::string& path() const { return path_; }
  uint64_t uid_high() const { return core_->options().uid_high; }
  const WorkerSpec& spec() const { return spec_; }
  Result<registry::EntryRef> register_payload(registry::PreparePayload payload);
  // Until every Worker below that has it has answered, or is lost.
  Result<void> activate_and_wait(registry::EntryRef entry);
  // Until it is gone everywhere; an Error where a worker did not confirm that.
  Result<void> unregister_and_wait(registry::EntryRef entry);
  // Opens a run whose tasks may use `args`; the calling thread is its orchestration function. While
  // it waits for anything, `cancelled` is asked, and the run is cancelled with it.
  Result<std::shared_ptr<engine::RunRecord>> begin_inner_run(
      std::span<const engine::ImportedArg> args, std::vector<uint32_t>* indices,
      runtime::Cancelled cancelled);
  Result<void> end_inner_run(engine::RunRecord& run);  // all tasks are done; the root error

  using Build = Result<void> (*)(void* build, Orchestrator& orch);
  Result<std::shared_ptr<engine::RunRecord>> submit(void* build, Build call);
  Result<TaskRef> submit(const CallableHandle& callable, engine::Where where, const TaskArgs& args,
                         const CallConfig& config);
  Result<TaskRef> submit_group(const CallableHandle& callable, engine::Pool pool,
                               std::span<const TaskArgs> members, std::span<const int> workers,
                               const CallConfig& config);
  // The same, where an OUTPUT without storage gets some.
  Result<TaskRef> submit_storing(const CallableHandle& callable, engine::Where where,
                                 TaskArgs& args, const CallConfig& config);
  Result<TaskRef> submit_group_storing(const CallableHandle& callable, engine::Pool pool,
                                       std::vector<TaskArgs>& members, std::span<const int> workers,
                                       const CallConfig& config);
  Result<uint64_t> begin_scope();
  void end_scope(uint64_t scope);
  Result<Tensor> temporary(DType dtype, std::span<const uint64_t> shape);
  Result<void> wait_task(TaskRef task);

  Result<void> wait_run(engine::RunRecord& run, std::optional<uint32_t> timeout_ms);
  void cancel_run(engine::RunRecord& run, std::optional<uint32_t> grace_ms);
  Result<void> on_done(const std::shared_ptr<engine::RunRecord>& run,
                       std::function<void(const Result<void>&)> callback);
  // An Error in a forked copy of the process that made this Worker, tasks in children too.
  Result<void> must_be_home(const char* what) const;
  // Drops a reference; in such a copy it is kept for ever: nothing of the original ends.
  static void let_go(std::shared_ptr<WorkerCore> core);
  // The last handle of a run went. An error that nobody has seen is logged: now, or once it is
  // done.
  void drop_run(std::shared_ptr<engine::RunRecord> run);
  Result<std::vector<std::byte>> result(const engine::RunRecord& run, TaskRef task,
                                        uint32_t member);
  template <class Fn>
  auto look(Fn&& fn) {
    return front_->look(std::forward<Fn>(fn));
  }
  std::vector<Worker::Child> sub_children();
  std::vector<Worker::Child> next_level_children();

 private:
  enum class Life : uint8_t { kCreated, kStarting, kRunning, kClosing, kClosed };

  // A Worker below, as calls in this process.
  struct InlineWorker {
    std::shared_ptr<WorkerCore> core;
    std::unique_ptr<runtime::InnerWorker> inner;
  };
  // What the timeline is told of tasks that are calls in this process.
  struct InlineTrace {
    runtime::TaskTrace trace;
    engine::InlineEndpoint* endpoint = nullptr;
  };

  WorkerCore(WorkerSpec spec, WorkerPlace place, os::SharedRegion heap, os::SharedRegion hub,
             std::unique_ptr<runtime::Timeline> timeline);
  // Their ids are below this one.
  uint32_t chip_count() const { return static_cast<uint32_t>(spec_.chips); }
  std::vector<Worker::Child> children(engine::Pool pool);
  Worker::Child child(const engine::Core& core, uint32_t worker) const;
  Result<std::vector<int>> add_before_init(runtime::ChildOrder order);
  Result<std::vector<int>> add_here(const runtime::ChildOrder& order);
  Result<void> skip_id();
  Result<std::vector<int>> forward(runtime::ChildOrder order);
  Result<std::vector<uint32_t>> spawn_late(
      engine::Core& core, const runtime::RosterEntry& entry,
      std::vector<std::unique_ptr<engine::WorkerEndpoint>> endpoints);
  std::optional<Error> await_late(const std::vector<uint32_t>& added, uint32_t limit_ms);
  std::vector<uint32_t> workers_below();
  // Worker ids that there are, or will be once init has made them.
  int child_count();
  std::vector<model::MappedSegment> segments() const;
  engine::WorkerCaps caps_of(uint32_t worker) const;
  void heed_cancel();
  Result<void> start_inline();
  Result<void> start_engine();
  Result<void> to_local(runtime::ChildOrder* order) const;
  Result<std::shared_ptr<runtime::RemoteWorker>> make_remote(RemoteWorkerSpec spec,
                                                             uint32_t worker);
  Result<std::unique_ptr<engine::WorkerEndpoint>> endpoint_of(uint32_t worker);
  std::unique_ptr<InlineTrace> inline_trace(const std::string& path) const;
  Result<void> write_timeline();
  Result<void> add_inline_workers();
  void add_inline_endpoint(runtime::InnerWorker* inner);
  // `executor`: an Executor or a ChipExecutor, which outlives the endpoint. The next worker.
  template <class Exec>
  void add_inline(Exec& executor, engine::WorkerCaps caps);
  Result<void> add_inline_chips();
  Result<void> make_chip_notes();
  device::ChipNote& chip_note(uint32_t chip) const;
  runtime::ChildSpec child_spec(const engine::Core& core, uint32_t worker) const;
  Result<void> start_children();
  // Whether the children have the program's functions: of those registered before init(), and now.
  Result<void> check_local_functions();
  void set_start_report(StartReport report);
  Result<void> may_register(const registry::PreparePayload& payload) const;
  Error no_local_function(const std::string& name) const;
  void note_local_function(const registry::PreparePayload& payload, registry::EntryRef entry);
  Result<void> start_server();
  runtime::ThreadWorld::Maker maker();
  static Result<std::unique_ptr<engine::WorkerEndpoint>> make_endpoint();
  Result<void> spawn(engine::Core& core, uint32_t worker);
  Result<void> capture_output();
  Result<void> reserve(uint64_t offset, uint64_t bytes);
  Result<void> wait_ready();
  Result<void> end_children();
  Result<registry::PreparePayload> payload_of(const Callable& callable) const;
  Result<registry::PreparePayload> chip_payload(const ChipCallable& chip) const;
  // Registers it, with its blob in the heap where it is a chip callable.
  Result<registry::EntryRef> register_with_blob(const Callable& callable,
                                                registry::PreparePayload payload,
                                                std::span<const uint32_t> listed);
  void keep_blob(registry::EntryRef entry, uint32_t buffer);
  Result<void> must_run(const char* what);
  Result<void> must_not_drain(const char* what) const;
  Result<void> must_own(const CallableHandle& handle) const;
  Result<void> must_build(const CallableHandle& handle) const;
  // Submits while all members have storage; takes back what it gave where that is refused.
  template <class Submit>
  Result<TaskRef> with_storage(std::span<TaskArgs> members, Submit&& submit);
  void finish_close();
  void log_unseen_errors();

  const uint32_t generation_ = os::fork_generation();
  const int pid_ = ::getpid();
  WorkerSpec spec_;
  WorkerPlace place_;
  std::string path_;
  os::SharedRegion heap_;
  os::SharedRegion hub_;
  // Of the Workers that init starts, in their order: whether each is one of another host.
  std::vector<bool> next_is_remote_;
  std::map<uint32_t, std::shared_ptr<runtime::RemoteWorker>> remotes_;  // under the step token
  std::unique_ptr<runtime::RemoteService> remote_service_;              // null: none was added
  runtime::Roster roster_;                                              // under the step token
  uint32_t late_exit_ms_ = 0;  // the most that a Worker needs that was added far below; likewise
  std::unique_ptr<runtime::Timeline> timeline_;  // of the root, where there is one
  std::unique_ptr<trace::Recorder> recorder_;    // of core_; null: off
  std::vector<std::unique_ptr<InlineTrace>> inline_traces_;
  std::vector<InlineWorker> inline_workers_;
  std::vector<std::unique_ptr<runtime::Executor>> inline_executors_;
  std::vector<os::SharedRegion> chip_notes_;
  std::vector<std::unique_ptr<runtime::ChipExecutor>> inline_chips_;
  struct Blob {
    registry::EntryRef entry;
    uint32_t buffer;
  };
  std::vector<Blob> blobs_;  // of registered chip callables; under the step token
  std::unique_ptr<engine::Core> core_;
  std::unique_ptr<os::ForkServer> server_;
  mutable std::mutex start_mutex_;
  StartReport start_;
  // Registered before init(), when no start method is known yet; under the step token.
  std::vector<std::pair<registry::EntryRef, std::string>> early_local_functions_;
  std::unique_ptr<runtime::OutputReader> output_;  // null: children write where this process does
  std::unique_ptr<runtime::ThreadWorld> world_;
  std::unique_ptr<engine::Front<runtime::ThreadWorld>> front_;
  std::thread engine_;
  std::atomic<Life> life_{Life::kCreated};
  std::atomic<int> draining_{0};
  std::shared_ptr<engine::RunRecord> building_;   // of the thread that builds
  std::shared_ptr<engine::RunRecord> inner_run_;  // of the task of the Worker above
  runtime::Cancelled inner_cancelled_{};
  // Runs without a handle whose outcome is not looked at yet; under the step token.
  std::vector<std::shared_ptr<engine::RunRecord>> dropped_;
  std::atomic<bool> any_dropped_{false};
};

}  // namespace strata
