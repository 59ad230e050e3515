#include "sim/session_seed.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/mark.h"

namespace strata::sim {

uint32_t SessionSeed::features() const {
  const SessionCounts& c = counts;
  uint32_t n = 0;
  for (const bool has :
       {c.early > 0, c.controls_behind_tasks > 0, c.data_controls >= 5, c.skipped > 0,
        c.lines_dropped > 0, c.drained > 0, c.sessions > options.slots}) {
    n += has;
  }
  return n;
}

uint32_t SessionSeed::fault_kinds() const {
  return static_cast<uint32_t>(std::count_if(counts.faults.begin(), counts.faults.end(),
                                             [](uint32_t fired) { return fired != 0; }));
}

SessionSeed run_session_seed(const SessionOptions& options, bool print_events) {
  SessionWorld world(options, print_events);
  world.run();
  SessionSeed seed;
  seed.options = options;
  seed.counts = world.counts();
  seed.verdict = world.checks().verdict();
  seed.what = world.checks().what();
  seed.last_events = world.last_events();
  return seed;
}

SessionSeed run_session_seed_twice(const SessionOptions& options) {
  SessionSeed first = run_session_seed(options, false);
  const SessionSeed second = run_session_seed(options, first.verdict != Verdict::kOk);
  if (first.counts.hash != second.counts.hash || first.what != second.what) {
    first.verdict = Verdict::kDeterminism;
    first.what = fmt::format("two runs of one seed differ: {:016x} and {:016x}, '{}' and '{}'",
                             first.counts.hash, second.counts.hash, first.what, second.what);
  }
  first.last_events = second.last_events;
  return first;
}

std::string describe(const SessionSeed& seed) {
  const SessionCounts& c = seed.counts;
  std::string out = describe(seed.options);
  out += fmt::format(
      "{}: {} steps, {:.3f} s of virtual time, {} sessions ({} ready, {} drained, {} failed), {} "
      "TASKs ({} completed, {} skipped, {} in flight at an end), {} controls, fingerprint "
      "{:016x}\n",
      seed.counting() ? "counts" : "does not count", c.steps,
      static_cast<double>(c.virtual_ns) * 1e-9, c.sessions, c.ready, c.drained, c.failed, c.tasks,
      c.completed, c.skipped, c.in_flight, c.controls, c.hash);
  if (seed.verdict != Verdict::kOk) {
    out += fmt::format("verdict {}: {}\n{}", static_cast<int>(seed.verdict), seed.what,
                       seed.last_events);
  }
  return out;
}

void SessionReport::add(const SessionSeed& seed) {
  ++seeds_;
  failing_ += seed.verdict != Verdict::kOk;
  if (!seed.counting()) return;
  ++counting_;
  ++by_kinds_[seed.fault_kinds()];
  const SessionCounts& c = seed.counts;
  steps_.push_back(c.steps);
  tasks_.push_back(c.tasks);
  seconds_.push_back(static_cast<uint64_t>(c.virtual_ns / 1'000'000'000));
  sum_.sessions += c.sessions;
  sum_.drained += c.drained;
  sum_.failed += c.failed;
  sum_.verdicts += c.verdicts;
  sum_.deadlines += c.deadlines;
  for (size_t i = 0; i < c.faults.size(); ++i) sum_.faults[i] += c.faults[i];
}

double SessionReport::with_faults(uint32_t kinds) const {
  uint64_t seeds = 0;
  for (size_t i = kinds; i < by_kinds_.size(); ++i) seeds += by_kinds_[i];
  return counting_ == 0 ? 0 : 100.0 * static_cast<double>(seeds) / static_cast<double>(counting_);
}

std::vector<std::string_view> SessionReport::marks_missed() {
  std::vector<std::string_view> missed;
#ifdef STRATA_MARKS_ON
  base::marks([&](const base::Mark& mark) {
    if (mark.name().starts_with("session: ") && mark.hits() == 0) missed.push_back(mark.name());
  });
  std::sort(missed.begin(), missed.end());
#endif
  return missed;
}

std::string SessionReport::to_string() const {
  const auto line = [](const char* what, std::vector<uint64_t> all) {
    if (all.empty()) return std::string();
    std::sort(all.begin(), all.end());
    const auto at = [&](size_t percent) { return all[(all.size() - 1) * percent / 100]; };
    return fmt::format("  {:<26} p10 {}, p50 {}, p90 {}, most {}\n", what, at(10), at(50), at(90),
                       all.back());
  };
  std::string out =
      fmt::format("sessions: {} seeds, {} count, {} fail\n", seeds_, counting_, failing_);
  out += line("steps", steps_) + line("TASKs", tasks_) + line("seconds of virtual time", seconds_);
  out += fmt::format(
      "  {} sessions: {} drained, {} ended otherwise ({} verdicts of silence, {} deadlines of "
      "controls)\n  with one kind of fault that fired: {:.1f} %, with three: {:.1f} %\n",
      sum_.sessions, sum_.drained, sum_.failed, sum_.verdicts, sum_.deadlines, with_faults(1),
      with_faults(3));
  for (size_t i = 0; i < sum_.faults.size(); ++i) {
    out += fmt::format("  {:<12} {}\n", name_of(static_cast<SessionFault>(i)), sum_.faults[i]);
  }
  for (const std::string_view mark : marks_missed()) {
    out += fmt::format("  mark not reached: {}\n", mark);
  }
  return out;
}

}  // namespace strata::sim
