// User: one simulated user thread: builds runs, waits, cancels, lets go of things, as its own seed
// decides. Fibers of the parent process run it; the first one of a simulation also sets up and
// takes down (simulation.cc).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "sim/draft.h"
#include "sim/level.h"

namespace strata::sim {

// What a seed is counted by.
struct Features {
  bool overlapping_views = false;
  bool group = false;
  bool scope = false;
  bool inout = false;
  bool second_run = false;
  bool cancel = false;
  uint32_t count() const { return overlapping_views + group + scope + inout + second_run + cancel; }
};

class User {
 public:
  User(Level* level, uint64_t seed, std::string name, Features* features)
      : level_(*level),
        shared_(level->shared()),
        prng_(seed),
        name_(std::move(name)),
        features_(*features) {}
  User(const User&) = delete;
  User& operator=(const User&) = delete;

  // The whole script.
  void play();

  // For set-up and the probes at the end.
  SimRun* begin_run();
  void submit(SimRun& run, Draft draft);
  void end_run(SimRun& run, bool may_fail);
  void wait_run(SimRun& run, bool may_hurry);
  Level& level() { return level_; }
  const std::string& name() const { return name_; }

 private:
  void build_run();
  void build_step(SimRun& run);
  void maybe_call(SimRun& run);
  void maybe_scope();
  void drop_scope();
  void wait_some_task(SimRun& run);
  void churn(SimRun* building);
  std::optional<Draft> draw(SimRun& run);
  std::vector<std::shared_ptr<SimBuffer>>& innermost();
  bool give_storage(Draft& draft, std::vector<std::vector<Level::Storage>>* given);
  void take_storage(Draft& draft, const std::vector<std::vector<Level::Storage>>& given);
  Result<TaskRef> send(SimRun& run, const Draft& draft);
  // What the engine must make of it, from what is up at this moment.
  bool must_be_taken(const Draft& draft) const;
  bool must_be_refused(const Draft& draft) const;
  void judge_submit(SimRun& run, const Draft& draft, const Result<TaskRef>& result,
                    bool must_refuse, bool must_take);
  void pause_a_little();
  bool chance(uint32_t in_thousand) { return prng_.chance(in_thousand, 1000); }

  Level& level_;
  Shared& shared_;
  base::Prng prng_;
  std::string name_;
  Features& features_;
  std::vector<SimRun*> mine_;
  std::vector<std::vector<std::shared_ptr<SimBuffer>>> scopes_;  // temporaries, innermost last
  std::vector<uint64_t> scope_ids_;                              // the engine's names for them
  std::vector<std::shared_ptr<SimBuffer>> run_storage_;          // of the run's own scope
};

}  // namespace strata::sim
