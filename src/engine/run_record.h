// RunRecord: what is remembered of one run, from its opening until the last handle goes. Guarded by
// the step token.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/time.h"
#include "strata/error.h"
#include "strata/run.h"

namespace strata::engine {

enum class TaskState : uint8_t { kLive, kOk, kTaskFailed, kEndpointFailed, kSkipped };

struct RunRecord {
  // Errors of single tasks that are kept for result(); the root error is kept beside.
  static constexpr size_t kErrorsMax = 256;

  uint64_t id = 0;      // from 1, of this Worker
  uint32_t number = 0;  // the scheduler's
  RunProgress progress;
  uint64_t dependencies = 0;
  uint64_t cover_dependencies = 0;
  bool cancelled = false;
  uint32_t cancel_cause = 0;
  // When the children that still run a task of it are ended: the grace of its cancel.
  base::Instant kill_at = base::Instant::never();
  static constexpr size_t kKilledNamesMax = 8;
  std::vector<std::string> killed_names;  // tasks and workers that were ended by the cancel
  uint64_t cancel_kills = 0;              // all of these
  uint64_t kills = 0;                     // workers that were ended for tasks of this run
  bool done = false;                      // built, every task terminal and accounted for
  bool error_seen = false;                // somebody was given the root error
  // What is called when it is done, in order; they throw nothing. Not yet called ones of a run that
  // is done stand in Core::done_calls().
  std::deque<std::function<void(const Result<void>&)>> on_done;
  bool calls_pending = false;
  std::vector<TaskState> tasks;
  std::map<std::pair<uint32_t, uint32_t>, std::vector<std::byte>> results;  // task, member
  std::map<uint32_t, Error> errors;

  // The smallest submission number among the failures that no other caused; where there is none,
  // the first task that was skipped for a cause outside this run.
  struct Root {
    bool skipped;
    uint64_t order;
    Error error;
  };
  std::optional<Root> root;
  std::optional<Error> build_error;  // of the orchestration function itself
  uint64_t failures = 0;             // all tasks that did not succeed

  void note_failure(uint32_t task, uint64_t order, bool skipped, const Error& error) {
    ++failures;
    if (errors.size() < kErrorsMax) errors.emplace(task, error);
    const bool better =
        !root || (root->skipped && !skipped) || (root->skipped == skipped && order < root->order);
    if (better) root = Root{skipped, order, error};
  }
  std::optional<Error> outcome() const {
    if (build_error) return build_error;
    if (!root) return std::nullopt;
    if (cancel_kills == 0) return root->error;
    std::string who;
    for (const std::string& name : killed_names) who += (who.empty() ? "" : "; ") + name;
    if (cancel_kills > killed_names.size()) {
      who += " and " + std::to_string(cancel_kills - killed_names.size()) + " more";
    }
    std::string text =
        "run " + std::to_string(id) +
        " was cancelled; what still ran when the grace had passed was killed: " + who;
    if (root->error.code() != Code::kCancelled) {
      text += "; its first failure: " + root->error.to_string();
    }
    return Error(Code::kCancelled, Scope::kTask, std::move(text));
  }
};

}  // namespace strata::engine
