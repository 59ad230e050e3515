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
      return code == Code::kTaskFailed;
    case Outcome::kEndpointFailed:
      return code == Code::kEndpointFailed;
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

std::string judge_result(const SimRun& run, size_t number, Outcome outcome) {
  const auto kept = run.record->results.find({static_cast<uint32_t>(number), 0});
  const bool wanted = outcome == Outcome::kOk && run.result_bytes[number] > 0;
  if (!wanted) return kept == run.record->results.end() ? "" : "a task has a result it never gave";
  if (kept == run.record->results.end()) return "the result of a task is lost";
  if (kept->second != result_of(run.tasks[number], run.result_bytes[number])) {
    return "the result of a task has other bytes";
  }
  return {};
}

}  // namespace

std::string judge_record(const SimRun& run, const std::vector<Outcome>& outcomes) {
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
    if (std::string wrong = judge_result(run, i, outcomes[i]); !wrong.empty()) return wrong;
  }
  return judge_root(run, outcomes);
}

void judge(Level& level) {
  Shared& shared = level.shared();
  std::vector<Oracle::Seen> seen(shared.oracle.task_count());
  uint32_t lost = 0;
  for (const auto& run : level.runs()) {
    const std::vector<Outcome> outcomes = outcomes_of(*run);
    if (std::string wrong = judge_record(*run, outcomes); !wrong.empty()) {
      shared.checks.fail(Verdict::kCorrectness, fmt::format("run {}: {}", run->number, wrong));
      return;
    }
    for (size_t i = 0; i < outcomes.size(); ++i) {
      const Checks::Started& started = shared.checks.started(run->tasks[i]);
      lost += outcomes[i] == Outcome::kEndpointFailed;
      shared.faults.cancels += outcomes[i] == Outcome::kSkipped && run->cancelled;
      seen[run->tasks[i]] = {outcomes[i],        started.starts, started.ended,
                             started.input_hash, run->cancelled, shared.may_lack_worker,
                             shared.deaths > 0};
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
