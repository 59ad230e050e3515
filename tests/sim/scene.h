// Scene: a stage for hand-written scenarios: one script, its threads, and a tidy end.
// From the test's thread; the script and what it spawns are fibers of the stage.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>

#include "sim/draft.h"
#include "sim/stage.h"
#include "sim/task_code.h"

namespace strata::sim {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr uint64_t kOrders = 20;
#else
inline constexpr uint64_t kOrders = 200;
#endif

// A Worker without faults, whose threads the order decides.
inline Options quiet(uint64_t order, uint32_t workers, uint32_t inline_workers = 0) {
  Options options;
  options.seed = order;
  options.workers = workers;
  options.inline_workers = inline_workers;
  options.slots = 32;
  options.spin_looks = 2;
  options.watch_ns = 20'000;
  options.steps_max = 400'000;
  return options;
}

class Scene {
 public:
  explicit Scene(const Options& options) : stage(options, false) {}

  // `script` runs first; then everything is closed. All of it must come to an end.
  void play(const std::function<void()>& script, bool close = true) {
    stage.spawn("script", [this, script, close] {
      stage.level().add_first_workers();
      if (stage.shared().options.inline_workers > 0) stage.level().expect_no_more();
      script();
      if (close) finish();
    });
    stage.run();
    const Checks& checks = stage.shared().checks;
    EXPECT_EQ(checks.verdict(), Verdict::kOk)
        << describe(stage.shared().options) << checks.what() << "\n"
        << stage.log().last();
  }
  void finish() {
    while (!level().callables().empty()) {
      level().unregister_callable(*level().callables().back());
    }
    wait([](engine::Core& core) { return core.idle(); });
    stage.close();
  }
  void wait(const std::function<bool(engine::Core&)>& ready) {
    level().front().wait("a scenario", base::Instant::never(), ready);
  }
  void wait_workers() {
    wait([this](engine::Core&) { return level().all_workers_settled(); });
  }
  void submit(engine::RunRecord& run, uint64_t ns, const SimBuffer* buffer = nullptr,
              TensorArgType tag = INPUT, engine::Where where = {}) {
    TaskOrders orders;
    orders.task = next_task++;
    orders.ns = ns;
    TaskArgs args;
    for (const uint64_t scalar : orders.encode()) args.add_scalar(scalar);
    if (buffer != nullptr) args.add_tensor(whole_of(*buffer), tag);
    const auto submitted =
        level().front().submit(run, {level().callables().front()->ref, where, CallConfig{}}, args);
    EXPECT_TRUE(submitted.ok()) << submitted.error().to_string();
  }
  std::shared_ptr<engine::RunRecord> open() { return level().front().open_run().value(); }
  void seal(engine::RunRecord& run) { level().front().seal_run(run, std::nullopt); }
  Result<void> join(engine::RunRecord& run) {
    return level().front().wait_run(run, base::Instant::never());
  }
  Level& level() { return stage.level(); }

  Stage stage;
  uint32_t next_task = 0;
};

}  // namespace strata::sim
