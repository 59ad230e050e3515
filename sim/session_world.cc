#include "sim/session_world.h"

#include <fmt/format.h>

#include "sim/session_life.h"

namespace strata::sim {

using session::Instant;
using wire::Lane;

SessionWorld::SessionWorld(const SessionOptions& options, bool print)
    : options_(options), prng_(options.seed ^ 0x5e5510), print_(print) {
  processes_.resize(1);
  deferred_.resize(1);
  slots_.resize(options_.slots);
  left_ = {options_.kills,
           options_.pauses,
           options_.sleeps,
           options_.resets,
           options_.stalls,
           options_.partitions,
           options_.swizzles,
           options_.old_frames,
           options_.garbage,
           options_.parent_dies ? 1u : 0u,
           0u};
}
SessionWorld::~SessionWorld() = default;

std::string_view name_of(SessionFault fault) {
  constexpr std::array<std::string_view, static_cast<size_t>(SessionFault::kCount)> kNames = {
      "kill",    "pause",     "host sleeps", "reset",       "stall", "partition",
      "swizzle", "old frame", "garbage",     "parent dies", "hang"};
  return kNames[static_cast<size_t>(fault)];
}

void SessionWorld::push(int64_t at, Kind kind, uint32_t a, uint32_t b, uint32_t c,
                        uint64_t generation) {
  events_.push({std::max(at, now_), prng_.next(), kind, a, b, c, generation});
}

void SessionWorld::note(const char* what, uint64_t a, uint64_t b, uint64_t c) {
  for (const uint64_t word : {static_cast<uint64_t>(now_), a, b, c}) {
    counts_.hash = (counts_.hash ^ word) * 0x100000001b3ull;
  }
  for (const char* p = what; *p != 0; ++p) {
    counts_.hash = (counts_.hash ^ static_cast<uint8_t>(*p)) * 0x100000001b3ull;
  }
  if (!print_) return;
  notes_.push_back(
      fmt::format("{:14.6f} s  {:<22} {} {} {}", static_cast<double>(now_) * 1e-9, what, a, b, c));
  if (notes_.size() > 80) notes_.pop_front();
}

std::string SessionWorld::last_events() const {
  std::string out;
  for (const std::string& line : notes_) out += line + "\n";
  return out;
}

bool SessionWorld::all_over() const {
  for (const auto& life : lives_) {
    if (!life->runner_over && processes_[life->process].alive) return false;
    if (!life->parent_over && processes_[kParent].alive) return false;
  }
  if (!processes_[kParent].alive) return true;
  for (const Slot& slot : slots_) {
    if (slot.lives < options_.lives) return false;
  }
  return true;
}

void SessionWorld::run() {
  const auto draw_clock = [&](SimProcess& process) {
    process.offset_ns = static_cast<int64_t>(prng_.below(1'000'000'000'000));
    process.drift_ppm = static_cast<int64_t>(prng_.below(2 * options_.drift_ppm + 1)) -
                        static_cast<int64_t>(options_.drift_ppm);
  };
  draw_clock(processes_[kParent]);
  for (uint32_t slot = 0; slot < options_.slots; ++slot) {
    push(around(50'000'000), Kind::kOpen, slot);
    push(around(options_.script_ns), Kind::kScript, slot);
  }
  push(around(options_.faults_ns / 10), Kind::kFault);
  const int64_t limit = options_.faults_ns + 600'000'000'000;
  while (!events_.empty() && !checks_.failed() && !all_over()) {
    const Event event = events_.top();
    events_.pop();
    now_ = event.at;
    if (++counts_.steps > options_.steps_max || now_ > limit) {
      checks_.fail(Verdict::kLiveness, fmt::format("not over after {} steps and {} s",
                                                   counts_.steps, now_ / 1'000'000'000));
      break;
    }
    if (!healed_ && now_ > options_.faults_ns) heal();
    const uint32_t process = process_of(event);
    if (process != UINT32_MAX) {
      if (!processes_[process].alive) continue;
      if (processes_[process].paused) {
        deferred_[process].push_back(event);
        continue;
      }
    }
    handle(event);
  }
  counts_.virtual_ns = now_;
  if (!checks_.failed() && !all_over()) {
    checks_.fail(Verdict::kLiveness, "nothing happens any more, and it is not over");
  }
  for (const auto& life : lives_) {
    counts_.lines_dropped += static_cast<uint32_t>(life->runner->lines_dropped());
    if (life->lines_told + life->dropped_told > life->lines_logged + life->lines_told) {
      checks_.fail(Verdict::kCorrectness, "more lines are said to be dropped than were written");
    }
  }
}

// Whose step it is; UINT32_MAX: the world's own.
uint32_t SessionWorld::process_of(const Event& event) const {
  switch (event.kind) {
    case Kind::kLaneUp:
    case Kind::kTimer:
    case Kind::kPump:
      return event.c == 0 ? kParent : lives_[event.a]->process;
    case Kind::kArrive:  // the reader's
      return event.c == 1 ? kParent : lives_[event.a]->process;
    case Kind::kWorkEnd:
    case Kind::kBuilt:
      return lives_[event.a]->process;
    case Kind::kScript:
    case Kind::kOpen:
      return kParent;
    case Kind::kFault:
    case Kind::kResume:
      return UINT32_MAX;
  }
  return UINT32_MAX;
}

bool SessionWorld::handle(const Event& event) {
  switch (event.kind) {
    case Kind::kLaneUp:
      lane_up(*lives_[event.a], static_cast<Lane>(event.b), event.c == 1);
      return true;
    case Kind::kArrive:
      arrive(*lives_[event.a], static_cast<Lane>(event.b), event.c);
      return true;
    case Kind::kTimer:
      if (lives_[event.a]->timers[event.c] == event.generation) {
        timer(*lives_[event.a], event.c == 1);
      }
      return true;
    case Kind::kPump:
      lives_[event.a]->pumping[event.c] = false;
      after(*lives_[event.a], event.c == 1);
      return true;
    case Kind::kWorkEnd:
      if (lives_[event.a]->work_generation[session::index_of(static_cast<Lane>(event.b))] ==
          event.generation) {
        work_end(*lives_[event.a], static_cast<Lane>(event.b));
      }
      return true;
    case Kind::kBuilt: {
      Life& life = *lives_[event.a];
      if (life.runner_over) return true;
      note("built", life.index);
      if (prng_.chance(options_.fail_start, 1000)) {
        life.runner->failed("no such chip");
      } else {
        life.runner->ready({});
      }
      after(life, true);
      return true;
    }
    case Kind::kScript:
      script(event.a);
      return true;
    case Kind::kOpen:
      open(event.a);
      return true;
    case Kind::kFault:
      fault();
      return true;
    case Kind::kResume: {
      SimProcess& process = processes_[event.a];
      if (!process.paused || event.generation != process.pauses) return true;
      process.paused = false;
      process.paused_ns += now_ - process.paused_since;
      note("resumes", event.a);
      // What was due meanwhile comes in any order.
      for (const Event& late : deferred_[event.a]) {
        push(now_, late.kind, late.a, late.b, late.c, late.generation);
      }
      deferred_[event.a].clear();
      return true;
    }
  }
  return false;
}

// ---------------------------------------------------------------- a session's life

void SessionWorld::open(uint32_t slot) {
  Slot& place = slots_[slot];
  if (place.lives == options_.lives) return;
  ++place.lives;
  ++counts_.sessions;
  const uint64_t id = prng_.next() | 1;
  lives_.push_back(
      std::make_unique<Life>(*this, static_cast<uint32_t>(lives_.size()), id, options_));
  Life& life = *lives_.back();
  place.now = &life;
  life.slot = slot;
  life.old_id = place.old_id != 0 ? place.old_id : prng_.next() | 1;
  place.old_id = id;
  life.process = static_cast<uint32_t>(processes_.size());
  processes_.emplace_back();
  deferred_.emplace_back();
  SimProcess& process = processes_.back();
  process.offset_ns = static_cast<int64_t>(prng_.below(1'000'000'000'000));
  process.drift_ppm = static_cast<int64_t>(prng_.below(2 * options_.drift_ppm + 1)) -
                      static_cast<int64_t>(options_.drift_ppm);
  life.early_left = options_.early_controls;
  session::ParentOptions po;
  po.session_id = id;
  po.worker_id = static_cast<int32_t>(slot);
  po.host = "node:1";
  po.path = "L4/1";
  po.early_controls = options_.early_controls;
  po.timing = options_.timing;
  session::RunnerOptions ro;
  ro.session_id = id;
  ro.worker_id = po.worker_id;
  ro.parent = "head:2";
  ro.host = "node";
  ro.path = po.path;
  ro.pid = life.process;
  ro.early_controls = options_.early_controls;
  ro.task_credits = options_.task_credits;
  ro.log_lines = options_.log_lines;
  ro.timing = options_.timing;
  life.parent = std::make_unique<session::ParentSession>(po, life, local(kParent));
  life.runner = std::make_unique<session::RunnerSession>(ro, life, local(life.process));
  note("open", slot, life.index);
  for (const Lane lane : session::kLanes) {
    for (uint32_t side = 0; side < 2; ++side) {
      if (prng_.chance(options_.lane_missing, 1000)) continue;
      push(now_ + around(20'000'000), Kind::kLaneUp, life.index, static_cast<uint32_t>(lane), side);
    }
  }
  push(now_ + around(200'000'000), Kind::kBuilt, life.index);
  arm(life, false);
  arm(life, true);
}

void SessionWorld::lane_up(Life& life, Lane lane, bool runner) {
  if (runner ? life.runner_over : life.parent_over) return;
  note("lane up", life.index, static_cast<uint64_t>(lane), runner);
  life.up[session::index_of(lane)][runner] = true;
  if (lane == Lane::kHealth) {
    const uint32_t process = runner ? life.process : kParent;
    life.truth.on_health_up(!runner, processes_[process], now_);
  }
  if (runner) {
    life.runner->on_lane_up(lane, local(life.process));
  } else {
    life.parent->on_lane_up(lane, local(kParent));
  }
  after(life, runner);
}

void SessionWorld::timer(Life& life, bool runner) {
  if (runner) {
    life.runner->on_deadline(local(life.process));
  } else {
    life.parent->on_deadline(local(kParent));
  }
  const bool over = runner ? life.runner_over : life.parent_over;
  const bool judges = runner || !life.parent->draining();
  if (!over && judges) {
    life.truth.check_silence(!runner, processes_[runner ? life.process : kParent], now_);
  }
  after(life, runner);
}

void SessionWorld::arm(Life& life, bool runner) {
  const Instant next = runner ? life.runner->next_deadline() : life.parent->next_deadline();
  const uint64_t generation = ++life.timers[runner];
  if (next == Instant::never()) return;
  const uint32_t process = runner ? life.process : kParent;
  push(processes_[process].global(next, now_), Kind::kTimer, life.index, 0, runner, generation);
}

// What follows each call into one side: work is taken, bytes go out, the timer is armed.
void SessionWorld::after(Life& life, bool runner) {
  if (runner) {
    if (!life.runner_over) take_work(life);
    if (life.runner_over) {
      if (!life.closed) end_of_process(life);
      return;
    }
  } else if (life.parent_over) {
    if (slots_[life.slot].now == &life) on_life_over(life);
    return;
  } else if (life.parent->ready()) {
    life.truth.on_credits(std::min(life.granted, options_.task_credits),
                          life.parent->task_credits());
  }
  pump(life, runner, false);
  arm(life, runner);
}

// The parent's side has ended: what there is to write goes out, and the lanes are closed.
void SessionWorld::on_life_over(Life& life) {
  slots_[life.slot].now = nullptr;
  pump(life, false, true);
  close_all(life, false);
  push(now_ + around(100'000'000), Kind::kOpen, life.slot);
}

void SessionWorld::end_of_process(Life& life) {
  life.closed = true;
  pump(life, true, true);
  close_all(life, true);
  note("runner exits", life.index);
  processes_[life.process].alive = false;
}

void SessionWorld::Life::on_ended(const session::Ended& ended) {
  if (parent_over) {
    return world.checks_.fail(Verdict::kCorrectness, "the parent's side ends twice");
  }
  parent_over = true;
  truth.on_parent_ended(ended, world.processes_[kParent], world.now_);
  SessionCounts& counts = world.counts_;
  ++(ended.cause ? counts.failed : counts.drained);
  for (const session::InFlight& request : ended.in_flight) counts.in_flight += request.is_task;
  if (ended.cause && ended.cause->message().find("no beat for") != std::string::npos) {
    ++counts.verdicts;
  }
  if (ended.cause && ended.cause->message().find("of lane time") != std::string::npos) {
    ++counts.deadlines;
  }
  world.note("parent ends", index, ended.in_flight.size(),
             ended.cause ? static_cast<uint64_t>(ended.cause->code()) : 0);
  if (world.print_) {
    world.notes_.push_back("    " + (ended.cause ? ended.cause->to_string() : "drained"));
  }
}

void SessionWorld::Life::on_ended(const std::optional<Error>& cause) {
  if (runner_over) {
    return world.checks_.fail(Verdict::kCorrectness, "the runner's side ends twice");
  }
  runner_over = true;
  truth.on_runner_ended(cause, world.processes_[process], world.now_);
  world.note("runner ends", index, cause ? static_cast<uint64_t>(cause->code()) : 0);
  if (world.print_) world.notes_.push_back("    " + (cause ? cause->to_string() : "drained"));
}

}  // namespace strata::sim
