// The public classes, each call one line over WorkerCore.
#include <fmt/format.h>

#include <cstdio>

#include "base/result.h"
#include "runtime/spec.h"
#include "runtime/tensors.h"
#include "runtime/worker_core.h"

namespace strata {

// ---------------------------------------------------------------- Buffer

struct Buffer::Impl {
  // A Buffer may outlive its Worker object: the memory goes with the last of them.
  std::shared_ptr<WorkerCore> core;
  engine::Core::NewBuffer made;

  Impl(std::shared_ptr<WorkerCore> of, engine::Core::NewBuffer what)
      : core(std::move(of)), made(what) {}
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() { WorkerCore::let_go(std::move(core)); }
};

Buffer::Buffer() = default;
Buffer::Buffer(Buffer&&) noexcept = default;
Buffer::Buffer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this == &other) return *this;
  if (impl_) impl_->core->release_buffer(impl_->made.index);
  impl_ = std::move(other.impl_);
  return *this;
}
Buffer::~Buffer() {
  if (impl_) impl_->core->release_buffer(impl_->made.index);
}
std::byte* Buffer::data() const {
  return impl_ ? impl_->core->heap() + impl_->made.heap_offset : nullptr;
}
size_t Buffer::size() const {
  return impl_ ? impl_->made.bytes : 0;
}
Uid Buffer::uid() const {
  return impl_ ? impl_->made.uid : Uid{};
}

Result<void> Buffer::make_read_only() {
  if (!impl_) return Error(Code::kInvalidArgument, Scope::kCall, "make_read_only of no buffer");
  impl_->core->make_read_only(impl_->made.index);
  return {};
}

Tensor Buffer::tensor(DType dtype, std::span<const uint64_t> shape, uint64_t offset) const {
  Tensor tensor = runtime::contiguous_or_bad(dtype, shape);
  tensor.offset = offset;
  if (impl_) {
    tensor.uid = impl_->made.uid;
    tensor.buffer_index = impl_->made.index;
  }
  return tensor;
}

// ---------------------------------------------------------------- Child

std::string_view name_of(ChildState state) {
  switch (state) {
    case ChildState::kStarting:
      return "starting";
    case ChildState::kReady:
      return "ready";
    case ChildState::kRunning:
      return "running";
    case ChildState::kStopped:
      return "stopped";
    case ChildState::kReplaced:
      return "replaced";
    case ChildState::kDead:
      return "dead";
  }
  return "unknown";
}

// ---------------------------------------------------------------- RunHandle

struct RunHandle::Impl {
  std::shared_ptr<WorkerCore> core;        // outlives the Worker object with its handles
  std::shared_ptr<engine::RunRecord> run;  // shared with the engine until the run is done

  Impl(std::shared_ptr<WorkerCore> of, std::shared_ptr<engine::RunRecord> made)
      : core(std::move(of)), run(std::move(made)) {}
  // Not even moved: what goes with this object is the last look at the run.
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() {
    core->drop_run(std::move(run));
    WorkerCore::let_go(std::move(core));
  }
};

namespace {
Error empty_handle() {
  return Error(Code::kInvalidArgument, Scope::kCall, "an empty RunHandle");
}
}  // namespace

Result<void> RunHandle::wait() {
  if (!impl_) return empty_handle();
  return impl_->core->wait_run(*impl_->run, std::nullopt);
}
Result<void> RunHandle::wait_for(uint32_t timeout_ms) {
  if (!impl_) return empty_handle();
  return impl_->core->wait_run(*impl_->run, timeout_ms);
}
bool RunHandle::done() const {
  if (!impl_ || !impl_->core->must_be_home("done")) return false;
  return impl_->core->look([&](const engine::Core&) { return impl_->run->done; });
}
RunProgress RunHandle::progress() const {
  if (!impl_ || !impl_->core->must_be_home("progress")) return {};
  return impl_->core->look([&](const engine::Core&) { return impl_->run->progress; });
}
RunStats RunHandle::stats() const {
  if (!impl_ || !impl_->core->must_be_home("stats")) return {};
  return impl_->core->look([&](const engine::Core&) {
    const engine::RunRecord& run = *impl_->run;
    return RunStats{run.progress, run.dependencies, run.cover_dependencies,
                    run.failures > 0 ? run.failures - 1 : 0, run.kills};
  });
}
void RunHandle::cancel() {
  if (impl_) impl_->core->cancel_run(*impl_->run, std::nullopt);
}
void RunHandle::cancel(uint32_t grace_ms) {
  if (impl_) impl_->core->cancel_run(*impl_->run, grace_ms);
}
Result<void> RunHandle::on_done(std::function<void(const Result<void>&)> callback) {
  if (!impl_) return empty_handle();
  if (!callback) return Error(Code::kInvalidArgument, Scope::kCall, "an empty on_done callback");
  return impl_->core->on_done(impl_->run, std::move(callback));
}
Result<std::vector<std::byte>> RunHandle::result(TaskRef task, uint32_t member) const {
  if (!impl_) return empty_handle();
  return impl_->core->result(*impl_->run, task, member);
}

// ---------------------------------------------------------------- Orchestrator

Result<TaskRef> Orchestrator::submit_sub(const CallableHandle& callable, const TaskArgs& args,
                                         const CallConfig& config) {
  return core_.submit(callable, {engine::Pool::kSub, -1}, args, config);
}
Result<TaskRef> Orchestrator::submit_next_level(const CallableHandle& callable,
                                                const TaskArgs& args, const CallConfig& config,
                                                int worker) {
  return core_.submit(callable, {engine::Pool::kNext, worker}, args, config);
}
Result<TaskRef> Orchestrator::submit_next_level_group(const CallableHandle& callable,
                                                      std::span<const TaskArgs> members,
                                                      const CallConfig& config,
                                                      std::span<const int> workers) {
  return core_.submit_group(callable, engine::Pool::kNext, members, workers, config);
}
Result<TaskRef> Orchestrator::submit_sub_group(const CallableHandle& callable,
                                               std::span<const TaskArgs> members,
                                               const CallConfig& config) {
  return core_.submit_group(callable, engine::Pool::kSub, members, {}, config);
}

Result<TaskRef> Orchestrator::submit_sub(const CallableHandle& callable, TaskArgs& args,
                                         const CallConfig& config) {
  return core_.submit_storing(callable, {engine::Pool::kSub, -1}, args, config);
}
Result<TaskRef> Orchestrator::submit_next_level(const CallableHandle& callable, TaskArgs& args,
                                                const CallConfig& config, int worker) {
  return core_.submit_storing(callable, {engine::Pool::kNext, worker}, args, config);
}
Result<TaskRef> Orchestrator::submit_next_level_group(const CallableHandle& callable,
                                                      std::vector<TaskArgs>& members,
                                                      const CallConfig& config,
                                                      std::span<const int> workers) {
  return core_.submit_group_storing(callable, engine::Pool::kNext, members, workers, config);
}
Result<TaskRef> Orchestrator::submit_sub_group(const CallableHandle& callable,
                                               std::vector<TaskArgs>& members,
                                               const CallConfig& config) {
  return core_.submit_group_storing(callable, engine::Pool::kSub, members, {}, config);
}
Orchestrator::Scope::~Scope() {
  if (core_ != nullptr) core_->end_scope(id_);
}
Result<Orchestrator::Scope> Orchestrator::scope() {
  STRATA_ASSIGN(const uint64_t id, core_.begin_scope());
  return Scope(&core_, id);
}
Result<Tensor> Orchestrator::temporary(DType dtype, std::span<const uint64_t> shape) {
  return core_.temporary(dtype, shape);
}
Result<void> Orchestrator::wait(TaskRef task) {
  return core_.wait_task(task);
}

namespace {
Result<runtime::ChildOrder> order_along(const std::vector<int>& path) {
  runtime::ChildOrder order;
  for (const int worker : path) {
    if (worker < 0) {
      return Error(Code::kInvalidArgument, Scope::kCall,
                   fmt::format("a path of worker ids with {} in it", worker));
    }
    order.path.push_back(static_cast<uint32_t>(worker));
  }
  return order;
}
}  // namespace

// ---------------------------------------------------------------- Worker

Worker::Worker(std::shared_ptr<WorkerCore> core) : core_(std::move(core)) {}

Result<std::unique_ptr<Worker>> Worker::create(WorkerSpec spec) {
  STRATA_ASSIGN(std::shared_ptr<WorkerCore> core, WorkerCore::create(std::move(spec)));
  return std::unique_ptr<Worker>(new Worker(std::move(core)));
}

Worker::~Worker() {
  // A copy of the process leaves all of it to the original.
  if (!core_->must_be_home("~Worker")) {
    WorkerCore::let_go(std::move(core_));
    return;
  }
  if (const Result<void> closed = close(); !closed) {
    fmt::print(stderr, "strata: {}\n", closed.error().to_string());
  }
}

Result<Buffer> Worker::create_buffer(size_t nbytes) {
  STRATA_ASSIGN(const engine::Core::NewBuffer made, core_->create_buffer(nbytes));
  return Buffer(std::make_unique<Buffer::Impl>(core_, made));
}
Result<CallableHandle> Worker::register_callable(const Callable& callable,
                                                 const std::vector<int>& workers) {
  return core_->register_callable(callable, workers);
}
Result<void> Worker::unregister_callable(const CallableHandle& handle) {
  return core_->unregister_callable(handle);
}
Result<InnerReceipt> Worker::register_inner(const Callable& callable, std::vector<int> workers) {
  return core_->register_inner(callable, workers);
}
Result<void> Worker::unregister_inner(const InnerReceipt& receipt) {
  return core_->unregister_inner(receipt);
}
Result<int> Worker::add_worker(WorkerSpec child, const std::vector<int>& path) {
  STRATA_ASSIGN(runtime::ChildOrder order, order_along(path));
  order.worker = std::move(child);
  STRATA_ASSIGN(const std::vector<int> added, core_->add_children(std::move(order)));
  return added.front();
}
Result<int> Worker::add_remote_worker(RemoteWorkerSpec spec) {
  return core_->add_remote(std::move(spec));
}
Result<void> Worker::remove_remote_worker(int worker) {
  return core_->remove_remote(worker);
}
Result<std::vector<int>> Worker::add_sub_workers(int count, const std::vector<int>& path) {
  STRATA_ASSIGN(runtime::ChildOrder order, order_along(path));
  if (count < 1 || count > runtime::kChildrenMax) {
    return Error(Code::kInvalidArgument, Scope::kCall,
                 fmt::format("add_sub_workers adds 1 to {} SUB children, not {}",
                             runtime::kChildrenMax, count));
  }
  order.helpers = static_cast<uint32_t>(count);
  return core_->add_children(std::move(order));
}
Result<void> Worker::init() {
  return core_->init();
}
StartReport Worker::start_report() const {
  return core_->start_report();
}
Result<void> Worker::clear_error(const Buffer& buffer) {
  const Tensor probe = buffer.tensor(DType::kU8, {}, 0);
  return core_->clear_error(probe);
}
Result<void> Worker::close() {
  return core_->close();
}
Result<ChipUsage> Worker::chip_usage(int chip) const {
  return core_->chip_usage(chip);
}
std::vector<Worker::Child> Worker::sub_children() const {
  return core_->sub_children();
}

Result<RunHandle> Worker::submit_erased(Erased build) {
  STRATA_ASSIGN(std::shared_ptr<engine::RunRecord> run, core_->submit(build.build, build.call));
  return RunHandle(std::make_shared<RunHandle::Impl>(core_, std::move(run)));
}
Result<void> Worker::run_erased(Erased build) {
  STRATA_ASSIGN(const std::shared_ptr<engine::RunRecord> run,
                core_->submit(build.build, build.call));
  return core_->wait_run(*run, std::nullopt);
}

std::vector<Worker::Child> Worker::next_level_children() const {
  return core_->next_level_children();
}

}  // namespace strata
