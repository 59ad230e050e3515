// Both sides together: the life of a session from the lanes to the end.
#include "pair.h"

#include <gtest/gtest.h>

#include "base/fault.h"
#include "base/prng.h"

namespace strata::session::testing {
namespace {

using wire::ControlCommand;
using wire::Lane;

wire::Log line(std::string text, wire::LogLevel level = wire::LogLevel::kInfo) {
  wire::Log log;
  log.level = level;
  log.text = std::move(text);
  return log;
}

constexpr Lane kCommand = Lane::kCommand, kData = Lane::kData, kHealth = Lane::kHealth;

TEST(Session, IsReadyAfterStartingAndNotBefore) {
  Pair p;
  p.lanes_up();
  EXPECT_EQ(p.to_parent.starting, 1);
  EXPECT_FALSE(p.parent.ready());
  EXPECT_FALSE(p.parent.task({}, p.now).ok());
  EXPECT_EQ(p.parent.task({}, p.now).error().code(), Code::kWrongState);
  EXPECT_FALSE(p.parent.control({}, p.now).ok());
  p.runner.ready({});
  p.carry_all();
  EXPECT_TRUE(p.parent.ready());
  EXPECT_EQ(p.to_parent.ready, 1);
  EXPECT_EQ(p.to_parent.host, "node7");
  EXPECT_EQ(p.parent.task_credits(), kTaskCredits);
}

TEST(Session, AWorkerThatCannotBeBuiltIsToldWithItsText) {
  Pair p;
  p.lanes_up();
  p.runner.failed("no chip 3 here");
  p.carry_all();
  EXPECT_EQ(p.to_parent.ends, 1);
  EXPECT_NE(p.to_parent.cause().find("no chip 3 here"), std::string::npos) << p.to_parent.cause();
  EXPECT_NE(p.to_parent.cause().find("L4/7 on node7:4711 pid 88"), std::string::npos);
  EXPECT_EQ(p.to_runner.ends, 1);
}

TEST(Session, ReadyWaitsForTheAnswerToTheLastEarlyControl) {
  ParentOptions po = parent_options();
  RunnerOptions ro = runner_options();
  po.early_controls = ro.early_controls = 6;
  Pair p(po, ro);
  p.lanes_up();
  p.runner.ready({});
  p.carry_all();
  EXPECT_FALSE(p.parent.ready());
  for (int i = 0; i < 4; ++i) EXPECT_NE(p.send_control(ControlCommand::kPrepareRegister), 0u);
  EXPECT_EQ(p.send_control(ControlCommand::kPrepareRegister), 0u);  // 4 credits
  p.carry_all();
  EXPECT_EQ(p.serve(), 0);
  p.carry_all();
  EXPECT_EQ(p.to_parent.replies.size(), 4u);
  EXPECT_FALSE(p.parent.ready());
  EXPECT_EQ(p.parent.control_credits(kCommand), 2u);
  for (int i = 0; i < 2; ++i) EXPECT_NE(p.send_control(ControlCommand::kCommitRegister), 0u);
  EXPECT_FALSE(p.parent.control({}, p.now).ok());  // no early one is left
  p.carry_all();
  p.serve();
  p.carry_all();
  EXPECT_TRUE(p.parent.ready());
  EXPECT_NE(p.send_control(ControlCommand::kPrepareRegister), 0u);
}

TEST(Session, SixteenTasksAndNoMoreGoOutUntilOneIsAnswered) {
  Pair p;
  p.start();
  for (uint64_t i = 1; i <= kTaskCredits; ++i) EXPECT_EQ(p.send_task(), i);
  EXPECT_EQ(p.parent.task({}, p.now).value(), std::nullopt);
  p.carry_all();
  ASSERT_TRUE(p.take());
  EXPECT_FALSE(p.take());  // one runs at a time
  p.runner.completion({}).value();
  p.carry_all();
  EXPECT_EQ(p.parent.task_credits(), 1u);
  EXPECT_EQ(p.send_task(), kTaskCredits + 1);
  p.carry_all();
  EXPECT_EQ(p.serve(), static_cast<int>(kTaskCredits));
  p.carry_all();
  ASSERT_EQ(p.to_parent.completions.size(), kTaskCredits + 1u);
  for (size_t i = 0; i < p.to_parent.completions.size(); ++i) {
    EXPECT_EQ(p.to_parent.completions[i].first, i + 1);
  }
}

TEST(Session, AGrantOfFewerCreditsIsObeyed) {
  RunnerOptions ro = runner_options();
  ro.task_credits = 2;
  Pair p(parent_options(), ro);
  p.start();
  p.send_task();
  p.send_task();
  EXPECT_EQ(p.parent.task({}, p.now).value(), std::nullopt);
}

TEST(Session, RequestsOfTheCommandLaneAreTakenInOrderAndTheDataLaneGoesItsOwnWay) {
  Pair p;
  p.start();
  EXPECT_EQ(p.send_task(), 1u);
  EXPECT_EQ(p.send_control(ControlCommand::kPrepareRegister), 2u);
  EXPECT_EQ(p.send_control(ControlCommand::kAllocBuffer), 1u);
  EXPECT_EQ(p.send_task(), 3u);
  p.carry_all();
  EXPECT_EQ(p.take()->sequence, 1u);
  EXPECT_EQ(p.runner.executing(), 1u);
  EXPECT_EQ(p.take(kData)->sequence, 1u);
  p.reply(kData, ControlCommand::kAllocBuffer);
  p.runner.completion({}).value();
  const std::optional<Work> second = p.take();
  EXPECT_EQ(second->sequence, 2u);
  EXPECT_TRUE(std::holds_alternative<wire::Control>(second->what));
  EXPECT_FALSE(p.runner.completion({}).ok());
  p.reply(kCommand, ControlCommand::kPrepareRegister);
  EXPECT_EQ(p.take()->sequence, 3u);
  EXPECT_FALSE(p.runner.reply(kCommand, {}).ok());
  p.carry_all();
  EXPECT_EQ(p.to_parent.replies.size(), 2u);
  EXPECT_EQ(p.to_parent.completions.size(), 1u);
  EXPECT_FALSE(p.parent.ended());
}

// ---------------------------------------------------------------- cancel and abort

TEST(Session, CancelSkipsWhatWaitsAndTellsWhatRuns) {
  Pair p;
  p.start();
  for (int i = 0; i < 4; ++i) p.send_task();
  p.carry_all();
  p.take();
  p.parent.cancel(1, 3).value();
  p.carry_all();
  EXPECT_EQ(p.to_runner.cancelled, std::vector<uint64_t>{1});
  ASSERT_EQ(p.to_parent.completions.size(), 2u);  // 2 and 3, before their turn
  EXPECT_EQ(p.to_parent.completions[0].first, 2u);
  EXPECT_EQ(p.to_parent.completions[1].first, 3u);
  EXPECT_EQ(p.to_parent.completions[0].second.outcome, wire::Outcome::kSkipped);
  EXPECT_EQ(p.to_parent.completions[0].second.code, static_cast<uint32_t>(Code::kCancelled));
  p.runner.completion({}).value();
  EXPECT_EQ(p.take()->sequence, 4u);
  p.runner.completion({}).value();
  p.carry_all();
  EXPECT_EQ(p.to_parent.completions.size(), 4u);
  EXPECT_EQ(p.parent.task_credits(), kTaskCredits);
}

TEST(Session, ACancelThatOvertakesItsTaskHolds) {
  Pair p;
  p.start();
  p.send_task();
  p.send_task();
  p.parent.cancel(2, 2).value();
  p.carry_to_runner(kHealth);
  p.carry_all();
  EXPECT_EQ(p.serve(), 1);
  p.carry_all();
  ASSERT_EQ(p.to_parent.completions.size(), 2u);
  EXPECT_EQ(p.to_parent.completions[0].first, 2u);
  EXPECT_EQ(p.to_parent.completions[0].second.outcome, wire::Outcome::kSkipped);
}

TEST(Session, CancelOfWhatIsAnsweredOrWasNeverSentSaysNothing) {
  Pair p;
  p.start();
  p.send_task();
  p.carry_all();
  p.serve();
  p.carry_all();
  p.parent.cancel(1, 9).value();
  EXPECT_TRUE(p.parent.output(kHealth).empty());
}

TEST(Session, AbortEndsBothSidesWithItsCause) {
  Pair p;
  p.start();
  p.send_task();
  p.carry_all();
  p.take();
  p.parent.abort(Error(Code::kCancelled, Scope::kSession, "the grace is over"), p.now);
  p.carry_all();
  EXPECT_EQ(p.to_parent.ends, 1);
  ASSERT_EQ(p.to_parent.ended.in_flight.size(), 1u);
  EXPECT_TRUE(p.to_parent.ended.in_flight[0].may_have_run);
  EXPECT_NE(p.to_runner.cause().find("the grace is over"), std::string::npos);
  EXPECT_FALSE(p.runner.completion({}).ok());
  EXPECT_FALSE(p.take());
}

TEST(Session, WhatNeverLeftThisProcessHasNotRun) {
  Pair p;
  p.start();
  p.send_task();
  p.carry_all();
  p.send_task();
  const size_t bytes = p.parent.output(kCommand).size();
  p.send_task();
  // The driver has written the second one, and a byte of the third.
  auto& out = p.parent.output(kCommand);
  out.erase(out.begin(), out.begin() + static_cast<ptrdiff_t>(bytes));
  p.parent.on_lane_closed(kCommand, std::nullopt, p.now);
  ASSERT_EQ(p.to_parent.ended.in_flight.size(), 3u);
  EXPECT_TRUE(p.to_parent.ended.in_flight[0].may_have_run);
  EXPECT_TRUE(p.to_parent.ended.in_flight[1].may_have_run);
  EXPECT_FALSE(p.to_parent.ended.in_flight[2].may_have_run);
}

// ---------------------------------------------------------------- beats, verdicts, the fence

TEST(Session, LivesAsLongAsBothBeat) {
  Pair p;
  p.start();
  p.send_task();
  p.carry_all();
  p.take();
  p.run_for(Duration::from_s(3600));  // a task has no deadline for its length
  EXPECT_FALSE(p.parent.ended());
  EXPECT_FALSE(p.runner.ended());
  EXPECT_EQ(p.parent.executing(), 1u);
}

TEST(Session, TheParentGivesUpASilentRunnerAfterFiveSeconds) {
  Pair p;
  p.start();
  p.send_task();
  p.carry_all();
  const Instant began = p.now;
  while (!p.parent.ended()) {
    p.now = p.parent.next_deadline();
    p.parent.on_deadline(p.now);
  }
  EXPECT_EQ((p.now - began).ns, Duration::from_s(5).ns);
  EXPECT_EQ(p.to_parent.ended.cause->code(), Code::kEndpointFailed);
  EXPECT_NE(p.to_parent.cause().find("no beat for 5 s"), std::string::npos) << p.to_parent.cause();
  EXPECT_EQ(p.parent.next_deadline(), Instant::never());
}

TEST(Session, TheRunnerEndsAfterThirtySecondsOfASilentParent) {
  Pair p;
  p.start();
  const Instant began = p.now;
  while (!p.runner.ended()) {
    p.now = p.runner.next_deadline();
    p.runner.on_deadline(p.now);
  }
  EXPECT_EQ((p.now - began).ns, Duration::from_s(30).ns);
  EXPECT_NE(p.to_runner.cause().find("no beat of the parent for 30 s"), std::string::npos);
}

TEST(Session, AParentThatSleptGivesNoVerdict) {
  Pair p;
  p.start();
  p.run_for(Duration::from_s(2));
  // The parent is stopped for a minute; the runner beats on.
  const Instant until = p.now + Duration::from_s(20);
  while (p.now < until) {
    p.now = p.runner.next_deadline();
    p.runner.on_deadline(p.now);
  }
  p.parent.on_deadline(p.now);  // its timers are due before it has read
  EXPECT_FALSE(p.parent.ended()) << p.to_parent.cause();
  p.run_for(Duration::from_s(10));
  EXPECT_FALSE(p.parent.ended()) << p.to_parent.cause();
}

TEST(Session, ARunnerHoldsAfterThreeSecondsWithoutAnEchoAndGoesOnWithOne) {
  Pair p;
  p.start();
  EXPECT_FALSE(p.runner.holding(p.now));
  p.run_for(Duration::from_s(1));
  // Nothing from the parent any more on the health lane; its TASKs still come.
  const Instant last = p.now;
  Instant held{};
  while (p.now < last + Duration::from_ms(3500)) {
    p.now = p.now + Duration::from_ms(50);
    p.parent.on_deadline(p.now);
    p.runner.on_deadline(p.now);
    p.carry_to_parent(kHealth);
    if (p.runner.holding(p.now) && held == Instant{}) held = p.now;
  }
  EXPECT_LE(held - last, Duration::from_ms(3050));
  EXPECT_GE(held - last, Duration::from_ms(2500));
  p.send_task();
  p.carry_to_runner(kCommand);
  EXPECT_FALSE(p.take());
  const int woken = p.to_runner.work[kCommand];
  p.carry_all();
  EXPECT_FALSE(p.runner.holding(p.now));
  EXPECT_GT(p.to_runner.work[kCommand], woken);
  EXPECT_TRUE(p.take());
}

TEST(Session, ABeatThatEchoesNothingNewDoesNotOpenTheFence) {
  Pair p;
  p.start();
  // One-way partition: the parent's beats come, the runner's do not get out.
  const Instant until = p.now + Duration::from_s(4);
  while (p.now < until) {
    p.now = p.now + Duration::from_ms(50);
    p.parent.on_deadline(p.now);
    p.runner.on_deadline(p.now);
    p.carry_to_runner(kHealth);
    p.runner.output(kHealth).clear();
  }
  EXPECT_TRUE(p.runner.holding(p.now));
  EXPECT_FALSE(p.runner.ended());
}

TEST(Session, ARunnerStartsNothingBeforeItsFirstEcho) {
  Pair p;
  for (const Lane lane : kLanes) {
    p.parent.on_lane_up(lane, p.now);
    p.runner.on_lane_up(lane, p.now);
  }
  EXPECT_TRUE(p.runner.holding(p.now));
  p.carry_all();  // one round trip, at once
  EXPECT_FALSE(p.runner.holding(p.now));
}

TEST(Session, NotReadyInThirtySecondsIsTheEnd) {
  Pair p;
  p.lanes_up();
  p.run_for(Duration::from_s(29));
  EXPECT_FALSE(p.parent.ended());
  p.run_for(Duration::from_s(2));
  EXPECT_TRUE(p.parent.ended());
  EXPECT_EQ(p.to_parent.ended.cause->code(), Code::kDeadline);
  EXPECT_NE(p.to_parent.cause().find("it builds its Worker"), std::string::npos);
  Pair q;
  q.runner.on_lane_up(kCommand, q.now);
  const Instant began = q.now;
  while (!q.runner.ended()) {
    q.now = q.runner.next_deadline();
    q.runner.on_deadline(q.now);
  }
  EXPECT_EQ((q.now - began).ns, Duration::from_s(30).ns);
}

// ---------------------------------------------------------------- deadlines of controls

TEST(Session, AControlWithoutAnswerEndsTheSessionAtItsDeadline) {
  Pair p;
  p.start();
  p.send_control(ControlCommand::kCommitRegister);
  p.carry_all();
  p.take();
  p.run_for(Duration::from_ms(29'900));
  EXPECT_FALSE(p.parent.ended());
  p.run_for(Duration::from_ms(200));
  ASSERT_TRUE(p.parent.ended());
  EXPECT_EQ(p.to_parent.ended.cause->code(), Code::kDeadline);
  EXPECT_NE(p.to_parent.cause().find("COMMAND lane: COMMIT_REGISTER 1"), std::string::npos)
      << p.to_parent.cause();
  // No late reply is matched to anything.
  EXPECT_FALSE(p.runner.reply(kCommand, {}).ok());
  EXPECT_TRUE(p.to_parent.replies.empty());
}

TEST(Session, TheTaskBeforeAControlIsNotItsLaneTime) {
  Pair p;
  p.start();
  p.send_task();
  p.send_control(ControlCommand::kPrepareRegister);
  p.carry_all();
  p.take();
  p.run_for(Duration::from_s(500));
  EXPECT_FALSE(p.parent.ended()) << p.to_parent.cause();
  p.runner.completion({}).value();
  p.carry_all();
  p.run_for(Duration::from_s(29));
  EXPECT_FALSE(p.parent.ended());
  p.run_for(Duration::from_s(2));
  EXPECT_TRUE(p.parent.ended());
}

TEST(Session, LaneTimeBeginsWhenHealthTellsThatTheTaskIsPassed) {
  Pair p;
  p.start();
  p.send_task();
  p.send_control(ControlCommand::kPrepareRegister);
  p.carry_all();
  p.take();
  p.runner.completion({}).value();
  p.runner.output(kCommand).clear();  // the completion never arrives
  p.take();
  const Instant until = p.now + Duration::from_ms(30'800);
  while (p.now < until && !p.parent.ended()) {
    p.now = std::min(p.parent.next_deadline(), p.runner.next_deadline());
    p.step();
  }
  ASSERT_TRUE(p.parent.ended());
  EXPECT_EQ(p.to_parent.ended.cause->code(), Code::kDeadline);
  EXPECT_EQ(p.to_parent.ended.in_flight.size(), 2u);
}

TEST(Session, AControlBehindAnotherHasItsOwnThirtySeconds) {
  Pair p;
  p.start();
  p.send_control(ControlCommand::kPrepareRegister);
  p.send_control(ControlCommand::kCommitRegister);
  p.carry_all();
  p.take();
  p.run_for(Duration::from_s(20));
  p.reply(kCommand, ControlCommand::kPrepareRegister);
  p.take();
  p.carry_all();
  p.run_for(Duration::from_s(20));
  EXPECT_FALSE(p.parent.ended()) << p.to_parent.cause();
  p.reply(kCommand, ControlCommand::kCommitRegister);
  p.carry_all();
  EXPECT_EQ(p.to_parent.replies.size(), 2u);
}

TEST(Session, DataControlsHaveDeadlinesToo) {
  Pair p;
  p.start();
  p.send_task();
  p.send_control(ControlCommand::kFreeBuffer);
  p.carry_all();
  p.take();
  p.run_for(Duration::from_ms(30'300));
  ASSERT_TRUE(p.parent.ended());
  EXPECT_NE(p.to_parent.cause().find("DATA lane: FREE_BUFFER 1"), std::string::npos);
}

// ---------------------------------------------------------------- drain and lines

TEST(Session, DrainsWhatWasSentAndEndsInOrder) {
  Pair p;
  p.start();
  p.send_task();
  p.send_control(ControlCommand::kAllocBuffer);
  p.parent.drain(Duration::from_s(60), p.now).value();
  EXPECT_TRUE(p.parent.draining());
  EXPECT_FALSE(p.parent.task({}, p.now).ok());
  EXPECT_FALSE(p.parent.drain({}, p.now).ok());
  p.carry_all();
  EXPECT_EQ(p.serve(), 1);
  p.carry_all();
  p.serve();
  EXPECT_EQ(p.to_runner.ends, 1);
  EXPECT_EQ(p.to_runner.cause(), "none");
  p.carry_all();
  p.parent.on_lane_closed(kHealth, std::nullopt, p.now);
  EXPECT_FALSE(p.parent.ended());
  p.parent.on_lane_closed(kData, Error(Code::kSystem, Scope::kSession, "reset"), p.now);
  p.parent.on_lane_closed(kCommand, std::nullopt, p.now);
  EXPECT_EQ(p.to_parent.ends, 1);
  EXPECT_EQ(p.to_parent.cause(), "none");
  EXPECT_EQ(p.to_parent.completions.size(), 1u);
  EXPECT_EQ(p.to_parent.replies.size(), 1u);
}

TEST(Session, ADrainThatTakesTooLongEndsWithTheDeadline) {
  Pair p;
  p.start();
  p.send_task();
  p.carry_all();
  p.take();
  p.parent.drain(Duration::from_s(10), p.now).value();
  p.run_for(Duration::from_s(11));
  ASSERT_TRUE(p.parent.ended());
  EXPECT_EQ(p.to_parent.ended.cause->code(), Code::kDeadline);
  EXPECT_EQ(p.to_runner.ends, 1);  // ABORT went out
}

TEST(Session, LinesComeHomeWithTheirOwnCreditAndWhatWasDroppedIsCounted) {
  RunnerOptions ro = runner_options();
  ro.log_lines = 8;
  Pair p(parent_options(), ro);
  p.start();
  for (int i = 0; i < 11; ++i) p.runner.log(line("line"));
  EXPECT_EQ(p.runner.lines_dropped(), 3u);
  p.carry_all();
  EXPECT_EQ(p.to_parent.logs.size(), 8u);
  p.run_for(Duration::from_s(1));
  ASSERT_EQ(p.to_parent.logs.size(), 9u);  // that some were dropped is told
  EXPECT_EQ(p.to_parent.logs.back().dropped, 3u);
  p.runner.log(line("\xff ok"));
  p.carry_all();
  EXPECT_EQ(p.to_parent.logs.back().text, "? ok");
  EXPECT_EQ(p.to_parent.logs.back().dropped, 0u);
}

TEST(Session, SetLogChangesWhatIsSentHome) {
  Pair p;
  p.start();
  p.runner.log(line("unwanted", wire::LogLevel::kDebug));
  p.parent.set_log(wire::LogLevel::kDebug).value();
  p.carry_all();
  EXPECT_EQ(p.to_runner.level, wire::LogLevel::kDebug);
  p.runner.log(line("wanted", wire::LogLevel::kDebug));
  p.carry_all();
  ASSERT_EQ(p.to_parent.logs.size(), 1u);
  EXPECT_EQ(p.to_parent.logs[0].text, "wanted");
}

TEST(Session, AHealthLaneThatIsNotReadGrowsNoFurtherThanItsBound) {
  Pair p;
  p.start();
  p.send_task();
  for (int i = 0; i < 4000 && p.parent.cancel(1, 1).ok(); ++i) {
  }
  EXPECT_EQ(p.parent.cancel(1, 1).error().code(), Code::kResourceExhausted);
  EXPECT_EQ(p.parent.set_log(wire::LogLevel::kInfo).error().code(), Code::kResourceExhausted);
  for (int i = 0; i < 3000; ++i) p.runner.log(line(std::string(100, 'x')));
  EXPECT_LE(p.runner.output(kHealth).size(), kHealthOutputMax + 300);
  const size_t before = p.parent.output(kHealth).size();
  for (int i = 0; i < 10; ++i) {
    p.now = p.now + Duration::from_ms(250);
    p.parent.on_deadline(p.now);
  }
  EXPECT_EQ(p.parent.output(kHealth).size(), before);
}

}  // namespace
}  // namespace strata::session::testing
