// Chips of a Worker that is itself below another: kernels that come from above, and memory of the
// Worker above, which is copied and never mapped.
#include "strata/inner.h"
#include "tests/runtime/chip_test_util.h"

namespace strata::test {
namespace {

class NestedChips : public ::testing::TestWithParam<StartMethod> {};

INSTANTIATE_TEST_SUITE_P(Starts, NestedChips,
                         ::testing::Values(StartMethod::kInline, StartMethod::kFork),
                         [](const auto& start) {
                           return start.param == StartMethod::kInline ? "Inline" : "Fork";
                         });

// Doubles argument 0 on a chip of this Worker, by the transfer that scalar 0 names; the kernel's
// hashid is in the inline bytes.
void double_on_chip(Call& call) {
  const auto name = call.inline_bytes();
  const InnerOrchestrator orch = call.orchestrator();
  const InnerHandle kernel =
      orch.inner_handle({reinterpret_cast<const char*>(name.data()), name.size()});
  orch.submit_next_level(
      kernel, TaskArgs()
                  .add_tensor(call.ref(0), INOUT, static_cast<Transfer>(call.scalar<uint8_t>(0)))
                  .add_scalar(int64_t{2}));
}

class Tree {
 public:
  explicit Tree(StartMethod start) {
    WorkerSpec top = spec_of(start, 0);
    top.level = 4;
    worker = Worker::create(top).value();
    worker->add_worker(chip_spec(start, 2)).value();
    worker->init().value();
    receipt = worker->register_inner(kernel("chip_scale")).value();
    task = registered<double_on_chip>(*worker, "double_on_chip");
  }
  ~Tree() { worker->close().value(); }

  Result<void> run(const Tensor& tensor, Transfer transfer) {
    const TaskArgs args = TaskArgs()
                              .add_tensor(tensor, INOUT)
                              .add_scalar(static_cast<uint8_t>(transfer))
                              .set_inline(bytes_of(receipt.hashid));
    return run_on_chip(*worker, task, args);
  }

  std::unique_ptr<Worker> worker;
  InnerReceipt receipt;
  CallableHandle task;
};

TEST_P(NestedChips, RunKernelsThatAWorkerAboveMadeKnown) {
  Tree tree(GetParam());
  EXPECT_EQ(tree.receipt.kind, CallableKind::kChipCallable);
  auto x = tree.worker->create_buffer(8000).value();
  for (int64_t i = 0; i < 1000; ++i) x.as<int64_t>()[i] = i;
  ASSERT_TRUE(tree.run(x.tensor<int64_t>({1000}), Transfer::kDefault));
  ASSERT_TRUE(tree.run(x.tensor<int64_t>({500}), Transfer::kCopy));
  for (int64_t i = 0; i < 1000; ++i) ASSERT_EQ(x.as<int64_t>()[i], i * (i < 500 ? 4 : 2)) << i;
}

TEST_P(NestedChips, AMapOfMemoryOfTheWorkerAboveIsRefused) {
  Tree tree(GetParam());
  auto x = tree.worker->create_buffer(8000).value();
  const Result<void> refused = tree.run(x.tensor<int64_t>({1000}), Transfer::kMap);
  expect_error(refused, Code::kTaskFailed, "its buffer belongs to a Worker above");
  expect_error(refused, Code::kTaskFailed, "use Transfer::kCopy");
}

}  // namespace
}  // namespace strata::test
