// Graphs over real children, and the same inline.
#include <array>
#include <numeric>

#include "tests/runtime/worker_test_util.h"

namespace strata {
namespace {

using namespace test;  // NOLINT

class Graph : public ::testing::TestWithParam<StartMethod> {
 protected:
  std::unique_ptr<Worker> worker(int children = 2) { return started(GetParam(), children); }
};
INSTANTIATE_TEST_SUITE_P(Both, Graph, ::testing::Values(StartMethod::kFork, StartMethod::kInline),
                         [](const auto& instance) {
                           return instance.param == StartMethod::kFork ? "Fork" : "Inline";
                         });

constexpr uint64_t kRow = 1024;

TEST_P(Graph, ReaderAfterWriterAndWriterAfterReadersAndWriterAfterWriterAreOrdered) {
  const auto worker = this->worker();
  const auto write = registered<fill>(*worker, "fill");
  const auto copy = registered<copy_add>(*worker, "copy_add");
  Buffer x = worker->create_buffer(kRow * 8).value();
  std::vector<Buffer> copies;
  for (int i = 0; i < 8; ++i) copies.push_back(worker->create_buffer(kRow * 8).value());
  const Tensor from = x.tensor<int64_t>({kRow});
  for (int64_t round = 0; round < 20; ++round) {
    auto handle = worker->submit([&](Orchestrator& orch) {
      // Two writers of all, readers of the second, then a third writer.
      orch.submit_sub(write, TaskArgs().add_tensor(from, OUTPUT).add_scalar(int64_t{-1})).value();
      orch.submit_sub(write, TaskArgs().add_tensor(from, OUTPUT).add_scalar(round)).value();
      for (Buffer& to : copies) {
        orch.submit_sub(copy, TaskArgs()
                                  .add_tensor(from, INPUT)
                                  .add_tensor(to.tensor<int64_t>({kRow}), OUTPUT)
                                  .add_scalar(int64_t{1}))
            .value();
      }
      orch.submit_sub(write, TaskArgs().add_tensor(from, OUTPUT).add_scalar(int64_t{-2})).value();
    });
    ASSERT_TRUE(handle.ok());
    ASSERT_TRUE(handle->wait().ok());
    for (const Buffer& to : copies) {
      for (const int64_t v : to.as<int64_t>()) ASSERT_EQ(v, round + 1);
    }
    for (const int64_t v : x.as<int64_t>()) ASSERT_EQ(v, -2);
    EXPECT_EQ(handle->progress().succeeded, 11u);
  }
  EXPECT_TRUE(worker->close().ok());
}

void write_tile(Call& call) {
  const auto tile = call.tensor<int64_t>(0);
  for (uint64_t i = 0; i < tile.shape(0); ++i) {
    for (uint64_t j = 0; j < tile.shape(1); ++j) tile(i, j) = call.scalar<int64_t>(0);
  }
}

TEST_P(Graph, TilesOfOneMatrixAreIndependentAndTheWholeWaitsForAll) {
  const auto worker = this->worker();
  const auto write = registered<write_tile>(*worker, "write_tile");
  const auto sum = registered<sum_all>(*worker, "sum_all");
  constexpr uint64_t kSide = 64;
  constexpr uint64_t kTile = 16;
  Buffer matrix = worker->create_buffer(kSide * kSide * 8).value();
  const Tensor all = matrix.tensor<int64_t>({kSide, kSide});
  TaskRef last;
  auto handle = worker->submit([&](Orchestrator& orch) {
    for (uint64_t i = 0; i < kSide; i += kTile) {
      for (uint64_t j = 0; j < kSide; j += kTile) {
        orch.submit_sub(write, TaskArgs()
                                   .add_tensor(all.block(i, j, kTile, kTile), OUTPUT)
                                   .add_scalar(static_cast<int64_t>(i * kSide + j)))
            .value();
      }
    }
    last = orch.submit_sub(sum, TaskArgs().add_tensor(all, INPUT)).value();
  });
  ASSERT_TRUE(handle->wait().ok());
  // Sixteen edges to the reader, without those to tiles that were done, and none between tiles.
  EXPECT_LE(handle->stats().dependencies, 16u);
  EXPECT_EQ(handle->stats().cover_dependencies, 0u);
  int64_t expected = 0;
  for (uint64_t i = 0; i < kSide; ++i) {
    for (uint64_t j = 0; j < kSide; ++j) {
      const auto value = static_cast<int64_t>(i / kTile * kTile * kSide + j / kTile * kTile);
      ASSERT_EQ(matrix.as<int64_t>()[i * kSide + j], value);
      expected += value;
    }
  }
  EXPECT_EQ(handle->result_as<int64_t>(last).value(), expected);
}

TEST_P(Graph, LongChainOverOneBufferRunsInOrder) {
  const auto worker = this->worker();
  const auto step = registered<scale_add>(*worker, "scale_add");
  Buffer x = worker->create_buffer(8).value();
  int64_t expected = 0;
  ASSERT_TRUE(worker
                  ->run([&](Orchestrator& orch) {
                    for (int64_t i = 0; i < 3000; ++i) {
                      const int64_t factor = i % 3 == 0 ? -1 : 1;
                      expected = expected * factor + i;
                      orch.submit_sub(step, TaskArgs()
                                                .add_tensor(x.tensor<int64_t>({1}), INOUT)
                                                .add_scalar(factor)
                                                .add_scalar(i))
                          .value();
                    }
                  })
                  .ok());
  EXPECT_EQ(x.as<int64_t>()[0], expected);
}

void echo_inline(Call& call) {
  call.set_result(call.inline_bytes());
}
void result_of_size(Call& call) {
  const std::vector<std::byte> bytes(call.scalar<uint64_t>(0), std::byte{0x5a});
  call.set_result(bytes);
}
void last_result_counts(Call& call) {
  call.set_result(int64_t{1});
  call.set_result(int64_t{2});
}

TEST_P(Graph, InlineBytesAndResultsOfEverySizeComeBackWhole) {
  const auto worker = this->worker();
  const auto echo = registered<echo_inline>(*worker, "echo");
  const std::array<size_t, 10> sizes{0, 1, 7, 8, 63, 4096, 4097, 65'528, 65'535, 65'536};
  std::vector<std::vector<std::byte>> sent;
  std::vector<TaskRef> refs;
  auto handle = worker->submit([&](Orchestrator& orch) {
    for (int round = 0; round < 4; ++round) {
      for (const size_t size : sizes) {
        std::vector<std::byte> bytes(size);
        for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 31 + size + round);
        refs.push_back(orch.submit_sub(echo, TaskArgs().set_inline(bytes)).value());
        sent.push_back(std::move(bytes));
      }
    }
  });
  ASSERT_TRUE(handle->wait().ok());
  for (size_t i = 0; i < refs.size(); ++i) {
    ASSERT_EQ(handle->result(refs[i]).value(), sent[i]) << "of " << sent[i].size() << " bytes";
  }
}

TEST_P(Graph, ResultOver64KiBIsATaskFailureWithText) {
  const auto worker = this->worker();
  const auto big = registered<result_of_size>(*worker, "big");
  TaskRef fits;
  TaskRef over;
  auto handle = worker->submit([&](Orchestrator& orch) {
    fits = orch.submit_sub(big, TaskArgs().add_scalar(uint64_t{65'536})).value();
    over = orch.submit_sub(big, TaskArgs().add_scalar(uint64_t{65'537})).value();
  });
  expect_error(handle->wait(), Code::kTaskFailed, "65536 bytes");
  EXPECT_EQ(handle->result(fits)->size(), 65'536u);
  expect_error(handle->result(over), Code::kTaskFailed, "65536 bytes");
}

TEST_P(Graph, LastResultCountsAndNoneIsEmpty) {
  const auto worker = this->worker();
  const auto twice = registered<last_result_counts>(*worker, "twice");
  const auto none = registered<nothing>(*worker, "nothing");
  TaskRef a;
  TaskRef b;
  auto handle = worker->submit([&](Orchestrator& orch) {
    a = orch.submit_sub(twice, TaskArgs()).value();
    b = orch.submit_sub(none, TaskArgs()).value();
  });
  ASSERT_TRUE(handle->wait().ok());
  EXPECT_EQ(handle->result_as<int64_t>(a).value(), 2);
  EXPECT_TRUE(handle->result(b).value().empty());
  expect_error(handle->result_as<int32_t>(a), Code::kInvalidArgument, "8 bytes, not 4");
  expect_error(handle->result({a.run, 2}), Code::kNotFound, "no task 2");
  expect_error(handle->result({a.run + 1, 0}), Code::kNotFound, "no task");
}

void check_scalars(Call& call) {
  if (call.scalar<float>(0) != 1.5f || call.scalar<int8_t>(1) != -3 || !call.scalar<bool>(2) ||
      call.scalar<uint64_t>(3) != ~uint64_t{0} || call.scalar_count() != 256) {
    throw std::runtime_error("scalars differ");
  }
  for (uint32_t i = 4; i < 256; ++i) {
    if (call.scalar<uint32_t>(i) != i) throw std::runtime_error("scalar differs");
  }
}

TEST_P(Graph, ScalarsOfEveryTypeArriveUpTo256) {
  const auto worker = this->worker();
  const auto check = registered<check_scalars>(*worker, "check_scalars");
  TaskArgs args;
  args.add_scalar(1.5f).add_scalar(int8_t{-3}).add_scalar(true).add_scalar(~uint64_t{0});
  for (uint32_t i = 4; i < 256; ++i) args.add_scalar(i);
  EXPECT_TRUE(worker->run([&](Orchestrator& orch) { orch.submit_sub(check, args).value(); }).ok());
  args.add_scalar(0);
  expect_error(worker->run([&](Orchestrator& orch) -> Result<void> {
    auto task = orch.submit_sub(check, args);
    return task.ok() ? Result<void>() : task.error();
  }),
               Code::kInvalidArgument, "256 scalars");
}

TEST_P(Graph, TaskOf256TensorsOfRank8WithFullInlineBytesRuns) {
  const auto worker = this->worker();
  const auto sum = registered<sum_all>(*worker, "sum_all");
  Buffer x = worker->create_buffer(256 * 8).value();
  std::iota(x.as<int64_t>().begin(), x.as<int64_t>().end(), 0);
  TaskArgs args;
  for (uint64_t i = 0; i < 256; ++i) {
    args.add_tensor(x.tensor<int64_t>({1, 1, 1, 1, 1, 1, 1, 1}, i * 8), INPUT);
    args.add_scalar(i);
  }
  args.set_inline(std::vector<std::byte>(65'536));
  std::vector<TaskRef> refs;
  auto handle = worker->submit([&](Orchestrator& orch) {
    for (int i = 0; i < 40; ++i) refs.push_back(orch.submit_sub(sum, args).value());
  });
  ASSERT_TRUE(handle->wait().ok());
  for (const TaskRef ref : refs) EXPECT_EQ(handle->result_as<int64_t>(ref).value(), 255 * 128);
  args.add_tensor(x.tensor<int64_t>({1}), INPUT);
  expect_error(worker->run([&](Orchestrator& orch) -> Result<void> {
    auto task = orch.submit_sub(sum, args);
    return task.ok() ? Result<void>() : task.error();
  }),
               Code::kInvalidArgument, "256 tensors");
}

TEST_P(Graph, TemporariesCarryDataBetweenTasksAndWaitForMemoryThatIsUsedAgain) {
  auto spec = spec_of(GetParam(), 2);
  spec.limits.heap_bytes = 32 << 20;
  const auto worker = started(spec);
  const auto write = registered<fill>(*worker, "fill");
  const auto sum = registered<sum_all>(*worker, "sum_all");
  constexpr uint64_t kElements = 1 << 18;  // 2 MiB each, 64 of them in 32 MiB
  std::vector<TaskRef> sums;
  auto handle = worker->submit([&](Orchestrator& orch) -> Result<void> {
    for (int64_t i = 0; i < 64; ++i) {
      auto scope = orch.scope().value();
      auto made = orch.temporary<int64_t>({kElements});
      if (!made) return made.error();
      orch.submit_sub(write, TaskArgs().add_tensor(*made, OUTPUT).add_scalar(i)).value();
      sums.push_back(orch.submit_sub(sum, TaskArgs().add_tensor(*made, INPUT)).value());
    }
    return {};
  });
  ASSERT_TRUE(handle->wait().ok()) << handle->wait().error().to_string();
  for (int64_t i = 0; i < 64; ++i) {
    EXPECT_EQ(handle->result_as<int64_t>(sums[i]).value(), i * int64_t{kElements});
  }
}

TEST_P(Graph, TemporaryOfAnEndedScopeIsRefused) {
  const auto worker = this->worker();
  const auto write = registered<fill>(*worker, "fill");
  EXPECT_TRUE(worker
                  ->run([&](Orchestrator& orch) {
                    Tensor inner;
                    const Tensor outer = orch.temporary<int64_t>({4}).value();
                    {
                      auto scope = orch.scope().value();
                      inner = orch.temporary<int64_t>({4}).value();
                    }
                    const auto args = [](const Tensor& t) {
                      return TaskArgs().add_tensor(t, OUTPUT).add_scalar(int64_t{1});
                    };
                    expect_error(orch.submit_sub(write, args(inner)), Code::kNotFound, "freed");
                    EXPECT_TRUE(orch.submit_sub(write, args(outer)).ok());
                  })
                  .ok());
}

TEST_P(Graph, ScopesNestTo64AndNoDeeper) {
  const auto worker = this->worker(1);
  EXPECT_TRUE(worker
                  ->run([&](Orchestrator& orch) {
                    std::vector<Orchestrator::Scope> scopes;
                    for (int i = 0; i < 64; ++i) scopes.push_back(orch.scope().value());
                    expect_error(orch.scope(), Code::kResourceExhausted, "64");
                    while (!scopes.empty()) scopes.pop_back();
                    EXPECT_TRUE(orch.scope().ok());
                  })
                  .ok());
}

TEST_P(Graph, ThousandRunsOneAfterTheOther) {
  const auto worker = this->worker();
  const auto step = registered<scale_add>(*worker, "scale_add");
  Buffer x = worker->create_buffer(8).value();
  const TaskArgs args = TaskArgs()
                            .add_tensor(x.tensor<int64_t>({1}), INOUT)
                            .add_scalar(int64_t{1})
                            .add_scalar(int64_t{1});
  for (int i = 0; i < 1000; ++i) {
    ASSERT_TRUE(worker->run([&](Orchestrator& orch) { orch.submit_sub(step, args).value(); }).ok());
    ASSERT_EQ(x.as<int64_t>()[0], i + 1);
  }
}

TEST_P(Graph, RunsWithoutWaitExecuteInTheOrderOfTheirSubmits) {
  const auto worker = this->worker();
  const auto step = registered<scale_add>(*worker, "scale_add");
  Buffer x = worker->create_buffer(8).value();
  RunHandle last;
  for (int64_t i = 0; i < 200; ++i) {
    last = worker
               ->submit([&](Orchestrator& orch) {
                 orch.submit_sub(step, TaskArgs()
                                           .add_tensor(x.tensor<int64_t>({1}), INOUT)
                                           .add_scalar(int64_t{i % 2 == 0 ? 1 : -1})
                                           .add_scalar(i))
                     .value();
               })
               .value();
  }
  ASSERT_TRUE(last.wait().ok());
  int64_t want = 0;
  for (int64_t i = 0; i < 200; ++i) want = want * (i % 2 == 0 ? 1 : -1) + i;
  EXPECT_EQ(x.as<int64_t>()[0], want);
}

void build_nothing(Orchestrator&) {}
Result<void> build_an_error(Orchestrator&) {
  return Error(Code::kNotFound, Scope::kCall, "of a plain function");
}

TEST_P(Graph, FunctionsOfEveryKindBuildRuns) {
  const auto worker = this->worker(1);
  EXPECT_TRUE(worker->run(build_nothing).ok());
  EXPECT_TRUE(worker->run(&build_nothing).ok());
  EXPECT_TRUE(worker->submit(build_nothing).ok());
  expect_error(worker->run(build_an_error), Code::kNotFound, "of a plain function");
  int calls = 0;
  const auto constant = [&calls](Orchestrator&) { ++calls; };
  EXPECT_TRUE(worker->run(constant).ok());
  EXPECT_TRUE(worker->submit(constant).ok());
  auto changing = [n = 0, &calls](Orchestrator&) mutable { calls += ++n; };
  EXPECT_TRUE(worker->run(changing).ok());
  EXPECT_TRUE(worker->run(changing).ok());
  EXPECT_EQ(calls, 2 + 1 + 2);
}

TEST_P(Graph, EmptyRunIsDone) {
  const auto worker = this->worker(1);
  auto handle = worker->submit([](Orchestrator&) {});
  ASSERT_TRUE(handle.ok());
  EXPECT_TRUE(handle->wait().ok());
  EXPECT_TRUE(handle->done());
  EXPECT_TRUE(handle->progress().built);
  EXPECT_EQ(handle->progress().submitted, 0u);
}

TEST_P(Graph, WaitForATaskInsideTheFunctionSeesItsBytes) {
  const auto worker = this->worker();
  const auto write = registered<fill>(*worker, "fill");
  Buffer x = worker->create_buffer(8).value();
  int64_t seen = 0;
  ASSERT_TRUE(
      worker
          ->run([&](Orchestrator& orch) {
            for (int64_t i = 1; i <= 50; ++i) {
              const TaskRef task =
                  orch.submit_sub(
                          write,
                          TaskArgs().add_tensor(x.tensor<int64_t>({1}), OUTPUT).add_scalar(i))
                      .value();
              ASSERT_TRUE(orch.wait(task).ok());
              seen += x.as<int64_t>()[0];
            }
          })
          .ok());
  EXPECT_EQ(seen, 50 * 51 / 2);
}

TEST_P(Graph, OrchestrationFunctionsErrorOrExceptionIsTheRuns) {
  const auto worker = this->worker(1);
  const auto none = registered<nothing>(*worker, "nothing");
  const auto returned = worker->run([&](Orchestrator& orch) -> Result<void> {
    orch.submit_sub(none, TaskArgs()).value();
    return Error(Code::kNotFound, Scope::kCall, "the user's own");
  });
  expect_error(returned, Code::kNotFound, "the user's own");
  const auto thrown = worker->run([&](Orchestrator& orch) {
    orch.submit_sub(none, TaskArgs()).value();
    throw std::runtime_error("thrown by the user");
  });
  expect_error(thrown, Code::kUserCode, "thrown by the user");
  EXPECT_TRUE(
      worker->run([&](Orchestrator& orch) { orch.submit_sub(none, TaskArgs()).value(); }).ok());
}

TEST_P(Graph, BackPressureWithEightSlotsLosesNothing) {
  auto spec = spec_of(GetParam(), 2);
  spec.limits.slots = 8;
  const auto worker = started(spec);
  const auto step = registered<scale_add>(*worker, "scale_add");
  Buffer x = worker->create_buffer(16 * 8).value();
  for (int run = 0; run < 3; ++run) {
    ASSERT_TRUE(
        worker
            ->submit([&](Orchestrator& orch) {
              for (uint64_t i = 0; i < 1000; ++i) {
                ASSERT_TRUE(
                    orch.submit_sub(step, TaskArgs()
                                              .add_tensor(x.tensor<int64_t>({1}, i % 16 * 8), INOUT)
                                              .add_scalar(int64_t{1})
                                              .add_scalar(int64_t{1}))
                        .ok());
              }
            })
            .ok());
  }
  ASSERT_TRUE(worker->run([](Orchestrator&) {}).ok());
  EXPECT_EQ(std::accumulate(x.as<int64_t>().begin(), x.as<int64_t>().end(), int64_t{0}), 3000);
}

TEST_P(Graph, TaskSeesThatItsDeadlineHasPassedAndTheNextOneHasItsOwn) {
  const auto worker = this->worker(1);
  const auto stand = registered<stand_at_gate>(*worker, "stand");
  Gate gate(*worker);  // never opened
  expect_error(worker->run([&](Orchestrator& orch) {
    orch.submit_sub(stand, gate.args(), {.deadline_ms = 30}).value();
    orch.submit_sub(stand, gate.args(), {.deadline_ms = 5}).value();
  }),
               Code::kDeadline, "its deadline of 30 ms has passed");
  EXPECT_EQ(gate.get(kCancelSeen), 2u);
  gate.open();
  ASSERT_TRUE(
      worker->run([&](Orchestrator& orch) { orch.submit_sub(stand, gate.args()).value(); }).ok());
  EXPECT_EQ(gate.get(kCancelSeen), 2u);
}

TEST_P(Graph, OneSlotAndDepthOneAreEnough) {
  auto spec = spec_of(GetParam(), 1);
  spec.limits.slots = 1;
  spec.limits.depth = 1;
  const auto worker = started(spec);
  const auto step = registered<scale_add>(*worker, "scale_add");
  Buffer x = worker->create_buffer(8).value();
  ASSERT_TRUE(worker
                  ->run([&](Orchestrator& orch) {
                    for (int i = 0; i < 100; ++i) {
                      orch.submit_sub(step, TaskArgs()
                                                .add_tensor(x.tensor<int64_t>({1}), INOUT)
                                                .add_scalar(int64_t{1})
                                                .add_scalar(int64_t{1}))
                          .value();
                    }
                  })
                  .ok());
  EXPECT_EQ(x.as<int64_t>()[0], 100);
}

}  // namespace
}  // namespace strata
