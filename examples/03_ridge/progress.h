// Shows how far a run is, on stderr: a bar on a terminal, else a line a second and one at the end.
//
// One thread.
#pragma once

#include <strata/run.h>

#include <chrono>
#include <cstdint>
#include <string>

namespace ridge {

class Progress {
 public:
  // `program` begins a line, `step` names the run in what is shown.
  Progress(std::string program, std::string step);
  // Clears the bar, so that an error starts on a line of its own.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Waits for the run and shows its progress meanwhile; the run's own outcome.
  strata::Result<void> wait(strata::RunHandle& run);

 private:
  void show(const strata::RunProgress& progress, bool last);

  const std::string program_;
  const std::string step_;
  const bool terminal_;
  bool bar_shown_ = false;
  std::chrono::steady_clock::time_point next_line_;
};

}  // namespace ridge
