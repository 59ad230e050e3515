// Wrong calls: each is refused in words, changes nothing, and the Worker goes on.
#include <fcntl.h>
#include <sys/wait.h>

#include <functional>
#include <optional>
#include <thread>

#include "tests/runtime/worker_test_util.h"

namespace strata {
namespace {

using namespace test;  // NOLINT

// ---------------------------------------------------------------- specs

TEST(Spec, EveryWrongValueIsRefusedByItsName) {
  const auto refuse = [](const std::function<void(WorkerSpec&)>& change, std::string_view field) {
    WorkerSpec spec = spec_of(StartMethod::kFork, 1);
    change(spec);
    expect_error(Worker::create(spec), Code::kInvalidArgument, field);
  };
  refuse([](WorkerSpec& s) { s.level = 2; }, "WorkerSpec::level");
  refuse([](WorkerSpec& s) { s.level = 7; }, "WorkerSpec::level");
  refuse([](WorkerSpec& s) { s.sub_workers = -1; }, "WorkerSpec::sub_workers");
  refuse([](WorkerSpec& s) { s.sub_workers = 1025; }, "WorkerSpec::sub_workers");
  refuse([](WorkerSpec& s) { s.start = static_cast<StartMethod>(9); }, "WorkerSpec::start");
  refuse([](WorkerSpec& s) { s.limits.slots = 0; }, "Limits::slots");
  refuse([](WorkerSpec& s) { s.limits.slots = ~0u; }, "Limits::slots");
  refuse([](WorkerSpec& s) { s.limits.depth = 0; }, "Limits::depth");
  refuse([](WorkerSpec& s) { s.limits.depth = 63; }, "Limits::depth");
  refuse([](WorkerSpec& s) { s.limits.buffers = 0; }, "Limits::buffers");
  refuse([](WorkerSpec& s) { s.limits.buffers = ~0u; }, "Limits::buffers");
  refuse([](WorkerSpec& s) { s.limits.callables = 0; }, "Limits::callables");
  refuse([](WorkerSpec& s) { s.limits.callables = ~0u; }, "Limits::callables");
  refuse([](WorkerSpec& s) { s.limits.heap_bytes = 100; }, "Limits::heap_bytes");
  refuse([](WorkerSpec& s) { s.limits.heap_bytes = ~uint64_t{0}; }, "Limits::heap_bytes");
  refuse([](WorkerSpec& s) { s.inherit_fds = {-1}; }, "WorkerSpec::inherit_fds");
}

TEST(Spec, DepthUpTo62IsTaken) {
  auto spec = spec_of(StartMethod::kFork, 1);
  spec.limits.depth = 62;
  auto worker = Worker::create(spec);
  ASSERT_TRUE(worker.ok()) << worker.error().to_string();
  ASSERT_TRUE((*worker)->init().ok());
  const auto none = registered<nothing>(**worker, "nothing");
  EXPECT_TRUE((*worker)
                  ->run([&](Orchestrator& orch) {
                    for (int i = 0; i < 300; ++i) orch.submit_sub(none, TaskArgs()).value();
                  })
                  .ok());
}

// ---------------------------------------------------------------- life

class Misuse : public ::testing::TestWithParam<StartMethod> {
 protected:
  std::unique_ptr<Worker> create(int children = 1) {
    return Worker::create(spec_of(GetParam(), children)).value();
  }
};
INSTANTIATE_TEST_SUITE_P(Both, Misuse, ::testing::Values(StartMethod::kFork, StartMethod::kInline),
                         [](const auto& instance) {
                           return instance.param == StartMethod::kFork ? "Fork" : "Inline";
                         });

TEST_P(Misuse, SubmitBeforeInitAndAfterCloseIsRefused) {
  const auto worker = create();
  const auto none = registered<nothing>(*worker, "nothing");
  bool called = false;
  const auto build = [&](Orchestrator&) { called = true; };
  expect_error(worker->submit(build), Code::kWrongState, "init()");
  expect_error(worker->run(build), Code::kWrongState, "init()");
  ASSERT_TRUE(worker->init().ok());
  EXPECT_TRUE(worker->run([&](Orchestrator& orch) { orch.submit_sub(none, {}).value(); }).ok());
  ASSERT_TRUE(worker->close().ok());
  expect_error(worker->submit(build), Code::kWrongState, "closed");
  expect_error(worker->create_buffer(8), Code::kWrongState, "closed");
  expect_error(worker->register_callable(local_function<nothing>("nothing")), Code::kWrongState,
               "closed");
  EXPECT_TRUE(worker->unregister_callable(none).ok());  // as a destructor may do
  EXPECT_FALSE(called);
}

TEST_P(Misuse, SecondInitAndInitAfterCloseAreRefused) {
  const auto worker = create();
  ASSERT_TRUE(worker->init().ok());
  expect_error(worker->init(), Code::kWrongState, "before");
  EXPECT_TRUE(worker->run([](Orchestrator&) {}).ok());
  ASSERT_TRUE(worker->close().ok());
  expect_error(worker->init(), Code::kWrongState, "closed");
  const auto never = create();
  EXPECT_TRUE(never->close().ok());
  EXPECT_TRUE(never->close().ok());
  expect_error(never->init(), Code::kWrongState, "closed");
}

TEST_P(Misuse, WorkerWithoutChildrenRunsEmptyRunsAndSaysThatNoneTakesTasks) {
  const auto worker = create(0);
  ASSERT_TRUE(worker->init().ok());
  const auto none = registered<nothing>(*worker, "nothing");
  EXPECT_TRUE(worker->run([](Orchestrator&) {}).ok());
  expect_error(worker->run([&](Orchestrator& orch) { orch.submit_sub(none, {}).value(); }),
               Code::kNoWorker, "none was started");
  EXPECT_TRUE(worker->close().ok());
}

// ---------------------------------------------------------------- inside the function

TEST_P(Misuse, SubmitRunAndCloseInsideAnOrchestrationFunctionAreRefused) {
  const auto worker = create();
  ASSERT_TRUE(worker->init().ok());
  const auto none = registered<nothing>(*worker, "nothing");
  EXPECT_TRUE(worker
                  ->run([&](Orchestrator& orch) {
                    expect_error(worker->submit([](Orchestrator&) {}), Code::kWrongState, "inside");
                    expect_error(worker->run([](Orchestrator&) {}), Code::kWrongState, "inside");
                    expect_error(worker->close(), Code::kWrongState, "inside");
                    orch.submit_sub(none, TaskArgs()).value();
                  })
                  .ok());
  EXPECT_TRUE(worker->close().ok());
}

TEST_P(Misuse, ControlsInsideAnOrchestrationFunctionAreLegal) {
  const auto worker = create();
  ASSERT_TRUE(worker->init().ok());
  EXPECT_TRUE(
      worker
          ->run([&](Orchestrator& orch) {
            const auto late = registered<fill>(*worker, "fill");
            Buffer x = worker->create_buffer(8).value();
            const TaskArgs args =
                TaskArgs().add_tensor(x.tensor<int64_t>({1}), OUTPUT).add_scalar(int64_t{4});
            const TaskRef task = orch.submit_sub(late, args).value();
            EXPECT_TRUE(orch.wait(task).ok());
            EXPECT_EQ(x.as<int64_t>()[0], 4);
            EXPECT_TRUE(worker->unregister_callable(late).ok());
            expect_error(orch.submit_sub(late, args), Code::kNotFound, "");
          })
          .ok());
}

TEST_P(Misuse, OrchestratorInAnotherThreadIsRefused) {
  const auto worker = create();
  ASSERT_TRUE(worker->init().ok());
  const auto none = registered<nothing>(*worker, "nothing");
  EXPECT_TRUE(worker
                  ->run([&](Orchestrator& orch) {
                    const TaskRef task = orch.submit_sub(none, TaskArgs()).value();
                    std::thread([&] {
                      expect_error(orch.submit_sub(none, {}), Code::kWrongState, "thread");
                      expect_error(orch.scope(), Code::kWrongState, "thread");
                      expect_error(orch.temporary<int>({1}), Code::kWrongState, "thread");
                      expect_error(orch.wait(task), Code::kWrongState, "thread");
                    }).join();
                  })
                  .ok());
}

TEST_P(Misuse, ScopeThatIsKeptLongerThanItsFunctionEndsNothingElse) {
  const auto worker = create();
  ASSERT_TRUE(worker->init().ok());
  const auto write = registered<fill>(*worker, "fill");
  std::optional<Orchestrator::Scope> kept;
  EXPECT_TRUE(worker->run([&](Orchestrator& orch) { kept.emplace(orch.scope().value()); }).ok());
  EXPECT_TRUE(
      worker
          ->run([&](Orchestrator& orch) {
            auto scope = orch.scope().value();
            const Tensor made = orch.temporary<int64_t>({1}).value();
            kept.reset();
            EXPECT_TRUE(
                orch.submit_sub(write, TaskArgs().add_tensor(made, OUTPUT).add_scalar(int64_t{1}))
                    .ok());
          })
          .ok());
}

TEST_P(Misuse, OuterScopeThatEndsFirstEndsTheInnerToo) {
  const auto worker = create();
  ASSERT_TRUE(worker->init().ok());
  const auto write = registered<fill>(*worker, "fill");
  EXPECT_TRUE(worker
                  ->run([&](Orchestrator& orch) {
                    const auto args = [](const Tensor& t) {
                      return TaskArgs().add_tensor(t, OUTPUT).add_scalar(int64_t{1});
                    };
                    const Tensor own = orch.temporary<int64_t>({1}).value();
                    auto outer = std::optional(orch.scope().value());
                    auto inner = std::optional(orch.scope().value());
                    const Tensor made = orch.temporary<int64_t>({1}).value();
                    outer.reset();
                    expect_error(orch.submit_sub(write, args(made)), Code::kNotFound, "freed");
                    inner.reset();
                    EXPECT_TRUE(orch.submit_sub(write, args(own)).ok());
                  })
                  .ok());
}

// ---------------------------------------------------------------- arguments

TEST_P(Misuse, WrongTensorsAreRefusedInWordsAndNothingIsSubmitted) {
  const auto worker = create();
  const auto other = Worker::create(spec_of(StartMethod::kInline, 1)).value();
  ASSERT_TRUE(worker->init().ok());
  const auto write = registered<fill>(*worker, "fill");
  Buffer x = worker->create_buffer(64).value();
  Buffer theirs = other->create_buffer(64).value();
  Tensor stale;
  {
    const Buffer gone = worker->create_buffer(64).value();
    stale = gone.tensor<int64_t>({8});
  }
  const Tensor good = x.tensor<int64_t>({8});
  auto handle = worker->submit([&](Orchestrator& orch) {
    const auto refuse = [&](const Tensor& tensor, Code code, std::string_view piece) {
      expect_error(
          orch.submit_sub(write, TaskArgs().add_tensor(tensor, OUTPUT).add_scalar(int64_t{1})),
          code, piece);
    };
    refuse(Tensor{}, Code::kInvalidArgument, "without a buffer");
    refuse(Buffer().tensor<int64_t>({8}), Code::kInvalidArgument, "without a buffer");
    refuse(theirs.tensor<int64_t>({8}), Code::kNotFound, "this Worker never had");
    refuse(stale, Code::kNotFound, "freed");
    refuse(x.tensor<int64_t>({9}), Code::kInvalidArgument, "64");
    refuse(x.tensor<int64_t>({8}, 8), Code::kInvalidArgument, "64");
    refuse(x.tensor<int64_t>({1}, ~uint64_t{0} - 7), Code::kInvalidArgument, "");
    refuse(x.tensor<int64_t>({1ull << 61, 8}), Code::kInvalidArgument, "rank");
    refuse(x.tensor<int64_t>({1, 1, 1, 1, 1, 1, 1, 1, 8}), Code::kInvalidArgument, "rank");
    Tensor bad = good;
    bad.stride[0] = -1;
    refuse(bad, Code::kInvalidArgument, "");
    bad = good;
    bad.dtype = static_cast<DType>(99);
    refuse(bad, Code::kInvalidArgument, "99");
    bad = good;
    ++bad.buffer_index;
    refuse(bad, Code::kNotFound, "");
    expect_error(
        orch.submit_sub(
            write,
            TaskArgs().add_tensor(good, static_cast<TensorArgType>(7)).add_scalar(int64_t{1})),
        Code::kInvalidArgument, "tag 7");
    expect_error(orch.submit_sub(write, TaskArgs().set_inline(std::vector<std::byte>(65'537))),
                 Code::kInvalidArgument, "inline bytes");
    expect_error(orch.temporary<int64_t>({1ull << 40, 1ull << 40}), Code::kInvalidArgument,
                 "overflow");
    expect_error(orch.temporary<int64_t>({0}), Code::kInvalidArgument, "0 bytes");
    expect_error(orch.temporary(static_cast<DType>(99), std::array<uint64_t, 1>{4}),
                 Code::kInvalidArgument, "dtype");
  });
  EXPECT_TRUE(handle->wait().ok());
  EXPECT_EQ(handle->progress().submitted, 0u);
  for (const int64_t v : x.as<int64_t>()) EXPECT_EQ(v, 0);
  expect_error(worker->clear_error(theirs), Code::kNotFound, "never had");
}

TEST_P(Misuse, HandleOfAnotherWorkerIsRefused) {
  const auto worker = create();
  const auto other = create();
  ASSERT_TRUE(worker->init().ok());
  ASSERT_TRUE(other->init().ok());
  const auto mine = registered<nothing>(*worker, "nothing");
  const auto theirs = registered<fill>(*other, "fill");
  EXPECT_EQ(mine.index, theirs.index);  // only the Worker tells them apart
  expect_error(worker->run([&](Orchestrator& orch) -> Result<void> {
    auto task = orch.submit_sub(theirs, TaskArgs());
    return task.ok() ? Result<void>() : task.error();
  }),
               Code::kInvalidArgument, "another Worker");
  expect_error(worker->unregister_callable(theirs), Code::kInvalidArgument, "another Worker");
  expect_error(worker->unregister_callable(CallableHandle()), Code::kInvalidArgument, "empty");
  EXPECT_TRUE(worker->unregister_callable(mine).ok());
  EXPECT_TRUE(other->unregister_callable(theirs).ok());
}

TEST_P(Misuse, SubmitOfAnUnregisteredCallableIsRefused) {
  const auto worker = create();
  ASSERT_TRUE(worker->init().ok());
  const auto none = registered<nothing>(*worker, "nothing");
  ASSERT_TRUE(worker->unregister_callable(none).ok());
  expect_error(worker->unregister_callable(none), Code::kNotFound, "");
  EXPECT_TRUE(worker
                  ->run([&](Orchestrator& orch) {
                    expect_error(orch.submit_sub(none, TaskArgs()), Code::kNotFound, "");
                  })
                  .ok());
}

TEST_P(Misuse, BufferOfNoBytesAndBeyondTheHeapIsRefused) {
  auto spec = spec_of(GetParam(), 1);
  spec.limits.heap_bytes = 8 << 20;
  spec.limits.buffers = 20;
  const auto worker = started(spec);
  expect_error(worker->create_buffer(0), Code::kInvalidArgument, "0 bytes");
  expect_error(worker->create_buffer((8 << 20) + 1), Code::kResourceExhausted,
               "Limits::heap_bytes");
  expect_error(worker->create_buffer(~size_t{0}), Code::kResourceExhausted, "Limits::heap_bytes");
  {
    const Buffer half = worker->create_buffer(5 << 20).value();
    expect_error(worker->create_buffer(5 << 20), Code::kResourceExhausted, "Limits::heap_bytes");
  }
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(worker->create_buffer(7 << 20).ok()) << i;
  std::vector<Buffer> all;
  for (int i = 0; i < 20; ++i) all.push_back(worker->create_buffer(8).value());
  expect_error(worker->create_buffer(8), Code::kResourceExhausted, "Limits::buffers");
  all.pop_back();
  EXPECT_TRUE(worker->create_buffer(8).ok());
}

TEST_P(Misuse, CallablesBeyondTheLimitAreRefused) {
  auto spec = spec_of(GetParam(), 1);
  spec.limits.callables = 2;
  const auto worker = started(spec);
  const auto a = registered<nothing>(*worker, "a");
  registered<fill>(*worker, "b");
  expect_error(worker->register_callable(local_function<sum_all>("c")), Code::kResourceExhausted,
               "Limits::callables");
  registered<nothing>(*worker, "a");  // there already
  ASSERT_TRUE(worker->unregister_callable(a).ok());
  ASSERT_TRUE(worker->unregister_callable(a).ok());
  EXPECT_TRUE(await([&] { return worker->register_callable(local_function<sum_all>("c")).ok(); }));
}

// ---------------------------------------------------------------- fork and threads

// The process's fork server exists once a test has started one, so these run in a child process
// that starts afresh.
template <class Body>
void in_a_fresh_process(Body&& body) {
  if (kThreadSanitizer)
    GTEST_SKIP() << "its threads do not survive the fork of a process with some";
  ::fflush(nullptr);
  const pid_t pid = ::fork();
  ASSERT_GE(pid, 0);
  if (pid == 0) {
    body();
    ::fflush(nullptr);
    ::_exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST(ForkSafety, OtherThreadsAreRefusedByNameAndAcceptedWhereAllowed) {
  in_a_fresh_process([] {
    std::atomic<bool> stop = false;
    std::thread thread([&] {
      while (!stop) ::poll(nullptr, 0, 1);
    });
    auto spec = spec_of(StartMethod::kFork, 1);
    auto worker = Worker::create(spec).value();
    const auto refused = worker->init();
    expect_error(refused, Code::kWrongState, "1 other thread");
    expect_error(refused, Code::kWrongState, "allow_threads");
    EXPECT_TRUE(descendants().empty());
    spec.allow_threads = true;
    {
      const auto allowed = started(spec);
      const auto none = registered<nothing>(*allowed, "nothing");
      EXPECT_TRUE(
          allowed->run([&](Orchestrator& orch) { orch.submit_sub(none, {}).value(); }).ok());
    }
    stop = true;
    thread.join();
  });
}

TEST(ForkSafety, SecondWorkerStartsAlthoughThreadsExistByThen) {
  in_a_fresh_process([] {
    const auto first = started(StartMethod::kFork, 1);
    std::atomic<bool> stop = false;
    std::thread thread([&] {
      while (!stop) ::poll(nullptr, 0, 1);
    });
    {
      const auto second = started(StartMethod::kFork, 2);
      const auto none = registered<nothing>(*second, "nothing");
      EXPECT_TRUE(second->run([&](Orchestrator& orch) { orch.submit_sub(none, {}).value(); }).ok());
    }
    stop = true;
    thread.join();
  });
}

void write_to_descriptor(Call& call) {
  if (::write(call.scalar<int>(0), "x", 1) != 1) throw std::runtime_error("it is not open");
}

TEST(ForkSafety, ChildrenKeepInheritedDescriptorsAndNoOthers) {
  in_a_fresh_process([] {
    int kept[2];
    ASSERT_EQ(::pipe(kept), 0);
    // A number that nothing in a child has.
    const int other = ::fcntl(kept[1], F_DUPFD, 300);
    ASSERT_GE(other, 300);
    auto spec = spec_of(StartMethod::kFork, 1);
    spec.allow_threads = true;
    spec.inherit_fds = {kept[1]};
    const auto worker = started(spec);
    const auto write = registered<write_to_descriptor>(*worker, "write");
    const auto run_with = [&](int fd) {
      return worker->run(
          [&](Orchestrator& orch) { orch.submit_sub(write, TaskArgs().add_scalar(fd)).value(); });
    };
    EXPECT_TRUE(run_with(kept[1]).ok());
    pollfd p{.fd = kept[0], .events = POLLIN, .revents = 0};
    EXPECT_EQ(::poll(&p, 1, 10'000), 1);
    expect_error(run_with(other), Code::kTaskFailed, "not open");
    // The process's server has what the first Worker named, so that a later one cannot have more.
    spec.inherit_fds = {other};
    const auto late = Worker::create(spec).value();
    expect_error(late->init(), Code::kUnsupported, "inherit_fds");
  });
}

TEST(ForkSafety, ForkedCopyOfAProcessMakesItsOwnServer) {
  const auto worker = started(StartMethod::kFork, 1);
  const auto none = registered<nothing>(*worker, "nothing");
  in_a_fresh_process([] {
    auto spec = spec_of(StartMethod::kFork, 1);
    spec.allow_threads = true;
    const auto own = started(spec);
    const auto mine = registered<result_pid>(*own, "result_pid");
    TaskRef task;
    auto handle =
        own->submit([&](Orchestrator& orch) { task = orch.submit_sub(mine, {}).value(); });
    EXPECT_TRUE(handle->wait().ok());
    const auto pid = static_cast<int>(handle->result_as<int64_t>(task).value());
    EXPECT_TRUE(descendants().contains(pid));
  });
  EXPECT_TRUE(worker->run([&](Orchestrator& orch) { orch.submit_sub(none, {}).value(); }).ok());
}

}  // namespace
}  // namespace strata
