// on_done: callbacks of runs that are done, what they may do and what not; and wrong places for
// calls that wait: each is refused in words, at once, and the Worker goes on.
#include <sys/wait.h>
#include <algorithm>

#include <mutex>
#include <thread>

#include "tests/runtime/worker_test_util.h"

namespace strata {
namespace {

using namespace test;  // NOLINT

class OnDone : public ::testing::TestWithParam<StartMethod> {
 protected:
  void SetUp() override {
    worker_ = started(GetParam(), 2);
    none_ = registered<nothing>(*worker_, "nothing");
    fails_ = registered<throw_text>(*worker_, "throw_text");
  }
  RunHandle submit(const CallableHandle& callable, std::string_view text = "") {
    return worker_
        ->submit([&](Orchestrator& orch) {
          orch.submit_sub(callable, TaskArgs().set_inline(bytes_of(text))).value();
        })
        .value();
  }
  void note(int what) {
    const std::lock_guard lock(mutex_);
    seen_.push_back(what);
  }
  std::vector<int> seen() {
    const std::lock_guard lock(mutex_);
    return seen_;
  }

  std::unique_ptr<Worker> worker_;
  CallableHandle none_, fails_;
  std::mutex mutex_;
  std::vector<int> seen_;
};
INSTANTIATE_TEST_SUITE_P(Both, OnDone, ::testing::Values(StartMethod::kFork, StartMethod::kInline),
                         [](const auto& instance) {
                           return instance.param == StartMethod::kFork ? "Fork" : "Inline";
                         });

TEST_P(OnDone, CallbacksComeOnceInOrderWithTheOutcome) {
  RunHandle handle;
  worker_->run([&](Orchestrator& orch) { orch.submit_sub(none_, {}).value(); }).value();
  handle = submit(fails_, "the matrix is singular");
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(handle
                    .on_done([this, i](const Result<void>& outcome) {
                      expect_error(outcome, Code::kTaskFailed, "the matrix is singular");
                      note(i);
                    })
                    .ok());
  }
  EXPECT_FALSE(handle.wait().ok());
  EXPECT_TRUE(await([&] { return seen().size() == 3; }));
  EXPECT_TRUE(worker_->close().ok());
  EXPECT_EQ(seen(), (std::vector<int>{0, 1, 2}));
}

TEST_P(OnDone, OfARunThatIsDoneTheCallbackIsCalledAtOnceHereAlsoAfterClose) {
  RunHandle handle = submit(none_);
  EXPECT_TRUE(handle.wait().ok());
  std::thread::id where;
  EXPECT_TRUE(handle
                  .on_done([&](const Result<void>& outcome) {
                    EXPECT_TRUE(outcome.ok());
                    where = std::this_thread::get_id();
                  })
                  .ok());
  EXPECT_EQ(where, std::this_thread::get_id());
  EXPECT_TRUE(worker_->close().ok());
  bool called = false;
  EXPECT_TRUE(handle.on_done([&](const Result<void>&) { called = true; }).ok());
  EXPECT_TRUE(called);
}

TEST_P(OnDone, ComesAlsoWhereNobodyWaitsAndTheHandleIsDropped) {
  static_cast<void>(submit(none_).on_done([this](const Result<void>&) { note(1); }));
  EXPECT_TRUE(await([&] { return seen().size() == 1; }));
}

TEST_P(OnDone, MaySubmitAndAskAndWhatItSubmitsRuns) {
  std::atomic<int> left = 20;
  std::vector<RunHandle> kept;
  std::function<void(const Result<void>&)> next = [&](const Result<void>& outcome) {
    EXPECT_TRUE(outcome.ok());
    if (--left <= 0) return;
    Result<RunHandle> run =
        worker_->submit([&](Orchestrator& orch) { orch.submit_sub(none_, {}).value(); });
    ASSERT_TRUE(run.ok()) << run.error().to_string();
    EXPECT_LE(run->progress().submitted, 1u);
    static_cast<void>(run->done());
    static_cast<void>(run->stats());
    EXPECT_TRUE(run->on_done(next).ok());
    const std::lock_guard lock(mutex_);
    kept.push_back(*run);
  };
  RunHandle first = submit(none_);
  EXPECT_TRUE(first.on_done(next).ok());
  EXPECT_TRUE(first.wait().ok());
  EXPECT_TRUE(await([&] { return left <= 0; }));
  EXPECT_TRUE(worker_->close().ok());
}

TEST_P(OnDone, AWaitACloseOrARegistrationInItIsAnErrorAtOnce) {
  RunHandle handle = submit(none_);
  EXPECT_TRUE(handle
                  .on_done([&, this](const Result<void>&) {
                    expect_error(handle.wait(), Code::kWrongState, "inside an on_done callback");
                    expect_error(handle.wait_for(10), Code::kWrongState, "inside an on_done");
                    expect_error(worker_->close(), Code::kWrongState, "inside an on_done");
                    expect_error(worker_->register_callable(local_function<fill>("fill")),
                                 Code::kWrongState, "inside an on_done");
                    expect_error(worker_->run([&](Orchestrator&) {}), Code::kWrongState,
                                 "inside an on_done");
                    EXPECT_TRUE(worker_
                                    ->submit([&](Orchestrator& orch) {
                                      const TaskRef task = orch.submit_sub(none_, {}).value();
                                      expect_error(orch.wait(task), Code::kWrongState,
                                                   "inside an on_done");
                                    })
                                    .ok());
                    note(1);
                  })
                  .ok());
  EXPECT_TRUE(handle.wait().ok());
  EXPECT_TRUE(await([&] { return seen().size() == 1; }));
  EXPECT_TRUE(worker_->close().ok());
}

TEST_P(OnDone, WhatACallbackThrowsIsLoggedOnceAndTheNextIsCalled) {
  ::testing::internal::CaptureStderr();
  RunHandle handle = submit(none_);
  EXPECT_TRUE(
      handle.on_done([](const Result<void>&) { throw std::runtime_error("no luck"); }).ok());
  EXPECT_TRUE(handle.on_done([](const Result<void>&) { throw 7; }).ok());
  EXPECT_TRUE(handle.on_done([this](const Result<void>&) { note(3); }).ok());
  EXPECT_TRUE(handle.wait().ok());
  EXPECT_TRUE(await([&] { return seen().size() == 1; }));
  EXPECT_TRUE(worker_->close().ok());
  const std::string log = ::testing::internal::GetCapturedStderr();
  const size_t at = log.find("no luck");
  EXPECT_NE(at, std::string::npos) << log;
  EXPECT_EQ(log.find("no luck", at + 1), std::string::npos) << log;
  EXPECT_NE(log.find("no std::exception"), std::string::npos) << log;
}

TEST_P(OnDone, OfARunThatAFunctionWaitsForIsNotCalledInsideThatFunction) {
  RunHandle first = submit(none_);
  std::thread::id where;
  std::atomic<bool> called = false;
  EXPECT_TRUE(first
                  .on_done([&](const Result<void>&) {
                    where = std::this_thread::get_id();
                    EXPECT_TRUE(worker_->submit([](Orchestrator&) {}).ok());
                    called = true;
                  })
                  .ok());
  worker_
      ->run([&](Orchestrator& orch) {
        EXPECT_TRUE(first.wait().ok());
        orch.submit_sub(none_, {}).value();
      })
      .value();
  EXPECT_TRUE(await([&] { return called.load(); }));
  EXPECT_TRUE(worker_->close().ok());
}

TEST_P(OnDone, CloseCallsWhatIsLeft) {
  std::vector<RunHandle> handles;
  for (int i = 0; i < 10; ++i) {
    handles.push_back(submit(none_));
    EXPECT_TRUE(handles.back().on_done([this, i](const Result<void>&) { note(i); }).ok());
  }
  EXPECT_TRUE(worker_->close().ok());
  // Of a run that is done already it comes at once, beside that of an earlier one elsewhere.
  std::vector<int> all = seen();
  std::sort(all.begin(), all.end());
  EXPECT_EQ(all, (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
}

TEST(OnDoneHandle, EmptyOnesAreErrors) {
  expect_error(RunHandle().on_done([](const Result<void>&) {}), Code::kInvalidArgument, "empty");
  const auto worker = started(StartMethod::kInline, 1);
  RunHandle handle = worker->submit([](Orchestrator&) {}).value();
  expect_error(handle.on_done(nullptr), Code::kInvalidArgument, "empty");
}

TEST(OnDoneThreads, ManyThreadsSubmitWithCallbacksAndEachIsCalledOnce) {
  const auto worker = started(StartMethod::kFork, 2);
  const auto none = registered<nothing>(*worker, "nothing");
  std::atomic<int> calls = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 100; ++i) {
        RunHandle handle =
            worker->submit([&](Orchestrator& orch) { orch.submit_sub(none, {}).value(); }).value();
        EXPECT_TRUE(handle.on_done([&](const Result<void>&) { ++calls; }).ok());
        if ((i + t) % 3 == 0) static_cast<void>(handle.wait());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(worker->close().ok());
  EXPECT_EQ(calls, 400);
}

// ---------------------------------------------------------------- wrong places

// For tasks that are calls in this process.
Worker* here = nullptr;
RunHandle* outer_run = nullptr;

void misuse_own_worker(Call&) {
  expect_error(here->submit([](Orchestrator&) {}), Code::kWrongState, "inside a task");
  expect_error(here->run([](Orchestrator&) {}), Code::kWrongState, "inside a task");
  expect_error(here->close(), Code::kWrongState, "inside a task");
  expect_error(here->register_callable(local_function<fill>("fill")), Code::kWrongState,
               "inside a task");
  expect_error(outer_run->wait(), Code::kWrongState, "inside a task");
  expect_error(outer_run->wait_for(1), Code::kWrongState, "inside a task");
  EXPECT_TRUE(outer_run->done());
  EXPECT_TRUE(here->create_buffer(8).ok());
}

TEST(WrongPlace, CallsThatWaitInsideATaskOfThisProcessAreRefused) {
  const auto worker = started(StartMethod::kInline, 1);
  const auto misuse = registered<misuse_own_worker>(*worker, "misuse");
  RunHandle first = worker->submit([](Orchestrator&) {}).value();
  here = worker.get();
  outer_run = &first;
  EXPECT_TRUE(worker->run([&](Orchestrator& orch) { orch.submit_sub(misuse, {}).value(); }).ok());
  EXPECT_TRUE(worker->close().ok());
}

// What a forked copy of the process, or a task in a child, gets of the Worker; 0: all as it should.
int use_from_a_copy(Worker& worker, RunHandle& handle, const CallableHandle& callable,
                    const Buffer& buffer) {
  const auto refused = [](const auto& result) {
    return !result.ok() && result.error().code() == Code::kWrongState &&
           result.error().message().find("forked copy") != std::string::npos;
  };
  int wrong = 0;
  wrong += !refused(worker.submit([](Orchestrator&) {}));
  wrong += !refused(worker.run([](Orchestrator&) {}));
  wrong += !refused(worker.create_buffer(8));
  wrong += !refused(worker.register_callable(local_function<fill>("fill")));
  wrong += !refused(worker.unregister_callable(callable));
  wrong += !refused(worker.clear_error(buffer));
  wrong += !refused(worker.init());
  wrong += !refused(worker.close());
  wrong += !refused(handle.wait());
  wrong += !refused(handle.wait_for(1));
  wrong += !refused(handle.on_done([](const Result<void>&) {}));
  wrong += !refused(handle.result({1, 0}));
  wrong += handle.done();
  wrong += handle.progress().submitted != 0;
  handle.cancel();
  return wrong;
}

TEST(WrongPlace, AForkedCopyOfTheProcessIsRefusedAndDisturbsNothing) {
  if (kThreadSanitizer) GTEST_SKIP() << "a fork of a process with threads";
  auto worker = started(StartMethod::kFork, 1);
  const auto none = registered<nothing>(*worker, "nothing");
  const auto stand = registered<stand_at_gate>(*worker, "stand");
  Gate gate(*worker);
  auto buffer = std::make_unique<Buffer>(worker->create_buffer(64).value());
  auto handle = std::make_unique<RunHandle>(
      worker->submit([&](Orchestrator& orch) { orch.submit_sub(stand, gate.args()).value(); })
          .value());
  ASSERT_TRUE(gate.await_started(1));
  const pid_t copy = ::fork();
  if (copy == 0) {
    int wrong = use_from_a_copy(*worker, *handle, none, *buffer);
    handle.reset();  // as the destructors of a copy that ends by exit()
    buffer.reset();
    worker.reset();
    ::_exit(wrong);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(copy, &status, 0), copy);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  gate.open();
  EXPECT_TRUE(handle->wait().ok());
  EXPECT_EQ(handle->progress().succeeded, 1u);
  EXPECT_TRUE(worker->run([&](Orchestrator& orch) { orch.submit_sub(none, {}).value(); }).ok());
  EXPECT_TRUE(worker->close().ok());
}

TEST(WrongPlace, AForkInsideAnOrchestrationFunctionIsRefusedThereToo) {
  if (kThreadSanitizer) GTEST_SKIP() << "a fork of a process with threads";
  auto worker = started(StartMethod::kFork, 1);
  const auto none = registered<nothing>(*worker, "nothing");
  EXPECT_TRUE(worker
                  ->run([&](Orchestrator& orch) {
                    const pid_t copy = ::fork();
                    if (copy == 0) {
                      const bool refused = !orch.submit_sub(none, {}).ok() &&
                                           !orch.temporary<int64_t>({1}).ok() &&
                                           !orch.scope().ok() && !orch.wait({1, 0}).ok();
                      ::_exit(refused ? 0 : 1);
                    }
                    int status = -1;
                    EXPECT_EQ(::waitpid(copy, &status, 0), copy);
                    EXPECT_EQ(status, 0);
                    orch.submit_sub(none, {}).value();
                  })
                  .ok());
}

TEST(WrongPlace, AWaitForTheRunThatIsBuiltIsRefusedAndForAnEarlierOneIsNot) {
  const auto worker = started(StartMethod::kFork, 1);
  const auto none = registered<nothing>(*worker, "nothing");
  RunHandle first =
      worker->submit([&](Orchestrator& orch) { orch.submit_sub(none, {}).value(); }).value();
  EXPECT_TRUE(worker
                  ->run([&](Orchestrator& orch) {
                    EXPECT_TRUE(first.wait().ok());
                    EXPECT_TRUE(orch.wait(orch.submit_sub(none, {}).value()).ok());
                  })
                  .ok());
}

TEST(WrongPlace, AfterCloseWaitsTellTheOutcomeAndCancelsChangeNothing) {
  const auto worker = started(StartMethod::kFork, 1);
  const auto none = registered<nothing>(*worker, "nothing");
  RunHandle handle =
      worker->submit([&](Orchestrator& orch) { orch.submit_sub(none, {}).value(); }).value();
  EXPECT_TRUE(worker->close().ok());
  EXPECT_TRUE(handle.wait().ok());
  EXPECT_TRUE(handle.wait_for(0).ok());
  handle.cancel();
  handle.cancel(0);
  EXPECT_TRUE(handle.done());
  EXPECT_EQ(handle.progress().succeeded, 1u);
}

// ---------------------------------------------------------------- stalls, two failures

TEST(Stall, AReportSaysWhatIsAwaitedWhereAndSinceWhen) {
  WorkerSpec spec = spec_of(StartMethod::kFork, 2);
  spec.timeouts.stall_report_ms = 20;
  const auto worker = started(spec);
  const auto stand = registered<stand_at_gate>(*worker, "stand");
  Gate gate(*worker);
  RunHandle handle = worker
                         ->submit([&](Orchestrator& orch) {
                           orch.submit_sub(stand, gate.args(), {.deadline_ms = 60'000}).value();
                         })
                         .value();
  ASSERT_TRUE(gate.await_started(1));
  ::testing::internal::CaptureStderr();
  expect_error(handle.wait_for(100), Code::kDeadline, "goes on");
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("L3 has waited"), std::string::npos) << log;
  EXPECT_NE(log.find("for the end of a run"), std::string::npos) << log;
  EXPECT_NE(log.find("pid " + std::to_string(gate.get(kPid)) + ": task 0 'stand' runs for"),
            std::string::npos)
      << log;
  EXPECT_NE(log.find("run 1: 0 of 1 tasks have ended"), std::string::npos) << log;
  gate.open();
  EXPECT_TRUE(handle.wait().ok());
}

TEST(TwoFailures, AtOnceTheOlderIsTheRunsAndTheOtherIsCounted) {
  const auto worker = started(StartMethod::kFork, 2);
  const auto fails = registered<throw_text>(*worker, "throw_text");
  for (int round = 0; round < 20; ++round) {
    RunHandle handle =
        worker
            ->submit([&](Orchestrator& orch) {
              for (const char* text : {"the first", "the second"}) {
                orch.submit_sub(fails, TaskArgs().set_inline(bytes_of(text))).value();
              }
            })
            .value();
    expect_error(handle.wait(), Code::kTaskFailed, "the first");
    EXPECT_EQ(handle.stats().errors_not_kept, 1u);
  }
}

TEST(TwoFailures, OfARunWhileTheNextIsBuiltPoisonsOnlyWhatItShouldHaveWritten) {
  const auto worker = started(StartMethod::kFork, 1);
  const auto fails = registered<throw_text>(*worker, "throw_text");
  const auto write = registered<fill>(*worker, "fill");
  const auto sum = registered<sum_all>(*worker, "sum");
  const auto stand = registered<stand_at_gate>(*worker, "stand");
  Gate gate(*worker);
  Buffer x = worker->create_buffer(16).value();
  const Tensor bad = x.tensor<int64_t>({1}, 0);
  const Tensor good = x.tensor<int64_t>({1}, 8);
  RunHandle one =
      worker
          ->submit([&](Orchestrator& orch) {
            orch.submit_sub(stand, gate.args()).value();
            orch.submit_sub(fails,
                            TaskArgs().add_tensor(bad, OUTPUT).set_inline(bytes_of("no disk")))
                .value();
          })
          .value();
  RunHandle two =
      worker
          ->submit([&](Orchestrator& orch) {
            orch.submit_sub(write, TaskArgs().add_tensor(good, OUTPUT).add_scalar(int64_t{4}))
                .value();
            orch.submit_sub(sum, TaskArgs().add_tensor(bad, INPUT)).value();
            gate.open();
            expect_error(one.wait(), Code::kTaskFailed, "no disk");
            orch.submit_sub(sum, TaskArgs().add_tensor(good, INPUT)).value();
          })
          .value();
  expect_error(two.wait(), Code::kSkipped, "no disk");
  EXPECT_EQ(two.progress().succeeded, 2u);
  EXPECT_EQ(two.progress().skipped, 1u);
}

}  // namespace
}  // namespace strata
