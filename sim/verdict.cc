#include "sim/verdict.h"

#include <fmt/format.h>

#include <algorithm>

#include "sim/task_code.h"

namespace strata::sim {
namespace {

Outcome outcome_of(engine::TaskState state) {
  switch (state) {
    case engine::TaskState::kLive:
      return Outcome::kLive;
    case engine::TaskState::kOk:
      return Outcome::kOk;
    case engine::TaskState::kTaskFailed:
      return Outcome::kTaskFailed;
    case engine::TaskState::kEndpointFailed:
      return Outcome::kEndpointFailed;
    case engine::TaskState::kSkipped:
      return Outcome::kSkipped;
  }
  return Outcome::kLive;
}

std::vector<Outcome> outcomes_of(const SimRun& run) {
  std::vector<Outcome> out;
  for (const engine::TaskState state : run.record->tasks) out.push_back(outcome_of(state));
  return out;
}

bool code_fits(Outcome outcome, Code code) {
  switch (outcome) {
    case Outcome::kTaskFailed:
      return code == Code::kTaskFailed || code == Code::kDeadline;
    case Outcome::kEndpointFailed:
      return code == Code::kEndpointFailed || code == Code::kCancelled;
    case Outcome::kSkipped:
      return code == Code::kSkipped || code == Code::kNoWorker || code == Code::kCancelled;
    case Outcome::kOk:
    case Outcome::kLive:
      return false;
  }
  return false;
}

// The root error: of the smallest number among the failures, else of the first that was skipped.
std::string judge_root(const SimRun& run, const std::vector<Outcome>& outcomes) {
  const auto failed = [](Outcome o) {
    return o == Outcome::kTaskFailed || o == Outcome::kEndpointFailed;
  };
  auto first = std::find_if(outcomes.begin(), outcomes.end(), failed);
  if (first == outcomes.end()) {
    first = std::find(outcomes.begin(), outcomes.end(), Outcome::kSkipped);
  }
  const std::optional<Error> root = run.record->outcome();
  if (run.build_error) {
    if (!root || root->code() != Code::kUserCode) return "the error of its function is lost";
    return {};
  }
  // Who was ended for the cancel is told in its place.
  if (run.record->cancel_kills > 0 && root && run.cancelled) {
    return root->code() == Code::kCancelled ? "" : "a cancelled run that was ended says another";
  }
  if (first == outcomes.end()) return root ? "it has an error although all went well" : "";
  if (!root) return "it has no error although a task failed";
  const size_t number = static_cast<size_t>(first - outcomes.begin());
  if (!code_fits(*first, root->code())) {
    return fmt::format("its root error is not that of its task {}: {}", number, root->to_string());
  }
  if (!failed(*first)) return {};
  if (root->where().find(fmt::format("task {} '", number)) == std::string::npos) {
    return fmt::format("its root error does not name its task {}: {}", number, root->to_string());
  }
  return {};
}

// The results of a task, or of the members of a group that have succeeded.
std::string judge_results(Shared& shared, const SimRun& run, size_t number, Outcome outcome) {
  const Oracle::Task& task = shared.oracle.task(run.tasks[number]);
  for (uint32_t part = 0; part < task.parts.size(); ++part) {
    const auto kept = run.record->results.find({static_cast<uint32_t>(number), part});
    const Checks::Name name{run.tasks[number], part};
    const Checks::Started& started = shared.checks.started(name);
    const uint32_t bytes = task.parts[part].result_bytes;
    if (kept == run.record->results.end()) {
      if (outcome == Outcome::kOk && bytes > 0) return "the result of a task is lost";
      continue;
    }
    const bool may_give = outcome == Outcome::kOk || task.is_group;
    if (!may_give || bytes == 0 || !started.ended || started.failed) {
      return "a task has a result it never gave";
    }
    if (kept->second != result_of(name, bytes)) return "the result of a task has other bytes";
  }
  return {};
}

// Whether at some moment no worker was left for it, or too few.
bool may_lack_worker(Level& level, uint32_t task) {
  const Shared& shared = level.shared();
  const PlaceRule& rule = shared.placement.rule(task);
  const auto is_lost = [&](uint32_t worker) {
    return level.core().worker_state(worker) == engine::Core::WorkerState::kLost;
  };
  uint32_t any = 0;
  for (const int32_t worker : rule.workers) {
    any += worker < 0;
    if (worker >= 0 && is_lost(static_cast<uint32_t>(worker))) return true;
  }
  if (any == 0) return false;
  for (uint32_t worker = 0; !rule.everywhere && worker < level.worker_count(); ++worker) {
    if ((rule.callable_on >> worker & 1) != 0 && is_lost(worker)) return true;
  }
  return rule.everywhere && shared.fewest[rule.pool] < rule.workers.size();
}

// A task that no worker was left for says so.
std::string judge_skip(Level& level, const SimRun& run, size_t number) {
  if (run.cancelled || level.shared().oracle.must_be_skipped(run.tasks[number])) return {};
  const auto error = run.record->errors.find(static_cast<uint32_t>(number));
  if (error == run.record->errors.end() || error->second.code() == Code::kNoWorker) return {};
  return fmt::format("task {} of run {} was skipped for no worker, and says: {}", number,
                     run.number, error->second.to_string());
}

// A failure by a deadline or by a cancel is one only after the time.
std::string judge_deadline(const SimRun& run, size_t number, const Oracle::Seen& seen) {
  const auto error = run.record->errors.find(static_cast<uint32_t>(number));
  if (error == run.record->errors.end()) return {};
  const Code code = error->second.code();
  if (code == Code::kDeadline && !seen.overdue) {
    return fmt::format("task {} of run {} failed before its deadline: {}", number, run.number,
                       error->second.to_string());
  }
  if (code == Code::kCancelled && !run.cancelled) {
    return fmt::format("task {} of run {} was ended for a cancel that nobody asked for", number,
                       run.number);
  }
  return {};
}

}  // namespace

std::string judge_record(Shared& shared, const SimRun& run, const std::vector<Outcome>& outcomes) {
  const engine::RunRecord& record = *run.record;
  if (!record.done) return "it is not done";
  if (outcomes.size() != run.tasks.size()) return "it has another number of tasks";
  const auto count = [&](Outcome outcome) {
    return static_cast<uint64_t>(std::count(outcomes.begin(), outcomes.end(), outcome));
  };
  const RunProgress& progress = record.progress;
  if (progress.submitted != run.tasks.size() || progress.succeeded != count(Outcome::kOk) ||
      progress.failed != count(Outcome::kTaskFailed) + count(Outcome::kEndpointFailed) ||
      progress.skipped != count(Outcome::kSkipped)) {
    return fmt::format("it counts {} submitted, {} succeeded, {} failed, {} skipped",
                       progress.submitted, progress.succeeded, progress.failed, progress.skipped);
  }
  for (size_t i = 0; i < outcomes.size(); ++i) {
    if (std::string wrong = judge_results(shared, run, i, outcomes[i]); !wrong.empty()) {
      return wrong;
    }
  }
  return judge_root(run, outcomes);
}

void judge(Level& level) {
  Shared& shared = level.shared();
  std::vector<Oracle::Seen> seen(shared.oracle.task_count());
  level.note_fewest();
  uint32_t lost = 0;
  for (const auto& run : level.runs()) {
    const std::vector<Outcome> outcomes = outcomes_of(*run);
    if (std::string wrong = judge_record(shared, *run, outcomes); !wrong.empty()) {
      shared.checks.fail(Verdict::kCorrectness, fmt::format("run {}: {}", run->number, wrong));
      return;
    }
    for (size_t i = 0; i < outcomes.size(); ++i) {
      lost += outcomes[i] == Outcome::kEndpointFailed;
      shared.faults.cancels += outcomes[i] == Outcome::kSkipped && run->cancelled;
      const uint32_t task = run->tasks[i];
      Oracle::Seen& one = seen[task];
      one.outcome = outcomes[i];
      for (uint32_t part = 0; part < shared.oracle.task(task).parts.size(); ++part) {
        const Checks::Started& started = shared.checks.started({task, part});
        one.parts.push_back(
            {started.starts, started.ended, started.failed, started.died, started.input_hash});
      }
      one.may_cancel = run->cancelled;
      one.may_lack_worker = may_lack_worker(level, task);
      one.may_be_lost = shared.deaths > 0;
      one.overdue = shared.overdue.is_overdue(task);
      one.ended_late = shared.overdue.ended_late(task);
      if (std::string wrong = judge_deadline(*run, i, one); !wrong.empty()) {
        shared.checks.fail(Verdict::kCorrectness, std::move(wrong));
        return;
      }
    }
  }
  // A child runs one task at a time.
  if (lost > shared.deaths) {
    shared.checks.fail(Verdict::kCorrectness,
                       fmt::format("{} tasks were lost with {} workers", lost, shared.deaths));
  }
  uint64_t submits = 0;
  for (const auto& run : level.runs()) submits += run->record->tasks.size();
  if (const std::string wrong = shared.timeline->judge(submits); !wrong.empty()) {
    shared.checks.fail(Verdict::kCorrectness, "the timeline: " + wrong);
    return;
  }
  if (const auto wrong = shared.oracle.judge(seen)) {
    shared.checks.fail(Verdict::kCorrectness, *wrong);
    return;
  }
  for (const auto& run : level.runs()) {
    for (size_t i = 0; i < run->tasks.size(); ++i) {
      if (seen[run->tasks[i]].outcome != Outcome::kSkipped) continue;
      if (std::string wrong = judge_skip(level, *run, i); !wrong.empty()) {
        shared.checks.fail(Verdict::kCorrectness, std::move(wrong));
        return;
      }
    }
  }
  for (const auto& buffer : level.buffers()) {
    if (buffer->made.bytes > kUsedBytesMax) continue;
    const auto* const bytes =
        reinterpret_cast<const uint8_t*>(shared.heap + buffer->made.heap_offset);
    if (const auto wrong = shared.oracle.check_content(buffer->oracle, bytes)) {
      shared.checks.fail(Verdict::kCorrectness, *wrong);
      return;
    }
  }
}

}  // namespace strata::sim
