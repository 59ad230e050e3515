// The bodies of Front that open, fill and await runs; see front.h.
#pragma once

#include <fmt/format.h>

#include "base/mark.h"
#include "engine/front.h"

namespace strata::engine {

template <class World>
Result<std::shared_ptr<RunRecord>> Front<World>::open_run() {
  if (task_thread_.load(std::memory_order_relaxed) == world_.self()) {
    return *why_no_wait("submit");
  }
  if (is_building()) {
    return Error(
        Code::kWrongState, Scope::kCall,
        "submit inside an orchestration function of the same Worker; use its Orchestrator, "
        "or submit after it has returned");
  }
  const uint32_t limit_ms = core_.options().timeouts.building_turn_ms;
  std::shared_ptr<RunRecord> run;
  const bool got = wait("its turn to build a run", world_.now() + base::Duration::from_ms(limit_ms),
                        [&](Core& core) {
                          if (build_taken_ || !core.can_open_run()) return false;
                          build_taken_ = true;
                          run = core.open_run();
                          return true;
                        });
  if (!got) {
    return Error(
        Code::kDeadline, Scope::kCall,
        fmt::format("no turn to build a run within {} ms: another thread builds one, or two "
                    "runs are in flight; Timeouts::building_turn_ms is the limit",
                    limit_ms));
  }
  builder_.store(world_.self(), std::memory_order_relaxed);
  return run;
}

template <class World>
void Front<World>::seal_run(RunRecord& run, std::optional<Error> build_error) {
  builder_.store(nullptr, std::memory_order_relaxed);
  call([&](Core& core) {
    build_taken_ = false;
    core.seal_run(run, std::move(build_error));
  });
}

template <class World>
template <class Attempt>
Result<TaskRef> Front<World>::submit_with_room(Attempt&& attempt) {
  TaskRef out;
  std::optional<Error> error;
  if (call([&](Core& core) { return attempt(core, &out, &error); }) != Core::Submitted::kFull) {
    if (error) return *std::move(error);
    return out;
  }
  const auto submitted = [&](Core& core) {
    if (attempt(core, &out, &error) != Core::Submitted::kFull) return true;
    error = core.stuck();
    return error.has_value();
  };
  wait("room for another task", base::Instant::never(), submitted, Wake::kSoon);
  if (error) return *std::move(error);
  call([](Core&) {});  // hands out what was just submitted
  return out;
}

template <class World>
template <class Attempt>
auto Front<World>::with_memory(Attempt&& attempt) {
  bool again = false;
  const auto once = [&](Core& core) {
    auto got = attempt(core);
    again = !got && core.memory_to_come();
    return got;
  };
  auto out = call(once);
  if (!again) [[likely]]
    return out;
  STRATA_MARK("front: a temporary waits for memory");
  const auto got = [&](Core& core) {
    out = once(core);
    return !again;
  };
  wait("memory of tasks in flight", base::Instant::never(), got, Wake::kSoon);
  return out;
}

template <class World>
Result<TaskRef> Front<World>::submit(RunRecord& run, const Job& job, const TaskArgs& args) {
  return submit_with_room([&](Core& core, TaskRef* out, std::optional<Error>* error) {
    return core.submit(run, job, args, out, error);
  });
}

template <class World>
Result<TaskRef> Front<World>::submit_group(RunRecord& run, const Job& job,
                                           std::span<const TaskArgs> members,
                                           std::span<const int32_t> workers) {
  return submit_with_room([&](Core& core, TaskRef* out, std::optional<Error>* error) {
    return core.submit_group(run, job, members, workers, out, error);
  });
}

template <class World>
Result<void> Front<World>::wait_run(RunRecord& run, base::Instant deadline) {
  if (std::optional<Error> no = why_no_wait("a wait for a run")) return *std::move(no);
  if (is_building()) {
    bool own = false;
    look([&](const Core&) { own = !run.progress.built; });
    if (own) {
      return Error(Code::kWrongState, Scope::kCall,
                   "wait for the run that this thread is building: it is done only after its "
                   "orchestration function has returned; Orchestrator::wait waits for one task");
    }
  }
  if (!wait("the end of a run", deadline, [&](Core&) { return run.done; })) {
    return Error(Code::kDeadline, Scope::kCall,
                 fmt::format("run {} is not done yet; it goes on", run.id));
  }
  return look([&](const Core&) -> Result<void> {
    run.error_seen = true;
    if (auto error = run.outcome()) return *std::move(error);
    return {};
  });
}

template <class World>
Result<void> Front<World>::wait_task(RunRecord& run, TaskRef task) {
  if (std::optional<Error> no = why_no_wait("a wait for a task")) return *std::move(no);
  std::optional<Error> error;
  const auto ended = [&](Core&) {
    if (task.run != run.id || task.task >= run.tasks.size()) {
      error = Error(Code::kNotFound, Scope::kCall,
                    fmt::format("run {} has no task {}", run.id, task.task));
      return true;
    }
    const TaskState state = run.tasks[task.task];
    if (state == TaskState::kLive) return false;
    if (state == TaskState::kOk) return true;
    const auto kept = run.errors.find(static_cast<uint32_t>(task.task));
    error = kept != run.errors.end()
                ? kept->second
                : Error(Code::kTaskFailed, Scope::kTask,
                        fmt::format("task {} failed; its text was not kept", task.task));
    return true;
  };
  wait("the end of a task", base::Instant::never(), ended, Wake::kEach);
  if (error) return *std::move(error);
  return {};
}

template <class World>
Result<registry::EntryRef> Front<World>::register_callable(const registry::PreparePayload& payload,
                                                           std::span<const uint32_t> listed) {
  if (std::optional<Error> no = why_no_wait("register_callable")) return *std::move(no);
  // One registration at a time; the clock of each runs in the core, not here.
  const model::Digest digest = model::digest_of(model::descriptor_bytes(payload.descriptor));
  wait("another registration", base::Instant::never(), [&](Core& core) {
    if (registrar_ != nullptr || core.registry().being_removed(digest, payload.inner)) return false;
    // What it is asked to take it can refuse only here: a replay that fails ends its worker.
    if (core.returning() > 0) return false;
    registrar_ = world_.self();
    return true;
  });
  std::optional<Result<registry::EntryRef>> outcome;
  const Result<void> begun =
      call([&](Core& core) { return core.begin_register(payload, world_.now(), listed); });
  if (begun.ok()) {
    wait("the answers to a registration", base::Instant::never(), [&](Core& core) {
      if (!outcome) outcome = core.take_register_outcome();
      return outcome.has_value();
    });
  }
  call([&](Core& core) {
    registrar_ = nullptr;
    core.note();  // who waits for its turn must look again
  });
  if (!begun) return begun.error();
  return *std::move(outcome);
}

}  // namespace strata::engine
