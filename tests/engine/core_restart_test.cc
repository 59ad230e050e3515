// Core and workers that are replaced: what stays, what is replayed, and when it ends.
#include "core_rig.h"

namespace strata::engine {
namespace {

using State = Core::WorkerState;
constexpr auto kPrepare = static_cast<uint32_t>(Command::kPrepare);
constexpr auto kHello = static_cast<uint32_t>(Command::kHello);

struct RestartRig : CoreRig {
  explicit RestartRig(uint32_t workers = 1, uint32_t limit = 3)
      : CoreRig({.path = "L3",
                 .limits = {.slots = 64, .buffers = 64},
                 .timeouts = {},
                 .uid_high = 77,
                 .restarts = true,
                 .restart_limit = limit},
                workers) {}
  // Another one in the place of the worker, which is not started yet.
  void renew(uint32_t worker) {
    EXPECT_EQ(core.take_replacements(), std::vector<uint32_t>{worker});
    ASSERT_TRUE(core.wants_replacement(worker));
    auto endpoint = std::make_unique<FakeEndpoint>();
    fakes[worker] = endpoint.get();
    core.renew_worker(worker, std::move(endpoint));
    core.drop_retired();
    core.name_worker(worker, "pid " + std::to_string(200 + worker));
  }
  void restart(uint32_t worker) {
    renew(worker);
    core.start_worker(worker, now);
    settle();
    EXPECT_EQ(core.worker_state(worker), State::kReady);
  }
};

TEST(CoreRestart, AReplacedWorkerTakesWhatHadNotStartedAfterItsReplay) {
  RestartRig rig;
  const auto run = rig.core.open_run();
  for (int i = 0; i < 3; ++i) rig.submit(*run);
  rig.step();
  rig.fake().start();
  rig.core.lose_worker(0, "signal 9");
  EXPECT_EQ(rig.core.worker_state(0), State::kReplaced);
  rig.step();
  EXPECT_EQ(run->progress.failed, 1u);
  EXPECT_EQ(run->progress.skipped, 0u);
  EXPECT_FALSE(rig.core.at_rest());
  rig.renew(0);
  rig.core.start_worker(0, rig.now);
  rig.step();
  EXPECT_EQ(rig.fake().commands, std::vector<uint32_t>{kHello});
  rig.fake().answer();
  rig.step();
  EXPECT_EQ(rig.fake().commands, (std::vector<uint32_t>{kHello, kPrepare}));
  EXPECT_TRUE(rig.fake().queue.empty());
  rig.settle();
  EXPECT_EQ(rig.fake().queue.size(), 2u);
  rig.drain();
  rig.core.seal_run(*run, std::nullopt);
  EXPECT_EQ(run->progress.succeeded, 2u);
  EXPECT_TRUE(rig.core.at_rest());
}

TEST(CoreRestart, NamesOfLaterIncarnationsHaveTheirNumber) {
  RestartRig rig;
  EXPECT_EQ(rig.core.worker_name(0), "L3/0 pid 100");
  rig.core.lose_worker(0, "signal 9");
  rig.restart(0);
  EXPECT_EQ(rig.core.worker_name(0), "L3/0#2 pid 200");
}

TEST(CoreRestart, ATaskForTheReplacedWorkerAloneIsTakenAndWaits) {
  RestartRig rig(2);
  rig.core.lose_worker(1, "signal 9");
  const auto run = rig.core.open_run();
  EXPECT_EQ(
      rig.core.submit(*run, {rig.gemm, {Pool::kSub, 1}, {}}, TaskArgs(), &rig.ref, &rig.error),
      Core::Submitted::kDone);
  rig.step();
  EXPECT_TRUE(rig.fake(0).queue.empty());
  rig.restart(1);
  EXPECT_EQ(rig.fake(1).queue.size(), 1u);
  rig.drain();
  EXPECT_EQ(run->progress.succeeded, 1u);
}

TEST(CoreRestart, ACallableListedForTheReplacedWorkerAloneCanBeSubmittedMeanwhile) {
  RestartRig rig(2);
  const std::vector<uint32_t> listed = {1};
  ASSERT_TRUE(rig.core.begin_register(native("only"), rig.now, listed).ok());
  rig.settle();
  const registry::EntryRef only = rig.core.take_register_outcome()->value();
  rig.core.lose_worker(1, "signal 9");
  const auto run = rig.core.open_run();
  EXPECT_EQ(rig.core.submit(*run, {only, {}, {}}, TaskArgs(), &rig.ref, &rig.error),
            Core::Submitted::kDone)
      << (rig.error ? rig.error->to_string() : "");
  rig.step();
  EXPECT_EQ(run->progress.skipped, 0u);
  rig.restart(1);
  EXPECT_EQ(rig.fake(1).queue.size(), 1u);
  rig.drain();
  EXPECT_EQ(run->progress.succeeded, 1u);
}

TEST(CoreRestart, AtTheLimitItIsLostForGoodAndWhatWaitedForItIsSkippedWithTheReason) {
  RestartRig rig(1, 1);
  rig.core.expect_no_more_workers();
  rig.core.lose_worker(0, "signal 9");
  const auto run = rig.core.open_run();
  rig.submit(*run);
  rig.renew(0);
  rig.core.start_worker(0, rig.now);
  // Before it is ready: that counts.
  rig.core.lose_worker(0, "signal 11");
  EXPECT_EQ(rig.core.worker_state(0), State::kLost);
  EXPECT_TRUE(rig.core.take_replacements().empty());
  rig.step();
  EXPECT_EQ(run->progress.skipped, 1u);
  rig.core.seal_run(*run, std::nullopt);
  const std::string why = run->outcome()->to_string();
  EXPECT_NE(why.find("signal 11; it had been replaced 1 times, and WorkerSpec::restart_limit is 1"),
            std::string::npos)
      << why;
  EXPECT_TRUE(rig.core.at_rest());
}

TEST(CoreRestart, AWorkerThatWasNeverReadyIsNotReplaced) {
  RestartRig rig(0);
  const uint32_t worker = rig.add_worker();
  rig.core.start_worker(worker, rig.now);
  rig.core.lose_worker(worker, "signal 9");
  EXPECT_EQ(rig.core.worker_state(worker), State::kLost);
  EXPECT_TRUE(rig.core.take_replacements().empty());
}

TEST(CoreRestart, AWorkerThatWasToldToEndIsNotReplaced) {
  RestartRig rig(2);
  rig.core.lose_worker(1, "signal 9");
  rig.core.ask_exit(rig.now);
  // Nor is one that another was about to replace.
  EXPECT_EQ(rig.core.worker_state(1), State::kLost);
  EXPECT_FALSE(rig.core.wants_replacement(1));
  rig.core.lose_worker(0, "exit status 0");
  EXPECT_EQ(rig.core.worker_state(0), State::kLost);
  EXPECT_TRUE(rig.core.take_replacements().empty());
}

TEST(CoreRestart, AReplacementThatRefusesWhatIsReplayedIsEndedAndReplaced) {
  RestartRig rig;
  rig.core.lose_worker(0, "signal 9");
  rig.renew(0);
  rig.core.start_worker(0, rig.now);
  rig.fake().answer();
  rig.step();
  rig.fake().answer(static_cast<uint32_t>(Code::kNotFound), "no such library");
  rig.settle();
  const std::vector<Kill> kills = rig.core.take_kills();
  ASSERT_EQ(kills.size(), 1u);
  EXPECT_EQ(kills[0].incarnation, 2u);
  rig.core.lose_worker(0, "signal 9");
  EXPECT_EQ(rig.core.worker_state(0), State::kReplaced);
  rig.restart(0);
  EXPECT_EQ(rig.core.incarnation(0), 3u);
}

TEST(CoreRestart, AGroupWaitsForAReplacedWorkerItNeeds) {
  RestartRig rig(2);
  rig.core.expect_no_more_workers();
  rig.core.lose_worker(1, "signal 9");
  const auto run = rig.core.open_run();
  const std::vector<TaskArgs> members(2);
  ASSERT_EQ(rig.core.submit_group(*run, {rig.gemm, {}, {}}, members, {}, &rig.ref, &rig.error),
            Core::Submitted::kDone)
      << (rig.error ? rig.error->to_string() : "");
  rig.step();
  EXPECT_TRUE(rig.fake(0).queue.empty());
  rig.restart(1);
  EXPECT_EQ(rig.fake(0).queue.size(), 1u);
  EXPECT_EQ(rig.fake(1).queue.size(), 1u);
  rig.drain();
  EXPECT_EQ(run->progress.succeeded, 1u);
}

TEST(CoreRestart, AGroupWhoseReplacementFailsForGoodIsSkipped) {
  RestartRig rig(2, 1);
  rig.core.expect_no_more_workers();
  rig.core.lose_worker(1, "signal 9");
  const auto run = rig.core.open_run();
  const std::vector<TaskArgs> members(2);
  ASSERT_EQ(rig.core.submit_group(*run, {rig.gemm, {}, {}}, members, {}, &rig.ref, &rig.error),
            Core::Submitted::kDone);
  rig.renew(1);
  rig.core.lose_worker(1, "it could not be made");
  rig.step();
  EXPECT_EQ(run->progress.skipped, 1u);
}

TEST(CoreRestart, WhatAnOldIncarnationLeavesUnreadChangesNothingOfTheNext) {
  RestartRig rig;
  const auto run = rig.core.open_run();
  rig.submit(*run);
  rig.step();
  FakeEndpoint& old = rig.fake();
  old.start();
  old.end();
  // Its end counts: it was told before the death.
  rig.core.lose_worker(0, "signal 9");
  rig.step();
  EXPECT_EQ(run->progress.succeeded, 1u);
  rig.restart(0);
  rig.submit(*run);
  rig.step();
  EXPECT_EQ(rig.fake().queue.size(), 1u);
  EXPECT_EQ(run->progress.succeeded, 1u);
  rig.drain();
  EXPECT_EQ(run->progress.succeeded, 2u);
}

TEST(CoreRestart, AGreetingOfAReplacedChildWorkerHasItsTime) {
  RestartRig rig(0);
  const uint32_t worker = rig.add_worker({.pool = Pool::kNext, .nested = true, .greeting_ms = 500});
  rig.core.start_worker(worker, rig.now);
  rig.now = rig.now + base::Duration::from_s(100);
  rig.settle();
  ASSERT_EQ(rig.core.worker_state(worker), State::kReady);
  rig.core.lose_worker(worker, "signal 9");
  rig.renew(worker);
  rig.core.start_worker(worker, rig.now);
  rig.now = rig.now + base::Duration::from_ms(400);
  rig.step();
  EXPECT_TRUE(rig.core.take_kills().empty());
  rig.now = rig.now + base::Duration::from_ms(200);
  rig.step();
  EXPECT_NE(rig.kill_reason().find("within 500 ms"), std::string::npos);
}

}  // namespace
}  // namespace strata::engine
