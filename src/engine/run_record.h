// RunRecord: what is remembered of one run, from its opening until the last handle goes. Guarded by
// the step token.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

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
  bool done = false;        // built, every task terminal and accounted for
  bool error_seen = false;  // somebody was given the root error
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
    if (root) return root->error;
    return std::nullopt;
  }
};

}  // namespace strata::engine
