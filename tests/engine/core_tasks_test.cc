// Core and its tasks: outcomes, texts, poison, results, cancel, back-pressure.
#include "core_rig.h"

namespace strata::engine {
namespace {

// ---------------------------------------------------------------- outcomes and texts

TEST(CoreTasks, ARunIsDoneWhenItIsBuiltAndEveryTaskIsTerminal) {
  CoreRig rig(1);
  const auto run = rig.core.open_run();
  rig.submit(*run);
  rig.submit(*run);
  rig.drain();
  EXPECT_EQ(run->progress.succeeded, 2u);
  EXPECT_FALSE(run->done);
  EXPECT_FALSE(rig.core.can_drain());
  rig.core.seal_run(*run, std::nullopt);
  EXPECT_TRUE(run->done);
  EXPECT_FALSE(run->outcome());
  EXPECT_TRUE(rig.core.can_drain());
  EXPECT_TRUE(rig.core.take_notable());
  EXPECT_FALSE(rig.core.take_notable());
}

TEST(CoreTasks, AFailureNamesPathWorkerTaskAndCallable) {
  CoreRig rig(1);
  const auto run = rig.core.open_run();
  rig.submit(*run);
  const TaskRef task = rig.submit(*run);
  rig.step();
  rig.fake().end();
  rig.fake().fail("the matrix is singular");
  rig.step();
  const Error& error = run->errors.at(static_cast<uint32_t>(task.task));
  EXPECT_EQ(error.code(), Code::kTaskFailed);
  EXPECT_EQ(error.scope(), Scope::kTask);
  EXPECT_EQ(error.message(), "the matrix is singular");
  EXPECT_EQ(error.where(), "L3/0 pid 100, task 1 'gemm'");
  EXPECT_EQ(run->tasks[1], TaskState::kTaskFailed);
}

TEST(CoreTasks, AFailureWithoutATextTellsTheNumberThatWasReturned) {
  CoreRig rig(1);
  const auto run = rig.core.open_run();
  rig.submit(*run);
  rig.step();
  rig.fake().fail("", -3);
  rig.step();
  EXPECT_EQ(run->errors.at(0).message(), "it returned -3");
}

TEST(CoreTasks, ASkippedTaskNamesItselfAndTheFailureThatCausedIt) {
  CoreRig rig(1);
  const Core::NewBuffer a = rig.buffer();
  const auto run = rig.core.open_run();
  rig.submit(*run, {{tensor_of(a), OUTPUT}});
  rig.submit(*run, {{tensor_of(a), INPUT}});
  rig.step();
  rig.fake().fail("the disk is full");
  rig.step();
  const Error& error = run->errors.at(1);
  EXPECT_EQ(error.code(), Code::kSkipped);
  EXPECT_EQ(error.where(), "L3");
  EXPECT_NE(error.message().find("task 1 'gemm' was skipped"), std::string::npos);
  EXPECT_NE(error.message().find("task 0 'gemm'"), std::string::npos);
  EXPECT_NE(error.message().find("the disk is full"), std::string::npos);
  EXPECT_EQ(run->tasks[1], TaskState::kSkipped);
}

TEST(CoreTasks, TheRunHasTheErrorOfItsOldestFailureAndCountsTheRest) {
  CoreRig rig(3);
  const Core::NewBuffer a = rig.buffer();
  const auto run = rig.core.open_run();
  for (int i = 0; i < 3; ++i) rig.submit(*run, {{tensor_of(a, i, 1), OUTPUT}});
  rig.submit(*run, {{tensor_of(a, 1, 1), INPUT}});
  rig.step();
  for (const uint32_t number : {2u, 1u, 0u}) {  // the oldest fails last
    for (FakeEndpoint* fake : rig.fakes) {
      if (fake->queue.empty()) continue;
      const auto slot = static_cast<uint32_t>(fake->queue.front().post.task);
      if (rig.core.scheduler().slot(slot).run_task != number) continue;
      fake->fail("failure of " + std::to_string(number));
    }
    rig.step();
  }
  rig.drain();
  rig.core.seal_run(*run, std::nullopt);
  ASSERT_TRUE(run->done);
  EXPECT_EQ(run->outcome()->message(), "failure of 0");
  EXPECT_EQ(run->failures, 4u);
}

TEST(CoreTasks, AnErrorOfTheOrchestrationFunctionComesBeforeThoseOfTasks) {
  CoreRig rig(1);
  const auto run = rig.core.open_run();
  rig.submit(*run);
  rig.step();
  rig.fake().fail("a task");
  rig.core.seal_run(*run, Error(Code::kUserCode, Scope::kCall, "the function"));
  rig.step();
  ASSERT_TRUE(run->done);
  EXPECT_EQ(run->outcome()->message(), "the function");
}

TEST(CoreTasks, PoisonReachesTasksOfLaterRunsUntilTheBufferIsWritten) {
  CoreRig rig(1);
  const Core::NewBuffer a = rig.buffer();
  const auto first = rig.core.open_run();
  rig.submit(*first, {{tensor_of(a), OUTPUT}});
  rig.core.seal_run(*first, std::nullopt);
  rig.step();
  rig.fake().fail("broken");
  rig.step();
  const auto second = rig.core.open_run();
  rig.submit(*second, {{tensor_of(a), INPUT}});
  rig.submit(*second, {{tensor_of(a), OUTPUT}});
  rig.submit(*second, {{tensor_of(a), INPUT}});
  rig.core.seal_run(*second, std::nullopt);
  rig.drain();
  ASSERT_TRUE(second->done);
  EXPECT_EQ(second->tasks, (std::vector{TaskState::kSkipped, TaskState::kOk, TaskState::kOk}));
  EXPECT_NE(second->outcome()->message().find("broken"), std::string::npos);
}

TEST(CoreTasks, TwoFailuresOfOneStepKeepTheirOwnTextsWhenTheTableOfCausesIsFull) {
  CoreRig rig(2);
  const auto run = rig.core.open_run();
  rig.submit(*run);  // alone, so that the table becomes full between the two of a step
  rig.step();
  for (FakeEndpoint* fake : rig.fakes) {
    if (!fake->queue.empty()) fake->fail("the first");
  }
  rig.step();
  for (uint32_t i = 1; i < CauseTable::kCausesMax + 100; i += 2) {
    const TaskRef first = rig.submit(*run);
    const TaskRef second = rig.submit(*run);
    rig.step();
    std::vector<std::string> texts(2);
    for (FakeEndpoint* fake : rig.fakes) {
      ASSERT_EQ(fake->queue.size(), 1u);
      const auto slot = static_cast<uint32_t>(fake->queue.front().post.task);
      const uint32_t number = rig.core.scheduler().slot(slot).run_task;
      texts[number - static_cast<uint32_t>(first.task)] = "failure of " + std::to_string(number);
      fake->fail("failure of " + std::to_string(number));
    }
    run->errors.clear();  // at most 256 are kept
    rig.step();
    ASSERT_EQ(run->errors.at(static_cast<uint32_t>(first.task)).message(), texts[0]);
    ASSERT_EQ(run->errors.at(static_cast<uint32_t>(second.task)).message(), texts[1]);
  }
}

TEST(CoreTasks, DependenciesOfTheRunAreCounted) {
  CoreRig rig(1);
  const Core::NewBuffer a = rig.buffer();
  const auto run = rig.core.open_run();
  rig.submit(*run, {{tensor_of(a), OUTPUT}});
  rig.submit(*run, {{tensor_of(a), INPUT}});
  rig.submit(*run, {{tensor_of(a), INPUT}});
  EXPECT_EQ(run->dependencies, 2u);
  EXPECT_EQ(run->cover_dependencies, 0u);
}

// ---------------------------------------------------------------- results

TEST(CoreTasks, TheResultOfATaskIsKeptWithItsRun) {
  CoreRig rig(1);
  const auto run = rig.core.open_run();
  const TaskRef first = rig.submit(*run);
  const TaskRef second = rig.submit(*run);
  rig.step();
  rig.fake().end("forty-two");
  rig.fake().end();
  rig.step();
  rig.core.seal_run(*run, std::nullopt);
  ASSERT_TRUE(run->done);
  const std::vector<std::byte>& bytes = run->results.at({static_cast<uint32_t>(first.task), 0});
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()), "forty-two");
  EXPECT_FALSE(run->results.contains({static_cast<uint32_t>(second.task), 0}));
}

// ---------------------------------------------------------------- cancel

TEST(CoreTasks, CancelRevokesWhatHasNotStartedAndTellsTheRest) {
  CoreRig rig(1);
  const auto run = rig.core.open_run();
  for (int i = 0; i < 4; ++i) rig.submit(*run);
  rig.step();
  rig.fake().start(2);
  const uint64_t last_started = rig.fake().queue[1].ticket;
  rig.core.cancel_run(*run);
  EXPECT_EQ(rig.fake().queue.size(), 2u);
  EXPECT_EQ(rig.fake().cancelled_through, last_started);
  EXPECT_EQ(run->progress.skipped, 2u);
  rig.core.seal_run(*run, std::nullopt);
  EXPECT_FALSE(run->done);
  rig.drain();
  ASSERT_TRUE(run->done);
  EXPECT_EQ(run->progress.succeeded, 2u);
  EXPECT_EQ(run->outcome()->code(), Code::kCancelled);
  EXPECT_EQ(run->outcome()->message(), "run 1 was cancelled");
  rig.core.cancel_run(*run);
}

TEST(CoreTasks, WhatIsSubmittedToACancelledRunIsSkipped) {
  CoreRig rig(1);
  const auto run = rig.core.open_run();
  rig.core.cancel_run(*run);
  rig.submit(*run);
  rig.step();
  EXPECT_EQ(run->progress.skipped, 1u);
  EXPECT_EQ(run->errors.at(0).code(), Code::kCancelled);
}

TEST(CoreTasks, ACancelledTaskThatFailsIsTheErrorOfTheRun) {
  CoreRig rig(1);
  const auto run = rig.core.open_run();
  rig.submit(*run);
  rig.submit(*run);
  rig.step();
  rig.fake().start();
  rig.core.cancel_run(*run);
  rig.fake().fail("it saw that it was cancelled");
  rig.core.seal_run(*run, std::nullopt);
  rig.step();
  ASSERT_TRUE(run->done);
  EXPECT_EQ(run->outcome()->code(), Code::kTaskFailed);
}

TEST(CoreTasks, CancelOfOneRunLeavesTheOther) {
  CoreRig rig(1);
  const auto first = rig.core.open_run();
  rig.submit(*first);
  rig.core.seal_run(*first, std::nullopt);
  const auto second = rig.core.open_run();
  rig.submit(*second);
  rig.core.seal_run(*second, std::nullopt);
  rig.step();
  rig.core.cancel_run(*first);
  rig.drain();
  EXPECT_EQ(first->progress.skipped, 1u);
  EXPECT_EQ(second->progress.succeeded, 1u);
  EXPECT_TRUE(second->done);
}

TEST(CoreTasks, CancelAllEndsBothRuns) {
  CoreRig rig(1);
  const auto first = rig.core.open_run();
  rig.submit(*first);
  rig.core.seal_run(*first, std::nullopt);
  const auto second = rig.core.open_run();
  rig.submit(*second);
  rig.core.seal_run(*second, std::nullopt);
  rig.step();
  rig.core.cancel_all();
  rig.step();
  EXPECT_TRUE(first->done);
  EXPECT_TRUE(second->done);
  EXPECT_EQ(second->outcome()->message(), "run 2 was cancelled");
  EXPECT_TRUE(rig.core.can_drain());
}

TEST(CoreTasks, ACancelledRunKeepsItsTextHoweverMuchFailsBeforeIt) {
  CoreRig rig(1, {.slots = 8192, .buffers = 4});
  const auto first = rig.core.open_run();
  for (uint32_t i = 0; i < CauseTable::kCausesMax + 100; ++i) rig.submit(*first);
  rig.core.seal_run(*first, std::nullopt);
  const auto second = rig.core.open_run();
  rig.core.cancel_run(*second);
  while (!first->done) {
    rig.step();
    while (!rig.fake().queue.empty()) rig.fake().fail("broken");
  }
  rig.submit(*second);
  rig.core.seal_run(*second, std::nullopt);
  rig.step();
  ASSERT_TRUE(second->done);
  EXPECT_EQ(second->outcome()->message(), "run 2 was cancelled");
}

TEST(CoreTasks, AReaderOfWhatACancelledRunShouldHaveWrittenIsToldSo) {
  CoreRig rig(1);
  const Core::NewBuffer a = rig.buffer();
  const auto first = rig.core.open_run();
  rig.submit(*first, {{tensor_of(a), OUTPUT}});
  rig.core.cancel_run(*first);
  rig.core.seal_run(*first, std::nullopt);
  const auto second = rig.core.open_run();
  rig.submit(*second, {{tensor_of(a), INPUT}});
  rig.core.seal_run(*second, std::nullopt);
  rig.drain();
  ASSERT_TRUE(second->done);
  const auto error = second->outcome();
  ASSERT_TRUE(error);
  EXPECT_NE(error->message().find("run 1 was cancelled"), std::string::npos);
  EXPECT_EQ(error->code(), Code::kSkipped) << "this run was not cancelled";
}

// ---------------------------------------------------------------- submit and its bounds

TEST(CoreTasks, AFullTableOfSlotsTakesNoMoreUntilATaskEnds) {
  CoreRig rig(1, {.slots = 2, .buffers = 4});
  const auto run = rig.core.open_run();
  rig.submit(*run);
  rig.submit(*run);
  EXPECT_EQ(rig.try_submit(*run, {}), Core::Submitted::kFull);
  EXPECT_EQ(run->progress.submitted, 2u);
  rig.step();
  EXPECT_FALSE(rig.core.stuck()) << "a task runs";
  rig.fake().end();
  rig.step();
  EXPECT_EQ(rig.try_submit(*run, {}), Core::Submitted::kDone);
}

TEST(CoreTasks, ASubmitIsNotStuckWhileAWorkerIsExpectedOrAnEarlierRunGoesOn) {
  CoreRig rig(1, {.slots = 2, .buffers = 4});
  const auto first = rig.core.open_run();
  rig.submit(*first);
  rig.core.seal_run(*first, std::nullopt);
  const auto second = rig.core.open_run();
  rig.submit(*second);
  rig.step();
  EXPECT_EQ(rig.try_submit(*second, {}), Core::Submitted::kFull);
  EXPECT_FALSE(rig.core.stuck());
  rig.core.lose_worker(0, "signal 9");
  rig.step();
  EXPECT_FALSE(rig.core.stuck());
}

TEST(CoreTasks, WithoutALiveTaskASubmitWithoutRoomIsStuckAndNamesTheOption) {
  CoreRig rig(1, {.slots = 2, .buffers = 4});
  const auto error = rig.core.stuck();
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), Code::kResourceExhausted);
  EXPECT_NE(error->message().find("Limits::slots"), std::string::npos);
}

TEST(CoreTasks, ARefusedSubmitChangesNothing) {
  CoreRig rig(1);
  const Core::NewBuffer a = rig.buffer(64);
  const auto run = rig.core.open_run();
  TaskArgs outside;
  outside.add_tensor(tensor_of(a), INPUT).add_tensor(tensor_of(a, 32, 33), INPUT);
  EXPECT_EQ(rig.try_submit(*run, outside), Core::Submitted::kRefused);
  EXPECT_EQ(rig.error->code(), Code::kInvalidArgument);
  TaskArgs many;
  for (size_t i = 0; i <= TaskArgs::kTensorsMax; ++i) many.add_tensor(tensor_of(a), INPUT);
  EXPECT_EQ(rig.try_submit(*run, many), Core::Submitted::kRefused);
  Core::NewBuffer unknown = a;
  unknown.uid.high = 78;
  TaskArgs foreign;
  foreign.add_tensor(tensor_of(unknown), INPUT);
  EXPECT_EQ(rig.try_submit(*run, foreign), Core::Submitted::kRefused);
  EXPECT_EQ(rig.error->code(), Code::kNotFound);
  EXPECT_EQ(run->progress.submitted, 0u);
  EXPECT_EQ(rig.core.buffers().at(a.index).references, 0u);
  EXPECT_EQ(rig.core.registry().info(rig.gemm.index)->references, 0u);
}

}  // namespace
}  // namespace strata::engine
