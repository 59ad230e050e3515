// Workers in Workers: L4 over L3, L5 over L4 over L3, by processes and as calls.
#include <thread>

#include "tests/runtime/nested_util.h"

namespace strata {
namespace {

using namespace test;  // NOLINT

void scale_three_below(Call& call) {
  InnerOrchestrator orch = call.orchestrator();
  orch.submit_next_level(
      orch.inner_handle<scale_two_below>(),
      TaskArgs().add_tensor(call.ref(0), INOUT).add_scalar(int64_t{5}).add_scalar(int64_t{7}));
}

void give_result(Call& call) {
  InnerOrchestrator orch = call.orchestrator();
  orch.wait(orch.submit_sub(orch.inner_handle<nothing>(), TaskArgs()));
  call.set_result(int64_t{4711});
}

class Nested : public ::testing::TestWithParam<StartMethod> {};
INSTANTIATE_TEST_SUITE_P(Starts, Nested,
                         ::testing::Values(StartMethod::kInline, StartMethod::kFork),
                         [](const auto& instance) {
                           return instance.param == StartMethod::kInline ? "Inline" : "Fork";
                         });

TEST_P(Nested, TaskOfAChildWorkerRunsTasksInItsSubChildren) {
  auto worker = Worker::create(pod(GetParam(), 1, 1)).value();
  const auto stage = registered<scale_in_subs>(*worker, "scale_in_subs");
  worker->register_inner(local_function<scale_add>("scale_add")).value();
  worker->init().value();
  const Buffer x = worker->create_buffer(8 * 8).value();
  for (int i = 0; i < 8; ++i) x.as<int64_t>()[i] = i;
  run_one(*worker, stage,
          TaskArgs()
              .add_tensor(x.tensor<int64_t>({8}), INOUT)
              .add_scalar(int64_t{3})
              .add_scalar(int64_t{1}))
      .value();
  for (int i = 0; i < 8; ++i) EXPECT_EQ(x.as<int64_t>()[i], 3 * i + 1);
  worker->close().value();
}

TEST_P(Nested, FiveLevelsPassATensorDownInPlace) {
  const StartMethod start = GetParam();
  auto worker =
      Worker::create(level(5, start, 0, {level(4, start, 0, {level(3, start, 2)})})).value();
  const auto stage = registered<scale_two_below>(*worker, "scale_two_below");
  worker->register_inner(local_function<scale_in_subs>("scale_in_subs")).value();
  worker->register_inner(local_function<scale_add>("scale_add")).value();
  worker->init().value();
  const Buffer x = worker->create_buffer(100 * 8).value();
  for (int i = 0; i < 100; ++i) x.as<int64_t>()[i] = i;
  worker
      ->run([&](Orchestrator& orch) {
        for (int t = 0; t < 10; ++t) {
          // Tiles, each of them twice: the second in the order of dependencies.
          for (int64_t add = 1; add <= 2; ++add) {
            submit_next(
                orch, stage,
                TaskArgs()
                    .add_tensor(x.tensor<int64_t>({10}, static_cast<uint64_t>(t) * 80), INOUT)
                    .add_scalar(int64_t{2})
                    .add_scalar(add))
                .value();
          }
        }
      })
      .value();
  for (int i = 0; i < 100; ++i) EXPECT_EQ(x.as<int64_t>()[i], (2 * i + 1) * 2 + 2);
  worker->close().value();
}

TEST_P(Nested, SixLevelsWithSubChildrenAtEachWork) {
  const StartMethod start = GetParam();
  auto worker =
      Worker::create(
          level(6, start, 1, {level(5, start, 1, {level(4, start, 1, {level(3, start, 1)})})}))
          .value();
  const auto stage = registered<scale_three_below>(*worker, "scale_three_below");
  worker->register_inner(local_function<scale_two_below>("scale_two_below")).value();
  worker->register_inner(local_function<scale_in_subs>("scale_in_subs")).value();
  worker->register_inner(local_function<scale_add>("scale_add")).value();
  worker->init().value();
  const Buffer x = worker->create_buffer(8).value();
  x.as<int64_t>()[0] = 2;
  run_one(*worker, stage, TaskArgs().add_tensor(x.tensor<int64_t>({1}), INOUT)).value();
  EXPECT_EQ(x.as<int64_t>()[0], 17);
  worker->close().value();
}

TEST_P(Nested, RootErrorOfTheInnerRunIsTheTasksFailureWithThePath) {
  auto worker = Worker::create(pod(GetParam(), 1, 1)).value();
  const auto stage = registered<fail_in_sub>(*worker, "fail_in_sub");
  worker->register_inner(local_function<throw_text>("throw_text")).value();
  worker->init().value();
  const Result<void> ran =
      run_one(*worker, stage, TaskArgs().set_inline(bytes_of("the disk is full")));
  expect_error(ran, Code::kTaskFailed, "the disk is full");
  expect_error(ran, Code::kTaskFailed, "L4/0 ");
  expect_error(ran, Code::kTaskFailed, "L4/0/0 ");
  expect_error(ran, Code::kTaskFailed, "'throw_text'");
  worker->close().value();
}

TEST_P(Nested, FailureFarBelowShowsItsPath) {
  const StartMethod start = GetParam();
  auto worker = Worker::create(level(5, start, 0,
                                     {level(4, start, 0, {level(3, start, 1)}),
                                      level(4, start, 0, {level(3, start, 1)})}))
                    .value();
  const auto stage = registered<fail_two_below>(*worker, "fail_two_below");
  worker->register_inner(local_function<fail_in_sub>("fail_in_sub")).value();
  worker->register_inner(local_function<throw_text>("throw_text")).value();
  worker->init().value();
  const Result<void> ran = worker->run([&](Orchestrator& orch) {
    orch.submit_next_level(stage, TaskArgs().set_inline(bytes_of("no seat")), {}, 1).value();
  });
  for (const char* piece : {"L5/1 ", "L5/1/0 ", "L5/1/0/0 ", "'throw_text'", "no seat"}) {
    expect_error(ran, Code::kTaskFailed, piece);
  }
  worker->close().value();
}

TEST_P(Nested, WhatAFailedChildWorkerShouldHaveWrittenIsPoisonedAbove) {
  auto worker = Worker::create(pod(GetParam(), 2, 1)).value();
  const auto bad = registered<fail_in_sub>(*worker, "fail_in_sub");
  const auto good = registered<scale_in_subs>(*worker, "scale_in_subs");
  worker->register_inner(local_function<throw_text>("throw_text")).value();
  worker->register_inner(local_function<scale_add>("scale_add")).value();
  worker->init().value();
  const Buffer x = worker->create_buffer(2 * 64).value();
  const Tensor first = x.tensor<int64_t>({8}), second = x.tensor<int64_t>({8}, 64);
  const auto scale = [&](const Tensor& of) {
    return TaskArgs().add_tensor(of, INOUT).add_scalar(int64_t{1}).add_scalar(int64_t{1});
  };
  auto handle =
      worker
          ->submit([&](Orchestrator& orch) {
            submit_next(orch, bad, TaskArgs().add_tensor(first, OUTPUT).set_inline(bytes_of("x")))
                .value();
            submit_next(orch, good, scale(first)).value();
            submit_next(orch, good, scale(second)).value();
          })
          .value();
  expect_error(handle.wait(), Code::kTaskFailed, "L4/");
  EXPECT_EQ(handle.progress().failed, 1u);
  EXPECT_EQ(handle.progress().skipped, 1u);
  EXPECT_EQ(handle.progress().succeeded, 1u);
  EXPECT_EQ(x.as<int64_t>()[8], 1);
  // The inner Worker remembers nothing of it.
  worker->clear_error(x).value();
  run_one(*worker, good, scale(first)).value();
  EXPECT_EQ(x.as<int64_t>()[0], 1);
  worker->close().value();
}

TEST_P(Nested, ManyTasksOverTwoHostsGiveWhatOneDoes) {
  auto worker = Worker::create(pod(GetParam(), 2, 2)).value();
  const auto stage = registered<scale_in_subs>(*worker, "scale_in_subs");
  worker->register_inner(local_function<scale_add>("scale_add")).value();
  worker->init().value();
  constexpr int kTiles = 16, kRounds = 25;
  const Buffer x = worker->create_buffer(kTiles * 64).value();
  worker
      ->run([&](Orchestrator& orch) {
        for (int64_t round = 0; round < kRounds; ++round) {
          for (uint64_t tile = 0; tile < kTiles; ++tile) {
            submit_next(orch, stage,
                        TaskArgs()
                            .add_tensor(x.tensor<int64_t>({8}, tile * 64), INOUT)
                            .add_scalar(int64_t{3})
                            .add_scalar(round))
                .value();
          }
        }
      })
      .value();
  int64_t expected = 0;
  for (int64_t round = 0; round < kRounds; ++round) {
    expected =
        static_cast<int64_t>(3u * static_cast<uint64_t>(expected) + static_cast<uint64_t>(round));
  }
  for (int i = 0; i < kTiles * 8; ++i) ASSERT_EQ(x.as<int64_t>()[i], expected) << i;
  worker->close().value();
}

TEST_P(Nested, ResultOfAChildWorkersTaskComesHome) {
  auto worker = Worker::create(pod(GetParam(), 1, 1)).value();
  const auto give = registered<give_result>(*worker, "give_result");
  worker->register_inner(local_function<nothing>("nothing")).value();
  worker->init().value();
  TaskRef task;
  auto handle =
      worker
          ->submit([&](Orchestrator& orch) { task = submit_next(orch, give, TaskArgs()).value(); })
          .value();
  handle.wait().value();
  EXPECT_EQ(handle.result_as<int64_t>(task).value(), 4711);
  worker->close().value();
}

TEST_P(Nested, CancelReachesTasksOfTheInnerRun) {
  const StartMethod start = GetParam();
  auto worker =
      Worker::create(level(5, start, 0, {level(4, start, 0, {level(3, start, 1)})})).value();
  const auto stage = registered<gate_two_below>(*worker, "gate_two_below");
  worker->register_inner(local_function<gate_in_subs>("gate_in_subs")).value();
  worker->register_inner(local_function<stand_at_gate>("stand_at_gate")).value();
  worker->init().value();
  Gate gate(*worker);
  // Inline, the task runs in the thread that steps: another one has to cancel it.
  std::optional<RunHandle> handle;
  std::atomic<bool> submitted = false;
  std::thread runs([&] {
    handle = worker
                 ->submit([&](Orchestrator& orch) {
                   TaskArgs args = gate.args();
                   submit_next(orch, stage, args.add_scalar(int64_t{5})).value();
                 })
                 .value();
    submitted = true;
    static_cast<void>(handle->wait());
  });
  // Inline, submit itself may run the task.
  const bool inlined = start == StartMethod::kInline;
  EXPECT_TRUE(gate.await_started(1));
  if (inlined && !submitted) {
    gate.open();
  } else {
    EXPECT_TRUE(await([&] { return submitted.load(); }));
    handle->cancel();
  }
  runs.join();
  if (!inlined) {
    EXPECT_EQ(gate.get(kCancelSeen), 1u);
    EXPECT_EQ(gate.get(kStarted), 1u);  // the four behind it never start
    EXPECT_FALSE(handle->wait().ok());
  }
  worker->close().value();
}

TEST(NestedFork, EachLevelIsAProcessOfItsOwn) {
  auto worker = Worker::create(pod(StartMethod::kFork, 2, 2)).value();
  worker->init().value();
  const std::vector<Worker::Child> hosts = worker->next_level_children();
  ASSERT_EQ(hosts.size(), 2u);
  EXPECT_TRUE(worker->sub_children().empty());
  for (const Worker::Child& host : hosts) {
    EXPECT_TRUE(host.alive);
    EXPECT_EQ(descendants(host.pid).size(), 4u);  // two servers and two helpers
  }
  worker->close().value();
}

TEST(NestedFork, SubChildrenOfAParentComeAfterItsWorkers) {
  auto worker =
      Worker::create(level(4, StartMethod::kFork, 2, {level(3, StartMethod::kFork, 1)})).value();
  EXPECT_EQ(worker->add_worker(level(3, StartMethod::kFork, 1)).value(), 1);
  worker->init().value();
  EXPECT_EQ(worker->next_level_children().size(), 2u);
  EXPECT_EQ(worker->sub_children().size(), 2u);
  worker->close().value();
}

TEST(NestedFork, CloseEndsEachLevelBeforeTheOneAbove) {
  auto worker =
      Worker::create(level(5, StartMethod::kFork, 0,
                           {level(4, StartMethod::kFork, 0, {level(3, StartMethod::kFork, 2)})}))
          .value();
  worker->init().value();
  const int l4 = worker->next_level_children()[0].pid;
  const Host all = host_of(l4);
  std::vector<std::unique_ptr<Pidfd>> below;
  for (const int pid : all.all) {
    if (pid != l4) below.push_back(std::make_unique<Pidfd>(pid));
  }
  EXPECT_EQ(below.size(), 2u + 1u + 2u + 2u);  // two servers, an L3, its servers and helpers
  const Pidfd top(l4);
  std::thread closes([&] { worker->close().value(); });
  EXPECT_TRUE(top.ended(kTestDeadline));
  for (const auto& one : below) EXPECT_TRUE(one->ended({}));
  closes.join();
}

TEST(NestedFork, AChildByForkMayRunItsOwnChildrenInline) {
  auto worker =
      Worker::create(level(4, StartMethod::kFork, 0, {level(3, StartMethod::kInline, 1)})).value();
  const auto stage = registered<scale_in_subs>(*worker, "scale_in_subs");
  worker->register_inner(local_function<scale_add>("scale_add")).value();
  worker->init().value();
  EXPECT_TRUE(descendants(worker->next_level_children()[0].pid).empty());
  const Buffer x = worker->create_buffer(8).value();
  run_one(*worker, stage,
          TaskArgs()
              .add_tensor(x.tensor<int64_t>({1}), INOUT)
              .add_scalar(int64_t{0})
              .add_scalar(int64_t{9}))
      .value();
  EXPECT_EQ(x.as<int64_t>()[0], 9);
  worker->close().value();
}

// ---------------------------------------------------------------- refusals

TEST(NestedMisuse, AddWorkerRefusesWhatCannotBe) {
  auto worker = Worker::create(level(4, StartMethod::kFork, 1)).value();
  expect_error(worker->add_worker(level(4, StartMethod::kFork, 1)), Code::kInvalidArgument,
               "must be smaller");
  expect_error(worker->add_worker(level(5, StartMethod::kFork, 1)), Code::kInvalidArgument,
               "must be smaller");
  expect_error(worker->add_worker(level(2, StartMethod::kFork, 1)), Code::kInvalidArgument,
               "level is 3 to 6");
  expect_error(worker->add_worker(level(3, StartMethod::kFork, -1)), Code::kInvalidArgument,
               "sub_workers");
  expect_error(
      worker->add_worker(level(3, StartMethod::kFork, 1, {level(3, StartMethod::kFork, 1)})),
      Code::kInvalidArgument, "Worker 0: ");
  WorkerSpec large = level(3, StartMethod::kFork, 1);
  large.library_path.assign(40, std::string(4000, 'p'));
  expect_error(worker->add_worker(large), Code::kResourceExhausted, "bytes, more than");
  worker->init().value();
  expect_error(worker->add_worker(level(4, StartMethod::kFork, 1)), Code::kInvalidArgument,
               "must be smaller");
  expect_error(worker->add_worker(large), Code::kResourceExhausted, "bytes, more than");
  worker->close().value();
  expect_error(worker->add_worker(level(3, StartMethod::kFork, 1)), Code::kWrongState, "closed");
}

TEST(NestedMisuse, AParentHasAtMost1024Children) {
  auto worker = Worker::create(level(4, StartMethod::kFork, 1023)).value();
  EXPECT_EQ(worker->add_worker(level(3, StartMethod::kFork, 0)).value(), 0);
  expect_error(worker->add_worker(level(3, StartMethod::kFork, 0)), Code::kInvalidArgument,
               "at most 1024 children");
}

TEST(NestedMisuse, ASpecWithWorkersIsCheckedAtEveryLevel) {
  WorkerSpec spec = pod(StartMethod::kFork, 2, 1);
  spec.workers[1].limits.depth = 0;
  expect_error(Worker::create(spec), Code::kInvalidArgument, "Worker 1: Limits::depth");
  spec.workers[1].level = 5;
  expect_error(Worker::create(spec), Code::kInvalidArgument, "must be smaller");
}

TEST(NestedMisuse, ASpecWithMoreThanAMessageHoldsIsRefusedByInit) {
  WorkerSpec spec = pod(StartMethod::kFork, 1, 1);
  spec.workers[0].library_path.assign(40, std::string(4000, 'p'));
  expect_error(Worker::create(spec), Code::kResourceExhausted, "bytes, more than");
}

}  // namespace
}  // namespace strata
