// Buffers: who may free them when, and what their memory holds.
#include <algorithm>

#include "tests/runtime/worker_test_util.h"

namespace strata {
namespace {

using namespace test;  // NOLINT

TEST(BufferLife, BuffersMadeBeforeAndAfterInitAreTheSameToTasks) {
  const auto worker = Worker::create(spec_of(StartMethod::kFork, 1)).value();
  Buffer before = worker->create_buffer(800).value();
  before.as<int64_t>()[99] = 7;
  const auto copy = registered<copy_add>(*worker, "copy_add");
  ASSERT_TRUE(worker->init().ok());
  Buffer after = worker->create_buffer(800).value();
  EXPECT_TRUE(worker
                  ->run([&](Orchestrator& orch) {
                    orch.submit_sub(copy, TaskArgs()
                                              .add_tensor(before.tensor<int64_t>({100}), INPUT)
                                              .add_tensor(after.tensor<int64_t>({100}), OUTPUT)
                                              .add_scalar(int64_t{1}))
                        .value();
                  })
                  .ok());
  EXPECT_EQ(after.as<int64_t>()[99], 8);
  EXPECT_EQ(after.as<int64_t>()[0], 1);
}

TEST(BufferLife, MemoryOfANewBufferIsZeroAlsoWhereAnOldOneWas) {
  auto spec = spec_of(StartMethod::kInline, 0);
  spec.limits.heap_bytes = 16 << 20;
  const auto worker = started(spec);
  for (int round = 0; round < 3; ++round) {
    for (const size_t bytes : {1u, 64u, 1000u, 4096u, 70'000u, 3u << 20}) {
      std::vector<Buffer> all;
      for (int i = 0; i < 4; ++i) {
        all.push_back(worker->create_buffer(bytes).value());
        const auto memory = all.back().as<uint8_t>();
        ASSERT_EQ(memory.size(), bytes);
        ASSERT_TRUE(std::ranges::all_of(memory, [](uint8_t b) { return b == 0; })) << bytes;
        std::ranges::fill(memory, uint8_t{0xff});
      }
    }
  }
}

TEST(BufferLife, BufferFreedWhileTasksHoldItIsFreedAfterThem) {
  auto spec = spec_of(StartMethod::kFork, 1);
  spec.limits.heap_bytes = 16 << 20;
  const auto worker = started(spec);
  const auto stand = registered<stand_at_gate>(*worker, "stand");
  const auto copy = registered<copy_add>(*worker, "copy_add");
  Gate gate(*worker);
  constexpr uint64_t kElements = (7 << 20) / 8;
  Buffer out = worker->create_buffer(64).value();
  Tensor of_freed;
  RunHandle handle;
  {
    Buffer large = worker->create_buffer(kElements * 8).value();
    of_freed = large.tensor<int64_t>({8});
    std::ranges::fill(large.as<int64_t>(), 41);
    handle = worker
                 ->submit([&](Orchestrator& orch) {
                   orch.submit_sub(stand, gate.args()).value();
                   orch.submit_sub(copy, TaskArgs()
                                             .add_tensor(of_freed, INPUT)
                                             .add_tensor(out.tensor<int64_t>({8}), OUTPUT)
                                             .add_scalar(int64_t{1}))
                       .value();
                 })
                 .value();
  }
  ASSERT_TRUE(gate.await_started(1));
  // Its memory is not to be had yet, and nothing new may use it.
  expect_error(worker->create_buffer(kElements * 8), Code::kResourceExhausted, "heap_bytes");
  EXPECT_TRUE(worker
                  ->submit([&](Orchestrator& orch) {
                    expect_error(
                        orch.submit_sub(copy, TaskArgs()
                                                  .add_tensor(of_freed, INPUT)
                                                  .add_tensor(out.tensor<int64_t>({8}), OUTPUT)
                                                  .add_scalar(int64_t{1})),
                        Code::kNotFound, "freed by its owner");
                  })
                  .ok());
  gate.open();
  ASSERT_TRUE(handle.wait().ok());
  for (const int64_t v : out.as<int64_t>()) EXPECT_EQ(v, 42);
  EXPECT_TRUE(worker->create_buffer(kElements * 8).ok());
}

TEST(BufferLife, FreedAfterARunThatFailedToo) {
  auto spec = spec_of(StartMethod::kFork, 1);
  spec.limits.heap_bytes = 8 << 20;
  const auto worker = started(spec);
  const auto fails = registered<throw_text>(*worker, "throw_text");
  const auto sum = registered<sum_all>(*worker, "sum_all");
  for (int round = 0; round < 5; ++round) {
    Buffer large = worker->create_buffer(5 << 20).value();
    const Tensor some = large.tensor<int64_t>({8});
    expect_error(worker->run([&](Orchestrator& orch) {
      orch.submit_sub(fails, TaskArgs().add_tensor(some, OUTPUT).set_inline(bytes_of("no")))
          .value();
      orch.submit_sub(sum, TaskArgs().add_tensor(some, INPUT)).value();
    }),
                 Code::kTaskFailed, "no");
  }
}

TEST(BufferLife, MovesGiveTheOldMemoryBack) {
  auto spec = spec_of(StartMethod::kInline, 0);
  spec.limits.heap_bytes = 8 << 20;
  const auto worker = started(spec);
  Buffer a = worker->create_buffer(5 << 20).value();
  const Uid uid = a.uid();
  Buffer b = std::move(a);
  EXPECT_FALSE(a);  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(a.data(), nullptr);
  EXPECT_EQ(a.size(), 0u);
  EXPECT_EQ(b.uid(), uid);
  b = worker->create_buffer(8).value();
  EXPECT_NE(b.uid(), uid);
  EXPECT_TRUE(worker->create_buffer(5 << 20).ok());
  Buffer& same = b;
  b = std::move(same);
  EXPECT_TRUE(b);
}

TEST(BufferLife, TensorsOfBuffersSeeTheirBytes) {
  const auto worker = started(StartMethod::kInline, 1);
  const auto sum = registered<sum_all>(*worker, "sum_all");
  Buffer x = worker->create_buffer(24 * 8).value();
  for (int64_t i = 0; i < 24; ++i) x.as<int64_t>()[static_cast<size_t>(i)] = i;
  const auto value_of = [&](const Tensor& tensor) {
    TaskRef task;
    auto handle = worker->submit([&](Orchestrator& orch) {
      task = orch.submit_sub(sum, TaskArgs().add_tensor(tensor, INPUT)).value();
    });
    EXPECT_TRUE(handle->wait().ok());
    return handle->result_as<int64_t>(task).value();
  };
  EXPECT_EQ(value_of(x.tensor<int64_t>({24})), 276);
  EXPECT_EQ(value_of(x.tensor<int64_t>({2, 3, 4})), 276);
  EXPECT_EQ(value_of(x.tensor<int64_t>({4}, 10 * 8)), 10 + 11 + 12 + 13);
  EXPECT_EQ(value_of(x.tensor<int64_t>({}, 5 * 8)), 5);
}

TEST(BufferLife, ManyBuffersComeAndGoWhileTasksRun) {
  auto spec = spec_of(StartMethod::kFork, 2);
  spec.limits.heap_bytes = 64 << 20;
  const auto worker = started(spec);
  const auto write = registered<fill>(*worker, "fill");
  RunHandle last;
  for (int i = 0; i < 300; ++i) {
    const uint64_t elements = 1 + static_cast<uint64_t>(i) * 797 % 200'000;
    Buffer x = worker->create_buffer(elements * 8).value();
    last = worker
               ->submit([&](Orchestrator& orch) {
                 orch.submit_sub(write, TaskArgs()
                                            .add_tensor(x.tensor<int64_t>({elements}), OUTPUT)
                                            .add_scalar(int64_t{i}))
                     .value();
               })
               .value();
    if (i % 10 != 0) continue;
    ASSERT_TRUE(last.wait().ok());
    ASSERT_EQ(x.as<int64_t>()[elements - 1], i);
  }
  EXPECT_TRUE(last.wait().ok());
}

}  // namespace
}  // namespace strata
