// WorkerCore: everything of one Worker behind the public classes: memory, children, engine, thread.
//
// The public classes are thin over it. Any thread; see engine/front.h.
#pragma once

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/front.h"
#include "os/shared_region.h"
#include "runtime/executor.h"
#include "runtime/thread_world.h"
#include "strata/worker.h"

namespace strata {

class WorkerCore {
 public:
  static Result<std::shared_ptr<WorkerCore>> create(WorkerSpec spec);
  ~WorkerCore();
  WorkerCore(const WorkerCore&) = delete;
  WorkerCore& operator=(const WorkerCore&) = delete;

  Result<void> init();
  Result<void> close();

  Result<engine::Core::NewBuffer> create_buffer(size_t nbytes);
  void release_buffer(uint32_t index);
  Result<void> clear_error(const Tensor& any_of_buffer);
  std::byte* heap() const { return heap_.data(); }

  Result<CallableHandle> register_callable(const Callable& callable,
                                           const std::vector<int>& workers);
  Result<void> unregister_callable(const CallableHandle& handle);

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
  void cancel_run(engine::RunRecord& run);
  // The last handle of a run went. Its error is logged where nobody has seen it: now, or, where the
  // run is not done, with the next submit or close that finds it done.
  void drop_run(std::shared_ptr<engine::RunRecord> run);
  Result<std::vector<std::byte>> result(const engine::RunRecord& run, TaskRef task,
                                        uint32_t member);
  template <class Fn>
  auto look(Fn&& fn) {
    return front_->look(std::forward<Fn>(fn));
  }
  std::vector<Worker::Child> children();

 private:
  enum class Life : uint8_t { kCreated, kStarting, kRunning, kClosing, kClosed };

  WorkerCore(WorkerSpec spec, os::SharedRegion heap, os::SharedRegion hub);
  Result<void> start_inline();
  Result<void> start_children();
  Result<void> add_endpoints(uint32_t count);
  Result<void> wait_ready();
  Result<void> end_children();
  Result<registry::PreparePayload> payload_of(const Callable& callable) const;
  Result<void> must_run(const char* what);
  Result<void> must_own(const CallableHandle& handle) const;
  Result<void> must_build(const CallableHandle& handle) const;
  // Submits while all members have storage; takes back what it gave where that is refused.
  template <class Submit>
  Result<TaskRef> with_storage(std::span<TaskArgs> members, Submit&& submit);
  void finish_close();
  void log_unseen_errors();

  WorkerSpec spec_;
  std::string path_;
  os::SharedRegion heap_;
  os::SharedRegion hub_;
  std::vector<os::SharedRegion> mailboxes_;  // outlive the endpoints in core_
  std::unique_ptr<runtime::Executor> inline_executor_;
  std::unique_ptr<engine::Core> core_;
  std::unique_ptr<os::ForkServer> server_;
  std::unique_ptr<runtime::ThreadWorld> world_;
  std::unique_ptr<engine::Front<runtime::ThreadWorld>> front_;
  std::thread engine_;
  std::atomic<Life> life_{Life::kCreated};
  std::shared_ptr<engine::RunRecord> building_;  // of the thread that builds
  // Runs without a handle whose outcome is not looked at yet; under the step token.
  std::vector<std::shared_ptr<engine::RunRecord>> dropped_;
  std::atomic<bool> any_dropped_{false};
};

}  // namespace strata
