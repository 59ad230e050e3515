// Account: what a program that solves the problem of problem.h tells while it does, and the
// comparison with the reference. Solves nothing.
//
// One thread.
#pragma once

#include <strata/strata.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "digits.h"
#include "matrices.h"
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
  double flops = 0.0;            // 0: not told
  std::vector<uint64_t> leaves;  // tasks that ran below each Worker of the next level
};

// What came out; after a failure, what there was until then.
struct Report {
  int code = 0;
  std::string error;  // one line, empty where the code is 0
  size_t digits = 0, learned = 0, predicted = 0;
  std::vector<StepReport> steps;
  double seconds = 0.0;  // of all steps
  size_t right = 0;      // predictions that say what the line says
  size_t plain = 0;      // predicted images that are as they were
  size_t plain_right = 0;
  bool compared = false;  // with the reference; then:
  size_t different = 0;   // predictions that the reference makes otherwise
  double factor_error = 0.0;

  double accuracy() const { return part(right, predicted); }
  double plain_accuracy() const { return part(plain_right, plain); }

 private:
  static double part(size_t n, size_t of) {
    return of > 0 ? static_cast<double>(n) / static_cast<double>(of) : 0.0;
  }
};

class Account {
 public:
  using Build = std::function<strata::Result<void>(strata::Orchestrator&)>;

  // Tells nothing where `out` is null.
  Account(const Options& options, std::FILE* out) : options_(options), out_(out) {}

  // The first failure counts.
  void fail(std::string why, int code = kFailed);
  __attribute__((format(printf, 2, 3))) void say(const char* format, ...) const;

  // The digits of the options, with what there is to tell of them; nothing after a failure.
  std::optional<Samples> load();
  // Runs one graph with its progress on stderr; what `tell` adds to the table is the caller's.
  strata::Result<StepReport> run_step(strata::Worker& worker, const std::string& name,
                                      const Build& build);
  // The table's head and one line of it. `hosts`: for how many Workers there are leaves.
  void tell_head(size_t hosts) const;
  void tell(StepReport step);
  // A signal that asked for the end is the program's exit code, whatever came out; 0: none.
  void end(int signal_number);
  // Ends the Worker, which writes the timeline.
  void close(strata::Worker& worker);
  // Counts what is right, and compares with the reference.
  void judge(const Matrices& matrices);

  const Report& report() const { return report_; }

 private:
  const Options& options_;
  std::FILE* const out_;
  Report report_;
};

// Of a Cholesky factorisation of n rows.
double factor_flops(size_t n);

}  // namespace ridge
