// What a Worker leaves behind: nothing. And Workers beside each other.
#include <sys/prctl.h>
#include <sys/wait.h>

#include <thread>

#include "tests/runtime/worker_test_util.h"

namespace strata {
namespace {

using namespace test;  // NOLINT

// The process's one fork server is there from the first Worker on and stays.
class Hygiene : public ::testing::Test {
 protected:
  void SetUp() override {
    { const auto first = started(StartMethod::kFork, 1); }
    fds_ = open_fds();
    await([&] { return (processes_ = descendants()).size() == 1; }, kLossBound);
  }
  void expect_clean() const {
    EXPECT_EQ(open_fds(), fds_);
    expect_no_process();
  }
  // A server that has ended is reaped by the process's one a moment later.
  void expect_no_process() const {
    await([&] { return descendants() == processes_; }, kLossBound);
    EXPECT_EQ(descendants(), processes_);
  }
  static void run_some(Worker& worker, int tasks = 20) {
    const auto none = registered<nothing>(worker, "nothing");
    EXPECT_TRUE(worker
                    .run([&](Orchestrator& orch) {
                      for (int i = 0; i < tasks; ++i) orch.submit_sub(none, TaskArgs()).value();
                    })
                    .ok());
  }

  std::set<int> fds_;
  std::set<int> processes_;
};

TEST_F(Hygiene, CycleOfCreateInitRunCloseLeavesNothing) {
  for (int i = 0; i < 30; ++i) {
    auto worker = started(StartMethod::kFork, 1 + i % 3);
    run_some(*worker);
    ASSERT_TRUE(worker->close().ok());
    expect_no_process();
    worker.reset();
    ASSERT_EQ(open_fds(), fds_) << "after cycle " << i;
  }
}

TEST_F(Hygiene, CycleWithAKilledChildLeavesNothing) {
  for (int i = 0; i < 10; ++i) {
    auto worker = started(StartMethod::kFork, 2);
    run_some(*worker);
    ::kill(worker->sub_children()[static_cast<size_t>(i % 2)].pid, SIGKILL);
    if (i % 3 == 0) {
      const auto none = registered<nothing>(*worker, "nothing");
      static_cast<void>(
          worker->run([&](Orchestrator& orch) { orch.submit_sub(none, TaskArgs()).value(); }));
    }
    ASSERT_TRUE(worker->close().ok());
    worker.reset();
    expect_clean();
  }
}

TEST_F(Hygiene, WorkerThatIsDestroyedWithoutCloseLeavesNothing) {
  { const auto worker = started(StartMethod::kFork, 2); }
  expect_clean();
  { const auto never = Worker::create(spec_of(StartMethod::kFork, 2)).value(); }
  expect_clean();
  {
    const auto inlined = started(StartMethod::kInline, 2);
    run_some(*inlined);
  }
  expect_clean();
}

TEST_F(Hygiene, KilledForkServerOfAWorkerLeavesNothing) {
  // This process takes the children of a lost server, as an init would, and reaps them here.
  ASSERT_EQ(::prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
  {
    const auto worker = started(StartMethod::kFork, 2);
    const std::vector<Worker::Child> children = worker->sub_children();
    ASSERT_EQ(::kill(state_and_parent(children[0].pid).second, SIGKILL), 0);
    EXPECT_TRUE(await([&] { return !worker->sub_children()[0].alive; }, kLossBound));
    EXPECT_FALSE(worker->sub_children()[1].alive);
    static_cast<void>(worker->close());
    for (const Worker::Child& child : children) {
      EXPECT_TRUE(await([&] {
        return ::waitpid(child.pid, nullptr, WNOHANG) != 0 || !descendants().contains(child.pid);
      }));
    }
  }
  ASSERT_EQ(::prctl(PR_SET_CHILD_SUBREAPER, 0), 0);
  expect_clean();
}

TEST_F(Hygiene, InitThatFailsLeavesNothing) {
  for (int i = 0; i < 3; ++i) {
    auto worker = Worker::create(spec_of(StartMethod::kFork, 2)).value();
    ASSERT_TRUE(worker->register_callable(NativeImport{"libno_such_thing.so", "f"}).ok());
    EXPECT_FALSE(worker->init().ok());
    worker.reset();
    expect_clean();
  }
}

TEST_F(Hygiene, ChildrenThatDoNotGetReadyEndInitAtItsLimit) {
  auto spec = spec_of(StartMethod::kFork, 2);
  spec.timeouts.child_ready_ms = 100;
  spec.timeouts.close_ms = 50;
  spec.timeouts.exit_ms = 100;
  spec.library_path = {STRATA_TEST_LIBRARIES};
  {
    auto worker = Worker::create(spec).value();
    worker->register_callable(NativeImport{"libnative_slow.so", "native_slow"}).value();
    expect_error(worker->init(), Code::kDeadline, "child_ready_ms");
  }
  expect_clean();
}

TEST_F(Hygiene, CloseEndsChildrenThatRunATaskForEver) {
  auto spec = spec_of(StartMethod::kFork, 2);
  spec.timeouts.close_ms = 50;
  spec.timeouts.exit_ms = 100;
  {
    const auto worker = started(spec);
    const auto forever = worker
                             ->register_callable(LocalFunction{[](const strata_call*) -> int32_t {
                                                                 for (;;) ::poll(nullptr, 0, 1000);
                                                               },
                                                               "forever"})
                             .value();
    auto handle =
        worker->submit([&](Orchestrator& orch) { orch.submit_sub(forever, TaskArgs()).value(); });
    const base::Instant begun = os::monotonic_now();
    expect_error(worker->close(), Code::kDeadline, "close_ms");
    EXPECT_LT((os::monotonic_now() - begun).seconds(), 20);
    ASSERT_TRUE(handle->done());
    EXPECT_FALSE(handle->wait().ok());
  }
  expect_clean();
}

// ---------------------------------------------------------------- two Workers at once

class TwoWorkers : public Hygiene, public ::testing::WithParamInterface<bool> {};
INSTANTIATE_TEST_SUITE_P(CloseOrder, TwoWorkers, ::testing::Bool(), [](const auto& instance) {
  return instance.param ? "FirstFirst" : "SecondFirst";
});

TEST_P(TwoWorkers, WorkBesideEachOtherAndCloseInEitherOrder) {
  {
    auto one = started(StartMethod::kFork, 2);
    auto two = started(StartMethod::kFork, 1);
    std::thread other([&] {
      for (int i = 0; i < 20; ++i) run_some(*two, 30);
    });
    for (int i = 0; i < 20; ++i) run_some(*one, 30);
    other.join();
    auto& first = GetParam() ? one : two;
    auto& second = GetParam() ? two : one;
    EXPECT_TRUE(first->close().ok());
    run_some(*second);
    first.reset();
    run_some(*second);
    EXPECT_TRUE(second->close().ok());
  }
  expect_clean();
}

TEST_F(Hygiene, OneWorkersFunctionMayRunAnother) {
  {
    const auto outer = started(StartMethod::kFork, 1);
    const auto inner = started(StartMethod::kFork, 1);
    const auto none = registered<nothing>(*outer, "nothing");
    EXPECT_TRUE(outer
                    ->run([&](Orchestrator& orch) {
                      orch.submit_sub(none, TaskArgs()).value();
                      run_some(*inner);
                      orch.submit_sub(none, TaskArgs()).value();
                    })
                    .ok());
  }
  expect_clean();
}

TEST_F(Hygiene, DeathInOneWorkerIsNotSeenByTheOther) {
  {
    const auto one = started(StartMethod::kFork, 1);
    const auto two = started(StartMethod::kFork, 1);
    ASSERT_EQ(::kill(one->sub_children()[0].pid, SIGKILL), 0);
    EXPECT_TRUE(await([&] { return !one->sub_children()[0].alive; }, kLossBound));
    run_some(*two);
    EXPECT_TRUE(two->sub_children()[0].alive);
  }
  expect_clean();
}

}  // namespace
}  // namespace strata
