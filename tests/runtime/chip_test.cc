// Chips of a Worker: kernels over blocks, copies, registration, dependencies across kinds.
#include <algorithm>
#include <numeric>

#include "base/prng.h"
#include "strata/chip.h"
#include "tests/runtime/chip_test_util.h"

namespace strata::test {
namespace {

class Chips : public ::testing::TestWithParam<StartMethod> {};

INSTANTIATE_TEST_SUITE_P(Starts, Chips, ::testing::Values(StartMethod::kInline, StartMethod::kFork),
                         [](const auto& start) {
                           return start.param == StartMethod::kInline ? "Inline" : "Fork";
                         });

TEST_P(Chips, AKernelRunsOverItsBlocksOnCopiedTensors) {
  auto worker = started(chip_spec(GetParam(), 1));
  const auto scale = loaded(*worker, "chip_scale");
  EXPECT_EQ(scale.kind, CallableKind::kChipCallable);
  auto x = worker->create_buffer(1000 * 8).value();
  std::iota(x.as<int64_t>().begin(), x.as<int64_t>().end(), 0);
  const TaskArgs args =
      TaskArgs().add_tensor(x.tensor<int64_t>({1000}), INOUT).add_scalar(int64_t{3});
  for (const int blocks : {1, 7, 64}) {
    ASSERT_TRUE(run_on_chip(*worker, scale, args, {.block_dim = blocks}));
  }
  for (int64_t i = 0; i < 1000; ++i) ASSERT_EQ(x.as<int64_t>()[i], 27 * i);
  const ChipUsage usage = usage_of(*worker);
  EXPECT_EQ(usage.memory_bytes, 16u << 20);
  EXPECT_EQ(usage.used_bytes, 0u);
  EXPECT_EQ(usage.peak_bytes, 8000u);
  EXPECT_EQ(usage.copied_in, 24'000u);
  EXPECT_EQ(usage.copied_out, 24'000u);
  worker->close().value();
}

TEST_P(Chips, OnlyTheViewIsWrittenBackRowByRow) {
  auto worker = started(chip_spec(GetParam(), 1));
  const auto add = loaded(*worker, "chip_add_2d");
  auto x = worker->create_buffer(64 * 64 * 8).value();
  const Tensor block = x.tensor<int64_t>({64, 64}).block(10, 20, 30, 5);
  ASSERT_TRUE(
      run_on_chip(*worker, add, TaskArgs().add_tensor(block, INOUT).add_scalar(int64_t{1})));
  for (int64_t i = 0; i < 64; ++i) {
    for (int64_t j = 0; j < 64; ++j) {
      const bool inside = i >= 10 && i < 40 && j >= 20 && j < 25;
      ASSERT_EQ(x.as<int64_t>()[i * 64 + j], inside ? 1 : 0) << i << ' ' << j;
    }
  }
  worker->close().value();
}

TEST_P(Chips, OverlappingViewsOfOneTaskShareBytes) {
  auto worker = started(chip_spec(GetParam(), 1));
  const auto alias = loaded(*worker, "chip_alias");
  auto x = worker->create_buffer(64).value();
  const TaskArgs args = TaskArgs()
                            .add_tensor(x.tensor<int64_t>({4}, 8), INOUT)
                            .add_tensor(x.tensor<int64_t>({6}, 8), INPUT);
  EXPECT_EQ(result_on_chip<int64_t>(*worker, alias, args).value(), 7);
  EXPECT_EQ(x.as<int64_t>()[1], 7);
  worker->close().value();
}

TEST_P(Chips, TasksOfChipsAndHelpersDependOnEachOther) {
  auto worker = started(chip_spec(GetParam(), 2, 1));
  const auto on_chip = loaded(*worker, "chip_copy_add");
  const auto on_host = registered<copy_add>(*worker, "copy_add");
  constexpr int kSteps = 40;
  auto x = worker->create_buffer((kSteps + 1) * 8).value();
  const auto cell = [&](int i) { return x.tensor<int64_t>({1}, static_cast<uint64_t>(i) * 8); };
  ASSERT_TRUE(worker->run([&](Orchestrator& orch) {
    for (int i = 0; i < kSteps; ++i) {
      const TaskArgs args = TaskArgs()
                                .add_tensor(cell(i), INPUT)
                                .add_tensor(cell(i + 1), OUTPUT)
                                .add_scalar(int64_t{1});
      if (i % 3 == 2) {
        orch.submit_sub(on_host, args).value();
      } else {
        orch.submit_next_level(on_chip, args, {}, i % 2 == 0 ? i % 4 / 2 : -1).value();
      }
    }
  }));
  for (int64_t i = 0; i <= kSteps; ++i) EXPECT_EQ(x.as<int64_t>()[i], i);
  worker->close().value();
}

TEST_P(Chips, RandomGraphsOfOverlappingViewsGiveWhatASerialRunGives) {
  auto worker = started(chip_spec(GetParam(), 2, 1));
  const auto on_chip = loaded(*worker, "chip_scale");
  const auto on_host = registered<scale_add>(*worker, "scale_add");
  constexpr uint64_t kWords = 64;
  auto x = worker->create_buffer(kWords * 8).value();
  std::vector<int64_t> expect(kWords);
  for (uint64_t i = 0; i < kWords; ++i) expect[i] = x.as<int64_t>()[i] = static_cast<int64_t>(i);
  base::Prng prng(11);
  for (int round = 0; round < 5; ++round) {
    ASSERT_TRUE(worker->run([&](Orchestrator& orch) {
      for (int i = 0; i < 40; ++i) {
        const uint64_t begin = prng.below(kWords);
        const uint64_t n = prng.between(1, kWords - begin);
        const auto factor = static_cast<int64_t>(prng.between(1, 3)) * 2 - 1;
        TaskArgs args =
            TaskArgs().add_tensor(x.tensor<int64_t>({n}, 8 * begin), INOUT).add_scalar(factor);
        const bool chip = prng.chance(2, 3);
        const int64_t added = chip ? 0 : 1;
        if (chip) {
          orch.submit_next_level(on_chip, args, {.block_dim = 2}).value();
        } else {
          orch.submit_sub(on_host, args.add_scalar(added)).value();
        }
        for (uint64_t w = begin; w < begin + n; ++w) {
          expect[w] = static_cast<int64_t>(static_cast<uint64_t>(expect[w]) *
                                               static_cast<uint64_t>(factor) +
                                           static_cast<uint64_t>(added));
        }
      }
    }));
  }
  EXPECT_TRUE(std::equal(expect.begin(), expect.end(), x.as<int64_t>().begin()));
  worker->close().value();
}

TEST_P(Chips, DeviceMemoryThatDoesNotSufficeFailsTheTaskAndNamesTheOption) {
  WorkerSpec spec = chip_spec(GetParam(), 1);
  spec.chip.memory_bytes = 64 * 1024;
  auto worker = started(spec);
  const auto scale = loaded(*worker, "chip_scale");
  auto x = worker->create_buffer(128 * 1024).value();
  const auto args_of = [&](uint64_t n) {
    return TaskArgs().add_tensor(x.tensor<int64_t>({n}), INOUT).add_scalar(int64_t{1});
  };
  const Result<void> refused = run_on_chip(*worker, scale, args_of(16 * 1024));
  expect_error(refused, Code::kTaskFailed,
               "kernel 'chip_scale' did not run: no device memory for 131072 bytes: 0 of 65536 "
               "bytes are in use");
  expect_error(refused, Code::kTaskFailed, "ChipSpec::memory_bytes enlarges it");
  worker->clear_error(x).value();
  EXPECT_TRUE(run_on_chip(*worker, scale, args_of(8 * 1024)));
  worker->close().value();
}

TEST_P(Chips, KernelsAreKnownByTheirBytesNotByTheirNames) {
  auto worker = started(chip_spec(GetParam(), 1));
  const auto one = worker->register_callable(kernel("version", "chip_version_1")).value();
  const auto two = worker->register_callable(kernel("version", "chip_version_2")).value();
  const auto same = worker->register_callable(kernel("version", "chip_version_1")).value();
  EXPECT_NE(one.hashid, two.hashid);
  EXPECT_EQ(one.hashid, same.hashid);
  EXPECT_EQ(result_on_chip<int64_t>(*worker, one, {}).value(), 1001);
  EXPECT_EQ(result_on_chip<int64_t>(*worker, two, {}).value(), 2001);
  EXPECT_EQ(result_on_chip<int64_t>(*worker, same, {}).value(), 1002);
  worker->unregister_callable(one).value();
  EXPECT_EQ(result_on_chip<int64_t>(*worker, same, {}).value(), 1003);
  worker->unregister_callable(same).value();
  expect_error(run_on_chip(*worker, same, {}), Code::kNotFound, "");
  const auto again = worker->register_callable(kernel("version", "chip_version_1")).value();
  EXPECT_EQ(result_on_chip<int64_t>(*worker, again, {}).value(), 1001);  // loaded anew
  worker->close().value();
}

TEST_P(Chips, WhatIsRegisteredBeforeInitIsThereAfterIt) {
  auto worker = Worker::create(chip_spec(GetParam(), 2)).value();
  const auto pid = loaded(*worker, "chip_pid");
  worker->init().value();
  for (const int chip : {0, 1}) {
    EXPECT_TRUE(result_on_chip<int64_t>(*worker, pid, {}, {}, chip)) << chip;
  }
  worker->close().value();
}

TEST_P(Chips, KernelsThatCannotBeLoadedAreRegisteredNowhere) {
  auto worker = started(chip_spec(GetParam(), 2));
  ChipCallable junk = kernel("chip_scale");
  junk.blob.assign(100, std::byte{1});
  expect_error(worker->register_callable(junk), Code::kNotFound, "does not load");
  expect_error(worker->register_callable(kernel("plain", "chip_without_abi")), Code::kAbiMismatch,
               "strata_abi");
  expect_error(worker->register_callable(kernel("absent")), Code::kNotFound, "no symbol absent");
  junk.blob.clear();
  expect_error(worker->register_callable(junk), Code::kInvalidArgument, "not 0");
  ChipCallable cuda = kernel("chip_scale");
  cuda.platform = "cuda";
  expect_error(worker->register_callable(cuda), Code::kUnsupported, "'cuda'");
  EXPECT_TRUE(run_on_chip(*worker, loaded(*worker, "chip_pid"), {}));
  worker->close().value();
}

TEST_P(Chips, CallablesRunOnlyWhereTheirKindCan) {
  auto worker = started(chip_spec(GetParam(), 1, 1));
  const auto on_chip = loaded(*worker, "chip_pid");
  const auto on_host = registered<result_pid>(*worker, "pid");
  expect_error(run_on_chip(*worker, on_host, {}), Code::kUnsupported,
               "callable 'pid' is a LOCAL_FUNCTION, and chips run: CHIP_CALLABLE");
  expect_error(run_on_chip(*worker, on_host, {}, {}, 0), Code::kUnsupported,
               "chips run: CHIP_CALLABLE");
  expect_error(worker->run([&](Orchestrator& orch) -> Result<void> {
    const Result<TaskRef> task = orch.submit_sub(on_chip, TaskArgs());
    return task ? Result<void>() : Result<void>(task.error());
  }),
               Code::kUnsupported,
               "callable 'chip_pid' is a CHIP_CALLABLE, and SUB children run: NATIVE_IMPORT, "
               "LOCAL_FUNCTION");
  expect_error(worker->register_callable(kernel("chip_sum"), {1}), Code::kUnsupported,
               "callable 'chip_sum' is a CHIP_CALLABLE, which L3/1");
  expect_error(worker->register_callable(kernel("chip_sum"), {1}), Code::kUnsupported,
               "it runs: NATIVE_IMPORT, LOCAL_FUNCTION");
  expect_error(worker->register_callable(local_function<fill>("fill"), {0}), Code::kUnsupported,
               "it runs: CHIP_CALLABLE");
  worker->close().value();
}

TEST_P(Chips, BlocksAreAtLeastOne) {
  auto worker = started(chip_spec(GetParam(), 1));
  const auto pid = loaded(*worker, "chip_pid");
  expect_error(run_on_chip(*worker, pid, {}, {.block_dim = 0}), Code::kTaskFailed,
               "CallConfig::block_dim is at least 1");
  worker->close().value();
}

TEST_P(Chips, ATensorWithoutATagNeedsAMap) {
  auto worker = started(chip_spec(GetParam(), 1));
  const auto poke = loaded(*worker, "chip_poke");
  auto x = worker->create_buffer(64).value();
  expect_error(run_on_chip(*worker, poke, TaskArgs().add_tensor(x.tensor<uint8_t>({64}), NO_DEP)),
               Code::kInvalidArgument, "Transfer::kMap");
  EXPECT_TRUE(run_on_chip(*worker, poke,
                          TaskArgs().add_tensor(x.tensor<uint8_t>({64}), NO_DEP, Transfer::kMap)));
  EXPECT_EQ(x.as<uint8_t>()[0], 1);
  worker->close().value();
}

TEST_P(Chips, HelpersWorkInPlaceAndAreAskedForNoCopy) {
  auto worker = started(chip_spec(GetParam(), 1, 1));
  const auto host = registered<fill>(*worker, "fill");
  auto x = worker->create_buffer(64).value();
  const auto run = [&](Transfer transfer) {
    return worker->run([&](Orchestrator& orch) -> Result<void> {
      const Result<TaskRef> task = orch.submit_sub(
          host,
          TaskArgs().add_tensor(x.tensor<int64_t>({8}), OUTPUT, transfer).add_scalar(int64_t{5}));
      return task ? Result<void>() : Result<void>(task.error());
    });
  };
  expect_error(run(Transfer::kCopy), Code::kUnsupported, "in place");
  EXPECT_TRUE(run(Transfer::kMap));
  EXPECT_EQ(x.as<int64_t>()[7], 5);
  worker->close().value();
}

TEST(ChipSpecs, ThatCannotBeAreRefusedByName) {
  WorkerSpec spec = chip_spec(StartMethod::kInline, 1);
  spec.chip.backend = "cuda";
  expect_error(Worker::create(spec), Code::kUnsupported,
               "ChipSpec::backend 'cuda': this build has the backend 'cpu' only");
  spec = chip_spec(StartMethod::kInline, -1);
  expect_error(Worker::create(spec), Code::kInvalidArgument, "WorkerSpec::chips");
  spec = chip_spec(StartMethod::kInline, 1);
  spec.chip.memory_bytes = 1;
  expect_error(Worker::create(spec), Code::kInvalidArgument, "ChipSpec::memory_bytes");
}

TEST(ChipCallables, NeedAWorkerWithChips) {
  auto worker = started(StartMethod::kInline, 1);
  expect_error(worker->register_callable(kernel("chip_pid")), Code::kUnsupported,
               "runs on chips, and L3 has none");
  worker->close().value();
}

TEST(ChipCallables, ComeFromFiles) {
  expect_error(ChipCallable::from_file("/nowhere/kernel.so", "f"), Code::kSystem, "/nowhere");
  expect_error(ChipCallable::from_file("/dev/null", "f"), Code::kInvalidArgument, "0 bytes");
  const ChipCallable scale = kernel("chip_scale");
  EXPECT_EQ(scale.platform, "cpu");
  EXPECT_GT(scale.blob.size(), 4096u);
}

TEST(ChipAlone, LoadsAndRunsKernels) {
  WorkerSpec process;
  process.allow_threads = kThreadSanitizer;
  process.limits.heap_bytes = 64 << 20;
  auto chip = Chip::open({.memory_bytes = 1 << 20}, process).value();
  const auto scale = chip->load(kernel("chip_scale")).value();
  const auto sum = chip->load(kernel("chip_sum")).value();
  auto x = chip->create_buffer(100 * 8).value();
  std::iota(x.as<int64_t>().begin(), x.as<int64_t>().end(), 0);
  const Tensor all = x.tensor<int64_t>({100});
  chip->run(scale, TaskArgs().add_tensor(all, INOUT).add_scalar(int64_t{2}), {.block_dim = 4})
      .value();
  const auto bytes = chip->run(sum, TaskArgs().add_tensor(all, INPUT)).value();
  int64_t result = 0;
  ASSERT_EQ(bytes.size(), sizeof result);
  std::memcpy(&result, bytes.data(), sizeof result);
  EXPECT_EQ(result, 9900);
  EXPECT_EQ(chip->usage().memory_bytes, 1u << 20);
  EXPECT_EQ(chip->usage().peak_bytes, 832u);
  expect_error(chip->run(scale, TaskArgs().add_tensor(all, INOUT)), Code::kTaskFailed, "chip/0");
  chip->unload(sum).value();
  chip->close().value();
  expect_error(Chip::open({.backend = "cuda"}), Code::kUnsupported, "'cpu' only");
}

}  // namespace
}  // namespace strata::test
