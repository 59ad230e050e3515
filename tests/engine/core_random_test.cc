// Core under random tasks, failures, cancels, losses, full rings and registrations: whatever
// happens, everything comes to an end and nothing is left over.
#include "base/prng.h"
#include "core_rig.h"

namespace strata::engine {
namespace {

class Storm {
 public:
  explicit Storm(uint64_t seed)
      : prng_(seed), rig_(3, {.slots = 32, .depth = 4, .buffers = 16, .heap_bytes = 64 << 20}) {
    callables_.push_back(rig_.gemm);
    for (int i = 0; i < 4; ++i) buffers_.push_back(rig_.buffer());
  }

  void random_step() {
    switch (prng_.below(14)) {
      case 0:
        open_or_seal();
        break;
      case 1:
        if (prng_.chance(1, 10)) cancel();
        break;
      case 2:
        if (prng_.chance(1, 10)) lose();
        break;
      case 3:
        replace_buffer();
        break;
      case 4:
        change_callables();
        break;
      case 5:
        some_fake().room = prng_.below(6);
        break;
      case 6:
        some_fake().start(prng_.below(4));
        break;
      case 7:
      case 8:
      case 9:
        submit();
        break;
      default:
        move_workers();
        break;
    }
    rig_.step();
    rig_.now = rig_.now + base::Duration::from_ms(1);
    for (const Punch& punch : rig_.core.take_punches()) rig_.core.segment_punched(punch);
    ASSERT_TRUE(rig_.core.take_kills().empty());
    for (const auto& run : runs_) ASSERT_LE(run->progress.terminal(), run->progress.submitted);
  }

  void finish() {
    if (building_) seal();
    for (FakeEndpoint* fake : rig_.fakes) fake->room = 1000;
    for (int i = 0; i < 100; ++i) {
      rig_.drain();
      rig_.settle();
    }
    for (const Core::NewBuffer& buffer : buffers_) rig_.core.release_buffer(buffer.index);
    if (registering_) rig_.core.take_register_outcome();
    ASSERT_TRUE(rig_.core.idle());
    ASSERT_TRUE(rig_.core.can_drain());
    ASSERT_FALSE(rig_.core.has_barred());
    ASSERT_EQ(rig_.core.next_deadline(), base::Instant::never());
    ASSERT_EQ(rig_.core.buffers().used(), 0u);
    for (uint32_t i = 0; const auto info = rig_.core.registry().info(i); ++i) {
      ASSERT_EQ(info->references, 0u);
    }
    uint64_t succeeded = 0;
    for (const auto& run : runs_) {
      ASSERT_TRUE(run->done);
      ASSERT_EQ(run->progress.terminal(), run->progress.submitted);
      ASSERT_EQ(run->tasks.size(), run->progress.submitted);
      ASSERT_EQ(std::ranges::count(run->tasks, TaskState::kLive), 0);
      ASSERT_EQ(run->failures, run->progress.failed + run->progress.skipped);
      ASSERT_EQ(run->outcome().has_value(), run->failures > 0);
      if (run->progress.skipped > 0 && run->progress.failed == 0) {
        ASSERT_NE(run->outcome()->code(), Code::kTaskFailed);
      }
      succeeded += run->progress.succeeded;
    }
    uint64_t done = 0;
    for (uint32_t worker = 0; worker < rig_.core.worker_count(); ++worker) {
      done += rig_.core.tasks_done(worker);
    }
    ASSERT_EQ(done, succeeded + told_to_fail_);
    tasks_ = succeeded;
  }
  uint64_t tasks() const { return tasks_; }

 private:
  FakeEndpoint& some_fake() { return *rig_.fakes[prng_.below(rig_.fakes.size())]; }

  void seal() {
    rig_.core.seal_run(*building_, std::nullopt);
    building_.reset();
  }
  void open_or_seal() {
    if (building_) {
      seal();
    } else if (rig_.core.can_open_run()) {
      building_ = rig_.core.open_run();
      runs_.push_back(building_);
    }
  }
  void submit() {
    if (!building_) return;
    TaskArgs args;
    for (uint64_t n = prng_.below(4); n > 0; --n) {
      const uint64_t begin = prng_.below(64);
      args.add_tensor(
          tensor_of(buffers_[prng_.below(buffers_.size())], begin, prng_.between(0, 64 - begin)),
          static_cast<TensorArgType>(prng_.between(1, 5)));
    }
    rig_.gemm = callables_[prng_.below(callables_.size())];
    const Core::Submitted submitted = rig_.try_submit(*building_, args);
    if (submitted == Core::Submitted::kRefused) {
      ASSERT_FALSE(rig_.core.registry().usable_on_all(rig_.gemm)) << rig_.error->to_string();
    }
    if (submitted == Core::Submitted::kFull) full();
  }
  // Somebody goes on, so a blocked submit waits.
  void full() { ASSERT_FALSE(rig_.core.stuck()); }

  void cancel() {
    if (!runs_.empty()) rig_.core.cancel_run(*runs_[prng_.below(runs_.size())]);
  }
  void lose() {
    const uint32_t worker = static_cast<uint32_t>(prng_.below(rig_.fakes.size()));
    if (rig_.core.worker_state(worker) == Core::WorkerState::kLost) return;
    rig_.core.lose_worker(worker, "signal 9");
    rig_.fake(worker).posted_control.reset();
    rig_.core.start_worker(rig_.add_worker(), rig_.now);
  }
  void replace_buffer() {
    Core::NewBuffer& buffer = buffers_[prng_.below(buffers_.size())];
    auto made = rig_.core.create_buffer(64);
    if (!made) return;
    rig_.core.release_buffer(buffer.index);
    buffer = made.value();
  }
  void change_callables() {
    if (registering_) {
      const auto outcome = rig_.core.take_register_outcome();
      if (!outcome) return;
      registering_ = false;
      if (outcome->ok()) callables_.push_back(outcome->value());
    } else if (callables_.size() < 4) {
      const std::string name = "kernel" + std::to_string(prng_.below(6));
      registering_ = rig_.core.begin_register(native(name), rig_.now).ok();
    } else {
      const size_t which = prng_.below(callables_.size());
      ASSERT_TRUE(rig_.core.unregister(callables_[which], rig_.now).ok());
      callables_.erase(callables_.begin() + static_cast<std::ptrdiff_t>(which));
    }
  }
  void move_workers() {
    for (uint32_t worker = 0; worker < rig_.fakes.size(); ++worker) {
      FakeEndpoint* const fake = rig_.fakes[worker];
      if (fake->posted_control && !fake->answered() && prng_.chance(1, 2)) {
        // Of a registration; a replay that fails would end the worker.
        const bool may_fail =
            fake->posted_control->command == static_cast<uint32_t>(Command::kPrepare) &&
            rig_.core.worker_state(worker) == Core::WorkerState::kReady;
        if (may_fail && prng_.chance(1, 4)) {
          fake->answer(static_cast<uint32_t>(Code::kNotFound), "not here");
        } else {
          fake->answer();
        }
      }
      if (fake->queue.empty() || prng_.chance(1, 3)) continue;
      if (prng_.chance(1, 8)) {
        fake->fail("as told");
        ++told_to_fail_;
      } else {
        fake->end("result");
      }
    }
  }

  base::Prng prng_;
  CoreRig rig_;
  std::vector<registry::EntryRef> callables_;
  std::vector<Core::NewBuffer> buffers_;
  std::vector<std::shared_ptr<RunRecord>> runs_;
  std::shared_ptr<RunRecord> building_;
  bool registering_ = false;
  uint64_t told_to_fail_ = 0;
  uint64_t tasks_ = 0;
};

TEST(CoreRandom, WhateverHappensEverythingEndsAndNothingIsLeftOver) {
  uint64_t tasks = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    Storm storm(seed);
    for (int i = 0; i < 1500; ++i) {
      storm.random_step();
      if (::testing::Test::HasFailure()) FAIL() << "seed " << seed << " step " << i;
    }
    storm.finish();
    if (::testing::Test::HasFailure()) FAIL() << "seed " << seed;
    tasks += storm.tasks();
  }
  EXPECT_GT(tasks, 3000u);
}

}  // namespace
}  // namespace strata::engine
