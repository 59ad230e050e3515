// Stage: one machine with one simulated Worker on it, its engine thread running, and nobody who
// uses it yet: simulations and hand-written scenarios put their own fibers on it.
// One stage at a time on a thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "sim/level.h"

namespace strata::sim {

class Stage {
 public:
  Stage(const Options& options, bool print_events);
  ~Stage();
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  Fiber* spawn(std::string name, std::function<void()> body);
  // Runs until every fiber has ended, a check has failed or the limit of steps is reached; what is
  // left hanging then is a failed check.
  void run();

  // From fibers.
  void linger(base::Duration length) { scheduler_->block(scheduler_->now() + length); }
  // All children are told to end, and the engine thread too; none of them is left afterwards.
  void close();

  Shared& shared() { return shared_; }
  Level& level() { return *level_; }
  Scheduler& scheduler() { return *scheduler_; }
  const EventLog& log() const { return log_; }
  bool closed() const { return closed_; }

 private:
  std::string hanging() const;

  EventLog log_;
  std::unique_ptr<Scheduler> scheduler_;
  World machine_;
  Shared shared_;
  std::unique_ptr<Level> level_;
  std::vector<Fiber*> fibers_;
  bool closed_ = false;
};

}  // namespace strata::sim
