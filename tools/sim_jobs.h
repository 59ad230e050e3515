// Many seeds in several processes: each takes every n-th seed, tells one record for each over a
// pipe, and its marks at its end. A seed that fails is printed by the process that ran it, also
// where the code under test ends the process.
#pragma once

#include <cstdint>

#include "sim/options.h"
#include "sim/report.h"

namespace strata::tools {

struct SimJobs {
  uint64_t from = 1;
  uint64_t counting = 100;  // seeds that count, of all jobs together
  uint32_t jobs = 1;
  uint64_t failures_max = 1;   // of each job, then it stops
  uint64_t twice_one_in = 20;  // seeds that are run twice, to compare
  sim::Mode mode = sim::Mode::kSwarm;
  bool progress = false;  // a line now and then
};

struct SimOutcome {
  sim::Report report;
  int verdict = 0;  // the exit code: of the failing seed with the smallest number
};

SimOutcome run_jobs(const SimJobs& jobs);

// From here on a crash prints what the simulation was at and ends the process with its code.
void report_crashes();

}  // namespace strata::tools
