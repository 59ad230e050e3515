// Children that are replaced: what becomes of tasks, callables and ids, and when it ends.
#include "tests/runtime/chip_test_util.h"
#include "tests/runtime/nested_util.h"

namespace strata {
namespace {

using namespace test;  // NOLINT

void kill_self(Call&) {
  ::raise(SIGKILL);
}

// Heeds no cancel.
void stand_for_ever(Call& call) {
  const auto gate = call.tensor<uint32_t>(0);
  while (word(gate, kOpen) == 0) ::poll(nullptr, 0, 1);
}

WorkerSpec lasting(int children, uint32_t limit = 3) {
  WorkerSpec spec = spec_of(StartMethod::kFork, children);
  spec.restart = Restart::kOnFailure;
  spec.restart_limit = limit;
  return spec;
}

bool await_state(Worker& worker, int child, ChildState state, uint32_t incarnation) {
  return await([&] {
    const Worker::Child at = worker.sub_children().at(static_cast<size_t>(child));
    return at.state == state && at.incarnation == incarnation;
  });
}

TEST(Restart, ALostChildIsReplacedUnderItsIdAndItsTaskHasFailed) {
  auto worker = started(lasting(1));
  const auto dies = registered<kill_self>(*worker, "kill_self");
  const auto pid = registered<result_pid>(*worker, "result_pid");
  const int first = worker->sub_children()[0].pid;
  TaskRef lost, after;
  auto run = worker->submit([&](Orchestrator& orch) {
    lost = orch.submit_sub(dies, TaskArgs()).value();
    after = orch.submit_sub(pid, TaskArgs()).value();
  });
  expect_error(run->wait(), Code::kEndpointFailed, "killed by signal 9");
  expect_error(run->result(lost), Code::kEndpointFailed, "it may have run in part");
  // What had not started waited for the next one, which has what was registered.
  int64_t second = 0;
  const auto bytes = run->result(after).value();
  ASSERT_EQ(bytes.size(), sizeof second);
  std::memcpy(&second, bytes.data(), sizeof second);
  EXPECT_NE(second, first);
  const Worker::Child child = worker->sub_children()[0];
  EXPECT_EQ(child.pid, second);
  EXPECT_EQ(child.id, 0);
  EXPECT_EQ(child.incarnation, 2u);
  EXPECT_TRUE(child.alive);
  worker->close().value();
}

TEST(Restart, AnErrorOfAReplacedChildNamesItsIncarnation) {
  auto worker = started(lasting(1));
  const auto dies = registered<kill_self>(*worker, "kill_self");
  const auto one = [&] {
    return worker->run([&](Orchestrator& orch) { orch.submit_sub(dies, TaskArgs()).value(); });
  };
  expect_error(one(), Code::kEndpointFailed, "L3/0 pid");
  expect_error(one(), Code::kEndpointFailed, "L3/0#2 pid");
  expect_error(one(), Code::kEndpointFailed, "L3/0#3 pid");
  worker->close().value();
}

TEST(Restart, AtTheLimitAChildIsLostForGoodAndTheErrorSaysSo) {
  auto worker = started(lasting(1, 1));
  const auto dies = registered<kill_self>(*worker, "kill_self");
  const auto idle = registered<nothing>(*worker, "nothing");
  const auto one = [&](const CallableHandle& callable) {
    return worker->run([&](Orchestrator& orch) { orch.submit_sub(callable, TaskArgs()).value(); });
  };
  expect_error(one(dies), Code::kEndpointFailed, "killed by signal 9");
  EXPECT_TRUE(one(idle).ok());
  expect_error(one(dies), Code::kEndpointFailed, "replaced 1 times");
  expect_error(one(idle), Code::kNoWorker, "WorkerSpec::restart_limit is 1");
  EXPECT_EQ(worker->sub_children()[0].state, ChildState::kDead);
  EXPECT_FALSE(worker->sub_children()[0].alive);
  worker->close().value();
}

TEST(Restart, WithALimitOfNoneNothingIsReplaced) {
  auto worker = started(lasting(1, 0));
  const auto dies = registered<kill_self>(*worker, "kill_self");
  const auto run =
      worker->run([&](Orchestrator& orch) { orch.submit_sub(dies, TaskArgs()).value(); });
  expect_error(run, Code::kEndpointFailed, "killed by signal 9");
  EXPECT_EQ(worker->sub_children()[0].state, ChildState::kDead);
  worker->close().value();
}

TEST(Restart, AChildThatIsKilledWhileNothingRunsIsReplacedWithoutACall) {
  auto worker = started(lasting(2));
  const auto idle = registered<nothing>(*worker, "nothing");
  worker->run([&](Orchestrator& orch) { orch.submit_sub(idle, TaskArgs()).value(); }).value();
  const int before = worker->sub_children()[1].pid;
  const Pidfd gone(before);
  ASSERT_EQ(::kill(before, SIGKILL), 0);
  ASSERT_TRUE(gone.ended(kTestDeadline));
  // Nobody calls: only the engine thread hears of it.
  ASSERT_TRUE(await([] { return descendants().size() >= 4; }));
  ASSERT_TRUE(await_state(*worker, 1, ChildState::kReady, 2));
  EXPECT_NE(worker->sub_children()[1].pid, before);
  worker->close().value();
}

TEST(Restart, ACallableOfTheLostChildAloneIsThereAgainAndItsTasksWait) {
  auto worker = started(lasting(2));
  const auto dies = registered<kill_self>(*worker, "kill_self");
  const CallableHandle only =
      worker->register_callable(local_function<result_pid>("result_pid"), {1}).value();
  const CallableHandle on_it = worker->register_callable(local_function<nothing>("n"), {1}).value();
  ASSERT_EQ(::kill(worker->sub_children()[1].pid, SIGKILL), 0);
  for (int i = 0; i < 20; ++i) {
    worker->run([&](Orchestrator& orch) { orch.submit_sub(on_it, TaskArgs()).value(); }).value();
    worker->run([&](Orchestrator& orch) { orch.submit_sub(only, TaskArgs()).value(); }).value();
  }
  EXPECT_EQ(worker->sub_children()[1].incarnation, 2u);
  worker->unregister_callable(dies).value();
  worker->close().value();
}

TEST(Restart, ARegistrationWaitsForAReplacementAndReachesIt) {
  auto worker = started(lasting(1));
  for (uint32_t i = 0; i < 3; ++i) {
    ASSERT_EQ(::kill(worker->sub_children()[0].pid, SIGKILL), 0);
    const auto bad = worker->register_callable(NativeImport{"libnosuch.so", "f"});
    ASSERT_FALSE(bad.ok());
    EXPECT_TRUE(bad.error().code() == Code::kNotFound ||
                bad.error().code() == Code::kEndpointFailed)
        << bad.error().to_string();
    ASSERT_TRUE(await_state(*worker, 0, ChildState::kReady, i + 2));
  }
  const auto idle = registered<nothing>(*worker, "nothing");
  worker->run([&](Orchestrator& orch) { orch.submit_sub(idle, TaskArgs()).value(); }).value();
  worker->close().value();
}

TEST(Restart, AfterALostForkServerAnotherServerMakesAllChildrenAgain) {
  auto worker = started(lasting(2));
  const auto pid = registered<result_pid>(*worker, "result_pid");
  const std::vector<Worker::Child> before = worker->sub_children();
  const int server = state_and_parent(before[0].pid).second;
  ASSERT_EQ(::kill(server, SIGKILL), 0);
  for (int child = 0; child < 2; ++child) {
    ASSERT_TRUE(await_state(*worker, child, ChildState::kReady, 2));
  }
  const std::vector<Worker::Child> after = worker->sub_children();
  EXPECT_NE(state_and_parent(after[0].pid).second, server);
  worker->run([&](Orchestrator& orch) { orch.submit_sub(pid, TaskArgs()).value(); }).value();
  worker->close().value();
}

TEST(Restart, AChildWorkerComesBackWithAllThatIsBelowIt) {
  WorkerSpec spec = pod(StartMethod::kFork, 2, 2);
  spec.restart = Restart::kOnFailure;
  auto worker = started(spec);
  const auto scale = registered<scale_in_subs>(*worker, "scale_in_subs");
  worker->register_inner(local_function<scale_add>("scale_add")).value();
  Buffer x = worker->create_buffer(8 * sizeof(int64_t)).value();
  const auto args = TaskArgs()
                        .add_tensor(x.tensor<int64_t>({8}), INOUT)
                        .add_scalar(int64_t{1})
                        .add_scalar(int64_t{1});
  const std::set<int> below = descendants(worker->next_level_children()[0].pid);
  ASSERT_EQ(::kill(worker->next_level_children()[0].pid, SIGKILL), 0);
  ASSERT_TRUE(await([&] {
    const Worker::Child at = worker->next_level_children()[0];
    return at.state == ChildState::kReady && at.incarnation == 2;
  }));
  worker
      ->run([&](Orchestrator& orch) {
        orch.submit_next_level(scale, args, {}, 0).value();
        orch.submit_next_level(scale, args, {}, 1).value();
      })
      .value();
  EXPECT_EQ(x.as<int64_t>()[0], 2);
  for (const int pid : below) {
    const char state = state_and_parent(pid).first;
    EXPECT_TRUE(state == 'X' || state == 'Z') << pid << ' ' << state;
  }
  worker->close().value();
}

TEST(Restart, AChipStartsEmptyAndHasItsKernelsAgain) {
  WorkerSpec spec = chip_spec(StartMethod::kFork, 1);
  spec.restart = Restart::kOnFailure;
  auto worker = started(spec);
  const auto crash = loaded(*worker, "chip_signal");
  const auto scale = loaded(*worker, "chip_scale");
  Buffer x = worker->create_buffer(8 * sizeof(int64_t)).value();
  const Tensor t = x.tensor<int64_t>({8});
  const auto args = TaskArgs().add_tensor(t, INOUT).add_scalar(int64_t{5});
  ASSERT_TRUE(run_on_chip(*worker, scale, args).ok());
  const uint64_t copied = usage_of(*worker).copied_in;
  EXPECT_GT(copied, 0u);
  const auto by_signal =
      TaskArgs().add_tensor(t, INOUT).add_scalar(int32_t{0}).add_scalar(int32_t{SIGSEGV});
  expect_error(run_on_chip(*worker, crash, by_signal), Code::kEndpointFailed,
               "the chip's device memory is lost");
  x.as<int64_t>()[0] = 1;
  ASSERT_TRUE(worker->clear_error(x).ok());
  ASSERT_TRUE(run_on_chip(*worker, scale, args).ok());
  EXPECT_EQ(x.as<int64_t>()[0], 5);
  EXPECT_EQ(usage_of(*worker).copied_in, copied);
  EXPECT_EQ(worker->next_level_children()[0].incarnation, 2u);
  worker->close().value();
}

TEST(Restart, AMemberOfAGroupThatIsLostFailsTheGroupAndTheNextOneGoes) {
  auto worker = started(lasting(2));
  const auto dies = registered<kill_self>(*worker, "kill_self");
  const auto idle = registered<nothing>(*worker, "nothing");
  const std::vector<TaskArgs> two(2);
  const auto group = [&](const CallableHandle& callable) {
    return worker->run([&](Orchestrator& orch) { orch.submit_sub_group(callable, two).value(); });
  };
  expect_error(group(dies), Code::kEndpointFailed, "lost");
  EXPECT_TRUE(group(idle).ok());
  EXPECT_TRUE(group(idle).ok());
  worker->close().value();
}

TEST(Restart, CloseEndsAChildThatIsBeingReplaced) {
  for (int i = 0; i < 20; ++i) {
    auto worker = started(lasting(2));
    ASSERT_EQ(::kill(worker->sub_children()[0].pid, SIGKILL), 0);
    if (i % 2 == 0) static_cast<void>(worker->sub_children());
    worker->close().value();
  }
}

TEST(Restart, AChildThatCannotStartTheFirstTimeIsInitsErrorAndIsNotReplaced) {
  WorkerSpec spec = pod(StartMethod::kFork, 1, 1);
  spec.restart = Restart::kOnFailure;
  spec.workers[0].inherit_fds = {999};
  auto worker = Worker::create(spec).value();
  const auto init = worker->init();
  expect_error(init, Code::kEndpointFailed, "a child did not start");
}

// ---------------------------------------------------------------- stopped children

// Stops an idle child, and waits until its Worker shows that.
int stop_first(Worker& worker) {
  const int pid = worker.sub_children()[0].pid;
  EXPECT_EQ(::kill(pid, SIGSTOP), 0);
  EXPECT_TRUE(await([&] { return worker.sub_children()[0].state == ChildState::kStopped; }));
  return pid;
}

TEST(Restart, AStoppedChildIsShownAsSuchAndAKillEndsIt) {
  auto worker = started(StartMethod::kFork, 2);
  const auto idle = registered<nothing>(*worker, "nothing");
  const int pid = stop_first(*worker);
  EXPECT_TRUE(worker->sub_children()[0].alive);
  EXPECT_EQ(worker->sub_children()[1].state, ChildState::kReady);
  ASSERT_EQ(::kill(pid, SIGCONT), 0);
  ASSERT_TRUE(await([&] { return worker->sub_children()[0].state == ChildState::kReady; }));
  stop_first(*worker);
  ASSERT_EQ(::kill(pid, SIGKILL), 0);
  ASSERT_TRUE(await([&] { return worker->sub_children()[0].state == ChildState::kDead; }));
  worker->run([&](Orchestrator& orch) { orch.submit_sub(idle, TaskArgs()).value(); }).value();
  worker->close().value();
}

TEST(Restart, AStoppedChildThatIsKilledIsReplaced) {
  auto worker = started(lasting(1));
  const auto idle = registered<nothing>(*worker, "nothing");
  const int pid = stop_first(*worker);
  auto run = worker->submit([&](Orchestrator& orch) {
    for (int i = 0; i < 3; ++i) orch.submit_sub(idle, TaskArgs()).value();
  });
  ASSERT_EQ(::kill(pid, SIGKILL), 0);
  run->wait().value();
  EXPECT_EQ(worker->sub_children()[0].incarnation, 2u);
  worker->close().value();
}

TEST(Restart, AStoppedChildOfALostForkServerIsReplacedToo) {
  auto worker = started(lasting(1));
  const int pid = stop_first(*worker);
  ASSERT_EQ(::kill(state_and_parent(pid).second, SIGKILL), 0);
  ASSERT_TRUE(await_state(*worker, 0, ChildState::kReady, 2));
  worker->close().value();
}

TEST(Restart, AStoppedChildThatARegistrationNeedsIsEndedAtTheDeadline) {
  WorkerSpec spec = lasting(1);
  spec.timeouts.control_ms = 300;
  auto worker = started(spec);
  stop_first(*worker);
  expect_error(worker->register_callable(local_function<nothing>("nothing")), Code::kEndpointFailed,
               "did not answer a control within 300 ms");
  ASSERT_TRUE(await_state(*worker, 0, ChildState::kReady, 2));
  const auto idle = registered<nothing>(*worker, "nothing");
  worker->run([&](Orchestrator& orch) { orch.submit_sub(idle, TaskArgs()).value(); }).value();
  worker->close().value();
}

TEST(Restart, ATaskPastItsDeadlineCostsItsChildWhichIsReplaced) {
  WorkerSpec spec = lasting(1);
  spec.timeouts.deadline_grace_ms = 10;
  auto worker = started(spec);
  Gate gate(*worker);
  const auto stand = registered<stand_for_ever>(*worker, "stand_for_ever");
  const auto idle = registered<nothing>(*worker, "nothing");
  TaskRef after;
  auto run = worker->submit([&](Orchestrator& orch) {
    CallConfig config;
    config.deadline_ms = 50;
    orch.submit_sub(stand, gate.args(), config).value();
    after = orch.submit_sub(idle, TaskArgs()).value();
  });
  expect_error(run->wait(), Code::kDeadline, "its deadline of 50 ms has passed");
  EXPECT_TRUE(run->result(after).ok());
  EXPECT_EQ(worker->sub_children()[0].incarnation, 2u);
  worker->close().value();
}

}  // namespace
}  // namespace strata
