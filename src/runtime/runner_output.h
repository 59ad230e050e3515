// RunnerOutput: what a runner itself writes to stdout and stderr, brought to its session in whole
// lines, as its children's output is; and as the end of the text of a task that fails.
//
// stderr stays the file that the daemon has given, whose end the daemon logs when the runner dies.
// The thread of the command lane; lines come on a thread of the reader's.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "runtime/child_output.h"
#include "runtime/output_reader.h"

namespace strata::runtime {

class RunnerOutput {
 public:
  // From here on, until stop(). `path`: of the Worker that `worker` is a child of. Null where
  // stderr is no such file: then it stays what it was.
  static Result<std::unique_ptr<RunnerOutput>> capture(
      std::string path, uint32_t worker, std::function<void(const OutputLine&)> on_line);

  // A task begins that may run for a while: what it writes is looked for meanwhile.
  void watch() {
    running_.store(true, std::memory_order_relaxed);
    reader_->watch();
  }
  void after(mailbox::TaskOutcome* outcome) {
    running_.store(false, std::memory_order_relaxed);
    output_->after(outcome);
  }
  // All lines that are there have been told when it returns.
  void stop();

 private:
  RunnerOutput() = default;

  std::atomic<bool> running_{false};
  std::unique_ptr<OutputReader> reader_;
  std::unique_ptr<ChildOutput> output_;
};

}  // namespace strata::runtime
