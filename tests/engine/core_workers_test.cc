// Core and its workers: greeting, dispatch, take-back, full rings, losses, misbehaviour, clocks.
#include "core_rig.h"

namespace strata::engine {
namespace {

constexpr auto kHello = static_cast<uint32_t>(Command::kHello);
constexpr auto kPrepare = static_cast<uint32_t>(Command::kPrepare);
constexpr auto kCommit = static_cast<uint32_t>(Command::kCommit);
constexpr auto kExit = static_cast<uint32_t>(Command::kExit);

using Commands = std::vector<uint32_t>;
using State = Core::WorkerState;

// ---------------------------------------------------------------- greeting and replay

TEST(CoreWorkers, AWorkerIsGreetedBeforeItTakesTasks) {
  CoreRig rig(0);
  const uint32_t worker = rig.add_worker();
  EXPECT_EQ(rig.core.worker_state(worker), State::kAdded);
  EXPECT_TRUE(rig.fake().commands.empty());
  rig.core.start_worker(worker, rig.now);
  EXPECT_EQ(rig.core.worker_state(worker), State::kGreeted);
  EXPECT_EQ(rig.fake().commands, Commands{kHello});
  EXPECT_FALSE(rig.core.idle());
  rig.step();
  EXPECT_EQ(rig.core.worker_state(worker), State::kGreeted);
  rig.fake().answer();
  rig.step();
  EXPECT_EQ(rig.core.worker_state(worker), State::kReady);
  EXPECT_TRUE(rig.core.idle());
}

TEST(CoreWorkers, ALateWorkerIsReplayedTheCallablesBeforeItTakesTasks) {
  CoreRig rig(1, {.slots = 64, .depth = 1, .buffers = 64});
  const uint32_t late = rig.add_worker();
  rig.core.start_worker(late, rig.now);
  rig.fake(late).answer();
  const auto run = rig.core.open_run();
  for (int i = 0; i < 2; ++i) rig.submit(*run);
  rig.step();
  EXPECT_EQ(rig.core.worker_state(late), State::kReplaying);
  EXPECT_EQ(rig.fake(late).commands, (Commands{kHello, kPrepare}));
  EXPECT_EQ(rig.fake(0).queue.size(), 1u);
  EXPECT_TRUE(rig.fake(late).queue.empty());
  rig.fake(late).answer();
  rig.step();
  EXPECT_EQ(rig.fake(late).commands, (Commands{kHello, kPrepare, kCommit}));
  EXPECT_TRUE(rig.fake(late).queue.empty());
  rig.fake(late).answer();
  rig.step();
  EXPECT_EQ(rig.core.worker_state(late), State::kReady);
  EXPECT_EQ(rig.fake(late).queue.size(), 1u);
}

TEST(CoreWorkers, AWorkerThatCannotPrepareWhatIsReplayedIsEnded) {
  CoreRig rig(1);
  const uint32_t late = rig.add_worker();
  rig.core.start_worker(late, rig.now);
  rig.fake(late).answer();
  rig.step();
  rig.fake(late).answer(static_cast<uint32_t>(Code::kNotFound), "no such library");
  rig.settle();
  EXPECT_NE(rig.core.worker_state(late), State::kReady);
  EXPECT_NE(rig.kill_reason().find("no such library"), std::string::npos);
}

TEST(CoreWorkers, AWorkerLostBeforeItAnswersItsGreetingLeavesNothingOpen) {
  CoreRig rig(0);
  const uint32_t worker = rig.add_worker();
  rig.core.start_worker(worker, rig.now);
  rig.core.lose_worker(worker, "signal 9");
  EXPECT_EQ(rig.core.worker_state(worker), State::kLost);
  EXPECT_EQ(rig.core.loss_reason(worker), "signal 9");
  rig.step();
  EXPECT_TRUE(rig.core.idle());
  EXPECT_FALSE(rig.core.wants_time());
}

TEST(CoreWorkers, AWorkerLostWithAnUnreadAnswerToItsGreetingLeavesNothingOpen) {
  CoreRig rig(0);
  const uint32_t worker = rig.add_worker();
  rig.core.start_worker(worker, rig.now);
  rig.fake().answer();
  rig.core.lose_worker(worker, "signal 9");
  rig.step();
  EXPECT_EQ(rig.core.worker_state(worker), State::kLost);
  EXPECT_TRUE(rig.core.idle());
}

TEST(CoreWorkers, AWorkerLostWithAnUnreadAnswerToARegistrationLeavesNothingOpen) {
  CoreRig rig(2);
  ASSERT_TRUE(rig.core.begin_register(native("add"), rig.now).ok());
  rig.fake(0).answer();
  rig.core.lose_worker(0, "signal 9");
  rig.settle();
  ASSERT_TRUE(rig.core.take_register_outcome());
  EXPECT_TRUE(rig.core.idle());
}

TEST(CoreWorkers, AWorkerThatWaitsForARegistrationIsReadyWhenThatFailsByALoss) {
  CoreRig rig(0);
  rig.add_ready_worker();
  ASSERT_TRUE(rig.core.begin_register(native("add"), rig.now).ok());
  const uint32_t late = rig.add_worker();
  rig.core.start_worker(late, rig.now);
  rig.fake(late).answer();
  rig.step();
  EXPECT_EQ(rig.core.worker_state(late), State::kReplaying);
  rig.core.lose_worker(0, "signal 9");
  rig.step();
  EXPECT_EQ(rig.core.worker_state(late), State::kReady);
  EXPECT_TRUE(rig.core.idle());
}

TEST(CoreWorkers, AWorkerLostBeforeItWasStartedLeavesNothingOpen) {
  CoreRig rig(0);
  const uint32_t worker = rig.add_worker();
  rig.core.lose_worker(worker, "it never came up");
  rig.core.lose_worker(worker, "again");
  EXPECT_EQ(rig.core.loss_reason(worker), "it never came up");
  rig.step();
  EXPECT_TRUE(rig.core.idle());
}

TEST(CoreWorkers, ExitIsAskedOnceAndAfterTheControlThatIsPosted) {
  CoreRig rig(1);
  const uint32_t late = rig.add_worker();
  rig.core.start_worker(late, rig.now);
  rig.core.ask_exit(rig.now);
  rig.core.ask_exit(rig.now);
  EXPECT_EQ(rig.fake(0).commands.back(), kExit);
  EXPECT_EQ(std::ranges::count(rig.fake(0).commands, kExit), 1);
  EXPECT_EQ(rig.fake(late).commands, Commands{kHello});
  rig.fake(late).answer();
  rig.step();
  EXPECT_EQ(rig.fake(late).commands, (Commands{kHello, kExit}));
  rig.step();
  EXPECT_TRUE(rig.core.take_kills().empty()) << "what would be replayed to it is not sent";
  for (const uint32_t worker : {0u, late}) rig.core.lose_worker(worker, "the Worker was closed");
  rig.step();
  EXPECT_TRUE(rig.core.idle());
}

// ---------------------------------------------------------------- dispatch

TEST(CoreWorkers, TasksGoToEmptyWorkersFirst) {
  CoreRig rig(3);
  const auto run = rig.core.open_run();
  for (int i = 0; i < 3; ++i) rig.submit(*run);
  rig.step();
  for (uint32_t worker = 0; worker < 3; ++worker) EXPECT_EQ(rig.fake(worker).queue.size(), 1u);
  for (int i = 0; i < 3; ++i) rig.submit(*run);
  rig.step();
  for (uint32_t worker = 0; worker < 3; ++worker) EXPECT_EQ(rig.fake(worker).queue.size(), 2u);
}

TEST(CoreWorkers, AWorkerHoldsAtMostDepthTasks) {
  CoreRig rig(1, {.slots = 64, .depth = 3, .buffers = 64});
  const auto run = rig.core.open_run();
  for (int i = 0; i < 10; ++i) rig.submit(*run);
  rig.step();
  EXPECT_EQ(rig.fake().queue.size(), 3u);
  rig.fake().end();
  rig.step();
  EXPECT_EQ(rig.fake().queue.size(), 3u);
  EXPECT_EQ(rig.fake().last_ticket, 4u);
  rig.drain();
  EXPECT_EQ(run->progress.succeeded, 10u);
  EXPECT_EQ(rig.core.tasks_done(0), 10u);
}

TEST(CoreWorkers, ATaskArrivesWithItsCallableItsConfigurationAndItsArguments) {
  CoreRig rig(1);
  const auto run = rig.core.open_run();
  TaskArgs args;
  args.add_scalar(uint64_t{42});
  ASSERT_EQ(rig.try_submit(*run, args, {.block_dim = 7, .flags = 1, .deadline_ms = 900}),
            Core::Submitted::kDone);
  rig.step();
  const FakeEndpoint::Entry& entry = rig.fake().queue.front();
  EXPECT_EQ(entry.post.callable, rig.gemm.index);
  EXPECT_EQ(entry.post.block_dim, 7);
  EXPECT_EQ(entry.post.flags, 1u);
  EXPECT_EQ(entry.post.deadline_ms, 900u);
  model::ArgsDecoder decoder;
  ASSERT_TRUE(decoder.decode(entry.args, [](uint32_t) { return model::MappedSegment{}; }).ok());
  ASSERT_EQ(decoder.scalars().size(), 1u);
  EXPECT_EQ(decoder.scalars()[0], 42u);
}

TEST(CoreWorkers, OnlyASleepingWorkerIsToBeWoken) {
  CoreRig rig(2);
  rig.fake(1).asleep = true;
  const auto run = rig.core.open_run();
  for (int i = 0; i < 2; ++i) rig.submit(*run);
  rig.step();
  std::vector<WorkerEndpoint*> wakes;
  rig.core.take_wakes(&wakes);
  ASSERT_EQ(wakes.size(), 1u);
  EXPECT_EQ(wakes.front(), &rig.fake(1));
  EXPECT_FALSE(rig.core.has_wakes());
}

TEST(CoreWorkers, AnEmptyWorkerGetsTheYoungestTaskOfTheLongestQueue) {
  CoreRig rig(1);
  const auto run = rig.core.open_run();
  for (int i = 0; i < 3; ++i) rig.submit(*run);
  rig.step();
  ASSERT_EQ(rig.fake(0).queue.size(), 3u);
  const uint64_t youngest = rig.fake(0).queue.back().post.task;
  rig.add_ready_worker();
  EXPECT_EQ(rig.fake(0).queue.size(), 2u);
  ASSERT_EQ(rig.fake(1).queue.size(), 1u);
  EXPECT_EQ(rig.fake(1).queue.front().post.task, youngest);
  rig.drain();
  EXPECT_EQ(run->progress.succeeded, 3u);
}

TEST(CoreWorkers, ARevokeThatComesTooLateIsNotTriedAgain) {
  CoreRig rig(1);
  const auto run = rig.core.open_run();
  for (int i = 0; i < 3; ++i) rig.submit(*run);
  rig.step();
  rig.fake(0).start(3);
  rig.add_ready_worker();
  EXPECT_EQ(rig.fake(0).revokes, 1);
  EXPECT_TRUE(rig.fake(1).queue.empty());
  rig.step();
  EXPECT_EQ(rig.fake(0).revokes, 1);
  rig.drain();
  EXPECT_EQ(run->progress.succeeded, 3u);
}

TEST(CoreWorkers, AFullRingSendsTheTaskToAnotherWorker) {
  CoreRig rig(2);
  rig.fake(0).room = 0;
  rig.fake(1).room = 2;
  const auto run = rig.core.open_run();
  for (int i = 0; i < 3; ++i) rig.submit(*run);
  rig.step();
  EXPECT_TRUE(rig.fake(0).queue.empty());
  EXPECT_EQ(rig.fake(1).queue.size(), 2u);
  EXPECT_TRUE(rig.core.has_barred());
  EXPECT_FALSE(rig.core.stuck());
  rig.fake(0).room = 5;
  rig.step();
  EXPECT_EQ(rig.fake(0).queue.size(), 1u);
  EXPECT_EQ(rig.fake(1).queue.size(), 2u);
  rig.drain();
  EXPECT_EQ(run->progress.succeeded, 3u);
  EXPECT_FALSE(rig.core.has_barred());
}

TEST(CoreWorkers, ALostWorkerWithAFullRingIsNotAskedForRoomAgain) {
  CoreRig rig(2);
  rig.fake(0).room = 0;
  rig.fake(1).room = 0;
  const auto run = rig.core.open_run();
  rig.submit(*run);
  rig.step();
  rig.core.lose_worker(0, "signal 9");
  rig.fake(1).room = 1;
  rig.step();
  EXPECT_FALSE(rig.core.has_barred());
  EXPECT_EQ(rig.fake(1).queue.size(), 1u);
  rig.drain();
  EXPECT_EQ(run->progress.succeeded, 1u);
}

// ---------------------------------------------------------------- losses

TEST(CoreWorkers, WhatALostWorkerHadStartedFailsAndTheRestGoesToAnother) {
  CoreRig rig(2);
  const auto run = rig.core.open_run();
  for (int i = 0; i < 4; ++i) rig.submit(*run);
  rig.step();
  rig.fake(0).start();
  rig.core.lose_worker(0, "it was ended by signal 9");
  rig.drain();
  EXPECT_EQ(run->progress.succeeded, 3u);
  EXPECT_EQ(run->progress.failed, 1u);
  rig.core.seal_run(*run, std::nullopt);
  ASSERT_TRUE(run->done);
  const auto error = run->outcome();
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), Code::kEndpointFailed);
  EXPECT_EQ(error->scope(), Scope::kTask);
  EXPECT_NE(error->message().find("it was ended by signal 9"), std::string::npos);
  EXPECT_NE(error->message().find("may have run"), std::string::npos);
  EXPECT_EQ(error->where(), "L3/0 pid 100, task 1 'gemm'");
}

TEST(CoreWorkers, WhatALostWorkerHadCompletedCounts) {
  CoreRig rig(1);
  const auto run = rig.core.open_run();
  const TaskRef task = rig.submit(*run);
  rig.step();
  rig.fake().end("done");
  rig.core.lose_worker(0, "signal 9");
  rig.step();
  EXPECT_EQ(run->progress.succeeded, 1u);
  EXPECT_EQ(run->results.at({static_cast<uint32_t>(task.task), 0}).size(), 4u);
}

TEST(CoreWorkers, TasksWaitForAWorkerWhileOneIsExpected) {
  CoreRig rig(1);
  const auto run = rig.core.open_run();
  rig.core.lose_worker(0, "signal 9");
  rig.submit(*run);
  rig.step();
  EXPECT_EQ(run->progress.terminal(), 0u);
  EXPECT_FALSE(rig.core.stuck());
  rig.add_ready_worker();
  rig.drain();
  EXPECT_EQ(run->progress.succeeded, 1u);
}

TEST(CoreWorkers, WithoutAnyWorkerLeftTasksAreSkippedAlsoThoseSubmittedLater) {
  CoreRig rig(1);
  rig.core.expect_no_more_workers();
  const auto run = rig.core.open_run();
  rig.submit(*run);
  rig.submit(*run);
  rig.step();
  rig.fake().start();
  rig.core.lose_worker(0, "signal 11");
  rig.step();
  EXPECT_EQ(run->progress.failed, 1u);
  EXPECT_EQ(run->progress.skipped, 1u);
  const TaskRef later = rig.submit(*run);
  rig.step();
  EXPECT_EQ(run->progress.skipped, 2u);
  const Error& error = run->errors.at(static_cast<uint32_t>(later.task));
  EXPECT_EQ(error.code(), Code::kNoWorker);
  EXPECT_NE(error.message().find("signal 11"), std::string::npos);
  EXPECT_EQ(error.where(), "L3");
}

TEST(CoreWorkers, WithoutAnyWorkerLeftOneStepEndsBothRuns) {
  CoreRig rig(1);
  rig.core.expect_no_more_workers();
  const auto first = rig.core.open_run();
  rig.submit(*first);
  rig.core.seal_run(*first, std::nullopt);
  const auto second = rig.core.open_run();
  rig.submit(*second);
  rig.core.seal_run(*second, std::nullopt);
  rig.step();
  rig.core.lose_worker(0, "signal 11");
  rig.step();
  EXPECT_TRUE(first->done);
  EXPECT_TRUE(second->done) << "nothing comes any more that would make a waiting thread step again";
  EXPECT_TRUE(rig.core.can_drain());
}

// ---------------------------------------------------------------- misbehaviour

TEST(CoreWorkers, AWorkerThatCompletesAnUnknownTaskIsEndedOnce) {
  CoreRig rig(1);
  const auto run = rig.core.open_run();
  rig.submit(*run);
  rig.step();
  const FakeEndpoint::Entry entry = rig.fake().queue.front();
  rig.fake().complete_unknown(entry.post.task + 1, entry.ticket);
  rig.fake().complete_unknown(entry.post.task, entry.ticket + 1);
  rig.fake().complete_unknown(~uint64_t{0}, entry.ticket);
  rig.fake().complete_unknown(entry.post.task + (uint64_t{1} << 32), entry.ticket);
  rig.step();
  EXPECT_EQ(rig.kill_reason(), "it completed a task that it was not given");
  EXPECT_EQ(run->progress.terminal(), 0u);
  EXPECT_EQ(rig.core.tasks_done(0), 0u);
}

TEST(CoreWorkers, AWorkerMayNotCompleteTheTaskOfAnother) {
  CoreRig rig(2);
  const auto run = rig.core.open_run();
  rig.submit(*run);
  rig.submit(*run);
  rig.step();
  const FakeEndpoint::Entry other = rig.fake(1).queue.front();
  rig.fake(0).complete_unknown(other.post.task, other.ticket);
  rig.step();
  const std::vector<Kill> kills = rig.core.take_kills();
  ASSERT_EQ(kills.size(), 1u);
  EXPECT_EQ(kills.front().worker, 0u);
}

TEST(CoreWorkers, AWorkerThatAnswersAControlItWasNotGivenIsEnded) {
  CoreRig rig(1);
  const auto run = rig.core.open_run();
  rig.submit(*run);
  rig.step();
  rig.fake().answer_as(kCommit);
  rig.step();
  EXPECT_EQ(rig.kill_reason(), "it answered a control that it was not given");
}

TEST(CoreWorkers, AWorkerThatAnswersItsGreetingTwiceIsEnded) {
  CoreRig rig(1);
  const auto run = rig.core.open_run();
  rig.submit(*run);
  rig.step();
  rig.fake().answer_as(kHello);
  rig.step();
  EXPECT_EQ(rig.kill_reason(), "it answered a control that it was not given");
}

TEST(CoreWorkers, AWorkerWhoseMailboxIsCorruptIsEndedWithTheReason) {
  CoreRig rig(1);
  const auto run = rig.core.open_run();
  rig.submit(*run);
  rig.step();
  rig.fake().corrupt = "mailbox: a completion names bytes outside the result ring";
  rig.step();
  rig.step();
  EXPECT_EQ(rig.kill_reason(), rig.fake().corrupt);
  rig.core.lose_worker(0, "it was ended");
  rig.step();
  EXPECT_EQ(rig.core.worker_state(0), State::kLost);
}

// ---------------------------------------------------------------- clocks

TEST(CoreWorkers, AGreetingWithoutAnAnswerEndsTheWorkerAtItsDeadline) {
  CoreRig rig(0);
  const uint32_t worker = rig.add_worker();
  rig.core.start_worker(worker, rig.now);
  EXPECT_TRUE(rig.core.wants_time());
  const base::Instant deadline = rig.core.next_deadline();
  EXPECT_GT(deadline, rig.now + base::Duration::from_ms(30'000));
  rig.now = rig.now + base::Duration::from_ms(30'000);
  rig.step();
  EXPECT_TRUE(rig.core.take_kills().empty());
  rig.now = deadline;
  rig.step();
  EXPECT_EQ(rig.kill_reason(), "it did not answer a control within 30000 ms");
}

TEST(CoreWorkers, AControlHasItsTimeFromTheEndOfTheTasksBeforeIt) {
  CoreRig rig(1);
  const auto run = rig.core.open_run();
  rig.submit(*run);
  rig.step();
  ASSERT_TRUE(rig.core.begin_register(native("add"), rig.now).ok());
  for (int i = 0; i < 5; ++i) {
    rig.now = rig.now + base::Duration::from_s(29);
    rig.step();
  }
  EXPECT_TRUE(rig.core.take_kills().empty());
  rig.fake().end();
  rig.now = rig.now + base::Duration::from_s(29);
  rig.step();
  EXPECT_TRUE(rig.core.take_kills().empty());
  rig.now = rig.now + base::Duration::from_s(31);
  rig.step();
  EXPECT_EQ(rig.kill_reason(), "it did not answer a control within 30000 ms");
}

TEST(CoreWorkers, NoDeadlineIsNearWhereNoControlIsOpen) {
  CoreRig rig(1);
  EXPECT_FALSE(rig.core.wants_time());
  EXPECT_EQ(rig.core.next_deadline(), base::Instant::never());
}

}  // namespace
}  // namespace strata::engine
