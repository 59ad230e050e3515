// Runs and their handles, and several threads at one Worker. With processes: tasks stand at gates.
#include <thread>

#include "tests/runtime/worker_test_util.h"

namespace strata {
namespace {

using namespace test;  // NOLINT

class Runs : public ::testing::Test {
 protected:
  void SetUp() override { open(spec_of(StartMethod::kFork, 2)); }
  void open(const WorkerSpec& spec) {
    worker_ = started(spec);
    stand_ = registered<stand_at_gate>(*worker_, "stand");
    step_ = registered<scale_add>(*worker_, "scale_add");
    fill_ = registered<fill>(*worker_, "fill");
    count_ = registered<count_call>(*worker_, "count");
    none_ = registered<nothing>(*worker_, "nothing");
  }
  Result<RunHandle> submit_standing(const Gate& gate, int tasks = 1) {
    return worker_->submit([&](Orchestrator& orch) {
      for (int i = 0; i < tasks; ++i) orch.submit_sub(stand_, gate.args()).value();
    });
  }
  TaskArgs add_one(const Buffer& x) const {
    return TaskArgs()
        .add_tensor(x.tensor<int64_t>({1}), INOUT)
        .add_scalar(int64_t{1})
        .add_scalar(int64_t{1});
  }

  std::unique_ptr<Worker> worker_;
  CallableHandle stand_, step_, fill_, count_, none_;
};

TEST_F(Runs, NextRunIsBuiltWhileOneExecutesAndStartsAfterIt) {
  Gate first(*worker_);
  Gate second(*worker_);
  Buffer matrix = worker_->create_buffer(16 * 16 * 8).value();
  const Tensor all = matrix.tensor<int64_t>({16, 16});
  auto one = submit_standing(first);
  ASSERT_TRUE(first.await_started(1));
  auto two = worker_->submit([&](Orchestrator& orch) {
    orch.submit_sub(stand_, second.args()).value();
    for (uint64_t i = 0; i < 16; ++i) {
      orch.submit_sub(step_, TaskArgs()
                                 .add_tensor(matrix.tensor<int64_t>({16}, i * 128), INOUT)
                                 .add_scalar(int64_t{1})
                                 .add_scalar(int64_t{1}))
          .value();
    }
    orch.submit_sub(step_,
                    TaskArgs().add_tensor(all, INOUT).add_scalar(int64_t{2}).add_scalar(int64_t{0}))
        .value();
  });
  ASSERT_TRUE(two.ok());
  EXPECT_TRUE(two->progress().built);
  EXPECT_EQ(two->stats().dependencies, 16u);
  EXPECT_EQ(two->progress().terminal(), 0u);
  EXPECT_EQ(second.get(kStarted), 0u);  // a child is free, but its run's turn has not come
  EXPECT_FALSE(one->done());
  first.open();
  ASSERT_TRUE(second.await_started(1));
  EXPECT_TRUE(one->done());
  second.open();
  EXPECT_TRUE(two->wait().ok());
  EXPECT_TRUE(one->wait().ok());
  for (const int64_t v : matrix.as<int64_t>()) ASSERT_EQ(v, 2);
}

TEST_F(Runs, ThirdRunWaitsForItsTurnUntilTheDeadline) {
  auto spec = spec_of(StartMethod::kFork, 2);
  spec.timeouts.building_turn_ms = 100;
  open(spec);
  Gate gate(*worker_);
  auto one = submit_standing(gate);
  auto two = submit_standing(gate);
  ASSERT_TRUE(two.ok());
  expect_error(submit_standing(gate), Code::kDeadline, "building_turn_ms");
  gate.open();
  EXPECT_TRUE(two->wait().ok());
  EXPECT_TRUE(submit_standing(gate)->wait().ok());
}

TEST_F(Runs, WaitForEndsAtItsDeadlineAndTheRunGoesOn) {
  Gate gate(*worker_);
  auto handle = submit_standing(gate);
  expect_error(handle->wait_for(0), Code::kDeadline, "goes on");
  expect_error(handle->wait_for(20), Code::kDeadline, "goes on");
  EXPECT_FALSE(handle->done());
  gate.open();
  EXPECT_TRUE(handle->wait_for(60'000).ok());
  EXPECT_TRUE(handle->wait_for(0).ok());
  EXPECT_TRUE(handle->wait().ok());
}

TEST_F(Runs, DroppedHandleNeitherWaitsNorCancels) {
  Gate gate(*worker_);
  Gate counts(*worker_);
  {
    auto handle = worker_->submit([&](Orchestrator& orch) {
      orch.submit_sub(stand_, gate.args()).value();
      orch.submit_sub(count_, counts.args().add_scalar(kFirstFree)).value();
    });
    ASSERT_TRUE(gate.await_started(1));
  }
  gate.open();
  // Nobody waits: the engine thread brings it to its end.
  EXPECT_TRUE(await([&] { return counts.get(kFirstFree) == 1 && gate.get(kEnded) == 1; }));
  EXPECT_TRUE(worker_->close().ok());
}

TEST_F(Runs, RunGoesOnByItselfWhileNobodyWaits) {
  Buffer x = worker_->create_buffer(8).value();
  auto handle = worker_->submit([&](Orchestrator& orch) {
    for (int i = 0; i < 500; ++i) orch.submit_sub(step_, add_one(x)).value();
  });
  EXPECT_TRUE(await([&] { return handle->done(); }));
  EXPECT_EQ(x.as<int64_t>()[0], 500);
  EXPECT_EQ(handle->progress().succeeded, 500u);
}

TEST_F(Runs, UnseenErrorOfADroppedHandleIsLoggedOnce) {
  const auto fails = registered<throw_text>(*worker_, "throw_text");
  const auto submit = [&] {
    return worker_
        ->submit([&](Orchestrator& orch) {
          orch.submit_sub(fails, TaskArgs().set_inline(bytes_of("nobody saw this"))).value();
        })
        .value();
  };
  ::testing::internal::CaptureStderr();
  {
    RunHandle handle = submit();
    EXPECT_TRUE(await([&] { return handle.done(); }));
    const RunHandle copy = handle;
  }
  const std::string log = ::testing::internal::GetCapturedStderr();
  const size_t at = log.find("nobody saw this");
  EXPECT_NE(at, std::string::npos) << log;
  EXPECT_EQ(log.find("nobody saw this", at + 1), std::string::npos) << log;
  ::testing::internal::CaptureStderr();
  {
    RunHandle handle = submit();
    EXPECT_FALSE(handle.wait().ok());
  }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

TEST_F(Runs, ErrorOfAHandleThatIsDroppedBeforeTheEndIsLoggedToo) {
  const auto fails = registered<throw_text>(*worker_, "throw_text");
  Gate gate(*worker_);
  ::testing::internal::CaptureStderr();
  static_cast<void>(worker_->submit([&](Orchestrator& orch) {
    orch.submit_sub(stand_, gate.args()).value();
    orch.submit_sub(fails, TaskArgs().set_inline(bytes_of("nobody waited for this"))).value();
  }));
  gate.open();
  EXPECT_TRUE(worker_->close().ok());
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("nobody waited for this"), std::string::npos) << log;
}

TEST_F(Runs, CancelSkipsWhatWaitsAndTellsWhatRuns) {
  Gate gate(*worker_);
  Gate counts(*worker_);
  auto handle = worker_->submit([&](Orchestrator& orch) {
    orch.submit_sub(stand_, gate.args()).value();
    orch.submit_sub(stand_, gate.args()).value();
    gate.await_started(2);          // at one child each, before anything stands behind
    for (int i = 0; i < 60; ++i) {  // more than both queues hold
      orch.submit_sub(count_, counts.args().add_scalar(kFirstFree)).value();
    }
  });
  ASSERT_TRUE(gate.await_started(2));
  handle->cancel();
  handle->cancel();
  expect_error(handle->wait(), Code::kCancelled, "cancelled");
  EXPECT_EQ(gate.get(kCancelSeen), 2u);
  EXPECT_EQ(counts.get(kFirstFree), 0u);
  EXPECT_EQ(handle->progress().succeeded, 2u);
  EXPECT_EQ(handle->progress().skipped, 60u);
  // The Worker goes on, and its tasks are not taken for cancelled ones.
  Gate next(*worker_);
  auto after = submit_standing(next, 2);
  ASSERT_TRUE(next.await_started(2));
  expect_error(after->wait_for(20), Code::kDeadline, "goes on");
  next.open();
  EXPECT_TRUE(after->wait().ok());
  EXPECT_EQ(next.get(kCancelSeen), 0u);
}

TEST_F(Runs, CancelOfTheNextRunLeavesTheOneThatExecutes) {
  Gate gate(*worker_);
  Gate counts(*worker_);
  auto one = submit_standing(gate);
  auto two = worker_->submit([&](Orchestrator& orch) {
    for (int i = 0; i < 10; ++i) {
      orch.submit_sub(count_, counts.args().add_scalar(kFirstFree)).value();
    }
  });
  ASSERT_TRUE(gate.await_started(1));
  two->cancel();
  gate.open();
  expect_error(two->wait(), Code::kCancelled, "cancelled");
  EXPECT_TRUE(one->wait().ok());
  EXPECT_EQ(gate.get(kCancelSeen), 0u);
  EXPECT_EQ(counts.get(kFirstFree), 0u);
}

TEST_F(Runs, CancelOfADoneRunChangesNothing) {
  Gate gate(*worker_);
  gate.open();
  auto handle = submit_standing(gate);
  ASSERT_TRUE(handle->wait().ok());
  handle->cancel();
  EXPECT_TRUE(handle->wait().ok());
  EXPECT_TRUE(submit_standing(gate)->wait().ok());
}

TEST_F(Runs, CancelledTasksPoisonWhatTheyShouldHaveWritten) {
  Gate gate(*worker_);
  Buffer x = worker_->create_buffer(8).value();
  auto handle = worker_->submit([&](Orchestrator& orch) {
    orch.submit_sub(stand_, gate.args()).value();
    orch.submit_sub(stand_, gate.args()).value();
    gate.await_started(2);  // at one child each, before anything stands behind
    for (int i = 0; i < 40; ++i) orch.submit_sub(step_, add_one(x)).value();
  });
  ASSERT_TRUE(gate.await_started(2));
  handle->cancel();
  EXPECT_FALSE(handle->wait().ok());
  const auto read = [&] {
    return worker_->run([&](Orchestrator& orch) { orch.submit_sub(step_, add_one(x)).value(); });
  };
  const auto poisoned = read();
  ASSERT_FALSE(poisoned.ok());
  EXPECT_NE(poisoned.error().to_string().find("cancelled"), std::string::npos)
      << poisoned.error().to_string();
  ASSERT_TRUE(worker_->clear_error(x).ok());
  EXPECT_TRUE(read().ok());
}

TEST_F(Runs, EmptyHandleIsAnErrorAndNoCrash) {
  RunHandle handle;
  expect_error(handle.wait(), Code::kInvalidArgument, "empty");
  expect_error(handle.wait_for(1), Code::kInvalidArgument, "empty");
  expect_error(handle.result({}), Code::kInvalidArgument, "empty");
  EXPECT_FALSE(handle.done());
  EXPECT_EQ(handle.progress().submitted, 0u);
  handle.cancel();
}

TEST_F(Runs, ResultOfATaskThatIsNotDoneIsRefused) {
  Gate gate(*worker_);
  auto handle = submit_standing(gate);
  ASSERT_TRUE(gate.await_started(1));
  expect_error(handle->result({1, 0}), Code::kWrongState, "not done");
  gate.open();
  EXPECT_TRUE(handle->wait().ok());
  EXPECT_TRUE(handle->result({1, 0}).ok());
}

// ---------------------------------------------------------------- threads

TEST_F(Runs, FourThreadsSubmitAndWaitAtOnce) {
  constexpr int kThreads = 4;
  constexpr int kRuns = 100;
  std::vector<Buffer> sums;
  for (int i = 0; i < kThreads; ++i) sums.push_back(worker_->create_buffer(8).value());
  Buffer all = worker_->create_buffer(8).value();
  std::vector<std::thread> threads;
  std::atomic<int> failures = 0;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kRuns; ++i) {
        auto handle = worker_->submit([&](Orchestrator& orch) {
          for (int k = 0; k < 5; ++k) {
            if (!orch.submit_sub(step_, add_one(sums[t]))) ++failures;
            if (!orch.submit_sub(step_, add_one(all))) ++failures;
          }
          if (i % 7 == 0 && !orch.submit_sub(none_, TaskArgs())) ++failures;
        });
        if (!handle || !handle->wait()) ++failures;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
  for (const Buffer& sum : sums) EXPECT_EQ(sum.as<int64_t>()[0], kRuns * 5);
  EXPECT_EQ(all.as<int64_t>()[0], kThreads * kRuns * 5);
}

TEST_F(Runs, ManyThreadsWaitForOneRunAndAllSeeItsEnd) {
  Gate gate(*worker_);
  auto handle = submit_standing(gate).value();
  std::atomic<int> ok = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 6; ++t) {
    threads.emplace_back([&, copy = handle, t]() mutable {
      if (t % 2 == 0 ? copy.wait().ok() : copy.wait_for(60'000).ok()) ++ok;
    });
  }
  ASSERT_TRUE(gate.await_started(1));
  gate.open();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ok, 6);
}

TEST_F(Runs, DeadlineOfOneWaitHoldsWhileAnotherThreadWaitsForEver) {
  Gate gate(*worker_);
  auto handle = submit_standing(gate).value();
  ASSERT_TRUE(gate.await_started(1));
  std::atomic<bool> ended = false;
  std::thread first([&, copy = handle]() mutable {
    EXPECT_TRUE(copy.wait().ok());
    ended = true;
  });
  for (int i = 0; i < 20; ++i) {
    expect_error(handle.wait_for(5), Code::kDeadline, "goes on");
  }
  EXPECT_FALSE(ended);
  gate.open();
  first.join();
}

TEST_F(Runs, CloseWhileOthersSubmitEndsThemInWords) {
  for (int round = 0; round < 5; ++round) {
    std::atomic<uint32_t> runs = 0;
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back([&] {
        for (;;) {
          const auto outcome = worker_->run(
              [&](Orchestrator& orch) { static_cast<void>(orch.submit_sub(none_, TaskArgs())); });
          if (!outcome) {
            EXPECT_TRUE(outcome.error().code() == Code::kWrongState ||
                        outcome.error().code() == Code::kNoWorker)
                << outcome.error().to_string();
            return;
          }
          ++runs;
        }
      });
    }
    await([&] { return runs > 50; });
    EXPECT_TRUE(worker_->close().ok());
    for (std::thread& thread : threads) thread.join();
    open(spec_of(StartMethod::kFork, 2));
  }
}

TEST_F(Runs, TwoThreadsThatCloseBothComeBack) {
  std::atomic<int> ok = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] { ok += worker_->close().ok(); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GE(ok, 1);
  EXPECT_TRUE(worker_->close().ok());
}

TEST_F(Runs, HundredThousandTasksWithoutAWaitBetween) {
  Buffer x = worker_->create_buffer(64 * 8).value();
  auto handle = worker_->submit([&](Orchestrator& orch) {
    for (uint64_t i = 0; i < 100'000; ++i) {
      orch.submit_sub(step_, TaskArgs()
                                 .add_tensor(x.tensor<int64_t>({1}, i % 64 * 8), INOUT)
                                 .add_scalar(int64_t{1})
                                 .add_scalar(int64_t{1}))
          .value();
    }
  });
  ASSERT_TRUE(handle->wait().ok());
  int64_t sum = 0;
  for (const int64_t v : x.as<int64_t>()) sum += v;
  EXPECT_EQ(sum, 100'000);
  EXPECT_EQ(handle->progress().succeeded, 100'000u);
}

TEST_F(Runs, OneThreadWaitsWhileOthersMakeBuffersAndRegister) {
  Gate gate(*worker_);
  auto handle = submit_standing(gate).value();
  ASSERT_TRUE(gate.await_started(1));
  std::atomic<int> failures = 0;
  std::thread waiter([&] { failures += !handle.wait().ok(); });
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 300; ++i) {
        const auto buffer = worker_->create_buffer(1 + i * 97 % 9000);
        failures += !buffer.ok();
        failures += handle.done();
        failures += worker_->sub_children().size() != 2;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  gate.open();
  waiter.join();
  EXPECT_EQ(failures, 0);
}

TEST_F(Runs, ThreadThatWaitsInItsFunctionDoesNotStopOthersFromWaiting) {
  Gate gate(*worker_);
  std::atomic<int> failures = 0;
  std::thread builder([&] {
    failures += !worker_
                     ->run([&](Orchestrator& orch) {
                       const TaskRef task = orch.submit_sub(stand_, gate.args()).value();
                       failures += !orch.wait(task).ok();
                     })
                     .ok();
  });
  ASSERT_TRUE(gate.await_started(1));
  std::thread other([&] {
    failures += !worker_->run([&](Orchestrator& orch) { orch.submit_sub(none_, {}).value(); }).ok();
  });
  Buffer x = worker_->create_buffer(8).value();
  gate.open();
  builder.join();
  other.join();
  EXPECT_EQ(failures, 0);
}

TEST_F(Runs, EarlierRunIsWaitedForInsideAFunction) {
  Gate gate(*worker_);
  auto first = submit_standing(gate).value();
  ASSERT_TRUE(gate.await_started(1));
  EXPECT_TRUE(worker_
                  ->run([&](Orchestrator& orch) {
                    orch.submit_sub(none_, TaskArgs()).value();
                    gate.open();
                    EXPECT_TRUE(first.wait().ok());
                  })
                  .ok());
}

TEST_F(Runs, HandleAndBufferOutliveTheWorker) {
  Buffer x = worker_->create_buffer(8).value();
  TaskRef task;
  RunHandle handle = worker_
                         ->submit([&](Orchestrator& orch) {
                           orch.submit_sub(step_, add_one(x)).value();
                           task = orch.submit_sub(none_, TaskArgs()).value();
                         })
                         .value();
  worker_.reset();  // closes: waits for the run
  EXPECT_EQ(x.as<int64_t>()[0], 1);
  x.as<int64_t>()[0] = 5;
  EXPECT_TRUE(handle.done());
  EXPECT_TRUE(handle.wait().ok());
  EXPECT_TRUE(handle.wait_for(1).ok());
  EXPECT_TRUE(handle.result(task).ok());
  handle.cancel();
  EXPECT_EQ(handle.progress().succeeded, 2u);
  x = Buffer();
  handle = RunHandle();
}

TEST_F(Runs, CloseWaitsForRunsThatExecuteAndAreQueued) {
  Gate gate(*worker_);
  Gate counts(*worker_);
  auto one = submit_standing(gate).value();
  auto two = worker_
                 ->submit([&](Orchestrator& orch) {
                   for (int i = 0; i < 20; ++i) {
                     orch.submit_sub(count_, counts.args().add_scalar(kFirstFree)).value();
                   }
                 })
                 .value();
  std::thread opener([&] {
    gate.await_started(1);
    gate.open();
  });
  EXPECT_TRUE(worker_->close().ok());
  opener.join();
  EXPECT_EQ(counts.get(kFirstFree), 20u);
  EXPECT_TRUE(one.wait().ok());
  EXPECT_TRUE(two.wait().ok());
  EXPECT_TRUE(worker_->close().ok());  // again
}

}  // namespace
}  // namespace strata
