#include "sim/options.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/prng.h"

namespace strata::sim {
namespace {

class Draw {
 public:
  explicit Draw(uint64_t seed) : prng_(seed ^ 0x6f7074696f6e73ull) {}

  uint32_t between(uint64_t low, uint64_t high) {
    return static_cast<uint32_t>(prng_.between(low, high));
  }
  bool chance(uint64_t numerator, uint64_t denominator) {
    return prng_.chance(numerator, denominator);
  }
  // 0 with that chance, else as often small as large.
  uint32_t often_zero(uint64_t zero_in_thousand, uint32_t most) {
    if (prng_.chance(zero_in_thousand, 1000)) return 0;
    return between(1, std::max<uint64_t>(1, most >> prng_.below(5)));
  }
  // As often small as large, in powers of two.
  int64_t scaled(int64_t low, uint32_t doublings) { return low << prng_.below(doublings + 1); }

 private:
  base::Prng prng_;
};

void draw_level(Draw& draw, Options& o) {
  o.users = draw.between(1, 4);
  o.workers = draw.between(1, 4);
  if (draw.chance(9, 10)) o.workers = std::max(o.workers, 2u);
  if (draw.chance(1, 3)) o.workers += draw.between(1, 4);
  o.late_workers = draw.often_zero(700, 2);
  o.replacements = draw.often_zero(600, 4);
  if (draw.chance(1, 16)) {
    o.inline_workers = 1;
    o.late_workers = o.replacements = 0;
    o.workers = draw.chance(1, 2) ? 0 : draw.between(1, 2);
  }
  if (o.workers >= 2 && draw.chance(1, 2)) o.next_workers = draw.between(1, o.workers - 1);
  o.awake_max = draw.chance(1, 2) ? 1 : draw.between(2, 4);
  o.slots = 1u << draw.between(3, 8);
  o.depth = draw.chance(1, 2) ? draw.between(1, 4) : draw.between(2, 16);
  if (draw.chance(1, 8)) o.depth = draw.chance(1, 2) ? 62 : draw.between(17, 62);
  o.buffers_max = draw.between(8, 48);
  o.callables_max = draw.between(4, 12);
  o.control_ms = draw.chance(1, 2) ? 20 : 100;
}

void draw_work(Draw& draw, Options& o) {
  o.runs = draw.between(1, 4);
  const uint32_t total = draw.between(50, 220);
  o.tasks = std::max(6u, total / (o.runs * o.users));
  o.buffers = draw.between(1, 6);
  o.buffer_bytes = 64u << draw.between(0, 4);
  o.callables = draw.between(1, 3);
  o.accesses = draw.between(1, 4);
  o.task_ns = draw.scaled(500, 6);
  o.overlap_views = draw.between(0, 1000);
  o.cover_views = draw.often_zero(400, 300);
  o.inout = draw.often_zero(200, 700);
  o.no_dep = draw.often_zero(500, 100);
  o.scope = draw.often_zero(400, 200);
  o.clear_error = draw.often_zero(400, 200);
  o.drop_handle = draw.often_zero(300, 500);
  o.wait_task = draw.often_zero(300, 150);
  o.wait_deadline = draw.often_zero(400, 400);
  o.wait_run = draw.between(0, 800);
  o.buffer_churn = draw.often_zero(300, 200);
  o.callable_churn = draw.often_zero(400, draw.chance(1, 4) ? 900 : 150);
  o.build_error = draw.often_zero(700, 100);
  o.bad_submit = draw.often_zero(500, 50);
  o.big_result = draw.often_zero(900, draw.chance(1, 2) ? 500 : 50);
  o.big_args = draw.often_zero(900, draw.chance(1, 2) ? 500 : 50);
  o.directed = draw.often_zero(400, 600);
  o.group = draw.often_zero(400, 400);
  o.group_max = draw.between(2, 6);
  o.directed_member = draw.often_zero(400, 700);
  o.listed = draw.often_zero(500, 900);
  o.storage = draw.often_zero(400, 300);
}

// Many tasks that wait for nothing, with bytes enough to fill a child's rings.
void draw_bulk(Draw& draw, Options& o) {
  o.workers = draw.between(1, 2);
  o.next_workers = 0;
  o.depth = draw.between(17, 62);
  o.slots = 1u << draw.between(7, 9);
  o.no_dep = 900;
  o.overlap_views = 0;
  o.long_task = draw.between(20, 200);
  const uint32_t kind = static_cast<uint32_t>(draw.between(0, 2));
  if (kind == 0) o.big_args = draw.between(300, 1000);
  if (kind == 1) o.big_result = draw.between(300, 1000);
}

void draw_faults(Draw& draw, Options& o) {
  o.cancel = draw.often_zero(500, 250);
  o.fail_task = draw.often_zero(350, 120);
  o.long_task = draw.often_zero(600, 20);
  o.kills = draw.often_zero(400, 6);
  o.kill_all = draw.chance(1, 16);
  o.fault_gap_ns = draw.scaled(2'000, 7);
  o.pauses = draw.often_zero(500, 8);
  o.pause_ns = draw.scaled(20'000, 10);
  o.slow_child = draw.often_zero(600, 500);
  o.slow_control = draw.often_zero(800, 60);
  o.refuse_prepare = draw.often_zero(600, 300);
  o.refuse_commit = draw.often_zero(700, 200);
  o.refuse_undo = draw.often_zero(800, 200);
  o.spurious_wake = draw.often_zero(500, 300);
  o.doubled_wake = draw.often_zero(500, 300);
  o.spawn_fails = draw.often_zero(600, 500);
}

void draw_ends(Draw& draw, Options& o) {
  o.deadline = draw.often_zero(500, 300);
  o.deadline_ms_max = draw.between(1, 4);
  o.hang = draw.often_zero(500, 300);
  o.deadline_grace_ms = draw.between(0, 3);
  o.cancel_grace = draw.often_zero(400, 900);
  o.on_done = draw.often_zero(300, 700);
}

void draw_waits(Draw& draw, Options& o) {
  o.spin_looks = draw.between(0, 8);
  o.child_spin_ns = draw.chance(1, 3) ? 0 : draw.scaled(100, 4);
  o.watch_ns = draw.scaled(2'000, 7);
}

}  // namespace

std::optional<Mode> mode_of(std::string_view name) {
  for (const Mode mode : {Mode::kSwarm, Mode::kLite, Mode::kPerformance}) {
    if (name == name_of(mode)) return mode;
  }
  return std::nullopt;
}

std::string_view name_of(Mode mode) {
  switch (mode) {
    case Mode::kSwarm:
      return "swarm";
    case Mode::kLite:
      return "lite";
    case Mode::kPerformance:
      return "performance";
  }
  return "unknown";
}

Options draw_options(uint64_t seed, Mode mode) {
  Draw draw(seed);
  Options o;
  o.seed = seed;
  o.mode = mode;
  switch (mode) {
    case Mode::kSwarm:
      draw_level(draw, o);
      draw_work(draw, o);
      draw_faults(draw, o);
      draw_waits(draw, o);
      if (draw.chance(1, 12)) draw_bulk(draw, o);
      draw_ends(draw, o);
      break;
    case Mode::kLite:
      draw_work(draw, o);
      draw_waits(draw, o);
      o.workers = 3;
      o.group_max = 3;
      o.replacements = 3;
      o.kills = draw.between(1, 5);
      o.fault_gap_ns = draw.scaled(2'000, 7);
      break;
    case Mode::kPerformance:
      o.users = 1;
      o.runs = 4;
      o.tasks = 250;
      o.task_ns = 2'000;
      o.scope = o.no_dep = o.build_error = o.bad_submit = o.clear_error = 0;
      o.buffer_churn = o.callable_churn = o.wait_task = o.wait_deadline = o.drop_handle = 0;
      break;
  }
  return o;
}

std::string describe(const Options& o) {
  std::string out = fmt::format("seed {} mode {}\n", o.seed, name_of(o.mode));
  out += fmt::format(
      "  level   users {} workers {} (next-level {}) late {} inline {} replacements {} slots {} "
      "depth {} awake {} buffers_max {} callables_max {} heap {} control {} ms\n",
      o.users, o.workers, o.next_workers, o.late_workers, o.inline_workers, o.replacements, o.slots,
      o.depth, o.awake_max, o.buffers_max, o.callables_max, o.heap_bytes, o.control_ms);
  out += fmt::format(
      "  work    runs {} tasks {} buffers {} of {} bytes callables {} accesses {} task {} ns\n",
      o.runs, o.tasks, o.buffers, o.buffer_bytes, o.callables, o.accesses, o.task_ns);
  out += fmt::format(
      "          overlap {} cover {} inout {} no_dep {} scope {} cancel {} clear_error {} drop {} "
      "wait_task {} wait_deadline {} wait_run {}\n",
      o.overlap_views, o.cover_views, o.inout, o.no_dep, o.scope, o.cancel, o.clear_error,
      o.drop_handle, o.wait_task, o.wait_deadline, o.wait_run);
  out += fmt::format(
      "          buffer_churn {} callable_churn {} build_error {} bad_submit {} big_result {} "
      "big_args {}\n",
      o.buffer_churn, o.callable_churn, o.build_error, o.bad_submit, o.big_result, o.big_args);
  out +=
      fmt::format("  places  directed {} group {} of {} directed_member {} listed {} storage {}\n",
                  o.directed, o.group, o.group_max, o.directed_member, o.listed, o.storage);
  out += fmt::format(
      "  ends    deadline {} of 1 to {} ms, hang {}, grace {} ms cancel_grace {} on_done {}\n",
      o.deadline, o.deadline_ms_max, o.hang, o.deadline_grace_ms, o.cancel_grace, o.on_done);
  out += fmt::format(
      "  faults  fail_task {} long_task {} kills {} kill_all {} gap {} ns pauses {} of {} ns slow "
      "{} slow_control {} refuse prepare {} commit {} undo {} spurious {} doubled {} spawn {}\n",
      o.fail_task, o.long_task, o.kills, o.kill_all, o.fault_gap_ns, o.pauses, o.pause_ns,
      o.slow_child, o.slow_control, o.refuse_prepare, o.refuse_commit, o.refuse_undo,
      o.spurious_wake, o.doubled_wake, o.spawn_fails);
  out += fmt::format("  waits   spin_looks {} child_spin {} ns watch {} ns\n", o.spin_looks,
                     o.child_spin_ns, o.watch_ns);
  return out;
}

}  // namespace strata::sim
