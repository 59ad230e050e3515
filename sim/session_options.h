// SessionOptions: what one simulated run of sessions is made of, drawn from a seed and printed with
// every failure. A value; any thread.
#pragma once

#include <cstdint>
#include <string>

#include "session/options.h"

namespace strata::sim {

// Chances are in a thousand, times in nanoseconds.
struct SessionOptions {
  uint64_t seed = 1;
  session::Timing timing;

  // The work.
  uint32_t slots = 2;   // remote Workers of the parent at a time
  uint32_t lives = 1;   // sessions of each, one after the other
  uint32_t tasks = 30;  // of a session
  uint32_t early_controls = 0;
  uint32_t task_credits = 16;
  uint32_t log_lines = 16;  // credit of a runner's lines
  int64_t task_ns = 50'000'000;
  int64_t script_ns = 20'000'000;  // between two calls of the user, about
  uint32_t long_task = 0;          // longer than the deadline of a control
  uint32_t control = 100;
  uint32_t data_control = 100;
  uint32_t cancel = 50;
  uint32_t log = 100;
  uint32_t log_burst = 0;
  uint32_t abort = 0;
  uint32_t short_drain = 0;   // with a deadline that work may pass
  uint32_t hang_control = 0;  // is never answered
  uint32_t fail_start = 0;    // HELLO FAILED

  // The links.
  int64_t delay_ns = 100'000;
  int64_t jitter_ns = 50'000;
  uint32_t pieces = 0;  // writes that travel in small pieces
  uint64_t link_bytes = 256 << 10;
  uint32_t drift_ppm = 0;  // of each process's clock, at most
  uint32_t lane_missing = 0;

  // Faults, how many of each at most.
  int64_t faults_ns = 20'000'000'000;  // after that none begins
  uint32_t kills = 0;
  uint32_t pauses = 0;
  uint32_t sleeps = 0;  // of the whole host: all processes
  uint32_t resets = 0;
  uint32_t stalls = 0;
  uint32_t partitions = 0;
  uint32_t swizzles = 0;
  uint32_t old_frames = 0;
  uint32_t garbage = 0;
  bool parent_dies = false;

  uint64_t steps_max = 2'000'000;
};

SessionOptions draw_session_options(uint64_t seed);
// All fields, one line for each group.
std::string describe(const SessionOptions& options);

}  // namespace strata::sim
