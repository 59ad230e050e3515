#include "sim/user.h"

#include <fmt/format.h>

#include <algorithm>

namespace strata::sim {

void User::play() {
  for (uint32_t i = 0; i < shared_.options.runs && !shared_.checks.failed(); ++i) {
    build_run();
    pause_a_little();
    churn(nullptr);
    if (!mine_.empty() && chance(shared_.options.cancel)) {
      level_.cancel(*mine_[prng_.below(mine_.size())]);
      features_.cancel = true;
    }
    if (!mine_.empty() && chance(shared_.options.wait_run)) {
      wait_run(*mine_[prng_.below(mine_.size())], true);
    }
    // The engine alone goes on with what nobody has a handle of any more.
    if (!mine_.empty() && chance(shared_.options.drop_handle)) {
      mine_.erase(mine_.begin() + static_cast<ptrdiff_t>(prng_.below(mine_.size())));
    }
  }
  // Some go without a look back.
  if (prng_.chance(1, 3)) return;
  for (SimRun* run : mine_) wait_run(*run, false);
}

void User::pause_a_little() {
  if (!prng_.chance(1, 3)) return;
  const uint64_t ns = prng_.below(1u << prng_.below(18)) + 1;
  shared_.scheduler->block(shared_.scheduler->now() + base::Duration{static_cast<int64_t>(ns)});
}

SimRun* User::begin_run() {
  const auto& runs = level_.runs();
  SimRun* const run = level_.open_run();
  if (run == nullptr) return nullptr;
  if (runs.size() > 1 && !runs[runs.size() - 2]->record->done) features_.second_run = true;
  return run;
}

void User::end_run(SimRun& run, bool may_fail) {
  while (!scopes_.empty()) {
    for (const auto& temporary : scopes_.back()) temporary->live = false;
    scopes_.pop_back();
    scope_ids_.pop_back();
  }
  std::optional<Error> error;
  if (may_fail && chance(shared_.options.build_error)) {
    error = Error(Code::kUserCode, Scope::kCall, "the orchestration function gave up");
    run.build_error = true;
  }
  shared_.note(name_, EventKind::kRunSeal, run.number, run.tasks.size());
  level_.front().seal_run(*run.record, std::move(error));
}

void User::build_run() {
  SimRun* const run = begin_run();
  if (run == nullptr) return;
  const uint64_t tasks = prng_.between(1, 2 * shared_.options.tasks);
  for (uint64_t i = 0; i < tasks && !shared_.checks.failed(); ++i) build_step(*run);
  if (chance(shared_.options.cancel) && prng_.chance(1, 2)) {
    level_.cancel(*run);
    features_.cancel = true;
  }
  end_run(*run, true);
  mine_.push_back(run);
}

void User::build_step(SimRun& run) {
  const Options& options = shared_.options;
  maybe_scope();
  if (chance(options.wait_task)) wait_some_task(run);
  if (prng_.chance(1, 8)) churn(&run);
  if (chance(options.cancel) && prng_.chance(1, 30)) {
    level_.cancel(run);
    features_.cancel = true;
  }
  std::vector<std::shared_ptr<SimBuffer>> buffers = level_.buffers();
  std::erase_if(buffers, [](const auto& buffer) { return buffer->made.bytes > kUsedBytesMax; });
  for (const auto& scope : scopes_) {
    // Twice, so that temporaries are used although there are few of them.
    buffers.insert(buffers.end(), scope.begin(), scope.end());
    buffers.insert(buffers.end(), scope.begin(), scope.end());
  }
  if (buffers.empty()) {
    level_.create_buffer(options.buffer_bytes);
    return;
  }
  const Draft draft = draw_task(prng_, shared_, buffers, run.number,
                                static_cast<uint32_t>(shared_.oracle.task_count()));
  features_.overlapping_views = features_.overlapping_views || draft.overlaps;
  features_.inout = features_.inout || draft.inout;
  if (prng_.chance(1, 20)) pause_a_little();
  submit(run, draft);
}

void User::maybe_scope() {
  if (!chance(shared_.options.scope)) return;
  if (!scopes_.empty() && prng_.chance(1, 2)) return drop_scope();
  if (scopes_.size() < 3) {
    const Result<uint64_t> begun =
        level_.front().call([](engine::Core& core) { return core.begin_scope(); });
    if (!begun) {
      shared_.checks.fail(Verdict::kCorrectness, "a scope was refused");
      return;
    }
    scopes_.emplace_back();
    scope_ids_.push_back(*begun);
  }
  for (uint64_t n = prng_.between(1, 2); n > 0; --n) {
    const auto temporary = level_.create_temporary(shared_.options.buffer_bytes);
    if (temporary == nullptr) continue;
    scopes_.back().push_back(temporary);
    features_.scope = true;
  }
}

void User::drop_scope() {
  for (const auto& temporary : scopes_.back()) temporary->live = false;
  scopes_.pop_back();
  const uint64_t scope = scope_ids_.back();
  scope_ids_.pop_back();
  level_.front().call([scope](engine::Core& core) { core.end_scope(scope); });
}

void User::submit(SimRun& run, const Draft& draft) {
  auto& callables = level_.callables();
  if (callables.empty()) {
    level_.register_callable(static_cast<uint32_t>(prng_.below(shared_.options.callables)));
    return;
  }
  const registry::EntryRef callable = callables[prng_.below(callables.size())]->ref;
  const bool all_live = std::all_of(draft.buffers.begin(), draft.buffers.end(),
                                    [](const auto& buffer) { return buffer->live; });
  const uint64_t unregistered = shared_.log->count(EventKind::kUnregister);
  shared_.oracle.add_task(draft.task);
  level_.note_task(run);
  run.tasks.push_back(static_cast<uint32_t>(shared_.oracle.task_count() - 1));
  run.result_bytes.push_back(draft.result_bytes);
  const auto full = [&](const engine::Core& core) {
    return core.scheduler().live() >= shared_.options.slots;
  };
  shared_.faults.full += level_.front().look(full);
  CallConfig config;
  const Result<TaskRef> result =
      level_.front().submit(*run.record, {callable, engine::Where{}, config}, draft.args);
  judge_submit(run, draft, result, all_live, unregistered);
}

void User::judge_submit(SimRun& run, const Draft& draft, const Result<TaskRef>& result,
                        bool all_live_before, uint64_t unregistered_before) {
  const uint32_t task = run.tasks.back();
  const bool all_live = std::all_of(draft.buffers.begin(), draft.buffers.end(),
                                    [](const auto& buffer) { return buffer->live; });
  if (result) {
    shared_.note(name_, EventKind::kSubmit, task, run.number);
    if (draft.invalid || !all_live_before) {
      shared_.checks.fail(Verdict::kCorrectness,
                          fmt::format("task {} was accepted although it must be refused", task));
    }
    if (result->run != run.record->id || result->task != run.tasks.size() - 1) {
      shared_.checks.fail(Verdict::kCorrectness, fmt::format("task {} has a wrong name", task));
    }
    return;
  }
  shared_.note(name_, EventKind::kRefused, task, static_cast<uint64_t>(result.error().code()));
  shared_.oracle.withdraw_task();
  level_.withdraw_task();
  run.tasks.pop_back();
  run.result_bytes.pop_back();
  const bool expected = draft.invalid || !all_live ||
                        shared_.log->count(EventKind::kUnregister) != unregistered_before;
  if (!expected) {
    shared_.checks.fail(Verdict::kCorrectness, fmt::format("task {} was refused without need: {}",
                                                           task, result.error().to_string()));
  }
}

void User::wait_some_task(SimRun& run) {
  if (run.tasks.empty()) return;
  const uint64_t task = prng_.below(run.tasks.size());
  const Result<void> waited = level_.front().wait_task(*run.record, TaskRef{run.record->id, task});
  const engine::TaskState state = run.record->tasks[task];
  if (state == engine::TaskState::kLive || waited.ok() != (state == engine::TaskState::kOk)) {
    shared_.checks.fail(
        Verdict::kCorrectness,
        fmt::format("a wait for task {} told another end than it has", run.tasks[task]));
  }
}

void User::wait_run(SimRun& run, bool may_hurry) {
  base::Instant deadline = base::Instant::never();
  if (may_hurry && chance(shared_.options.wait_deadline)) {
    deadline = level_.world().now() +
               base::Duration{static_cast<int64_t>(prng_.below(1u << prng_.between(4, 20)))};
  }
  const Result<void> waited = level_.front().wait_run(*run.record, deadline);
  shared_.note(name_, EventKind::kRunWaited, run.number, waited.ok());
  if (!waited && waited.error().code() == Code::kDeadline && deadline != base::Instant::never()) {
    ++shared_.faults.deadlines;
    return;
  }
  const std::optional<Error> outcome = run.record->outcome();
  if (!run.record->done || waited.ok() == outcome.has_value()) {
    shared_.checks.fail(Verdict::kCorrectness,
                        fmt::format("a wait for run {} told another end than it has", run.number));
  }
}

// Makes, drops and mends things while others use them.
void User::churn(SimRun* building) {
  const Options& options = shared_.options;
  auto& buffers = level_.buffers();
  if (chance(options.buffer_churn)) {
    if (buffers.size() > 1 && prng_.chance(1, 2)) {
      const std::shared_ptr<SimBuffer> buffer = buffers[prng_.below(buffers.size())];
      level_.release_buffer(*buffer);
    } else if (buffers.size() < options.buffers_max / 2) {
      level_.create_buffer(prng_.chance(1, 16) ? 300'000 : options.buffer_bytes);
    }
  }
  if (!buffers.empty() && chance(options.clear_error)) {
    const std::shared_ptr<SimBuffer> buffer = buffers[prng_.below(buffers.size())];
    level_.clear_error(*buffer);
  }
  if (!chance(options.callable_churn)) return;
  auto& callables = level_.callables();
  if (callables.size() > 1 && prng_.chance(1, 2)) {
    const std::shared_ptr<SimCallable> callable = callables[prng_.below(callables.size())];
    level_.unregister_callable(*callable);
  } else if (building == nullptr || prng_.chance(1, 4)) {
    level_.register_callable(static_cast<uint32_t>(prng_.below(options.callables + 2)));
  }
}

}  // namespace strata::sim
