// run_session_seed: one simulated life of a parent and its sessions, and what was found wrong.
//
// A seed counts if it has at least 300 steps, 40 TASKs and two sessions, and two of: early
// controls, a control behind TASKs in flight, memory controls while TASKs run, a TASK that was
// cancelled before it started, lines that were dropped, a drain to its end, a session after
// another one of the same place. A fault counts as fired if it ended a process or a session's lane,
// stopped something for longer than two beats, or put bytes in that the other side has not sent.
// One thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sim/checks.h"
#include "sim/session_options.h"
#include "sim/session_world.h"

namespace strata::sim {

struct SessionSeed {
  SessionOptions options;
  Verdict verdict = Verdict::kOk;
  std::string what;         // of a verdict that is not kOk
  std::string last_events;  // likewise, where they were printed
  SessionCounts counts;

  uint32_t features() const;
  uint32_t fault_kinds() const;
  bool counting() const {
    return counts.steps >= 300 && counts.tasks >= 40 && counts.sessions >= 2 && features() >= 2;
  }
};

SessionSeed run_session_seed(const SessionOptions& options, bool print_events);
// Twice: a second run that differs is Verdict::kDeterminism.
SessionSeed run_session_seed_twice(const SessionOptions& options);
std::string describe(const SessionSeed& seed);

// What many seeds came to.
class SessionReport {
 public:
  void add(const SessionSeed& seed);
  uint64_t seeds() const { return seeds_; }
  uint64_t counting() const { return counting_; }
  uint64_t failing() const { return failing_; }
  // Of the counting seeds, in percent, with at least that many kinds of faults that fired.
  double with_faults(uint32_t kinds) const;
  // Marks of the room session that no seed of this process has reached.
  static std::vector<std::string_view> marks_missed();
  std::string to_string() const;

 private:
  uint64_t seeds_ = 0, counting_ = 0, failing_ = 0;
  std::vector<uint64_t> by_kinds_ = std::vector<uint64_t>(32);
  std::vector<uint64_t> steps_, tasks_, seconds_;  // of those that count
  SessionCounts sum_;
};

}  // namespace strata::sim
