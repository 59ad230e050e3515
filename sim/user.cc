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
  for (const auto& storage : run_storage_) storage->live = false;
  run_storage_.clear();
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
  if (prng_.chance(1, 2)) maybe_call(*run);
  end_run(*run, true);
  maybe_call(*run);
  mine_.push_back(run);
}

// A callback for when the run is done, which may submit another run and may not wait.
void User::maybe_call(SimRun& run) {
  if (!chance(shared_.options.on_done)) return;
  const uint32_t number = run.calls_set++;
  const bool submits = prng_.chance(1, 3);
  const uint64_t seed = prng_.next();
  level_.front().on_done(run.record, [this, &run, number, submits, seed](const Result<void>& said) {
    shared_.note("callback", EventKind::kRunWaited, run.number, number);
    const std::optional<Error> outcome = run.record->outcome();
    if (!run.record->done || said.ok() == outcome.has_value()) {
      shared_.checks.fail(Verdict::kCorrectness, "a callback is told another end than the run has");
    }
    if (run.calls_made++ != number) {
      shared_.checks.fail(Verdict::kCorrectness, "callbacks of a run come in another order");
    }
    const Result<void> waited = level_.front().wait_run(*run.record, base::Instant::never());
    if (waited || waited.error().code() != Code::kWrongState) {
      shared_.checks.fail(Verdict::kCorrectness, "a wait in a callback is not refused");
    }
    if (!submits || shared_.calm || shared_.checks.failed()) return;
    User helper(&level_, seed, "callback", &features_);
    SimRun* const next = helper.begin_run();
    if (next == nullptr) return;
    // What is taken down by now waits for no run that it does not know.
    for (uint64_t n = helper.prng_.below(4); n > 0 && !shared_.calm; --n) {
      if (std::optional<Draft> draft = helper.draw(*next)) helper.submit(*next, *std::move(draft));
    }
    helper.end_run(*next, false);
  });
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
  std::optional<Draft> draft = draw(run);
  if (!draft) return;
  features_.overlapping_views = features_.overlapping_views || draft->overlaps;
  features_.inout = features_.inout || draft->inout;
  features_.group = features_.group || draft->task.is_group;
  if (prng_.chance(1, 20)) pause_a_little();
  submit(run, *std::move(draft));
}

// Over what there is; nothing where something must be made first.
std::optional<Draft> User::draw(SimRun& run) {
  const Options& options = shared_.options;
  std::vector<std::shared_ptr<SimBuffer>> buffers = level_.buffers();
  std::erase_if(buffers, [](const auto& buffer) { return buffer->made.bytes > kUsedBytesMax; });
  for (const auto& scope : scopes_) {
    // Twice, so that temporaries are used although there are few of them.
    buffers.insert(buffers.end(), scope.begin(), scope.end());
    buffers.insert(buffers.end(), scope.begin(), scope.end());
  }
  buffers.insert(buffers.end(), run_storage_.begin(), run_storage_.end());
  if (buffers.empty()) {
    level_.create_buffer(options.buffer_bytes);
    return std::nullopt;
  }
  const auto& callables = level_.callables();
  if (callables.empty()) {
    level_.register_callable(static_cast<uint32_t>(prng_.below(options.callables)));
    return std::nullopt;
  }
  const Target target = draw_target(prng_, level_, callables[prng_.below(callables.size())]);
  const uint32_t task = static_cast<uint32_t>(shared_.oracle.task_count());
  uint64_t most = std::min<uint64_t>(options.group_max, target.up.size());
  // More than there are, where no other is to come: must be refused.
  if (level_.no_more_workers() && chance(options.bad_submit)) most = target.up.size() + 1;
  const bool group = chance(options.group) && most > 0;
  Draft draft = group ? draw_group(prng_, shared_, buffers, run.number, task,
                                   static_cast<uint32_t>(most - prng_.below(most) / 2))
                      : draw_task(prng_, shared_, buffers, run.number, task);
  aim(prng_, level_, target, &draft);
  return draft;
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

// ---------------------------------------------------------------- submission

std::vector<std::shared_ptr<SimBuffer>>& User::innermost() {
  return scopes_.empty() ? run_storage_ : scopes_.back();
}

bool User::give_storage(Draft& draft, std::vector<std::vector<Level::Storage>>* given) {
  given->resize(draft.members.size());
  for (size_t part = 0; part < draft.members.size(); ++part) {
    if (!level_.give_storage(draft.members[part], &(*given)[part])) {
      take_storage(draft, *given);
      return false;
    }
    for (const Level::Storage& one : (*given)[part]) {
      draft.task.parts[part].accesses[one.argument].buffer = one.buffer->oracle;
      innermost().push_back(one.buffer);
    }
  }
  return true;
}

void User::take_storage(Draft& draft, const std::vector<std::vector<Level::Storage>>& given) {
  for (size_t part = 0; part < draft.members.size(); ++part) {
    if (given[part].empty()) continue;
    level_.take_storage(draft.members[part], given[part]);
    std::erase_if(innermost(), [](const auto& buffer) { return !buffer->live; });
  }
}

Result<TaskRef> User::send(SimRun& run, const Draft& draft) {
  const uint64_t slots = draft.task.is_group ? draft.members.size() + 1 : 1;
  const auto full = [&](const engine::Core& core) {
    return core.scheduler().live() + slots > shared_.options.slots;
  };
  shared_.faults.full += level_.front().look(full);
  engine::Job job{
      draft.callable->ref, {draft.pool, -1}, CallConfig{.deadline_ms = draft.deadline_ms}};
  if (draft.task.is_group) {
    return level_.front().submit_group(*run.record, job, draft.members, draft.workers);
  }
  if (!draft.workers.empty()) job.where.worker = draft.workers[0];
  return level_.front().submit(*run.record, job, draft.members[0]);
}

void User::submit(SimRun& run, Draft draft) {
  if (draft.callable == nullptr) {  // a probe
    const auto& callables = level_.callables();
    const auto everywhere = std::find_if(callables.begin(), callables.end(),
                                         [](const auto& one) { return one->workers.empty(); });
    if (everywhere == callables.end()) {
      level_.register_callable(0);
      return;
    }
    draft.callable = *everywhere;
  }
  std::vector<std::vector<Level::Storage>> given;
  if (draft.wants_storage && !give_storage(draft, &given)) return;
  PlaceRule rule;
  rule.pool = static_cast<uint32_t>(draft.pool);
  const std::optional<uint64_t> callable_on = level_.callable_on(draft.callable->which);
  rule.everywhere = !callable_on;
  rule.callable_on = callable_on.value_or(0);
  rule.workers = draft.workers;
  const uint64_t unregistered = shared_.log->count(EventKind::kUnregister);
  const bool must_refuse = must_be_refused(draft);
  const bool must_take = must_be_taken(draft);
  level_.note_task(run, draft.task, std::move(rule), draft.deadline_ms);
  const Result<TaskRef> result = send(run, draft);
  judge_submit(run, draft, result, must_refuse,
               must_take && must_be_taken(draft) &&
                   shared_.log->count(EventKind::kUnregister) == unregistered);
  if (result) return;
  level_.withdraw_task(run);
  if (!given.empty()) take_storage(draft, given);
}

bool User::must_be_taken(const Draft& draft) const {
  if (draft.invalid || !draft.callable->live) return false;
  for (const auto& buffer : draft.buffers) {
    if (!buffer->live) return false;
  }
  const auto fits = [&](uint32_t worker) {
    return worker < level_.worker_count() &&
           (level_.is_up(worker) || level_.core().is_returning(worker)) &&
           shared_.placement.pool_of(worker) == static_cast<uint32_t>(draft.pool) &&
           has_callable(*draft.callable, worker);
  };
  size_t named = 0;
  for (size_t i = 0; i < draft.workers.size(); ++i) {
    if (draft.workers[i] < 0) continue;
    ++named;
    if (!fits(static_cast<uint32_t>(draft.workers[i]))) return false;
    const auto before = draft.workers.begin() + static_cast<ptrdiff_t>(i);
    if (std::find(draft.workers.begin(), before, draft.workers[i]) != before) return false;
  }
  size_t up = 0;
  for (uint32_t worker = 0; worker < level_.worker_count(); ++worker) up += fits(worker);
  if (draft.task.is_group) {
    return up >= draft.members.size() && draft.members.size() < shared_.options.slots;
  }
  return named > 0 || up > 0 || draft.callable->workers.empty();
}

bool User::must_be_refused(const Draft& draft) const {
  if (draft.invalid) return true;
  for (const auto& buffer : draft.buffers) {
    if (!buffer->live) return true;
  }
  const auto is_lost = [&](uint32_t worker) {
    return level_.core().worker_state(worker) == engine::Core::WorkerState::kLost;
  };
  for (size_t i = 0; i < draft.workers.size(); ++i) {
    if (draft.workers[i] < 0) continue;
    const auto worker = static_cast<uint32_t>(draft.workers[i]);
    if (worker >= level_.worker_count() || is_lost(worker)) return true;
    if (shared_.placement.pool_of(worker) != static_cast<uint32_t>(draft.pool)) return true;
    const auto before = draft.workers.begin() + static_cast<ptrdiff_t>(i);
    if (std::find(draft.workers.begin(), before, draft.workers[i]) != before) return true;
  }
  // Workers that may ever take a part of it.
  const std::optional<uint64_t> on = level_.callable_on(draft.callable->which);
  size_t some = 0;
  for (const uint32_t worker : level_.pool_workers(draft.pool)) {
    some += !is_lost(worker) && (!on || (*on >> worker & 1) != 0);
  }
  if (draft.task.is_group && (on || level_.no_more_workers())) return some < draft.members.size();
  return on && some == 0;
}

void User::judge_submit(SimRun& run, const Draft& draft, const Result<TaskRef>& result,
                        bool must_refuse, bool must_take) {
  const uint32_t task = run.tasks.back();
  const std::string_view kind = draft.task.is_group ? "group" : "task";
  if (result) {
    shared_.note(name_, EventKind::kSubmit, task, run.number);
    if (must_refuse) {
      shared_.checks.fail(
          Verdict::kCorrectness,
          fmt::format("{} {} was accepted although it must be refused", kind, task));
    }
    if (result->run != run.record->id || result->task != run.tasks.size() - 1) {
      shared_.checks.fail(Verdict::kCorrectness, fmt::format("{} {} has a wrong name", kind, task));
    }
    return;
  }
  shared_.note(name_, EventKind::kRefused, task, static_cast<uint64_t>(result.error().code()));
  if (must_take) {
    shared_.checks.fail(Verdict::kCorrectness, fmt::format("{} {} was refused without need: {}",
                                                           kind, task, result.error().to_string()));
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
