// RunHandle: one graph on its way.
//
// Any thread may call anything here. Dropping a handle neither waits nor cancels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "strata/export.h"
#include "strata/result.h"
#include "strata/task_ref.h"

namespace strata {

struct RunProgress {
  uint64_t submitted = 0;
  uint64_t succeeded = 0;
  uint64_t failed = 0;   // task and endpoint failures
  uint64_t skipped = 0;  // poisoned or cancelled
  bool built = false;    // the orchestration function has returned
  uint64_t terminal() const { return succeeded + failed + skipped; }
};

struct RunStats {
  RunProgress progress;
  uint64_t dependencies = 0;        // edges between tasks
  uint64_t cover_dependencies = 0;  // of these, edges that only covering ranges made
  uint64_t errors_not_kept = 0;     // failures beyond the root error
  uint64_t kills = 0;               // children ended for a deadline, or for the grace of a cancel
};

class STRATA_PUBLIC RunHandle {
 public:
  RunHandle() = default;

  // Until every task is terminal and accounted for. The root error, if any: that of the smallest
  // submission number among the failures that no other caused.
  Result<void> wait();
  // The same with a bound; Code::kDeadline when it passes, and the run goes on.
  Result<void> wait_for(uint32_t timeout_ms);
  bool done() const;
  RunProgress progress() const;
  RunStats stats() const;
  // Skips what has not started, tells what has (Call::cancelled). Idempotent.
  void cancel();
  // The same; a child that still runs a task of the run after `grace_ms` is killed, a child Worker
  // with all that is below it. The run's error is then Code::kCancelled and says who was. A later
  // call may shorten the grace. A call in this process (StartMethod::kInline) cannot be killed.
  void cancel(uint32_t grace_ms);
  // Calls `callback` with the run's outcome when it is done, once: in a thread that waits for
  // something of this Worker, else in a thread of the Worker's own; at once, here, where the run is
  // done already. Those of one run begin in their order; those of several runs may come at the same
  // time. It may submit and ask about runs; a wait, close or registration in it is an Error at
  // once. What it throws is logged. Keep it short: the Worker's own thread does nothing else
  // meanwhile.
  Result<void> on_done(std::function<void(const Result<void>& outcome)> callback);
  // The bytes that a task gave by set_result; empty where it gave none. An Error where it failed,
  // was skipped or is not done. `member`: of a group.
  Result<std::vector<std::byte>> result(TaskRef task, uint32_t member = 0) const;
  template <class T>
  Result<T> result_as(TaskRef task, uint32_t member = 0) const {
    Result<std::vector<std::byte>> bytes = result(task, member);
    if (!bytes) return bytes.error();
    T value;
    if (bytes->size() != sizeof value) {
      return Error(Code::kInvalidArgument, Scope::kCall,
                   "the task's result has " + std::to_string(bytes->size()) + " bytes, not " +
                       std::to_string(sizeof value));
    }
    std::memcpy(&value, bytes->data(), sizeof value);
    return value;
  }

  struct Impl;
  // Shared by the handle's copies and by the Worker until the run is done.
  explicit RunHandle(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

 private:
  std::shared_ptr<Impl> impl_;
};

}  // namespace strata
