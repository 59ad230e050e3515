// Children that are added to a Worker after init: at any depth, while runs are in flight, and again
// in the place of a Worker that was lost.
#include <mutex>
#include <thread>

#include "tests/runtime/chip_test_util.h"
#include "tests/runtime/nested_util.h"

namespace strata {
namespace {

using namespace test;  // NOLINT

int64_t value_of(Worker&, Result<RunHandle>& run, TaskRef task) {
  int64_t out = 0;
  const auto bytes = run->result(task).value();
  std::memcpy(&out, bytes.data(), sizeof out);
  return out;
}

TEST(Late, SubChildrenTakeTasksWithAllThatIsRegistered) {
  auto worker = started(StartMethod::kFork, 0);
  const auto pid = registered<result_pid>(*worker, "result_pid");
  EXPECT_EQ(worker->add_sub_workers(2).value(), (std::vector<int>{0, 1}));
  EXPECT_EQ(worker->add_sub_workers(1).value(), (std::vector<int>{2}));
  ASSERT_EQ(worker->sub_children().size(), 3u);
  std::set<int> pids;
  for (const Worker::Child& child : worker->sub_children()) {
    EXPECT_EQ(child.state, ChildState::kReady);
    pids.insert(child.pid);
  }
  EXPECT_EQ(pids.size(), 3u);
  TaskRef task;
  auto run =
      worker->submit([&](Orchestrator& orch) { task = orch.submit_sub(pid, TaskArgs()).value(); });
  run->wait().value();
  EXPECT_TRUE(pids.contains(static_cast<int>(value_of(*worker, run, task))));
  worker->close().value();
}

TEST(Late, AChildThatComesWhileTheOthersAreBusyTakesWhatWaits) {
  auto worker = started(StartMethod::kFork, 1);
  Gate gate(*worker);
  const auto stand = registered<stand_at_gate>(*worker, "stand");
  auto run = worker->submit([&](Orchestrator& orch) {
    for (int i = 0; i < 2; ++i) orch.submit_sub(stand, gate.args()).value();
  });
  ASSERT_TRUE(gate.await_started(1));
  EXPECT_EQ(worker->add_sub_workers(1).value(), (std::vector<int>{1}));
  // Both stand there at the same time.
  EXPECT_TRUE(gate.await_started(2));
  gate.open();
  run->wait().value();
  worker->close().value();
}

TEST(Late, AWorkerIsAddedWhereThereWasNoneAndHasWhatIsRegisteredLater) {
  auto worker = started(level(4, StartMethod::kFork, 0));
  const int id = worker->add_worker(level(3, StartMethod::kFork, 2)).value();
  EXPECT_EQ(id, 0);
  const auto scale = registered<scale_in_subs>(*worker, "scale_in_subs");
  worker->register_inner(local_function<scale_add>("scale_add")).value();
  Buffer x = worker->create_buffer(8 * sizeof(int64_t)).value();
  const auto args = TaskArgs()
                        .add_tensor(x.tensor<int64_t>({8}), INOUT)
                        .add_scalar(int64_t{1})
                        .add_scalar(int64_t{1});
  run_one(*worker, scale, args).value();
  // One more, which gets the callables by replay.
  EXPECT_EQ(worker->add_worker(level(3, StartMethod::kFork, 1)).value(), 1);
  worker
      ->run([&](Orchestrator& orch) {
        orch.submit_next_level(scale, args, {}, 0).value();
        orch.submit_next_level(scale, args, {}, 1).value();
      })
      .value();
  EXPECT_EQ(x.as<int64_t>()[0], 3);
  worker->close().value();
}

TEST(Late, ChildrenFarBelowAreAddedByThePathOfWorkerIds) {
  // L5 / one L4 / one L3 / one SUB.
  auto worker =
      started(level(5, StartMethod::kFork, 0,
                    {level(4, StartMethod::kFork, 0, {level(3, StartMethod::kFork, 1)})}));
  const auto two = registered<scale_two_below>(*worker, "scale_two_below");
  worker->register_inner(local_function<scale_in_subs>("scale_in_subs")).value();
  worker->register_inner(local_function<scale_add>("scale_add")).value();
  const size_t before = descendants().size();
  EXPECT_EQ(worker->add_sub_workers(2, {0, 0}).value(), (std::vector<int>{1, 2}));
  EXPECT_EQ(descendants().size(), before + 2);
  EXPECT_EQ(worker->add_worker(level(3, StartMethod::kFork, 1), {0}).value(), 1);
  EXPECT_EQ(worker->add_sub_workers(1, {0, 1}).value(), (std::vector<int>{1}));
  Buffer x = worker->create_buffer(8 * sizeof(int64_t)).value();
  const auto args = TaskArgs()
                        .add_tensor(x.tensor<int64_t>({8}), INOUT)
                        .add_scalar(int64_t{1})
                        .add_scalar(int64_t{1});
  for (int i = 0; i < 4; ++i) run_one(*worker, two, args).value();
  EXPECT_EQ(x.as<int64_t>()[0], 4);
  worker->close().value();
}

TEST(Late, WhatWasAddedBelowALostWorkerIsThereAgainUnderTheSameIds) {
  WorkerSpec spec = level(5, StartMethod::kFork, 0,
                          {level(4, StartMethod::kFork, 1, {level(3, StartMethod::kFork, 1)})});
  spec.restart = Restart::kOnFailure;
  auto worker = started(spec);
  // The id 2 goes to one that does not start, and so never again.
  WorkerSpec bad = level(3, StartMethod::kFork, 1);
  bad.inherit_fds = {999};
  expect_error(worker->add_worker(bad, {0}), Code::kEndpointFailed, "did not start");
  EXPECT_EQ(worker->add_worker(level(3, StartMethod::kFork, 2), {0}).value(), 3);
  EXPECT_EQ(worker->add_sub_workers(1, {0, 3}).value(), (std::vector<int>{2}));
  const auto count = [&] { return descendants(worker->next_level_children()[0].pid).size(); };
  const size_t before = count();
  ASSERT_EQ(::kill(worker->next_level_children()[0].pid, SIGKILL), 0);
  ASSERT_TRUE(await([&] {
    const Worker::Child at = worker->next_level_children()[0];
    return at.state == ChildState::kReady && at.incarnation == 2;
  }));
  EXPECT_EQ(count(), before);
  EXPECT_EQ(worker->add_sub_workers(1, {0, 3}).value(), (std::vector<int>{3}));
  worker->close().value();
}

TEST(Late, AddsOfManyThreadsGoThroughWhileRunsAreInFlight) {
  auto worker = started(StartMethod::kFork, 1);
  const auto idle = registered<nothing>(*worker, "nothing");
  std::vector<std::thread> threads;
  std::mutex mutex;
  std::set<int> ids;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 3; ++i) {
        const auto added = worker->add_sub_workers(2).value();
        const std::lock_guard lock(mutex);
        ids.insert(added.begin(), added.end());
      }
    });
  }
  for (int i = 0; i < 20; ++i) {
    worker
        ->run([&](Orchestrator& orch) {
          for (int k = 0; k < 50; ++k) orch.submit_sub(idle, TaskArgs()).value();
        })
        .value();
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ids.size(), 18u);
  EXPECT_EQ(*ids.rbegin(), 18);
  worker->close().value();
}

TEST(Late, WithinAnOrchestrationFunctionAChildComesForItsOwnTasks) {
  auto worker = started(level(4, StartMethod::kFork, 0));
  const auto scale = registered<nothing>(*worker, "nothing");
  worker
      ->run([&](Orchestrator& orch) {
        const int id = worker->add_worker(level(3, StartMethod::kFork, 0)).value();
        orch.submit_next_level(scale, TaskArgs(), {}, id).value();
      })
      .value();
  worker->close().value();
}

TEST(Late, BeforeInitAPathAddsToTheSpecFarBelow) {
  auto worker = Worker::create(level(5, StartMethod::kFork, 0)).value();
  EXPECT_EQ(worker->add_worker(level(4, StartMethod::kFork, 0)).value(), 0);
  EXPECT_EQ(worker->add_worker(level(3, StartMethod::kFork, 0), {0}).value(), 0);
  EXPECT_EQ(worker->add_sub_workers(2, {0, 0}).value(), (std::vector<int>{0, 1}));
  EXPECT_EQ(worker->add_sub_workers(1).value(), (std::vector<int>{1}));
  expect_error(worker->add_sub_workers(1, {1}), Code::kNotFound, "names no Worker");
  expect_error(worker->add_worker(level(4, StartMethod::kFork, 0), {0}), Code::kInvalidArgument,
               "must be smaller");
  worker->init().value();
  EXPECT_EQ(worker->next_level_children().size(), 1u);
  EXPECT_EQ(worker->sub_children().size(), 1u);
  worker->close().value();
}

TEST(Late, ALostWorkerAndOneWithChipsAndInlineOnesGetNoChildren) {
  auto worker = started(level(4, StartMethod::kFork, 0, {level(3, StartMethod::kFork, 0)}));
  const Pidfd gone(worker->next_level_children()[0].pid);
  ASSERT_EQ(::kill(worker->next_level_children()[0].pid, SIGKILL), 0);
  ASSERT_TRUE(gone.ended(kTestDeadline));
  ASSERT_TRUE(await([&] { return worker->next_level_children()[0].state == ChildState::kDead; }));
  expect_error(worker->add_sub_workers(1, {0}), Code::kNoWorker, "it was lost");
  worker->close().value();
  WorkerSpec chips = chip_spec(StartMethod::kFork, 1);
  chips.level = 4;
  auto with_chips = started(chips);
  expect_error(with_chips->add_worker(level(3, StartMethod::kFork, 0)), Code::kInvalidArgument,
               "not both");
  EXPECT_EQ(with_chips->add_sub_workers(1).value(), (std::vector<int>{1}));
  with_chips->close().value();
  auto calls = started(StartMethod::kInline, 1);
  expect_error(calls->add_sub_workers(1), Code::kUnsupported, "kInline");
  calls->close().value();
}

TEST(Late, RefusalsNameWhatIsWrongAndWhere) {
  auto worker =
      started(level(5, StartMethod::kFork, 1,
                    {level(4, StartMethod::kFork, 1, {level(3, StartMethod::kFork, 0)})}));
  expect_error(worker->add_sub_workers(0), Code::kInvalidArgument, "1 to 1024");
  expect_error(worker->add_sub_workers(1, {-1}), Code::kInvalidArgument, "path");
  expect_error(worker->add_sub_workers(1, {1}), Code::kNotFound, "is no Worker below L5");
  expect_error(worker->add_sub_workers(1, {0, 1}), Code::kNotFound, "is no Worker below L5/0");
  expect_error(worker->add_sub_workers(1, {0, 0, 0}), Code::kNotFound, "is no Worker below L5/0/0");
  expect_error(worker->add_worker(level(4, StartMethod::kFork, 0), {0}), Code::kInvalidArgument,
               "must be smaller");
  expect_error(worker->add_sub_workers(1024), Code::kResourceExhausted, "at most 1024 children");
  WorkerSpec large = level(3, StartMethod::kFork, 0);
  large.library_path.assign(3, std::string(4000, 'p'));
  expect_error(worker->add_worker(large, {0}), Code::kResourceExhausted, "over the limit");
  EXPECT_EQ(worker->sub_children().size(), 1u);
  worker->close().value();
}

}  // namespace
}  // namespace strata
