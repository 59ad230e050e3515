// The half of WorkerCore that a running Worker's users call: buffers, callables, runs.
#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "base/result.h"
#include "model/descriptor.h"
#include "os/build_id.h"
#include "os/clock.h"
#include "runtime/tensors.h"
#include "runtime/worker_core.h"

namespace strata {
namespace {

Error refuse(Code code, std::string text) {
  return Error(code, Scope::kCall, std::move(text));
}

bool wants_storage(const TaskArgs& args) {
  for (const TensorArg& arg : args.tensors()) {
    if (arg.tag == TensorArgType::kOutput && arg.tensor.wants_storage()) return true;
  }
  return false;
}

}  // namespace

Result<void> WorkerCore::must_be_home(const char* what) const {
  if (os::fork_generation() == generation_) [[likely]]
    return {};
  return refuse(Code::kWrongState,
                fmt::format("{} in process {} of a Worker that process {} made: a forked copy, and "
                            "so a task, cannot use it; call it in process {}",
                            what, ::getpid(), pid_, pid_));
}

void WorkerCore::let_go(std::shared_ptr<WorkerCore> core) {
  if (!core || core->must_be_home("")) return;
  // Never freed: the original's threads and children are not this process's to end.
  static_cast<void>(new std::shared_ptr<WorkerCore>(std::move(core)));
}

Result<void> WorkerCore::must_run(const char* what) {
  STRATA_TRY(must_be_home(what));
  const Life life = life_.load(std::memory_order_acquire);
  if (life == Life::kRunning || (life == Life::kClosing && front_->is_building())) return {};
  return refuse(Code::kWrongState, fmt::format("{} of a Worker that {}", what,
                                               life == Life::kCreated || life == Life::kStarting
                                                   ? "is not initialised: call init() first"
                                                   : "is closed"));
}

// A signal has asked for the end of the program; see strata/signals.h.
Result<void> WorkerCore::must_not_drain(const char* what) const {
  const int number = draining();
  if (number == 0) [[likely]]
    return {};
  return Error(Code::kCancelled, Scope::kProcess,
               fmt::format("{} after {}: the program is to end. Runs that were begun go on; close "
                           "the Worker",
                           what, number == SIGINT ? "SIGINT" : "SIGTERM"),
               path_);
}

// ---------------------------------------------------------------- buffers

Result<engine::Core::NewBuffer> WorkerCore::create_buffer(size_t nbytes) {
  STRATA_TRY(must_be_home("create_buffer"));
  if (life_ == Life::kClosed) return refuse(Code::kWrongState, "create_buffer of a closed Worker");
  Result<engine::Core::NewBuffer> made =
      front_->call([&](engine::Core& core) { return core.create_buffer(nbytes); });
  if (made && made->dirty) std::memset(heap_.data() + made->heap_offset, 0, made->bytes);
  return made;
}

void WorkerCore::release_buffer(uint32_t index) {
  if (!must_be_home("a release")) return;
  front_->call([&](engine::Core& core) { core.release_buffer(index); });
}

Result<void> WorkerCore::clear_error(const Tensor& any_of_buffer) {
  STRATA_TRY(must_be_home("clear_error"));
  return front_->call([&](engine::Core& core) -> Result<void> {
    STRATA_TRY(core.buffers().resolve(any_of_buffer));
    core.clear_error(any_of_buffer.buffer_index);
    return {};
  });
}

// ---------------------------------------------------------------- callables

Result<registry::PreparePayload> WorkerCore::payload_of(const Callable& callable) const {
  registry::PreparePayload payload;
  if (const auto* import = std::get_if<NativeImport>(&callable)) {
    payload.name = import->symbol;
    payload.descriptor = model::NativeImportDescriptor{import->library, import->symbol};
    STRATA_TRY(model::validate(payload.descriptor));
    for (const std::string& folder : spec_.library_path) {
      payload.library_paths.push_back(folder + "/" + import->library);
    }
    return payload;
  }
  if (const auto* chip = std::get_if<ChipCallable>(&callable)) return chip_payload(*chip);
  const auto& local = std::get<LocalFunction>(callable);
  if (local.entry == nullptr) {
    return refuse(Code::kInvalidArgument, "a LocalFunction without an entry");
  }
  STRATA_ASSIGN(os::CodeAddress address,
                os::code_address_of(reinterpret_cast<const void*>(local.entry)));
  payload.name = local.name.empty() ? "local function" : local.name;
  payload.descriptor = model::LocalFunctionDescriptor{std::move(address.build_id), address.offset};
  STRATA_TRY(model::validate(payload.descriptor));
  return payload;
}

int WorkerCore::child_count() {
  return front_->look([this](const engine::Core&) {
    if (roster_.size() > 0 && spec_.start != StartMethod::kInline) {
      return static_cast<int>(roster_.size());
    }
    return static_cast<int>(spec_.workers.size()) + spec_.chips + spec_.sub_workers;
  });
}

Result<CallableHandle> WorkerCore::register_callable(const Callable& callable,
                                                     const std::vector<int>& workers) {
  STRATA_TRY(must_be_home("register_callable"));
  if (life_ == Life::kClosed || life_ == Life::kClosing) {
    return refuse(Code::kWrongState, "register_callable of a closed Worker");
  }
  STRATA_ASSIGN(const registry::PreparePayload payload, payload_of(callable));
  STRATA_TRY(may_register(payload));
  std::vector<uint32_t> listed;
  const int count = workers.empty() ? 0 : child_count();
  for (const int worker : workers) {
    if (worker < 0 || worker >= count) {
      return refuse(Code::kNotFound,
                    fmt::format("register_callable on worker {}: {} has the workers 0 to {}",
                                worker, path_, count - 1));
    }
    listed.push_back(static_cast<uint32_t>(worker));
  }
  STRATA_ASSIGN(const registry::EntryRef entry, register_with_blob(callable, payload, listed));
  note_local_function(payload, entry);
  return CallableHandle{
      model::hashid_of(model::digest_of(model::descriptor_bytes(payload.descriptor))),
      model::kind_of(payload.descriptor),
      payload.name,
      entry.index,
      entry.generation,
      core_->options().uid_high};
}

Result<void> WorkerCore::must_own(const CallableHandle& handle) const {
  if (handle.worker == core_->options().uid_high) [[likely]]
    return {};
  if (handle.worker == 0) return refuse(Code::kInvalidArgument, "an empty CallableHandle");
  return refuse(Code::kInvalidArgument,
                fmt::format("the handle of callable '{}' was given by another Worker: register the "
                            "callable with this one too",
                            handle.name));
}

Result<void> WorkerCore::unregister_callable(const CallableHandle& handle) {
  STRATA_TRY(must_be_home("unregister_callable"));
  STRATA_TRY(must_own(handle));
  const registry::EntryRef entry{handle.index, handle.generation};
  return front_->call(
      [&](engine::Core& core) { return core.unregister(entry, os::monotonic_now()); });
}

// ---------------------------------------------------------------- runs

Result<std::shared_ptr<engine::RunRecord>> WorkerCore::submit(void* build, Build call) {
  STRATA_TRY(must_be_home("submit"));
  if (!front_->is_building()) {
    STRATA_TRY(must_run("submit"));
    STRATA_TRY(must_not_drain("submit"));
  }
  if (any_dropped_.load(std::memory_order_relaxed)) log_unseen_errors();
  STRATA_ASSIGN(std::shared_ptr<engine::RunRecord> run, front_->open_run());
  if (output_) output_->watch();
  building_ = run;
  Orchestrator orch(*this);
  std::optional<Error> error;
  try {
    Result<void> built = call(build, orch);
    if (!built) error = std::move(built).error();
  } catch (const std::exception& e) {
    error = refuse(Code::kUserCode, fmt::format("the orchestration function threw: {}", e.what()));
  } catch (...) {
    error = refuse(Code::kUserCode, "the orchestration function threw no std::exception");
  }
  building_.reset();
  front_->seal_run(*run, std::move(error));
  return run;
}

Result<void> WorkerCore::must_build(const CallableHandle& handle) const {
  STRATA_TRY(must_be_home("an Orchestrator"));
  if (!front_->is_building()) [[unlikely]] {
    return refuse(Code::kWrongState,
                  "an Orchestrator is used outside its orchestration function or thread");
  }
  return must_own(handle);
}

Result<TaskRef> WorkerCore::submit(const CallableHandle& callable, engine::Where where,
                                   const TaskArgs& args, const CallConfig& config) {
  STRATA_TRY(must_build(callable));
  return front_->submit(*building_, {{callable.index, callable.generation}, where, config}, args);
}

Result<TaskRef> WorkerCore::submit_group(const CallableHandle& callable, engine::Pool pool,
                                         std::span<const TaskArgs> members,
                                         std::span<const int> workers, const CallConfig& config) {
  STRATA_TRY(must_build(callable));
  return front_->submit_group(
      *building_, {{callable.index, callable.generation}, {pool, -1}, config}, members, workers);
}

template <class Submit>
Result<TaskRef> WorkerCore::with_storage(std::span<TaskArgs> members, Submit&& submit) {
  std::vector<std::vector<size_t>> given(members.size());
  const auto take_back = [&] {
    front_->call([&](engine::Core& core) {
      for (size_t i = 0; i < members.size(); ++i) core.take_storage(members[i], given[i]);
    });
  };
  for (size_t i = 0; i < members.size(); ++i) {
    const Result<void> got = front_->with_memory(
        [&](engine::Core& core) { return core.give_storage(members[i], &given[i]); });
    if (got) continue;
    take_back();
    return got.error();
  }
  Result<TaskRef> out = submit();
  if (!out) take_back();
  return out;
}

Result<TaskRef> WorkerCore::submit_storing(const CallableHandle& callable, engine::Where where,
                                           TaskArgs& args, const CallConfig& config) {
  if (!wants_storage(args)) [[likely]]
    return submit(callable, where, args, config);
  STRATA_TRY(must_build(callable));
  STRATA_TRY(model::check_args(args));
  return with_storage({&args, 1}, [&] { return submit(callable, where, args, config); });
}

Result<TaskRef> WorkerCore::submit_group_storing(const CallableHandle& callable, engine::Pool pool,
                                                 std::vector<TaskArgs>& members,
                                                 std::span<const int> workers,
                                                 const CallConfig& config) {
  const auto go = [&] { return submit_group(callable, pool, members, workers, config); };
  if (std::none_of(members.begin(), members.end(), wants_storage)) return go();
  STRATA_TRY(must_build(callable));
  for (const TaskArgs& args : members) STRATA_TRY(model::check_args(args));
  return with_storage(members, go);
}

Result<uint64_t> WorkerCore::begin_scope() {
  STRATA_TRY(must_be_home("an Orchestrator"));
  if (!front_->is_building()) {
    return refuse(Code::kWrongState,
                  "an Orchestrator is used outside its orchestration function or thread");
  }
  return front_->call([](engine::Core& core) { return core.begin_scope(); });
}

void WorkerCore::end_scope(uint64_t scope) {
  if (!must_be_home("a scope")) return;
  front_->call([scope](engine::Core& core) { core.end_scope(scope); });
}

Result<Tensor> WorkerCore::temporary(DType dtype, std::span<const uint64_t> shape) {
  STRATA_TRY(must_be_home("an Orchestrator"));
  if (!front_->is_building()) {
    return refuse(Code::kWrongState,
                  "an Orchestrator is used outside its orchestration function or thread");
  }
  if (size_of(dtype) == 0) {
    return refuse(Code::kInvalidArgument,
                  fmt::format("a temporary of unknown dtype {}", static_cast<unsigned>(dtype)));
  }
  STRATA_ASSIGN(Tensor tensor, runtime::contiguous(dtype, shape));
  const uint64_t bytes = tensor.elements() * size_of(dtype);
  STRATA_ASSIGN(const engine::Core::NewBuffer made, front_->with_memory([&](engine::Core& core) {
    return core.create_temporary(bytes);
  }));
  tensor.uid = made.uid;
  tensor.buffer_index = made.index;
  return tensor;
}

Result<void> WorkerCore::wait_task(TaskRef task) {
  STRATA_TRY(must_be_home("an Orchestrator"));
  if (!front_->is_building()) {
    return refuse(Code::kWrongState,
                  "an Orchestrator is used outside its orchestration function or thread");
  }
  return front_->wait_task(*building_, task);
}

Result<void> WorkerCore::wait_run(engine::RunRecord& run, std::optional<uint32_t> timeout_ms) {
  STRATA_TRY(must_be_home("a wait for a run"));
  const base::Instant deadline = timeout_ms
                                     ? os::monotonic_now() + base::Duration::from_ms(*timeout_ms)
                                     : base::Instant::never();
  return front_->wait_run(run, deadline);
}

void WorkerCore::drop_run(std::shared_ptr<engine::RunRecord> run) {
  if (!must_be_home("a handle")) return;
  const bool keep = front_->look([&](const engine::Core&) {
    // Who cancels a run knows how it ended.
    if (run->done && (run->error_seen || run->cancelled || !run->outcome())) return false;
    dropped_.push_back(std::move(run));
    any_dropped_ = true;
    return true;
  });
  if (keep) log_unseen_errors();
}

void WorkerCore::log_unseen_errors() {
  std::vector<std::shared_ptr<engine::RunRecord>> unseen;
  front_->look([&](const engine::Core&) {
    std::erase_if(dropped_, [&](std::shared_ptr<engine::RunRecord>& run) {
      if (!run->done) return false;
      if (!run->error_seen && !run->cancelled && run->outcome()) unseen.push_back(std::move(run));
      return true;
    });
    any_dropped_ = !dropped_.empty();
  });
  for (const std::shared_ptr<engine::RunRecord>& run : unseen) {
    fmt::print(stderr, "strata: run {} failed and nobody looked: {}\n", run->id,
               run->outcome()->to_string());
  }
}

void WorkerCore::cancel_run(engine::RunRecord& run, std::optional<uint32_t> grace_ms) {
  if (!must_be_home("cancel")) return;
  const base::Instant kill_at =
      grace_ms ? os::monotonic_now() + base::Duration::from_ms(*grace_ms) : base::Instant::never();
  front_->call([&](engine::Core& core) { core.cancel_run(run, kill_at); });
}

Result<void> WorkerCore::on_done(const std::shared_ptr<engine::RunRecord>& run,
                                 std::function<void(const Result<void>&)> callback) {
  STRATA_TRY(must_be_home("on_done"));
  const auto log = [id = run->id](const char* what) {
    fmt::print(stderr, "strata: an on_done callback of run {} threw {}\n", id, what);
  };
  front_->on_done(run, [callback = std::move(callback), log](const Result<void>& outcome) {
    try {
      callback(outcome);
    } catch (const std::exception& e) {
      log(e.what());
    } catch (...) {
      log("what is no std::exception");
    }
  });
  return {};
}

Result<std::vector<std::byte>> WorkerCore::result(const engine::RunRecord& run, TaskRef task,
                                                  uint32_t member) {
  STRATA_TRY(must_be_home("result"));
  return front_->look([&](const engine::Core&) -> Result<std::vector<std::byte>> {
    if (task.run != run.id || task.task >= run.tasks.size()) {
      return refuse(Code::kNotFound, fmt::format("run {} has no task {}", run.id, task.task));
    }
    const auto index = static_cast<uint32_t>(task.task);
    switch (run.tasks[index]) {
      case engine::TaskState::kLive:
        return refuse(Code::kWrongState,
                      fmt::format("task {} is not done: wait for its run first", index));
      case engine::TaskState::kOk: {
        const auto found = run.results.find({index, member});
        if (found == run.results.end()) return std::vector<std::byte>{};
        return found->second;
      }
      default: {
        const auto kept = run.errors.find(index);
        if (kept != run.errors.end()) return kept->second;
        return Error(Code::kTaskFailed, Scope::kTask,
                     fmt::format("task {} did not succeed; its text was not kept", index));
      }
    }
  });
}

}  // namespace strata
