// Tasks that fail and children that die.
#include <thread>

#include "tests/runtime/worker_test_util.h"

namespace strata {
namespace {

using namespace test;  // NOLINT

void exit_zero(Call&) {
  std::exit(0);
}
void exit_three(Call&) {
  ::_exit(3);
}
void kill_self(Call&) {
  ::raise(SIGKILL);
}
void throw_int(Call&) {
  throw 7;
}

int32_t entry_returning_42(const strata_call*) {
  return 42;
}
int32_t entry_with_text(const strata_call* call) {
  const std::string_view text = "the text of a C entry";
  call->set_error(call, text.data(), text.size());
  return -5;
}
int32_t entry_that_throws(const strata_call*) {
  throw std::runtime_error("out of a C entry");
}

class TaskFailure : public ::testing::TestWithParam<StartMethod> {
 protected:
  std::unique_ptr<Worker> worker_ = started(GetParam(), 2);
  CallableHandle throw_ = registered<throw_text>(*worker_, "throw_text");
  CallableHandle copy_ = registered<copy_add>(*worker_, "copy_add");
  CallableHandle step_ = registered<scale_add>(*worker_, "scale_add");
  CallableHandle fill_ = registered<fill>(*worker_, "fill");
  Buffer x_ = worker_->create_buffer(64).value();
  Buffer y_ = worker_->create_buffer(64).value();

  Tensor x() const { return x_.tensor<int64_t>({8}); }
  Tensor y() const { return y_.tensor<int64_t>({8}); }
  TaskArgs failing(const Tensor& out, std::string_view text) const {
    return TaskArgs().add_tensor(out, OUTPUT).set_inline(bytes_of(text));
  }
  TaskArgs copy_args(const Tensor& from, const Tensor& to) const {
    return TaskArgs().add_tensor(from, INPUT).add_tensor(to, OUTPUT).add_scalar(int64_t{1});
  }
  TaskArgs fill_args(const Tensor& to, int64_t v) const {
    return TaskArgs().add_tensor(to, OUTPUT).add_scalar(v);
  }
  Result<void> run_one(const CallableHandle& callable, const TaskArgs& args) {
    return worker_->run([&](Orchestrator& orch) { orch.submit_sub(callable, args).value(); });
  }
};
INSTANTIATE_TEST_SUITE_P(Both, TaskFailure,
                         ::testing::Values(StartMethod::kFork, StartMethod::kInline),
                         [](const auto& instance) {
                           return instance.param == StartMethod::kFork ? "Fork" : "Inline";
                         });

TEST_P(TaskFailure, ExceptionsTextAndPlaceAreTheRunsError) {
  const auto outcome = run_one(throw_, failing(x(), "seven is no prime here"));
  expect_error(outcome, Code::kTaskFailed, "seven is no prime here");
  EXPECT_EQ(outcome.error().scope(), Scope::kTask);
  EXPECT_NE(outcome.error().where().find("throw_text"), std::string::npos)
      << outcome.error().where();
  EXPECT_NE(outcome.error().where().find("L3/"), std::string::npos) << outcome.error().where();
}

TEST_P(TaskFailure, ExceptionOfAnotherTypeIsToldAsSuch) {
  const auto callable = registered<throw_int>(*worker_, "throw_int");
  expect_error(run_one(callable, TaskArgs()), Code::kTaskFailed, "no std::exception");
}

TEST_P(TaskFailure, NumberThatACEntryReturnsIsInTheText) {
  const auto plain = worker_->register_callable(LocalFunction{&entry_returning_42, "c"}).value();
  const auto text = worker_->register_callable(LocalFunction{&entry_with_text, "t"}).value();
  const auto throws = worker_->register_callable(LocalFunction{&entry_that_throws, "x"}).value();
  expect_error(run_one(plain, TaskArgs()), Code::kTaskFailed, "42");
  expect_error(run_one(text, TaskArgs()), Code::kTaskFailed, "the text of a C entry");
  expect_error(run_one(throws, TaskArgs()), Code::kTaskFailed, "out of a C entry");
}

TEST_P(TaskFailure, LongTextIsCutAndTheChildGoesOn) {
  const std::string text(60'000, 'z');
  const auto outcome = run_one(throw_, failing(x(), text));
  expect_error(outcome, Code::kTaskFailed, "zzzzzzzz");
  EXPECT_LE(outcome.error().message().size(), Error::kMessageBytesMax);
  EXPECT_GE(outcome.error().message().size(), 1000u);
  EXPECT_TRUE(run_one(fill_, fill_args(x(), 1)).ok());
}

TEST_P(TaskFailure, TaskThatReadsWhatAFailedOneShouldHaveWrittenIsSkippedWithItsCause) {
  TaskRef bad;
  TaskRef reader;
  TaskRef free;
  auto handle = worker_->submit([&](Orchestrator& orch) {
    bad = orch.submit_sub(throw_, failing(x(), "the root")).value();
    reader = orch.submit_sub(copy_, copy_args(x(), y())).value();
    Buffer z = worker_->create_buffer(64).value();
    free = orch.submit_sub(fill_, fill_args(z.tensor<int64_t>({8}), 3)).value();
  });
  const auto outcome = handle->wait();
  expect_error(outcome, Code::kTaskFailed, "the root");
  expect_error(handle->result(bad), Code::kTaskFailed, "the root");
  expect_error(handle->result(reader), Code::kSkipped, "the root");
  EXPECT_TRUE(handle->result(free).ok());
  const RunProgress progress = handle->progress();
  EXPECT_EQ(progress.submitted, 3u);
  EXPECT_EQ(progress.succeeded, 1u);
  EXPECT_EQ(progress.failed, 1u);
  EXPECT_EQ(progress.skipped, 1u);
  EXPECT_EQ(handle->stats().errors_not_kept, 1u);
}

TEST_P(TaskFailure, RootErrorIsThatOfTheSmallestSubmissionNumber) {
  for (int round = 0; round < 10; ++round) {
    auto handle = worker_->submit([&](Orchestrator& orch) {
      for (uint64_t i = 0; i < 8; ++i) {
        orch.submit_sub(throw_, failing(x_.tensor<int64_t>({1}, i * 8),
                                        "failure number " + std::to_string(i)))
            .value();
      }
    });
    expect_error(handle->wait(), Code::kTaskFailed, "failure number 0");
    EXPECT_EQ(handle->stats().errors_not_kept, 7u);
  }
}

TEST_P(TaskFailure, PoisonHoldsAcrossRunsUntilTheBytesAreWritten) {
  expect_error(run_one(throw_, failing(x(), "first cause")), Code::kTaskFailed, "first cause");
  expect_error(run_one(copy_, copy_args(x(), y())), Code::kSkipped, "first cause");
  // What was skipped poisons in turn, with the same cause.
  Buffer z = worker_->create_buffer(64).value();
  expect_error(run_one(copy_, copy_args(y(), z.tensor<int64_t>({8}))), Code::kSkipped,
               "first cause");
  EXPECT_TRUE(run_one(fill_, fill_args(x(), 5)).ok());
  EXPECT_TRUE(run_one(copy_, copy_args(x(), y())).ok());
  EXPECT_EQ(y_.as<int64_t>()[7], 6);
}

TEST_P(TaskFailure, PoisonIsOfTheBytesAndNotOfTheBuffer) {
  expect_error(run_one(throw_, failing(x_.tensor<int64_t>({2}), "two")), Code::kTaskFailed, "two");
  const auto from = [&](uint64_t at, uint64_t n) { return x_.tensor<int64_t>({n}, at * 8); };
  const auto to = [&](uint64_t n) { return y_.tensor<int64_t>({n}); };
  EXPECT_TRUE(run_one(copy_, copy_args(from(2, 6), to(6))).ok());
  expect_error(run_one(copy_, copy_args(from(1, 2), to(2))), Code::kSkipped, "two");
  // Half of the poison is written; the rest stays.
  EXPECT_TRUE(run_one(fill_, fill_args(from(0, 1), 1)).ok());
  EXPECT_TRUE(run_one(copy_, copy_args(from(0, 1), to(1))).ok());
  expect_error(run_one(copy_, copy_args(from(0, 2), to(2))), Code::kSkipped, "two");
}

TEST_P(TaskFailure, InoutOfPoisonedBytesIsSkippedAndKeepsThePoison) {
  expect_error(run_one(throw_, failing(x(), "cause")), Code::kTaskFailed, "cause");
  const TaskArgs inout =
      TaskArgs().add_tensor(x(), INOUT).add_scalar(int64_t{1}).add_scalar(int64_t{1});
  expect_error(run_one(step_, inout), Code::kSkipped, "cause");
  expect_error(run_one(step_, inout), Code::kSkipped, "cause");
}

TEST_P(TaskFailure, ClearErrorForgetsThePoison) {
  expect_error(run_one(throw_, failing(x(), "cause")), Code::kTaskFailed, "cause");
  ASSERT_TRUE(worker_->clear_error(x_).ok());
  EXPECT_TRUE(run_one(copy_, copy_args(x(), y())).ok());
  // Nothing to forget is no error; an empty Buffer is.
  EXPECT_TRUE(worker_->clear_error(y_).ok());
  EXPECT_FALSE(worker_->clear_error(Buffer()).ok());
}

TEST_P(TaskFailure, NewBufferInThePlaceOfAPoisonedOneIsClean) {
  {
    Buffer z = worker_->create_buffer(64).value();
    expect_error(run_one(throw_, failing(z.tensor<int64_t>({8}), "cause")), Code::kTaskFailed,
                 "cause");
  }
  for (int i = 0; i < 4; ++i) {
    Buffer z = worker_->create_buffer(64).value();
    EXPECT_TRUE(run_one(copy_, copy_args(z.tensor<int64_t>({8}), y())).ok());
  }
}

TEST_P(TaskFailure, OrchestratorsWaitGivesTheTasksOwnError) {
  auto outcome = worker_->run([&](Orchestrator& orch) {
    const TaskRef bad = orch.submit_sub(throw_, failing(x(), "the root")).value();
    const TaskRef reader = orch.submit_sub(copy_, copy_args(x(), y())).value();
    expect_error(orch.wait(reader), Code::kSkipped, "the root");
    expect_error(orch.wait(bad), Code::kTaskFailed, "the root");
    expect_error(orch.wait({bad.run, 99}), Code::kNotFound, "no task 99");
    expect_error(orch.wait({bad.run + 7, 0}), Code::kNotFound, "no task");
  });
  expect_error(outcome, Code::kTaskFailed, "the root");
}

TEST_P(TaskFailure, ThousandsOfFailuresAreCountedAndTheRootIsKept) {
  auto handle = worker_->submit([&](Orchestrator& orch) {
    for (int i = 0; i < 6000; ++i) {
      orch.submit_sub(throw_, failing(x_.tensor<int64_t>({1}), "number " + std::to_string(i) + ";"))
          .value();
    }
  });
  expect_error(handle->wait(), Code::kTaskFailed, "number 0;");
  EXPECT_EQ(handle->progress().failed, 6000u);
  EXPECT_EQ(handle->stats().errors_not_kept, 5999u);
}

// ---------------------------------------------------------------- children that die

class ChildDeath : public ::testing::Test {
 protected:
  static std::vector<int> pids(Worker& worker) {
    std::vector<int> out;
    for (const Worker::Child& child : worker.sub_children()) out.push_back(child.pid);
    return out;
  }
  static size_t alive(Worker& worker) {
    size_t n = 0;
    for (const Worker::Child& child : worker.sub_children()) n += child.alive;
    return n;
  }
};

TEST_F(ChildDeath, KilledWhileItRunsIsAnEndpointFailureSoonAndTheOtherGoesOn) {
  const auto worker = started(StartMethod::kFork, 2);
  const auto stand = registered<stand_at_gate>(*worker, "stand");
  const auto none = registered<nothing>(*worker, "nothing");
  Gate gate(*worker);
  auto handle =
      worker->submit([&](Orchestrator& orch) { orch.submit_sub(stand, gate.args()).value(); });
  ASSERT_TRUE(gate.await_started(1));
  const int victim = static_cast<int>(gate.get(kPid));
  const base::Instant killed = os::monotonic_now();
  ASSERT_EQ(::kill(victim, SIGKILL), 0);
  const auto outcome = handle->wait();
  EXPECT_LT((os::monotonic_now() - killed).ns, kLossBound.ns);
  expect_error(outcome, Code::kEndpointFailed, "killed by signal 9");
  EXPECT_NE(outcome.error().to_string().find("pid " + std::to_string(victim)), std::string::npos)
      << outcome.error().to_string();
  EXPECT_EQ(alive(*worker), 1u);
  EXPECT_TRUE(worker
                  ->run([&](Orchestrator& orch) {
                    for (int i = 0; i < 100; ++i) orch.submit_sub(none, TaskArgs()).value();
                  })
                  .ok());
  EXPECT_TRUE(worker->close().ok());
}

TEST_F(ChildDeath, KilledWhileNobodyWaitsIsSeenByTheRunItself) {
  const auto worker = started(StartMethod::kFork, 2);
  const auto stand = registered<stand_at_gate>(*worker, "stand");
  Gate gate(*worker);
  auto handle =
      worker->submit([&](Orchestrator& orch) { orch.submit_sub(stand, gate.args()).value(); });
  ASSERT_TRUE(gate.await_started(1));
  ASSERT_EQ(::kill(static_cast<int>(gate.get(kPid)), SIGKILL), 0);
  EXPECT_TRUE(await([&] { return handle->done(); }, kLossBound));
  expect_error(handle->wait(), Code::kEndpointFailed, "killed by signal 9");
}

TEST_F(ChildDeath, QueuedTasksOfAStoppedChildRunAtTheOther) {
  const auto worker = started(StartMethod::kFork, 2);
  const auto stand = registered<stand_at_gate>(*worker, "stand");
  const auto count = registered<count_call>(*worker, "count");
  Gate first(*worker);
  Gate second(*worker);
  Gate counts(*worker);
  auto handle = worker->submit([&](Orchestrator& orch) {
    orch.submit_sub(stand, first.args()).value();
    orch.submit_sub(stand, second.args()).value();
    first.await_started(1);
    second.await_started(1);  // at one child each, before anything stands behind
    for (uint32_t i = 0; i < 24; ++i) {
      orch.submit_sub(count, counts.args().add_scalar(kFirstFree)).value();
    }
  });
  ASSERT_TRUE(first.await_started(1));
  ASSERT_TRUE(second.await_started(1));
  const int stopped = static_cast<int>(first.get(kPid));
  ASSERT_EQ(::kill(stopped, SIGSTOP), 0);
  ASSERT_TRUE(await([&] { return state_and_parent(stopped).first == 'T'; }));
  second.open();
  first.open();
  EXPECT_TRUE(await([&] { return counts.get(kFirstFree) == 24; }));
  EXPECT_FALSE(handle->done());
  ASSERT_EQ(::kill(stopped, SIGCONT), 0);
  EXPECT_TRUE(handle->wait().ok());
}

TEST_F(ChildDeath, AllKilledWhileFourThreadsWorkEndsAllOfThemInWords) {
  for (int round = 0; round < 5; ++round) {
    const auto worker = started(StartMethod::kFork, 2);
    const auto none = registered<nothing>(*worker, "nothing");
    std::atomic<uint32_t> runs = 0;
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        for (;;) {
          const auto outcome = worker->run([&](Orchestrator& orch) {
            for (int i = 0; i < 10; ++i) orch.submit_sub(none, TaskArgs()).value();
          });
          ++runs;
          if (!outcome && outcome.error().code() == Code::kNoWorker) return;
        }
      });
    }
    await([&] { return runs > 20; });
    for (const int pid : pids(*worker)) ::kill(pid, SIGKILL);
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(alive(*worker), 0u);
    EXPECT_TRUE(worker->close().ok());
  }
}

TEST_F(ChildDeath, QueuedTasksOfAKilledChildRunOnceAtTheOther) {
  auto spec = spec_of(StartMethod::kFork, 2);
  const auto worker = started(spec);
  const auto stand = registered<stand_at_gate>(*worker, "stand");
  const auto count = registered<count_call>(*worker, "count");
  Gate first(*worker);
  Gate second(*worker);
  Gate counts(*worker);
  constexpr uint32_t kTasks = 24;  // both queues hold 15 behind the task that stands
  auto handle = worker->submit([&](Orchestrator& orch) {
    orch.submit_sub(stand, first.args()).value();
    orch.submit_sub(stand, second.args()).value();
    first.await_started(1);
    second.await_started(1);  // at one child each, before anything stands behind
    for (uint32_t i = 0; i < kTasks; ++i) {
      orch.submit_sub(count, counts.args().add_scalar(kFirstFree + i)).value();
    }
  });
  ASSERT_TRUE(first.await_started(1));
  ASSERT_TRUE(second.await_started(1));
  ASSERT_EQ(::kill(static_cast<int>(first.get(kPid)), SIGKILL), 0);
  second.open();
  expect_error(handle->wait(), Code::kEndpointFailed, "killed by signal 9");
  const RunProgress progress = handle->progress();
  EXPECT_EQ(progress.failed, 1u);
  EXPECT_EQ(progress.skipped, 0u);
  EXPECT_EQ(progress.succeeded, kTasks + 1);
  for (uint32_t i = 0; i < kTasks; ++i) EXPECT_EQ(counts.get(kFirstFree + i), 1u) << i;
}

TEST_F(ChildDeath, KilledWhileIdleIsSeenAndWorkGoesToTheOther) {
  const auto worker = started(StartMethod::kFork, 2);
  const auto count = registered<count_call>(*worker, "count");
  Gate counts(*worker);
  ASSERT_EQ(::kill(pids(*worker)[0], SIGKILL), 0);
  EXPECT_TRUE(await([&] { return alive(*worker) == 1; }, kLossBound));
  auto outcome = worker->run([&](Orchestrator& orch) {
    for (uint32_t i = 0; i < 40; ++i) {
      orch.submit_sub(count, counts.args().add_scalar(kFirstFree + i)).value();
    }
  });
  EXPECT_TRUE(outcome.ok()) << outcome.error().to_string();
  for (uint32_t i = 0; i < 40; ++i) EXPECT_EQ(counts.get(kFirstFree + i), 1u) << i;
}

TEST_F(ChildDeath, TasksGivenToAChildThatWasKilledJustBeforeRunElsewhere) {
  for (int round = 0; round < 10; ++round) {
    const auto worker = started(StartMethod::kFork, 2);
    const auto count = registered<count_call>(*worker, "count");
    Gate counts(*worker);
    ASSERT_EQ(::kill(pids(*worker)[round % 2], SIGKILL), 0);
    auto outcome = worker->run([&](Orchestrator& orch) {
      for (uint32_t i = 0; i < 20; ++i) {
        orch.submit_sub(count, counts.args().add_scalar(kFirstFree + i)).value();
      }
    });
    ASSERT_TRUE(outcome.ok()) << outcome.error().to_string();
    for (uint32_t i = 0; i < 20; ++i) ASSERT_EQ(counts.get(kFirstFree + i), 1u) << i;
  }
}

TEST_F(ChildDeath, KillInTheMidstOfAStreamOfTasksLosesAndRepeatsNothing) {
  const auto worker = started(StartMethod::kFork, 3);
  const auto count = registered<count_call>(*worker, "count");
  constexpr uint32_t kTasks = 4000;
  Buffer words = worker->create_buffer(kTasks * 4).value();
  const std::vector<int> children = pids(*worker);
  auto handle = worker->submit([&](Orchestrator& orch) {
    for (uint32_t i = 0; i < kTasks; ++i) {
      orch.submit_sub(count,
                      TaskArgs().add_tensor(words.tensor<uint32_t>({kTasks}), NO_DEP).add_scalar(i))
          .value();
      if (i == 1000) ::kill(children[0], SIGKILL);
      if (i == 2000) ::kill(children[2], SIGKILL);
    }
  });
  static_cast<void>(handle->wait());  // an error where a task ran at the moment of a kill
  const RunProgress progress = handle->progress();
  EXPECT_EQ(progress.terminal(), kTasks);
  EXPECT_EQ(progress.skipped, 0u);
  EXPECT_LE(progress.failed, 2u);
  uint64_t ran = 0;
  for (const uint32_t n : words.as<uint32_t>()) {
    EXPECT_LE(n, 1u);
    ran += n;
  }
  EXPECT_GE(ran, progress.succeeded);
}

TEST_F(ChildDeath, WithoutAnyChildLeftTasksFailWithNoWorkerAndNothingHangs) {
  const auto worker = started(StartMethod::kFork, 2);
  const auto stand = registered<stand_at_gate>(*worker, "stand");
  const auto none = registered<nothing>(*worker, "nothing");
  Gate gate(*worker);
  TaskRef last;
  auto handle = worker->submit([&](Orchestrator& orch) {
    orch.submit_sub(stand, gate.args()).value();
    orch.submit_sub(stand, gate.args()).value();
    gate.await_started(2);  // at one child each, before anything stands behind
    for (int i = 0; i < 100; ++i) last = orch.submit_sub(none, TaskArgs()).value();
  });
  ASSERT_TRUE(gate.await_started(2));
  for (const int pid : pids(*worker)) ASSERT_EQ(::kill(pid, SIGKILL), 0);
  expect_error(handle->wait(), Code::kEndpointFailed, "killed by signal 9");
  expect_error(handle->result(last), Code::kNoWorker, "no live worker");
  EXPECT_EQ(handle->progress().failed, 2u);
  EXPECT_EQ(handle->progress().skipped, 100u);
  // And what is submitted afterwards.
  expect_error(worker->run([&](Orchestrator& orch) { orch.submit_sub(none, TaskArgs()).value(); }),
               Code::kNoWorker, "killed by signal 9");
  EXPECT_TRUE(worker->close().ok());
}

TEST_F(ChildDeath, KilledForkServerIsNamedAndEndsAllChildrenOfItsWorker) {
  const auto worker = started(StartMethod::kFork, 2);
  const auto stand = registered<stand_at_gate>(*worker, "stand");
  const auto none = registered<nothing>(*worker, "nothing");
  Gate gate(*worker);
  auto handle =
      worker->submit([&](Orchestrator& orch) { orch.submit_sub(stand, gate.args()).value(); });
  ASSERT_TRUE(gate.await_started(1));
  const std::vector<int> children = pids(*worker);
  std::vector<std::unique_ptr<Pidfd>> ends;
  for (const int pid : children) ends.push_back(std::make_unique<Pidfd>(pid));
  const int server = state_and_parent(children[0]).second;
  const base::Instant killed = os::monotonic_now();
  ASSERT_EQ(::kill(server, SIGKILL), 0);
  expect_error(handle->wait(), Code::kEndpointFailed, "fork server");
  EXPECT_LT((os::monotonic_now() - killed).ns, kLossBound.ns);
  for (const auto& end : ends) EXPECT_TRUE(end->ended(kLossBound));
  EXPECT_EQ(alive(*worker), 0u);
  expect_error(worker->run([&](Orchestrator& orch) { orch.submit_sub(none, TaskArgs()).value(); }),
               Code::kNoWorker, "fork server");
  static_cast<void>(worker->close());
  // The process's own server stands, and makes one for another Worker.
  const auto another = started(StartMethod::kFork, 1);
  const auto again = registered<nothing>(*another, "nothing");
  EXPECT_TRUE(
      another->run([&](Orchestrator& orch) { orch.submit_sub(again, TaskArgs()).value(); }).ok());
}

TEST_F(ChildDeath, KilledServerOfTheProcessIsMadeAgainWhereThatIsAllowed) {
  auto first = started(StartMethod::kFork, 1);
  const int server = state_and_parent(pids(*first)[0]).second;
  const int root = state_and_parent(server).second;
  ASSERT_NE(root, ::getpid());  // a Worker's server is forked by the process's
  ASSERT_EQ(state_and_parent(root).second, ::getpid());
  Pidfd end(root);
  ASSERT_EQ(::kill(root, SIGKILL), 0);
  ASSERT_TRUE(end.ended(kLossBound));
  // Its end is not that of the servers that it has made.
  const auto none = registered<nothing>(*first, "nothing");
  EXPECT_TRUE(
      first->run([&](Orchestrator& orch) { orch.submit_sub(none, TaskArgs()).value(); }).ok());
  EXPECT_TRUE(first->close().ok());
  first.reset();
  auto spec = spec_of(StartMethod::kFork, 1);
  spec.allow_threads = true;
  auto second = Worker::create(spec).value();
  const auto made = second->init();
  ASSERT_TRUE(made.ok()) << made.error().to_string();
  const auto again = registered<nothing>(*second, "nothing");
  EXPECT_TRUE(
      second->run([&](Orchestrator& orch) { orch.submit_sub(again, TaskArgs()).value(); }).ok());
}

TEST_F(ChildDeath, ExitInsideATaskIsAnEndpointFailureWithTheStatus) {
  const auto worker = started(StartMethod::kFork, 3);
  const auto zero = registered<exit_zero>(*worker, "exit_zero");
  const auto three = registered<exit_three>(*worker, "exit_three");
  const auto none = registered<nothing>(*worker, "nothing");
  const auto run_one = [&](const CallableHandle& callable) {
    return worker->run([&](Orchestrator& orch) { orch.submit_sub(callable, TaskArgs()).value(); });
  };
  expect_error(run_one(zero), Code::kEndpointFailed, "exit status 0");
  expect_error(run_one(three), Code::kEndpointFailed, "exit status 3");
  EXPECT_TRUE(run_one(none).ok());
  const auto self = registered<kill_self>(*worker, "kill_self");
  expect_error(run_one(self), Code::kEndpointFailed, "signal 9");
  expect_error(run_one(none), Code::kNoWorker, "no live worker");
}

TEST_F(ChildDeath, EndpointFailurePoisonsWhatItsTaskShouldHaveWritten) {
  const auto worker = started(StartMethod::kFork, 2);
  const auto three = registered<exit_three>(*worker, "exit_three");
  const auto sum = registered<sum_all>(*worker, "sum_all");
  Buffer x = worker->create_buffer(64).value();
  TaskRef reader;
  auto handle = worker->submit([&](Orchestrator& orch) {
    orch.submit_sub(three, TaskArgs().add_tensor(x.tensor<int64_t>({8}), OUTPUT)).value();
    reader = orch.submit_sub(sum, TaskArgs().add_tensor(x.tensor<int64_t>({8}), INPUT)).value();
  });
  expect_error(handle->wait(), Code::kEndpointFailed, "exit status 3");
  expect_error(handle->result(reader), Code::kSkipped, "exit status 3");
}

TEST_F(ChildDeath, StoppedChildGoesOnWhereItWas) {
  const auto worker = started(StartMethod::kFork, 1);
  const auto stand = registered<stand_at_gate>(*worker, "stand");
  Gate gate(*worker);
  auto handle =
      worker->submit([&](Orchestrator& orch) { orch.submit_sub(stand, gate.args()).value(); });
  ASSERT_TRUE(gate.await_started(1));
  const int pid = static_cast<int>(gate.get(kPid));
  ASSERT_EQ(::kill(pid, SIGSTOP), 0);
  ASSERT_TRUE(await([&] { return state_and_parent(pid).first == 'T'; }));
  gate.open();
  expect_error(handle->wait_for(50), Code::kDeadline, "goes on");
  EXPECT_EQ(alive(*worker), 1u);
  ASSERT_EQ(::kill(pid, SIGCONT), 0);
  EXPECT_TRUE(handle->wait().ok());
  EXPECT_TRUE(worker->close().ok());
}

TEST_F(ChildDeath, StoppedIdleChildIsKilledByClose) {
  auto spec = spec_of(StartMethod::kFork, 2);
  spec.timeouts.exit_ms = 200;
  const auto worker = started(spec);
  const std::vector<int> children = pids(*worker);
  std::vector<std::unique_ptr<Pidfd>> ends;
  for (const int pid : children) ends.push_back(std::make_unique<Pidfd>(pid));
  ASSERT_EQ(::kill(children[1], SIGSTOP), 0);
  expect_error(worker->close(), Code::kDeadline, "exit_ms");
  for (const auto& end : ends) EXPECT_TRUE(end->ended(kLossBound));
}

TEST_F(ChildDeath, TaskThatIgnoresCloseIsCancelledThenKilled) {
  auto spec = spec_of(StartMethod::kFork, 1);
  spec.timeouts.close_ms = 100;
  spec.timeouts.exit_ms = 100;
  const auto worker = started(spec);
  const auto stand = registered<stand_at_gate>(*worker, "stand");
  Gate gate(*worker);
  auto handle =
      worker->submit([&](Orchestrator& orch) { orch.submit_sub(stand, gate.args()).value(); });
  ASSERT_TRUE(gate.await_started(1));
  // This one ends once it sees that it is cancelled.
  expect_error(worker->close(), Code::kDeadline, "close_ms");
  EXPECT_EQ(gate.get(kCancelSeen), 1u);
  EXPECT_TRUE(handle->done());
}

}  // namespace
}  // namespace strata
