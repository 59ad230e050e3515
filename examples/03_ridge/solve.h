// solve: the whole work of ridge, from the digits to the comparison with the reference. Knows no
// command line. One thread, and with `start` fork the only one of its process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "options.h"

namespace ridge {

// Exit codes of the programs that solve.
inline constexpr int kFailed = 1;    // the work or a comparison failed
inline constexpr int kBadInput = 2;  // bad arguments or bad data

// One graph, run to its end.
struct StepReport {
  std::string name;
  uint64_t tasks = 0;
  uint64_t dependencies = 0;
  double seconds = 0.0;
  double flops = 0.0;  // 0: not told
};

// What came out; after a failure, what there was until then.
struct Report {
  int code = 0;
  std::string error;  // one line, empty where the code is 0
  size_t digits = 0, learned = 0, predicted = 0;
  std::vector<StepReport> steps;
  size_t right = 0;       // predictions that say what the line says
  bool compared = false;  // with the reference; then:
  size_t different = 0;   // predictions that the reference makes otherwise
  double factor_error = 0.0;

  double accuracy() const {
    return predicted > 0 ? static_cast<double>(right) / static_cast<double>(predicted) : 0.0;
  }
};

// Tells what it does on `out` while it goes on, or nothing where that is null, and progress on
// stderr. The error is the caller's to print.
Report solve(const Options& options, std::FILE* out);

}  // namespace ridge
