// run_seed: one simulated life of a Worker, from the first child to the last, and what was found
// wrong with it.
//
// Two phases: first the faults, until the users have played their scripts; then none, and all that
// can finish must finish. Then the oracle judges, everything is let go, and nothing may be left.
// One simulation at a time on a thread.
#pragma once

#include <cstdint>
#include <string>

#include "sim/checks.h"
#include "sim/options.h"
#include "sim/shared.h"
#include "sim/user.h"

namespace strata::sim {

struct SeedResult {
  Options options;
  Verdict verdict = Verdict::kOk;
  std::string what;         // of a verdict that is not kOk
  std::string last_events;  // likewise
  uint64_t fingerprint = 0;
  uint64_t steps = 0;
  int64_t virtual_ns = 0;
  uint64_t events = 0;
  uint64_t tasks = 0;
  uint64_t runs = 0;
  uint32_t workers = 0;
  uint64_t succeeded = 0;
  uint64_t failed = 0;
  uint64_t skipped = 0;
  Features features;
  FaultCounts faults;

  // Enough happened for the seed to be counted.
  bool counts() const {
    return events >= 300 && tasks >= 40 && workers >= 2 && features.count() >= 2;
  }
};

SeedResult run_seed(const Options& options, bool print_events);
// Twice: a second run that differs is Verdict::kDeterminism.
SeedResult run_seed_twice(const Options& options);
// The options, what is wrong, and the last events.
std::string describe(const SeedResult& result);

// Of the simulation that runs, for a program that is about to crash; empty where none does.
std::string describe_current();

}  // namespace strata::sim
