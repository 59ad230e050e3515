#include "sim/simulation.h"

#include <fmt/format.h>

#include <algorithm>

#include "sim/stage.h"
#include "sim/verdict.h"

namespace strata::sim {
namespace {

class Simulation {
 public:
  Simulation(const Options& options, bool print_events)
      : stage_(options, print_events),
        shared_(stage_.shared()),
        level_(stage_.level()),
        prng_(options.seed ^ 0x6e656d65736973ull) {}
  Simulation(const Simulation&) = delete;
  Simulation& operator=(const Simulation&) = delete;

  SeedResult run();
  std::string describe_now() const { return sim::describe(shared_.options) + stage_.log().last(); }

 private:
  void host();     // sets up, waits for the users, takes down
  void nemesis();  // the faults
  void strike();
  void newcomers();
  void set_up();
  void leave_alone();
  void await_calls();
  void take_down(User& user);
  void probe_all(User& user);
  void linger(int64_t ns_max);
  Child* some_child();

  // Before the stage: what its fibers use must outlive them.
  std::vector<std::unique_ptr<User>> users_;
  Features features_;
  uint32_t playing_ = 0;  // users that have not ended
  Fiber* host_ = nullptr;
  uint32_t kills_left_ = 0;
  uint32_t pauses_left_ = 0;
  Stage stage_;
  Shared& shared_;
  Level& level_;
  base::Prng prng_;  // of the faults
};

Simulation* running = nullptr;

void Simulation::linger(int64_t ns_max) {
  const uint64_t ns = prng_.below(static_cast<uint64_t>(ns_max)) + 1;
  stage_.linger(base::Duration{static_cast<int64_t>(ns)});
}

// ---------------------------------------------------------------- faults

Child* Simulation::some_child() {
  std::vector<Child*> alive;
  for (const auto& child : level_.children()) {
    if (child != nullptr && child->alive()) alive.push_back(child.get());
  }
  return alive.empty() ? nullptr : alive[prng_.below(alive.size())];
}

void Simulation::nemesis() {
  kills_left_ = shared_.options.kills;
  pauses_left_ = shared_.options.pauses;
  bool all = shared_.options.kill_all;
  while (!shared_.calm && (kills_left_ > 0 || pauses_left_ > 0 || all)) {
    linger(2 * shared_.options.fault_gap_ns);
    if (shared_.calm) return;
    if (all && prng_.chance(1, 8)) {
      all = false;
      for (const auto& child : level_.children()) {
        if (child == nullptr || !child->alive()) continue;
        child->strike("killed with all others");
      }
      continue;
    }
    strike();
  }
}

void Simulation::strike() {
  Child* const child = some_child();
  if (child == nullptr) return;
  const uint32_t left = kills_left_ + pauses_left_;
  if (left == 0) return;
  if (prng_.below(left) < pauses_left_) {
    --pauses_left_;
    ++shared_.faults.pauses;
    child->pause_for(base::Duration{
        static_cast<int64_t>(prng_.below(static_cast<uint64_t>(2 * shared_.options.pause_ns)))});
    return;
  }
  --kills_left_;
  if (prng_.chance(1, 2)) {
    child->kill_soon(1 + prng_.below(1u << prng_.below(9)));
  } else {
    child->strike("killed");
  }
}

// Children that come late.
void Simulation::newcomers() {
  while (level_.late_workers_left()) {
    linger(4 * shared_.options.fault_gap_ns);
    level_.add_late_worker();
  }
}

// ---------------------------------------------------------------- the host

void Simulation::set_up() {
  const Options& options = shared_.options;
  // An inline worker may end without a word from the kernel, so nobody may wait for another.
  if (options.inline_workers > 0) level_.expect_no_more();
  if (prng_.chance(1, 2)) {
    level_.front().wait("the first children", base::Instant::never(),
                        [&](engine::Core&) { return level_.all_workers_settled(); });
  }
  for (uint32_t i = 0; i < options.callables; ++i) level_.register_callable(i);
  for (uint32_t i = 0; i < options.buffers; ++i) level_.create_buffer(options.buffer_bytes);
}

void Simulation::host() {
  User first(&level_, shared_.options.seed ^ 0x686f7374ull, "host", &features_);
  level_.add_first_workers();
  stage_.spawn("nemesis", [this] { nemesis(); });
  if (shared_.options.late_workers > 0) stage_.spawn("newcomers", [this] { newcomers(); });
  set_up();
  playing_ = shared_.options.users;
  for (uint32_t i = 0; i < shared_.options.users; ++i) {
    users_.push_back(std::make_unique<User>(&level_, shared_.options.seed * 31 + i,
                                            fmt::format("user {}", i), &features_));
    User* const user = users_.back().get();
    stage_.spawn(user->name(), [this, user] {
      user->play();
      if (--playing_ == 0) stage_.scheduler().wake(host_);
    });
  }
  while (playing_ > 0) stage_.scheduler().block();
  if (!shared_.checks.failed()) take_down(first);
}

// Reads every buffer as a whole and in parts, so that what is poisoned shows.
void Simulation::probe_all(User& user) {
  SimRun* const run = user.begin_run();
  if (run == nullptr) return;
  for (const auto& buffer : level_.buffers()) {
    if (buffer->made.bytes > kUsedBytesMax) continue;
    for (int i = 0; i < 4; ++i) {
      Tensor view = whole_of(*buffer);
      view.shape[0] = buffer->made.bytes / 4;
      view.offset = static_cast<uint64_t>(i) * view.shape[0];
      Draft draft = probe(buffer, view, INPUT, run->number,
                          static_cast<uint32_t>(shared_.oracle.task_count()));
      if (level_.pool_workers(engine::Pool::kSub).empty()) draft.pool = engine::Pool::kNext;
      user.submit(*run, std::move(draft));
    }
  }
  user.end_run(*run, false);
  user.wait_run(*run, false);
}

// Nobody waits and nobody calls: the engine thread alone must bring all runs to their end.
void Simulation::leave_alone() {
  const base::Instant limit = stage_.scheduler().now() + base::Duration::from_s(5);
  const auto all_done = [&] {
    return std::all_of(level_.runs().begin(), level_.runs().end(),
                       [](const auto& run) { return run->record->done; });
  };
  while (!all_done() && !shared_.checks.failed()) {
    if (stage_.scheduler().now() > limit) {
      shared_.checks.fail(Verdict::kLiveness,
                          "the engine thread does not go on where nobody waits");
      return;
    }
    linger(2'000'000);
  }
}

// Every callback comes, and once.
void Simulation::await_calls() {
  const base::Instant limit = stage_.scheduler().now() + base::Duration::from_s(5);
  const auto all_made = [&] {
    return std::all_of(level_.runs().begin(), level_.runs().end(),
                       [](const auto& run) { return run->calls_made == run->calls_set; });
  };
  while (!all_made() && !shared_.checks.failed()) {
    if (stage_.scheduler().now() > limit) {
      shared_.checks.fail(Verdict::kLiveness, "a callback does not come");
      return;
    }
    linger(1'000'000);
  }
}

void Simulation::take_down(User& user) {
  shared_.note("host", EventKind::kLiveness);
  shared_.calm = true;
  level_.world().calm();
  for (const auto& child : level_.children()) {
    if (child != nullptr) child->resume();
  }
  if (prng_.chance(1, 2)) leave_alone();
  if (shared_.checks.failed()) return;
  for (size_t i = 0; i < level_.runs().size(); ++i) user.wait_run(*level_.runs()[i], false);
  probe_all(user);
  await_calls();
  if (shared_.checks.failed()) return;
  judge(level_);
  while (!level_.buffers().empty()) level_.release_buffer(*level_.buffers().back());
  while (!level_.callables().empty()) level_.unregister_callable(*level_.callables().back());
  level_.front().wait("the last controls", base::Instant::never(),
                      [&](engine::Core& core) { return core.at_rest(); });
  level_.check_forgotten();
  stage_.close();
}

// ---------------------------------------------------------------- the run

SeedResult Simulation::run() {
  running = this;
  host_ = stage_.spawn("host", [this] { host(); });
  stage_.run();
  SeedResult result;
  result.options = shared_.options;
  result.verdict = shared_.checks.verdict();
  result.what = shared_.checks.what();
  if (result.verdict != Verdict::kOk) result.last_events = stage_.log().last();
  result.fingerprint = stage_.scheduler().fingerprint() ^ stage_.log().hash();
  result.steps = stage_.scheduler().steps();
  result.virtual_ns = stage_.scheduler().now().ns;
  result.events = stage_.log().total();
  result.tasks = shared_.oracle.task_count();
  result.runs = level_.runs().size();
  result.workers = level_.core().worker_count();
  for (const auto& run : level_.runs()) {
    result.succeeded += run->record->progress.succeeded;
    result.failed += run->record->progress.failed;
    result.skipped += run->record->progress.skipped;
  }
  result.features = features_;
  result.faults = shared_.faults;
  running = nullptr;
  return result;
}

}  // namespace

SeedResult run_seed(const Options& options, bool print_events) {
  Simulation simulation(options, print_events);
  return simulation.run();
}

SeedResult run_seed_twice(const Options& options) {
  SeedResult first = run_seed(options, false);
  const SeedResult second = run_seed(options, false);
  if (first.verdict == Verdict::kOk && first.fingerprint != second.fingerprint) {
    first.verdict = Verdict::kDeterminism;
    first.what = fmt::format("two runs of the seed differ: {:#x} in {} steps, {:#x} in {} steps",
                             first.fingerprint, first.steps, second.fingerprint, second.steps);
  }
  return first;
}

std::string describe(const SeedResult& result) {
  return fmt::format("{}verdict {}: {}\n{}", describe(result.options),
                     static_cast<int>(result.verdict), result.what, result.last_events);
}

std::string describe_current() {
  return running == nullptr ? "" : running->describe_now();
}

}  // namespace strata::sim
