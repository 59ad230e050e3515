#include "sim/session_options.h"

#include <fmt/format.h>

#include "base/prng.h"

namespace strata::sim {

SessionOptions draw_session_options(uint64_t seed) {
  base::Prng prng(seed);
  SessionOptions o;
  o.seed = seed;
  const auto some = [&](uint32_t chance, uint32_t most) {
    return prng.chance(chance, 100) ? static_cast<uint32_t>(prng.between(1, most)) : 0u;
  };
  // Shorter than the product's where nothing depends on their ratio: beat, hold and verdict are
  // the product's own.
  o.timing.control = session::Duration::from_s(4);
  o.timing.start = session::Duration::from_s(10);
  o.timing.runner_verdict = session::Duration::from_s(12);
  o.slots = static_cast<uint32_t>(prng.between(1, 3));
  o.lives = static_cast<uint32_t>(prng.between(o.slots == 1 ? 2 : 1, 2));
  o.tasks = static_cast<uint32_t>(prng.between(25, 60));
  o.early_controls = some(40, 6);
  o.task_credits = prng.chance(1, 4) ? static_cast<uint32_t>(prng.between(1, 8)) : 16;
  o.log_lines = static_cast<uint32_t>(prng.between(2, 32));
  o.task_ns = static_cast<int64_t>(prng.between(1, 80)) * 1'000'000;
  o.script_ns = static_cast<int64_t>(prng.between(1, 60)) * 1'000'000;
  o.long_task = some(50, 30);
  o.control = some(80, 300);
  o.data_control = some(70, 300);
  o.cancel = some(70, 200);
  o.log = some(60, 400);
  o.log_burst = some(30, 50);
  o.abort = some(10, 5);
  o.short_drain = some(20, 500);
  o.hang_control = some(25, 60);
  o.fail_start = some(10, 200);
  o.delay_ns = static_cast<int64_t>(prng.between(1, 2000)) * 10'000;
  o.jitter_ns = static_cast<int64_t>(prng.between(0, 500)) * 10'000;
  o.pieces = some(60, 1000);
  o.link_bytes = prng.chance(1, 3) ? prng.between(600, 8000) : 256 << 10;
  o.drift_ppm = some(50, 500);
  o.lane_missing = some(5, 100);
  o.faults_ns = static_cast<int64_t>(prng.between(2, 20)) * 1'000'000'000;
  o.kills = some(25, 2);
  o.pauses = some(40, 4);
  o.sleeps = some(35, 2);
  o.resets = some(20, 2);
  o.stalls = some(40, 6);
  o.partitions = some(35, 3);
  o.swizzles = some(20, 2);
  o.old_frames = some(30, 4);
  o.garbage = some(15, 2);
  o.parent_dies = prng.chance(3, 100);
  return o;
}

std::string describe(const SessionOptions& o) {
  return fmt::format(
      "seed {}\n"
      "  work: slots {}, lives {}, tasks {}, early_controls {}, task_credits {}, log_lines {}, "
      "task_ns {}, script_ns {}\n"
      "  chances: long_task {}, control {}, data_control {}, cancel {}, log {}, log_burst {}, "
      "abort {}, short_drain {}, hang_control {}, fail_start {}\n"
      "  links: delay_ns {}, jitter_ns {}, pieces {}, link_bytes {}, drift_ppm {}, lane_missing "
      "{}\n"
      "  faults: faults_ns {}, kills {}, pauses {}, sleeps {}, resets {}, stalls {}, partitions "
      "{}, swizzles {}, old_frames {}, garbage {}, parent_dies {}\n",
      o.seed, o.slots, o.lives, o.tasks, o.early_controls, o.task_credits, o.log_lines, o.task_ns,
      o.script_ns, o.long_task, o.control, o.data_control, o.cancel, o.log, o.log_burst, o.abort,
      o.short_drain, o.hang_control, o.fail_start, o.delay_ns, o.jitter_ns, o.pieces, o.link_bytes,
      o.drift_ppm, o.lane_missing, o.faults_ns, o.kills, o.pauses, o.sleeps, o.resets, o.stalls,
      o.partitions, o.swizzles, o.old_frames, o.garbage, o.parent_dies);
}

}  // namespace strata::sim
