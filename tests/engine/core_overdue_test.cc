// Core and what does not end by itself: tasks past their deadline, cancelled runs past their grace.
#include "core_rig.h"

namespace strata::engine {
namespace {

base::Duration ms(int64_t n) {
  return base::Duration::from_ms(n);
}

// A Worker whose time moves to what the Core asks for, or by as much as the test says.
class Overdue : public ::testing::Test {
 protected:
  void build(uint32_t workers) { rig.emplace(workers); }
  Core& core() { return rig->core; }
  FakeEndpoint& fake(uint32_t worker = 0) { return rig->fake(worker); }
  TaskRef submit(RunRecord& run, uint32_t deadline_ms,
                 std::initializer_list<TensorArg> tensors = {}) {
    TaskArgs args;
    for (const TensorArg& arg : tensors) args.add_tensor(arg.tensor, arg.tag);
    EXPECT_EQ(rig->try_submit(run, args, {.deadline_ms = deadline_ms}), Core::Submitted::kDone);
    return rig->ref;
  }
  void pass(int64_t n) {
    rig->now = rig->now + ms(n);
    rig->step();
  }
  // As the kernel tells it.
  void lose(uint32_t worker) {
    core().lose_worker(worker, "killed by signal 9 (Killed)");
    rig->step();
  }
  std::optional<CoreRig> rig;
};

TEST_F(Overdue, NoTaskWithADeadlineWantsNoTime) {
  build(1);
  const auto run = core().open_run();
  rig->submit(*run);
  rig->step();
  EXPECT_FALSE(core().wants_time());
  EXPECT_EQ(core().next_deadline(), base::Instant::never());
}

TEST_F(Overdue, ADeadlineCountsFromTheStartOfTheTaskAndNotFromItsSubmission) {
  build(1);
  const auto run = core().open_run();
  submit(*run, 50);
  rig->step();
  EXPECT_TRUE(core().wants_time());
  EXPECT_EQ(core().next_deadline(), base::Instant{});  // a look is due, with the time
  rig->step();
  EXPECT_EQ(core().next_deadline(), rig->now + ms(50));
  for (int i = 0; i < 10; ++i) pass(50);  // it has not started
  EXPECT_EQ(fake().cancelled_through, 0u);
  pass(20);
  const base::Instant began = rig->now;
  fake().start_at(began);
  pass(40);
  EXPECT_EQ(fake().cancelled_through, 0u);
  pass(10);
  EXPECT_EQ(fake().cancelled_through, fake().queue.front().ticket);
  EXPECT_EQ(core().next_deadline(), began + ms(50 + 1000));
  EXPECT_FALSE(core().has_chores());
  pass(999);
  EXPECT_FALSE(core().has_chores());
  pass(1);
  EXPECT_NE(rig->kill_reason().find("its deadline of 50 ms has passed"), std::string::npos);
}

TEST_F(Overdue, TheFailureNamesTaskCallableWorkerPidAndHowLongItRan) {
  build(1);
  const auto run = core().open_run();
  submit(*run, 50);
  rig->step();
  rig->step();
  fake().start_at(rig->now);
  pass(50);
  pass(1000);
  EXPECT_TRUE(core().has_chores());
  EXPECT_EQ(core().next_deadline(), base::Instant::never());
  lose(0);
  ASSERT_TRUE(run->errors.contains(0));
  const Error& error = run->errors.at(0);
  EXPECT_EQ(error.code(), Code::kDeadline);
  EXPECT_EQ(error.where(), "L3/0 pid 100, task 0 'gemm'");
  EXPECT_NE(error.message().find("50 ms"), std::string::npos) << error.message();
  EXPECT_NE(error.message().find("ran for 1050 ms"), std::string::npos) << error.message();
  EXPECT_EQ(run->tasks[0], TaskState::kTaskFailed);
  EXPECT_EQ(run->kills, 1u);
  EXPECT_FALSE(core().wants_time());
}

TEST_F(Overdue, WhatStandsBehindItGoesBackAndToAnotherWorkerAlone) {
  build(2);
  const Core::NewBuffer a = rig->buffer();
  const auto run = core().open_run();
  submit(*run, 50, {{tensor_of(a), OUTPUT}});
  for (int i = 0; i < 6; ++i) submit(*run, 0);
  rig->step();
  rig->step();
  const uint32_t slow = fake(0).queue.front().post.deadline_ms != 0 ? 0 : 1;
  FakeEndpoint& other = fake(1 - slow);
  fake(slow).start_at(rig->now);
  const size_t behind = fake(slow).queue.size() - 1;
  ASSERT_GT(behind, 0u);
  pass(50);
  pass(1000);
  EXPECT_EQ(fake(slow).queue.size(), 1u);
  EXPECT_EQ(other.queue.size(), 6u);
  submit(*run, 0);  // the condemned one is given nothing more
  rig->step();
  EXPECT_EQ(fake(slow).queue.size(), 1u);
  EXPECT_EQ(other.queue.size(), 7u);
  lose(slow);
  rig->drain();
  EXPECT_EQ(run->progress.succeeded, 7u);
  EXPECT_EQ(run->progress.failed, 1u);
}

TEST_F(Overdue, WithoutAnotherWorkerWhatStandsBehindItWaitsForItsEnd) {
  build(1);
  core().expect_no_more_workers();
  const auto run = core().open_run();
  submit(*run, 50);
  submit(*run, 0);
  rig->step();
  rig->step();
  fake().start_at(rig->now);
  pass(50);
  pass(1000);
  EXPECT_EQ(run->progress.terminal(), 0u);
  lose(0);
  EXPECT_EQ(run->errors.at(0).code(), Code::kDeadline);
  EXPECT_EQ(run->errors.at(1).code(), Code::kNoWorker);
}

TEST_F(Overdue, ATaskThatEndsInItsGraceFailsWithoutAnEndOfItsWorker) {
  build(1);
  const auto run = core().open_run();
  submit(*run, 50);
  rig->step();
  rig->step();
  const base::Instant began = rig->now;
  fake().start_at(began);
  pass(60);
  fake().end_late(began, rig->now, "it was told to stop");
  pass(1);
  EXPECT_EQ(rig->kill_reason(), "0 kills");
  const Error& error = run->errors.at(0);
  EXPECT_EQ(error.code(), Code::kDeadline);
  EXPECT_NE(error.message().find("ended after 60 ms: it was told to stop"), std::string::npos)
      << error.message();
  EXPECT_FALSE(core().wants_time());
}

TEST_F(Overdue, ACompletionThatIsThereAlreadySavesItsWorker) {
  build(1);
  const auto run = core().open_run();
  submit(*run, 50);
  rig->step();
  rig->step();
  fake().start_at(rig->now);
  pass(50);
  rig->now = rig->now + ms(2000);
  fake().end();
  rig->core.step(rig->now, true);
  EXPECT_EQ(rig->kill_reason(), "0 kills");
  EXPECT_EQ(run->tasks[0], TaskState::kOk);
}

// The step in which it is seen may have read its clock before the start.
TEST_F(Overdue, AStartThatIsNotToldCountsFromTheStepAfterItWasSeen) {
  build(1);
  const auto run = core().open_run();
  submit(*run, 50);
  rig->step();
  rig->step();
  fake().start();
  pass(50);
  EXPECT_EQ(core().next_deadline(), rig->now) << "to be looked at again at once";
  pass(3);
  EXPECT_EQ(core().next_deadline(), rig->now + ms(50));
  pass(50);
  EXPECT_NE(fake().cancelled_through, 0u);
  pass(1000);
  EXPECT_TRUE(core().has_chores());
}

TEST_F(Overdue, AStartInTheFutureCountsAsNow) {
  build(1);
  const auto run = core().open_run();
  submit(*run, 50);
  rig->step();
  rig->step();
  fake().start_at(rig->now + ms(1'000'000));
  pass(50);
  EXPECT_LE(core().next_deadline(), rig->now + ms(50));
}

TEST_F(Overdue, EachTaskOfAQueueHasItsOwnDeadline) {
  build(1);
  const auto run = core().open_run();
  submit(*run, 5000);
  submit(*run, 20);
  rig->step();
  rig->step();
  fake().start_at(rig->now);
  pass(1000);
  EXPECT_EQ(fake().cancelled_through, 0u);
  fake().end();
  rig->step();
  fake().start_at(rig->now);
  pass(20);
  EXPECT_EQ(fake().cancelled_through, 2u);
  fake().end();
  rig->step();
  EXPECT_FALSE(core().wants_time());
  EXPECT_TRUE(core().idle());
}

TEST_F(Overdue, AMemberPastItsDeadlineFailsItsGroup) {
  build(2);
  const auto run = core().open_run();
  const std::vector<TaskArgs> members(2);
  EXPECT_EQ(core().submit_group(*run, {rig->gemm, Where{}, {.deadline_ms = 50}}, members, {},
                                &rig->ref, &rig->error),
            Core::Submitted::kDone);
  rig->step();
  rig->step();
  fake(0).start_at(rig->now);
  fake(1).start_at(rig->now);
  fake(1).end();
  pass(50);
  pass(1000);
  lose(0);
  EXPECT_EQ(run->progress.failed, 1u);
  EXPECT_EQ(run->errors.at(0).code(), Code::kDeadline);
  EXPECT_NE(run->errors.at(0).where().find("member "), std::string::npos);
}

// ---------------------------------------------------------------- cancel with a grace

TEST_F(Overdue, ACancelledRunEndsTheWorkersThatStillRunItsTasksAfterTheGrace) {
  build(3);
  const auto run = core().open_run();
  for (int i = 0; i < 3; ++i) submit(*run, 0);
  rig->step();
  for (uint32_t i = 0; i < 3; ++i) fake(i).start_at(rig->now);
  core().cancel_run(*run, rig->now + ms(200));
  rig->step();
  EXPECT_EQ(core().next_deadline(), rig->now + ms(200));
  fake(1).end();
  pass(199);
  EXPECT_FALSE(core().has_chores());
  pass(1);
  const std::vector<Kill> kills = core().take_kills();
  ASSERT_EQ(kills.size(), 2u);
  EXPECT_NE(kills[0].reason.find("was cancelled"), std::string::npos);
  core().seal_run(*run, std::nullopt);
  lose(0);
  lose(2);
  ASSERT_TRUE(run->done);
  const std::optional<Error> error = run->outcome();
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), Code::kCancelled);
  EXPECT_NE(error->message().find("L3/0 pid 100, task"), std::string::npos) << error->message();
  EXPECT_NE(error->message().find("L3/2 pid 102, task"), std::string::npos) << error->message();
  EXPECT_EQ(error->message().find("L3/1"), std::string::npos) << error->message();
  EXPECT_FALSE(core().wants_time());
  EXPECT_TRUE(core().idle());
}

TEST_F(Overdue, ACancelWithoutAGraceEndsNobody) {
  build(1);
  const auto run = core().open_run();
  submit(*run, 0);
  rig->step();
  fake().start_at(rig->now);
  core().cancel_run(*run);
  pass(1'000'000);
  EXPECT_FALSE(core().wants_time());
  EXPECT_EQ(rig->kill_reason(), "0 kills");
}

TEST_F(Overdue, ALaterCancelShortensTheGraceAndNeverLengthensIt) {
  build(1);
  const auto run = core().open_run();
  submit(*run, 0);
  rig->step();
  fake().start_at(rig->now);
  core().cancel_run(*run);
  core().cancel_run(*run, rig->now + ms(500));
  core().cancel_run(*run, rig->now + ms(10));
  core().cancel_run(*run, rig->now + ms(900));
  core().cancel_run(*run);
  EXPECT_EQ(core().next_deadline(), rig->now + ms(10));
  pass(10);
  EXPECT_TRUE(core().has_chores());
}

TEST_F(Overdue, ARunThatEndsInItsGraceLeavesNoTimer) {
  build(1);
  const auto run = core().open_run();
  submit(*run, 0);
  rig->step();
  fake().start_at(rig->now);
  core().cancel_run(*run, rig->now + ms(500));
  core().seal_run(*run, std::nullopt);
  fake().end();
  rig->step();
  EXPECT_TRUE(run->done);
  EXPECT_FALSE(core().wants_time());
  const auto next = core().open_run();
  submit(*next, 0);
  rig->step();
  pass(1000);
  EXPECT_EQ(rig->kill_reason(), "0 kills");
}

TEST_F(Overdue, TheFirstFailureOfACancelledRunIsToldBesideWhoWasKilled) {
  build(2);
  const auto run = core().open_run();
  submit(*run, 0);
  submit(*run, 0);
  rig->step();
  const uint32_t first = fake(0).queue.front().ticket == 1 && fake(0).queue.size() == 1 ? 0 : 1;
  fake(0).start_at(rig->now);
  fake(1).start_at(rig->now);
  fake(first).fail("the matrix is singular");
  rig->step();
  core().cancel_run(*run, rig->now);
  rig->step();
  core().seal_run(*run, std::nullopt);
  lose(1 - first);
  const std::optional<Error> error = run->outcome();
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), Code::kCancelled);
}

}  // namespace
}  // namespace strata::engine
