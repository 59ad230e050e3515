// What a Worker above makes known to the code of its child Workers, by register_inner: all or
// nothing, at every level below.
#include "tests/runtime/nested_util.h"

namespace strata {
namespace {

using namespace test;  // NOLINT

class InnerCallables : public ::testing::TestWithParam<StartMethod> {
 protected:
  InnerCallables() : worker_(Worker::create(pod(GetParam(), 1, 1)).value()) {}
  ~InnerCallables() override { EXPECT_TRUE(worker_->close().ok()); }

  template <void (*fn)(Call&)>
  Result<void> run(const TaskArgs& args) {
    const auto handle = registered<fn>(*worker_, "the task");
    return run_one(*worker_, handle, args);
  }
  std::unique_ptr<Worker> worker_;
};
INSTANTIATE_TEST_SUITE_P(Starts, InnerCallables,
                         ::testing::Values(StartMethod::kInline, StartMethod::kFork),
                         [](const auto& instance) {
                           return instance.param == StartMethod::kInline ? "Inline" : "Fork";
                         });

TEST_P(InnerCallables, LibrariesCallEachOtherWithoutLibstrata) {
  worker_.reset();
  WorkerSpec spec = pod(GetParam(), 1, 1);
  spec.library_path = {STRATA_TEST_LIBRARIES};
  worker_ = Worker::create(spec).value();
  worker_->init().value();
  const auto stage =
      worker_->register_callable(NativeImport{"libnative_stage.so", "native_stage"}).value();
  const auto receipt =
      worker_->register_inner(NativeImport{"libnative_good.so", "native_add"}).value();
  EXPECT_EQ(receipt.kind, CallableKind::kNativeImport);
  EXPECT_EQ(receipt.name, "native_add");
  const Buffer x = worker_->create_buffer(64).value();
  run_one(*worker_, stage,
          TaskArgs().add_tensor(x.tensor<int64_t>({8}), INOUT).add_scalar(int64_t{4}))
      .value();
  EXPECT_EQ(x.as<int64_t>()[5], 4);
}

void find_by_hashid(Call& call) {
  const auto text = call.inline_bytes();
  InnerOrchestrator orch = call.orchestrator();
  orch.submit_sub(
      orch.inner_handle(std::string_view(reinterpret_cast<const char*>(text.data()), text.size())),
      TaskArgs());
}

TEST_P(InnerCallables, HandleIsFoundByTheReceiptsHashidUntilItIsTakenBack) {
  worker_->init().value();
  const InnerReceipt receipt = worker_->register_inner(local_function<nothing>("nothing")).value();
  const TaskArgs args = TaskArgs().set_inline(bytes_of(receipt.hashid));
  run<find_by_hashid>(args).value();
  // Counted: the second receipt keeps it.
  const InnerReceipt again = worker_->register_inner(local_function<nothing>("nothing")).value();
  EXPECT_EQ(again.hashid, receipt.hashid);
  worker_->unregister_inner(receipt).value();
  run<find_by_hashid>(args).value();
  worker_->unregister_inner(again).value();
  expect_error(run<find_by_hashid>(args), Code::kTaskFailed, "is not registered with the Worker");
  expect_error(worker_->unregister_inner(again), Code::kNotFound, "unregistered");
  // And anew.
  worker_->register_inner(local_function<nothing>("nothing")).value();
  run<find_by_hashid>(args).value();
}

void use_nothing(Call& call) {
  InnerOrchestrator orch = call.orchestrator();
  orch.submit_sub(orch.inner_handle<nothing>(), TaskArgs());
}

TEST_P(InnerCallables, DispatcherAndInnerRegistryShareNothing) {
  worker_->init().value();
  // The dispatcher's alone: the inner registry does not know it.
  const auto handle = registered<nothing>(*worker_, "nothing");
  run_one(*worker_, handle, TaskArgs()).value();
  expect_error(run<use_nothing>(TaskArgs()), Code::kTaskFailed, "is not registered");
  const InnerReceipt receipt = worker_->register_inner(local_function<nothing>("nothing")).value();
  EXPECT_EQ(receipt.hashid, handle.hashid);
  EXPECT_NE(receipt.index, handle.index);
  run<use_nothing>(TaskArgs()).value();
  // Each goes without the other.
  worker_->unregister_callable(handle).value();
  run<use_nothing>(TaskArgs()).value();
  const auto again = registered<nothing>(*worker_, "nothing");
  worker_->unregister_inner(receipt).value();
  run_one(*worker_, again, TaskArgs()).value();
  expect_error(run<use_nothing>(TaskArgs()), Code::kTaskFailed, "is not registered");
}

TEST_P(InnerCallables, RegisterInnerRefusesWhatCannotBe) {
  expect_error(worker_->register_inner(local_function<nothing>("n"), {1}), Code::kInvalidArgument,
               "worker 1 is no Worker below L4");
  expect_error(worker_->register_inner(local_function<nothing>("n"), {-1}), Code::kInvalidArgument,
               "worker -1");
  expect_error(worker_->register_inner(local_function<nothing>("n"), {0, 0}),
               Code::kInvalidArgument, "listed twice");
  expect_error(worker_->register_inner(LocalFunction{}), Code::kInvalidArgument,
               "without an entry");
  expect_error(worker_->unregister_inner(InnerReceipt{}), Code::kInvalidArgument, "empty");
  auto alone = Worker::create(spec_of(GetParam(), 1)).value();
  expect_error(alone->register_inner(local_function<nothing>("n")), Code::kWrongState,
               "without Workers below it");
  const InnerReceipt receipt = worker_->register_inner(local_function<nothing>("n")).value();
  expect_error(alone->unregister_inner(receipt), Code::kInvalidArgument, "another Worker");
  worker_->init().value();
  worker_->close().value();
  expect_error(worker_->register_inner(local_function<nothing>("n")), Code::kWrongState, "closed");
}

// Only one of the two L3s finds the library: by a library_path of its own.
WorkerSpec lopsided(StartMethod start) {
  WorkerSpec spec = level(5, start, 0, {pod(start, 1, 1), pod(start, 1, 1)});
  spec.workers[0].workers[0].library_path = {STRATA_TEST_LIBRARIES};
  return spec;
}

TEST_P(InnerCallables, FailureFarBelowUndoesAllAndNamesThePlace) {
  worker_.reset();
  worker_ = Worker::create(lopsided(GetParam())).value();
  worker_->init().value();
  const NativeImport add{"libnative_good.so", "native_add"};
  const Result<InnerReceipt> failed = worker_->register_inner(add);
  expect_error(failed, Code::kNotFound, "L5/1/0 ");
  expect_error(failed, Code::kNotFound, "no library libnative_good.so");
  // The other side has undone what it had prepared: there it is new again, and complete.
  const InnerReceipt receipt = worker_->register_inner(add, {0}).value();
  worker_->unregister_inner(receipt).value();
  expect_error(worker_->register_inner(add, {1}), Code::kNotFound, "L5/1/0 ");
  worker_->register_inner(add, {0}).value();
}

TEST(InnerInit, CallableForSomeWorkersIsKnownThereAloneWhenEverItIsRegistered) {
  for (const bool late : {false, true}) {
    auto worker = Worker::create(pod(StartMethod::kFork, 3, 1)).value();
    const auto task = registered<use_nothing>(*worker, "use_nothing");
    if (late) worker->init().value();
    worker->register_inner(local_function<nothing>("nothing"), {1}).value();
    const InnerReceipt second =
        worker->register_inner(local_function<nothing>("nothing"), {2, 1}).value();
    if (!late) worker->init().value();
    const auto on = [&](int number) {
      return worker->run([&](Orchestrator& orch) {
        orch.submit_next_level(task, TaskArgs(), {}, number).value();
      });
    };
    expect_error(on(0), Code::kTaskFailed, "is not registered with the Worker L4/0");
    EXPECT_TRUE(on(1).ok());
    EXPECT_TRUE(on(2).ok());
    worker->unregister_inner(second).value();
    EXPECT_TRUE(on(1).ok());
    worker->close().value();
  }
}

TEST(InnerInit, CallableThatALevelBelowRefusesFailsInitWithThePlace) {
  auto worker = Worker::create(lopsided(StartMethod::kFork)).value();
  worker->register_inner(NativeImport{"libnative_good.so", "native_add"}).value();
  const Result<void> started = worker->init();
  expect_error(started, Code::kEndpointFailed, "L5/1/0 ");
  expect_error(started, Code::kEndpointFailed, "no library libnative_good.so");
  worker.reset();
  EXPECT_TRUE(await([] { return descendants().size() <= 1; }));  // the process's server
}

}  // namespace
}  // namespace strata
