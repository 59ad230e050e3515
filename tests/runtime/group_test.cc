// Groups, workers by name, and storage that a submit gives, over real children.
#include "tests/runtime/worker_test_util.h"

namespace strata {
namespace {

using namespace test;  // NOLINT

// Members meet: each says that it is there and waits until scalar 0 of them are.
void rendezvous(Call& call) {
  const auto gate = call.tensor<uint32_t>(0);
  ++word(gate, kStarted);
  while (word(gate, kStarted) < call.scalar<uint32_t>(0)) {
    if (call.cancelled()) throw std::runtime_error("cancelled");
    ::poll(nullptr, 0, 1);
  }
  call.set_result(static_cast<int64_t>(::getpid()));
}

void fail_second(Call& call) {
  rendezvous(call);
  if (call.scalar<uint32_t>(1) == 1) throw std::runtime_error("member one gives up");
}

TEST(Group, MembersRunAtTheSameTimeInProcessesOfTheirOwn) {
  const auto worker = started(StartMethod::kFork, 3);
  const auto meet = registered<rendezvous>(*worker, "rendezvous");
  const auto quick = registered<nothing>(*worker, "nothing");
  Gate gate(*worker);
  TaskRef group;
  auto run = worker->submit([&](Orchestrator& orch) {
    for (int i = 0; i < 50; ++i) orch.submit_sub(quick, TaskArgs()).value();
    std::vector<TaskArgs> members(3, gate.args().add_scalar(uint32_t{3}));
    group = orch.submit_sub_group(meet, members).value();
    for (int i = 0; i < 50; ++i) orch.submit_sub(quick, TaskArgs()).value();
  });
  ASSERT_TRUE(run.ok());
  ASSERT_TRUE(run->wait().ok());
  std::set<int64_t> pids;
  for (uint32_t member = 0; member < 3; ++member) {
    pids.insert(run->result_as<int64_t>(group, member).value());
  }
  EXPECT_EQ(pids.size(), 3u);
  EXPECT_EQ(run->progress().submitted, 101u);
}

TEST(Group, AFailedMemberIsTheGroupsErrorAndItsReadersAreSkipped) {
  const auto worker = started(StartMethod::kFork, 2);
  const auto meet = registered<fail_second>(*worker, "fail_second");
  const auto read = registered<sum_all>(*worker, "sum_all");
  Gate gate(*worker);
  Buffer x = worker->create_buffer(64).value();
  auto run = worker->submit([&](Orchestrator& orch) {
    std::vector<TaskArgs> members;
    for (uint32_t i = 0; i < 2; ++i) {
      members.push_back(gate.args()
                            .add_scalar(uint32_t{2})
                            .add_scalar(i)
                            .add_tensor(x.tensor<int64_t>({4}, i * 32), OUTPUT));
    }
    orch.submit_sub_group(meet, members).value();
    orch.submit_sub(read, TaskArgs().add_tensor(x.tensor<int64_t>({8}), INPUT)).value();
  });
  ASSERT_TRUE(run.ok());
  expect_error(run->wait(), Code::kTaskFailed, "member one gives up");
  EXPECT_EQ(run->progress().failed, 1u);
  EXPECT_EQ(run->progress().skipped, 1u);
}

TEST(Group, AKilledMemberIsAnEndpointFailureAndTheNextGroupHasTooFewWorkers) {
  const auto worker = started(StartMethod::kFork, 2);
  const auto stand = registered<stand_at_gate>(*worker, "stand_at_gate");
  Gate gate(*worker);
  auto run = worker->submit([&](Orchestrator& orch) {
    const std::vector<TaskArgs> members(2, gate.args());
    orch.submit_sub_group(stand, members).value();
    gate.await_started(2);
    ::kill(worker->sub_children()[1].pid, SIGKILL);
    await([&] { return !worker->sub_children()[1].alive; });
    gate.open();
    expect_error(orch.submit_sub_group(stand, members), Code::kInvalidArgument,
                 "a group of 2 members, and 1 live workers");
  });
  ASSERT_TRUE(run.ok());
  expect_error(run->wait(), Code::kEndpointFailed, "signal 9");
}

TEST(Group, WorksInlineWhereOneWorkerIsEnough) {
  const auto worker = started(StartMethod::kInline, 1);
  const auto meet = registered<rendezvous>(*worker, "rendezvous");
  Gate gate(*worker);
  EXPECT_TRUE(worker
                  ->run([&](Orchestrator& orch) {
                    std::vector<TaskArgs> one(1, gate.args().add_scalar(uint32_t{1}));
                    orch.submit_sub_group(meet, one).value();
                    std::vector<TaskArgs> two(2, gate.args().add_scalar(uint32_t{1}));
                    expect_error(orch.submit_sub_group(meet, two), Code::kInvalidArgument,
                                 "a group of 2 members, and 1 live workers");
                  })
                  .ok());
}

TEST(Storage, AnOutputWithoutStorageIsReadByTheTasksThatAreGivenItsTensor) {
  for (const StartMethod start : {StartMethod::kFork, StartMethod::kInline}) {
    const auto worker = started(start, 2);
    const auto write = registered<fill>(*worker, "fill");
    const auto read = registered<sum_all>(*worker, "sum_all");
    std::vector<TaskRef> sums;
    auto run = worker->submit([&](Orchestrator& orch) {
      for (int64_t i = 0; i < 200; ++i) {
        const auto scope = orch.scope().value();
        TaskArgs args;
        args.add_tensor(Tensor::without_storage<int64_t>({16, 4}), OUTPUT).add_scalar(i);
        orch.submit_sub(write, args).value();
        sums.push_back(orch.submit_sub(read, TaskArgs().add_tensor(args.tensor(0), INPUT)).value());
      }
    });
    ASSERT_TRUE(run.ok());
    ASSERT_TRUE(run->wait().ok());
    for (int64_t i = 0; i < 200; ++i) {
      EXPECT_EQ(run->result_as<int64_t>(sums[static_cast<size_t>(i)]).value(), 64 * i);
    }
  }
}

TEST(Storage, UseAfterItsScopeIsRefusedAndConstArgumentsAndInputsGetNone) {
  const auto worker = started(StartMethod::kInline, 1);
  const auto write = registered<fill>(*worker, "fill");
  EXPECT_TRUE(
      worker
          ->run([&](Orchestrator& orch) {
            TaskArgs args;
            args.add_tensor(Tensor::without_storage<int64_t>({4}), OUTPUT).add_scalar(int64_t{1});
            const TaskArgs fixed = args;
            expect_error(orch.submit_sub(write, fixed), Code::kInvalidArgument, "without storage");
            TaskArgs input;
            input.add_tensor(Tensor::without_storage<int64_t>({4}), INPUT);
            expect_error(orch.submit_sub(write, input), Code::kInvalidArgument, "only an OUTPUT");
            TaskArgs huge;
            huge.add_tensor(Tensor::without_storage<int64_t>({1ull << 40, 1ull << 40}), OUTPUT);
            expect_error(orch.submit_sub(write, huge), Code::kInvalidArgument, "overflow");
            {
              const auto scope = orch.scope().value();
              orch.submit_sub(write, args).value();
            }
            expect_error(orch.submit_sub(write, args), Code::kNotFound, "freed");
          })
          .ok());
}

TEST(Directed, NextLevelOfAWorkerWithoutOneIsRefusedByName) {
  const auto worker = started(StartMethod::kInline, 1);
  const auto task = registered<nothing>(*worker, "nothing");
  EXPECT_FALSE(worker
                   ->run([&](Orchestrator& orch) {
                     expect_error(orch.submit_next_level(task, TaskArgs(), {}, 0), Code::kNotFound,
                                  "no next-level child 0; this Worker has none");
                     orch.submit_next_level(task, TaskArgs()).value();
                   })
                   .ok());
}

TEST(Classes, ACallableIsUsedOnTheChildrenThatItIsRegisteredOn) {
  const auto worker = started(StartMethod::kFork, 3);
  const auto pid = worker->register_callable(local_function<result_pid>("result_pid"), {2}).value();
  std::vector<TaskRef> tasks;
  auto run = worker->submit([&](Orchestrator& orch) {
    for (int i = 0; i < 20; ++i) tasks.push_back(orch.submit_sub(pid, TaskArgs()).value());
  });
  ASSERT_TRUE(run.ok());
  ASSERT_TRUE(run->wait().ok());
  for (const TaskRef task : tasks) {
    EXPECT_EQ(run->result_as<int64_t>(task).value(), worker->sub_children()[2].pid);
  }
  expect_error(worker->register_callable(local_function<nothing>("nothing"), {7}), Code::kNotFound,
               "L3 has the workers 0 to 2");
}

}  // namespace
}  // namespace strata
