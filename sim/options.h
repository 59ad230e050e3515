// Options: what one simulated run is made of: how many of what, which limits, which faults and how
// likely. Drawn from a seed; printed with every failure. A value; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace strata::sim {

enum class Mode : uint8_t {
  kSwarm,        // everything drawn, each fault often off altogether
  kLite,         // three workers, of the faults only crashes
  kPerformance,  // fixed, no faults: its virtual time for a task is a benchmark
};
std::optional<Mode> mode_of(std::string_view name);
std::string_view name_of(Mode mode);

// Chances are in a thousand.
struct Options {
  uint64_t seed = 1;
  Mode mode = Mode::kSwarm;

  // The level.
  uint32_t users = 2;         // user threads
  uint32_t workers = 2;       // children that start at once
  uint32_t next_workers = 0;  // of these, in the pool of NEXT_LEVEL children
  uint32_t late_workers = 0;  // that come later
  uint32_t inline_workers = 0;
  uint32_t replacements = 0;  // of each lost one, at most
  uint32_t slots = 256;
  uint32_t depth = 16;
  uint32_t awake_max = 1;
  uint32_t buffers_max = 64;
  uint32_t callables_max = 16;
  uint64_t heap_bytes = 64 << 20;
  uint32_t control_ms = 100;
  uint32_t building_turn_ms = 30'000;
  uint32_t stall_report_ms = 10'000;

  // The work.
  uint32_t runs = 3;    // of each user
  uint32_t tasks = 24;  // of a run, about
  uint32_t buffers = 4;
  uint32_t buffer_bytes = 512;
  uint32_t callables = 2;
  uint32_t accesses = 3;    // of a task, at most
  int64_t task_ns = 5'000;  // about
  uint32_t overlap_views = 500;
  uint32_t cover_views = 50;
  uint32_t inout = 300;
  uint32_t no_dep = 20;
  uint32_t scope = 100;
  uint32_t cancel = 0;
  uint32_t clear_error = 50;
  uint32_t drop_handle = 200;
  uint32_t wait_task = 30;
  uint32_t wait_deadline = 100;
  uint32_t wait_run = 300;
  uint32_t buffer_churn = 50;
  uint32_t callable_churn = 50;
  uint32_t build_error = 10;
  uint32_t bad_submit = 10;  // that must be refused
  uint32_t big_result = 0;
  uint32_t big_args = 0;
  uint32_t directed = 0;   // to one worker
  uint32_t group = 0;      // of tasks
  uint32_t group_max = 4;  // members, where there are as many workers
  uint32_t directed_member = 0;
  uint32_t listed = 0;   // callables that only some workers have
  uint32_t storage = 0;  // OUTPUTs without storage

  // Ends of runs and of tasks.
  uint32_t deadline = 0;         // tasks with a deadline
  uint32_t deadline_ms_max = 2;  // it is 1 to this
  uint32_t hang = 0;             // of these, such as never end
  uint32_t deadline_grace_ms = 1;
  uint32_t cancel_grace = 0;  // cancels with a grace
  uint32_t on_done = 0;       // runs with callbacks

  // Faults.
  uint32_t fail_task = 0;
  uint32_t long_task = 0;          // a thousand times longer
  uint32_t kills = 0;              // children killed, at most
  bool kill_all = false;           // at some moment
  int64_t fault_gap_ns = 100'000;  // between two faults of the nemesis, about
  uint32_t pauses = 0;
  int64_t pause_ns = 1'000'000;
  uint32_t slow_child = 0;    // chance of each child to be slow
  uint32_t slow_control = 0;  // a control is answered too late
  uint32_t spawn_fails = 0;   // of a replacement
  uint32_t refuse_prepare = 0;
  uint32_t refuse_commit = 0;
  uint32_t refuse_undo = 0;
  uint32_t spurious_wake = 0;
  uint32_t doubled_wake = 0;

  // How threads wait.
  uint32_t spin_looks = 4;
  int64_t child_spin_ns = 400;
  int64_t watch_ns = 50'000;

  uint64_t steps_max = 6'000'000;
};

Options draw_options(uint64_t seed, Mode mode);
// All fields, one line for each group.
std::string describe(const Options& options);

}  // namespace strata::sim
