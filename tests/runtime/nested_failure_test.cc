// What is lost and what goes on when a process of a tree of Workers dies, at any level; and what is
// left of the tree then: nothing.
#include <sys/wait.h>

#include <thread>

#include "tests/runtime/nested_util.h"

namespace strata {
namespace {

using namespace test;  // NOLINT

// Processes that must all end.
class Doomed {
 public:
  explicit Doomed(const std::set<int>& pids) {
    for (const int pid : pids) all_.push_back(std::make_unique<Pidfd>(pid));
  }
  bool ended() const {
    for (const auto& one : all_) {
      if (!one->ended(kTestDeadline)) return false;
    }
    return true;
  }
  size_t count() const { return all_.size(); }

 private:
  std::vector<std::unique_ptr<Pidfd>> all_;
};

// A pod of two L3s with two helpers each, and a gate at which tasks of its helpers can stand.
class NestedDeath : public ::testing::Test {
 protected:
  NestedDeath()
      : worker_(Worker::create(pod(StartMethod::kFork, 2, 2)).value()),
        stand_(registered<gate_in_subs>(*worker_, "gate_in_subs")),
        scale_(registered<scale_in_subs>(*worker_, "scale_in_subs")) {
    worker_->register_inner(local_function<stand_at_gate>("stand_at_gate")).value();
    worker_->register_inner(local_function<scale_add>("scale_add")).value();
    worker_->init().value();
    gate_.emplace(*worker_);
    x_ = worker_->create_buffer(8 * 8).value();
  }

  // One task of `subs` inner ones that stand at the gate.
  RunHandle stand(int64_t subs) {
    RunHandle handle = worker_
                           ->submit([&](Orchestrator& orch) {
                             TaskArgs args = gate_->args();
                             submit_next(orch, stand_, args.add_scalar(subs)).value();
                           })
                           .value();
    EXPECT_TRUE(gate_->await_started(static_cast<uint32_t>(subs)));
    return handle;
  }
  // Tasks that any host may take give what they should.
  void expect_works() {
    worker_
        ->run([&](Orchestrator& orch) {
          for (uint64_t i = 0; i < 8; ++i) {
            submit_next(orch, scale_,
                        TaskArgs()
                            .add_tensor(x_.tensor<int64_t>({1}, i * 8), INOUT)
                            .add_scalar(int64_t{0})
                            .add_scalar(static_cast<int64_t>(i)))
                .value();
          }
        })
        .value();
    for (int i = 0; i < 8; ++i) EXPECT_EQ(x_.as<int64_t>()[i], i);
  }
  int sub_pid() const { return static_cast<int>(gate_->get(kPid)); }
  // The number of the L3 that the helper belongs to.
  int host_with(int sub) const {
    const std::vector<Worker::Child> hosts = worker_->next_level_children();
    for (size_t i = 0; i < hosts.size(); ++i) {
      if (descendants(hosts[i].pid).contains(sub)) return static_cast<int>(i);
    }
    ADD_FAILURE() << "no L3 has the process " << sub;
    return 0;
  }
  int pid_of(int host) const {
    return worker_->next_level_children()[static_cast<size_t>(host)].pid;
  }

  std::unique_ptr<Worker> worker_;
  CallableHandle stand_, scale_;
  std::optional<Gate> gate_;
  Buffer x_;
};

TEST_F(NestedDeath, KilledL3IsAnEndpointFailureWithPathAndPidAndTakesItsTreeAlong) {
  RunHandle handle = stand(2);
  const int host = host_with(sub_pid());
  const int pid = pid_of(host);
  const Doomed tree(host_of(pid).all);
  EXPECT_EQ(tree.count(), 5u);
  ASSERT_EQ(::kill(pid, SIGKILL), 0);
  const Result<void> ended = handle.wait();
  expect_error(ended, Code::kEndpointFailed,
               "L4/" + std::to_string(host) + " pid " + std::to_string(pid));
  expect_error(ended, Code::kEndpointFailed, "signal 9");
  EXPECT_TRUE(tree.ended());
  EXPECT_FALSE(worker_->next_level_children()[static_cast<size_t>(host)].alive);
  expect_works();
  EXPECT_TRUE(worker_->close().ok());
}

TEST_F(NestedDeath, KilledHelperOfAnL3FailsItsTaskWithBothPlacesAndTheL3GoesOn) {
  RunHandle handle = stand(1);
  const int sub = sub_pid();
  const int host = host_with(sub);
  ASSERT_EQ(::kill(sub, SIGKILL), 0);
  const Result<void> ended = handle.wait();
  // The L3's task failed; what was lost is told in its text.
  expect_error(ended, Code::kTaskFailed,
               "L4/" + std::to_string(host) + " pid " + std::to_string(pid_of(host)));
  expect_error(ended, Code::kTaskFailed, "L4/" + std::to_string(host) + "/");
  expect_error(ended, Code::kTaskFailed, "pid " + std::to_string(sub));
  expect_error(ended, Code::kTaskFailed, "its worker was lost while it ran");
  for (const Worker::Child& child : worker_->next_level_children()) EXPECT_TRUE(child.alive);
  expect_works();
  EXPECT_TRUE(worker_->close().ok());
}

TEST_F(NestedDeath, KilledForkServerOfAnL3IsNamedAndTheOtherL3GoesOn) {
  RunHandle handle = stand(2);
  const int sub = sub_pid();
  const int host = host_with(sub);
  const Doomed tree(host_of(pid_of(host)).all);
  ASSERT_EQ(::kill(state_and_parent(sub).second, SIGKILL), 0);
  const Result<void> ended = handle.wait();
  expect_error(ended, Code::kTaskFailed,
               "the fork server was lost, and all local children with it");
  expect_error(ended, Code::kTaskFailed, "L4/" + std::to_string(host) + "/");
  // That L3 has no helper any more and says so; it is there, and so is the other.
  for (const Worker::Child& child : worker_->next_level_children()) EXPECT_TRUE(child.alive);
  RunHandle again = worker_
                        ->submit([&](Orchestrator& orch) {
                          for (uint64_t i = 0; i < 8; ++i) {
                            submit_next(orch, scale_,
                                        TaskArgs()
                                            .add_tensor(x_.tensor<int64_t>({1}, i * 8), INOUT)
                                            .add_scalar(int64_t{1})
                                            .add_scalar(int64_t{1}))
                                .value();
                          }
                        })
                        .value();
  static_cast<void>(again.wait());
  EXPECT_GT(again.progress().succeeded, 0u);
  EXPECT_EQ(again.progress().succeeded + again.progress().failed, 8u);
  if (again.progress().failed > 0) expect_error(again.wait(), Code::kTaskFailed, "no live worker");
  static_cast<void>(worker_->close());
  EXPECT_TRUE(tree.ended());
}

TEST_F(NestedDeath, KilledServerOfAnL3sProcessHarmsNothing) {
  const int pid = pid_of(0);
  RunHandle handle = stand(1);
  // The server of the L3's process has that of its Worker as its child.
  int server = 0;
  for (const int one : descendants(pid)) {
    if (state_and_parent(one).second == pid) server = one;
  }
  ASSERT_GT(server, 0);
  ASSERT_EQ(::kill(server, SIGKILL), 0);
  gate_->open();
  EXPECT_TRUE(handle.wait().ok());
  expect_works();
  EXPECT_TRUE(worker_->close().ok());
}

TEST_F(NestedDeath, KilledWhileIdleIsSeenAndWorkGoesToTheOther) {
  const int pid = pid_of(1);
  const Doomed tree(host_of(pid).all);
  ASSERT_EQ(::kill(pid, SIGKILL), 0);
  EXPECT_TRUE(await([&] { return !worker_->next_level_children()[1].alive; }, kLossBound));
  expect_works();
  EXPECT_TRUE(tree.ended());
  EXPECT_TRUE(worker_->close().ok());
}

TEST_F(NestedDeath, KilledInTheMidstOfManyTasksLosesOnlyWhatRan) {
  for (int round = 0; round < 2; ++round) {
    RunHandle handle =
        worker_
            ->submit([&](Orchestrator& orch) {
              for (int i = 0; i < 200; ++i) {
                submit_next(orch, scale_,
                            TaskArgs()
                                .add_tensor(x_.tensor<int64_t>({1}, (i % 8) * 8ull), NO_DEP)
                                .add_scalar(int64_t{1})
                                .add_scalar(int64_t{1}))
                    .value();
                if (i == 100 && round == 0) ::kill(pid_of(0), SIGKILL);
              }
            })
            .value();
    static_cast<void>(handle.wait());
    EXPECT_EQ(handle.progress().terminal(), 200u);
  }
  expect_works();
  EXPECT_TRUE(worker_->close().ok());
}

TEST(NestedDeathFarBelow, KilledL4TakesItsL3sAlongAndTheOtherL4GoesOn) {
  const StartMethod fork = StartMethod::kFork;
  auto worker = Worker::create(level(5, fork, 0,
                                     {level(4, fork, 0, {level(3, fork, 1)}),
                                      level(4, fork, 0, {level(3, fork, 1)})}))
                    .value();
  const auto stand = registered<gate_two_below>(*worker, "gate_two_below");
  const auto scale = registered<scale_two_below>(*worker, "scale_two_below");
  worker->register_inner(local_function<gate_in_subs>("gate_in_subs")).value();
  worker->register_inner(local_function<stand_at_gate>("stand_at_gate")).value();
  worker->register_inner(local_function<scale_in_subs>("scale_in_subs")).value();
  worker->register_inner(local_function<scale_add>("scale_add")).value();
  worker->init().value();
  Gate gate(*worker);
  const Buffer x = worker->create_buffer(8).value();
  RunHandle handle = worker
                         ->submit([&](Orchestrator& orch) {
                           TaskArgs args = gate.args();
                           submit_next(orch, stand, args.add_scalar(int64_t{1})).value();
                         })
                         .value();
  ASSERT_TRUE(gate.await_started(1));
  const std::vector<Worker::Child> racks = worker->next_level_children();
  const int sub = static_cast<int>(gate.get(kPid));
  const size_t rack = descendants(racks[0].pid).contains(sub) ? 0 : 1;
  const Doomed tree(host_of(racks[rack].pid).all);
  EXPECT_EQ(tree.count(), 1u + 2u + 1u + 2u + 1u);
  ASSERT_EQ(::kill(racks[rack].pid, SIGKILL), 0);
  expect_error(handle.wait(), Code::kEndpointFailed, "L5/" + std::to_string(rack) + " pid ");
  EXPECT_TRUE(tree.ended());
  run_one(*worker, scale,
          TaskArgs()
              .add_tensor(x.tensor<int64_t>({1}), INOUT)
              .add_scalar(int64_t{0})
              .add_scalar(int64_t{3}))
      .value();
  EXPECT_EQ(x.as<int64_t>()[0], 3);
  EXPECT_TRUE(worker->close().ok());
}

TEST(NestedRegistration, HelperThatDiesWhileItLoadsFailsItForAllWithThePlace) {
  WorkerSpec spec = pod(StartMethod::kFork, 2, 2);
  spec.workers[0].library_path = {STRATA_TEST_LIBRARIES};
  spec.workers[1].library_path = {STRATA_TEST_LIBRARIES "/lethal"};
  auto worker = started(spec);
  const int lethal = worker->next_level_children()[1].pid;
  const NativeImport add{"libnative_good.so", "native_add"};
  // The L3 itself loads nothing for an inner registration; both of its helpers do.
  const Result<InnerReceipt> lost = worker->register_inner(add);
  expect_error(lost, Code::kEndpointFailed, "L4/1 pid " + std::to_string(lethal));
  expect_error(lost, Code::kEndpointFailed, "was lost while callable 'native_add'");
  EXPECT_TRUE(worker->next_level_children()[1].alive);
  // The other L3 has forgotten it again, and may have it anew.
  worker->register_inner(add, {0}).value();
  EXPECT_TRUE(worker->close().ok());
}

// ---------------------------------------------------------------- start and end

TEST(NestedStart, GrandchildThatCannotStartIsNamedWithTheReason) {
  WorkerSpec spec = level(5, StartMethod::kFork, 0,
                          {pod(StartMethod::kFork, 1, 1), pod(StartMethod::kFork, 2, 1)});
  spec.workers[1].workers[1].inherit_fds = {977};
  auto worker = Worker::create(spec).value();
  const Result<void> started = worker->init();
  expect_error(started, Code::kEndpointFailed, "L5/1 ");
  expect_error(started, Code::kEndpointFailed, "L5/1/1 ");
  expect_error(started, Code::kEndpointFailed, "no descriptor 977");
  worker.reset();
  EXPECT_TRUE(await([] { return descendants().size() <= 1; }));  // the process's server
}

TEST(NestedStart, HeapThatCannotBeMappedIsTheReason) {
  WorkerSpec spec = pod(StartMethod::kFork, 1, 1);
  spec.workers[0].limits.heap_bytes = 1ull << 46;
  auto worker = Worker::create(spec).value();
  expect_error(worker->init(), Code::kEndpointFailed, "map a shared region");
}

TEST(NestedHygiene, CyclesLeaveNoDescriptorAndNoProcess) {
  // The process's server is made by the first.
  { const auto first = started(pod(StartMethod::kFork, 1, 1)); }
  const std::set<int> fds = open_fds();
  const size_t processes = descendants().size();
  for (int i = 0; i < 4; ++i) {
    {
      auto worker = started(level(5, StartMethod::kFork, 1, {pod(StartMethod::kFork, 2, 1)}));
      EXPECT_TRUE(worker->close().ok());
    }
    {
      auto inlined = started(level(5, StartMethod::kInline, 1, {pod(StartMethod::kInline, 2, 1)}));
    }
    ASSERT_EQ(open_fds(), fds) << "after cycle " << i;
    ASSERT_TRUE(await([&] { return descendants().size() <= processes; }));
  }
}

void stay(Call& call) {
  const auto gate = call.tensor<uint32_t>(0);
  word(gate, kPid) = static_cast<uint32_t>(::getpid());
  ++word(gate, kStarted);
  for (;;) ::poll(nullptr, 0, 1000);
}
void stay_in_sub(Call& call) {
  InnerOrchestrator orch = call.orchestrator();
  orch.submit_sub(orch.inner_handle<stay>(), TaskArgs().add_tensor(call.ref(0), NO_DEP));
}

TEST(NestedHygiene, CloseEndsATreeWhoseTasksIgnoreIt) {
  WorkerSpec spec = pod(StartMethod::kFork, 1, 1);
  spec.timeouts.close_ms = 50;
  spec.timeouts.exit_ms = 50;
  spec.workers[0].timeouts.exit_ms = 50;
  auto worker = Worker::create(spec).value();
  const auto task = registered<stay_in_sub>(*worker, "stay_in_sub");
  worker->register_inner(local_function<stay>("stay")).value();
  worker->init().value();
  Gate gate(*worker);
  auto handle =
      worker->submit([&](Orchestrator& orch) { submit_next(orch, task, gate.args()).value(); })
          .value();
  ASSERT_TRUE(gate.await_started(1));
  const Doomed tree(host_of(worker->next_level_children()[0].pid).all);
  expect_error(worker->close(), Code::kDeadline, "close_ms");
  EXPECT_TRUE(tree.ended());
  EXPECT_FALSE(handle.wait().ok());
}

}  // namespace
}  // namespace strata
