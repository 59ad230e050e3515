// The shared heap of a Worker at its bound.
#include <gtest/gtest.h>

#include <optional>

#include "strata/strata.h"

namespace strata {
namespace {

TEST(Heap, AnIdleSlabMakesWayForABufferOfTheWholeHeap) {
  WorkerSpec spec;
  spec.start = StartMethod::kInline;
  spec.sub_workers = 1;
  spec.limits.heap_bytes = 8 << 20;
  auto worker = Worker::create(spec).value();
  ASSERT_TRUE(worker->init().ok());
  { const Buffer small = worker->create_buffer(64).value(); }
  {
    const Result<Buffer> whole = worker->create_buffer(8 << 20);
    EXPECT_TRUE(whole.ok()) << (whole ? "" : whole.error().to_string());
  }
  EXPECT_TRUE(worker->close().ok());
}

void nothing(Call&) {}

Result<void> submit_step(Orchestrator& orch, const CallableHandle& callable, bool with_scope) {
  std::optional<Orchestrator::Scope> scope;
  if (with_scope) scope.emplace(orch.scope().value());
  TaskArgs args;
  args.add_tensor(Tensor::without_storage<std::byte>({3 << 20}), OUTPUT);
  const Result<TaskRef> task = orch.submit_sub(callable, args);
  if (!task) return task.error();
  return {};
}

TEST(Heap, AnOutputWithoutStorageWaitsForMemoryOfEndedScopesAndOnlyForThat) {
  for (const StartMethod start : {StartMethod::kInline, StartMethod::kFork}) {
    WorkerSpec spec;
    spec.start = start;
    spec.sub_workers = 2;
    spec.limits.heap_bytes = 8 << 20;
    auto worker = Worker::create(spec).value();
    const auto callable = worker->register_callable(local_function<nothing>("nothing")).value();
    ASSERT_TRUE(worker->init().ok());
    const auto steps = [&](bool with_scope) {
      return worker->run([&](Orchestrator& orch) -> Result<void> {
        Result<void> ok;
        for (int i = 0; i < 100 && ok; ++i) ok = submit_step(orch, callable, with_scope);
        return ok;
      });
    };
    const Result<void> kept = steps(false);
    ASSERT_FALSE(kept.ok());
    EXPECT_EQ(kept.error().code(), Code::kResourceExhausted);
    const Result<void> scoped = steps(true);
    EXPECT_TRUE(scoped.ok()) << (scoped ? "" : scoped.error().to_string());
    EXPECT_TRUE(worker->close().ok());
  }
}

}  // namespace
}  // namespace strata
