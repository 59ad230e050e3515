#include "sim/stage.h"

#include <fmt/format.h>

#include <utility>

namespace strata::sim {

Stage::Stage(const Options& options, bool print_events)
    : log_(print_events),
      scheduler_(std::make_unique<Scheduler>(options.seed, Scheduler::Options{})),
      machine_(scheduler_.get(), options.seed ^ 0x6d616368696e65ull) {
  shared_.options = options;
  shared_.scheduler = scheduler_.get();
  shared_.machine = &machine_;
  shared_.log = &log_;
  level_ = std::make_unique<Level>(&shared_);
  spawn("engine", [this] { level_->front().engine_main(); });
}

// First unwinds what has not ended, while the rest still stands.
Stage::~Stage() {
  scheduler_.reset();
}

Fiber* Stage::spawn(std::string name, std::function<void()> body) {
  fibers_.push_back(scheduler_->spawn(std::move(name), std::move(body)));
  return fibers_.back();
}

void Stage::close() {
  level_->expect_no_more();
  level_->front().call([&](engine::Core& core) { core.ask_exit(level_->world().now()); });
  level_->front().wait("the end of the children", base::Instant::never(),
                       [&](engine::Core&) { return level_->all_children_lost(); });
  level_->front().stop();
  closed_ = true;
}

std::string Stage::hanging() const {
  std::string out = "fibers that have not ended:";
  for (const Fiber* fiber : fibers_) {
    if (fiber->ended()) continue;
    out += fmt::format(" {}{}", fiber->name(), fiber->blocked() ? "" : " (runs)");
  }
  return out;
}

void Stage::run() {
  Scheduler::Stop stop = Scheduler::Stop::kSteps;
  while (stop == Scheduler::Stop::kSteps && !shared_.checks.failed() &&
         scheduler_->steps() < shared_.options.steps_max) {
    stop = scheduler_->run(10'000);
  }
  if (stop == Scheduler::Stop::kStuck) {
    shared_.checks.fail(Verdict::kLiveness, "nothing can go on; " + hanging());
  } else if (stop == Scheduler::Stop::kSteps) {
    shared_.checks.fail(Verdict::kLiveness, "it does not come to an end; " + hanging());
  }
  if (closed_ && !shared_.checks.failed()) level_->check_quiet();
}

}  // namespace strata::sim
