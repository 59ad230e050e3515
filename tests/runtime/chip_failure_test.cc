// Kernels that fail, and chips that are lost.
#include <signal.h>

#include "tests/runtime/chip_test_util.h"

namespace strata::test {
namespace {

class ChipFailures : public ::testing::TestWithParam<StartMethod> {};

INSTANTIATE_TEST_SUITE_P(Starts, ChipFailures,
                         ::testing::Values(StartMethod::kInline, StartMethod::kFork),
                         [](const auto& start) {
                           return start.param == StartMethod::kInline ? "Inline" : "Fork";
                         });

TEST_P(ChipFailures, AnExceptionNamesKernelAndBlockAndTheChipGoesOn) {
  auto worker = started(chip_spec(GetParam(), 1));
  const auto fails = loaded(*worker, "chip_throw");
  expect_error(run_on_chip(*worker, fails, TaskArgs().add_scalar(int32_t{3}), {.block_dim = 8}),
               Code::kTaskFailed, "kernel 'chip_throw', block 3 of 8: thrown on the chip");
  EXPECT_TRUE(run_on_chip(*worker, fails, TaskArgs().add_scalar(int32_t{8}), {.block_dim = 8}));
  worker->close().value();
}

TEST_P(ChipFailures, WhatAFailedKernelWroteDoesNotComeBack) {
  auto worker = started(chip_spec(GetParam(), 1));
  const auto fails = loaded(*worker, "chip_write_and_throw");
  auto x = worker->create_buffer(64).value();
  expect_error(run_on_chip(*worker, fails, TaskArgs().add_tensor(x.tensor<int64_t>({8}), INOUT)),
               Code::kTaskFailed, "after it had written");
  EXPECT_EQ(x.as<int64_t>()[0], 0);
  EXPECT_EQ(usage_of(*worker).copied_out, 0u);
  EXPECT_EQ(usage_of(*worker).used_bytes, 0u);
  // Its bytes are poisoned as those of any failed task.
  const auto sum = loaded(*worker, "chip_sum");
  expect_error(run_on_chip(*worker, sum, TaskArgs().add_tensor(x.tensor<int64_t>({8}), INPUT)),
               Code::kSkipped, "after it had written");
  worker->close().value();
}

class Signals : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(All, Signals,
                         ::testing::Values(SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGKILL));

TEST_P(Signals, EndTheirChipAndAreNamedWithKernelAndBlock) {
  auto worker = started(chip_spec(StartMethod::kFork, 2, 1));
  const auto dies = loaded(*worker, "chip_signal");
  const auto pid = loaded(*worker, "chip_pid");
  const auto host = registered<result_pid>(*worker, "pid");
  const Result<void> lost =
      run_on_chip(*worker, dies, TaskArgs().add_scalar(int32_t{2}).add_scalar(int32_t{GetParam()}),
                  {.block_dim = 5}, 0);
  expect_error(lost, Code::kEndpointFailed, "killed by signal " + std::to_string(GetParam()) + " ");
  expect_error(lost, Code::kEndpointFailed,
               "in kernel 'chip_signal', block 2 of 5; the chip's device memory is lost with it");
  // The other chip and the helper go on.
  EXPECT_TRUE(run_on_chip(*worker, pid, {}));
  EXPECT_TRUE(worker->run([&](Orchestrator& orch) { orch.submit_sub(host, {}).value(); }));
  expect_error(run_on_chip(*worker, pid, {}, {}, 0), Code::kNoWorker, "L3/0");
  worker->close().value();
}

TEST(ChipLosses, TasksThatWereOnlyQueuedGoToAnotherChip) {
  auto worker = started(chip_spec(StartMethod::kFork, 2));
  const auto dies = loaded(*worker, "chip_signal");
  const auto add = loaded(*worker, "chip_add_2d");
  constexpr uint64_t kTasks = 60;
  auto x = worker->create_buffer(kTasks * 8).value();
  uint64_t failed = 0;
  Result<RunHandle> run = worker->submit([&](Orchestrator& orch) {
    for (uint64_t i = 0; i < kTasks; ++i) {
      if (i == 20) {
        orch.submit_next_level(dies, TaskArgs().add_scalar(int32_t{0}).add_scalar(int32_t{SIGKILL}))
            .value();
      }
      orch.submit_next_level(
              add,
              TaskArgs().add_tensor(x.tensor<int64_t>({1, 1}, 8 * i), INOUT).add_scalar(int64_t{1}))
          .value();
    }
  });
  EXPECT_FALSE(run->wait());
  failed = run->progress().failed;
  EXPECT_EQ(failed, 1u);
  EXPECT_EQ(run->progress().succeeded, kTasks);
  for (const int64_t v : x.as<int64_t>()) EXPECT_EQ(v, 1);
  worker->close().value();
}

TEST(ChipLosses, ACrashInTheConstructorOfAKernelIsNamedWithIt) {
  auto worker = started(chip_spec(StartMethod::kFork, 1));
  const Result<CallableHandle> lost =
      worker->register_callable(kernel("crash", "chip_crashes_at_load"));
  expect_error(lost, Code::kEndpointFailed, "while it loaded kernel 'crash'");
  worker->close().value();
}

}  // namespace
}  // namespace strata::test
