// Workers in Workers: L4 over L3, L5 over L4 over L3, by processes and as calls.
#include "tests/runtime/nested_util.h"

namespace strata {
namespace {

using namespace test;  // NOLINT

class Nested : public ::testing::TestWithParam<StartMethod> {};
INSTANTIATE_TEST_SUITE_P(Starts, Nested,
                         ::testing::Values(StartMethod::kInline, StartMethod::kFork),
                         [](const auto& instance) {
                           return instance.param == StartMethod::kInline ? "Inline" : "Fork";
                         });

TEST_P(Nested, TaskOfAChildWorkerRunsTasksInItsSubChildren) {
  auto worker = Worker::create(pod(GetParam(), 1, 1)).value();
  const auto stage = registered<scale_in_subs>(*worker, "scale_in_subs");
  worker->register_inner(local_function<scale_add>("scale_add")).value();
  worker->init().value();
  const Buffer x = worker->create_buffer(8 * 8).value();
  for (int i = 0; i < 8; ++i) x.as<int64_t>()[i] = i;
  worker
      ->run([&](Orchestrator& orch) {
        orch.submit_sub(stage, TaskArgs()
                                   .add_tensor(x.tensor<int64_t>({8}), INOUT)
                                   .add_scalar(int64_t{3})
                                   .add_scalar(int64_t{1}))
            .value();
      })
      .value();
  for (int i = 0; i < 8; ++i) EXPECT_EQ(x.as<int64_t>()[i], 3 * i + 1);
  worker->close().value();
}

TEST_P(Nested, RootErrorOfTheInnerRunIsTheTasksFailureWithThePath) {
  auto worker = Worker::create(pod(GetParam(), 1, 1)).value();
  const auto stage = registered<fail_in_sub>(*worker, "fail_in_sub");
  worker->register_inner(local_function<throw_text>("throw_text")).value();
  worker->init().value();
  const Result<void> ran = worker->run([&](Orchestrator& orch) {
    orch.submit_sub(stage, TaskArgs().set_inline(bytes_of("the disk is full"))).value();
  });
  expect_error(ran, Code::kTaskFailed, "the disk is full");
  expect_error(ran, Code::kTaskFailed, "L4/0/0 ");
  expect_error(ran, Code::kTaskFailed, "'throw_text'");
  worker->close().value();
}

}  // namespace
}  // namespace strata
