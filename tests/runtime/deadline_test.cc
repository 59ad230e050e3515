// Deadlines of tasks, and cancels with a grace: what is told, what is killed, what goes on.
#include "tests/runtime/chip_test_util.h"
#include "tests/runtime/nested_util.h"

namespace strata {
namespace {

using namespace test;  // NOLINT

// Stands at the gate, whatever it is told.
void deaf_at_gate(Call& call) {
  const auto gate = call.tensor<uint32_t>(0);
  word(gate, kPid) = static_cast<uint32_t>(::getpid());
  ++word(gate, kStarted);
  while (word(gate, kOpen) == 0) ::poll(nullptr, 0, 1);
  ++word(gate, kEnded);
}
void deaf_in_sub(Call& call) {
  InnerOrchestrator orch = call.orchestrator();
  orch.submit_sub(orch.inner_handle<deaf_at_gate>(), TaskArgs().add_tensor(call.ref(0), NO_DEP));
}
// Stops, and says so, when it is told to.
void say_when_told(Call& call) {
  while (!call.cancelled()) ::poll(nullptr, 0, 1);
  throw std::runtime_error("it was told to stop");
}
void stop_when_told(Call& call) {
  while (!call.cancelled()) ::poll(nullptr, 0, 1);
  call.set_result(int64_t{1});
}

WorkerSpec short_grace(StartMethod start, int children) {
  WorkerSpec spec = spec_of(start, children);
  spec.timeouts.deadline_grace_ms = 50;
  return spec;
}

bool alive(Worker& worker, int pid) {
  for (const Worker::Child& child : worker.sub_children()) {
    if (child.pid == pid) return child.alive;
  }
  return false;
}

RunHandle submit_one(Worker& worker, const CallableHandle& callable, const TaskArgs& args,
                     uint32_t deadline_ms = 0) {
  return worker
      .submit([&](Orchestrator& orch) {
        orch.submit_sub(callable, args, {.deadline_ms = deadline_ms}).value();
      })
      .value();
}

// ---------------------------------------------------------------- deadlines

TEST(TaskDeadline, ATaskThatDoesNotEndIsKilledAndItsFailureNamesAllOfIt) {
  const auto worker = started(short_grace(StartMethod::kFork, 2));
  const auto deaf = registered<deaf_at_gate>(*worker, "deaf");
  const auto none = registered<nothing>(*worker, "nothing");
  Gate gate(*worker);
  RunHandle handle = submit_one(*worker, deaf, gate.args(), 60);
  const Result<void> ended = handle.wait();
  const auto pid = static_cast<int>(gate.get(kPid));
  expect_error(ended, Code::kDeadline, "its deadline of 60 ms has passed");
  expect_error(ended, Code::kDeadline, "task 0 'deaf'");
  expect_error(ended, Code::kDeadline, "pid " + std::to_string(pid));
  expect_error(ended, Code::kDeadline, "L3/");
  EXPECT_TRUE(Pidfd(pid).ended(kTestDeadline));
  EXPECT_FALSE(alive(*worker, pid));
  EXPECT_EQ(handle.stats().kills, 1u);
  EXPECT_TRUE(submit_one(*worker, none, {}).wait().ok());
  EXPECT_TRUE(worker->close().ok());
}

TEST(TaskDeadline, ATaskThatHeedsItFailsTooAndItsChildStays) {
  const auto worker = started(spec_of(StartMethod::kFork, 1));
  const auto heeds = registered<stand_at_gate>(*worker, "heeds");
  const auto says = registered<say_when_told>(*worker, "says");
  Gate gate(*worker);
  expect_error(submit_one(*worker, heeds, gate.args(), 20).wait(), Code::kDeadline,
               "its deadline of 20 ms has passed: it ended after");
  EXPECT_EQ(gate.get(kCancelSeen), 1u);
  expect_error(submit_one(*worker, says, {}, 20).wait(), Code::kDeadline, "it was told to stop");
  EXPECT_TRUE(alive(*worker, static_cast<int>(gate.get(kPid))));
}

TEST(TaskDeadline, ATaskThatEndsInTimeSucceedsAndItsDeadlineIsForgotten) {
  const auto worker = started(short_grace(StartMethod::kFork, 1));
  const auto none = registered<nothing>(*worker, "nothing");
  const auto stand = registered<stand_at_gate>(*worker, "stand");
  Gate gate(*worker);
  RunHandle handle = worker
                         ->submit([&](Orchestrator& orch) {
                           for (int i = 0; i < 200; ++i) {
                             orch.submit_sub(none, {}, {.deadline_ms = 30'000}).value();
                           }
                           orch.submit_sub(none, {}, {.deadline_ms = 20}).value();
                           orch.submit_sub(stand, gate.args()).value();
                         })
                         .value();
  ASSERT_TRUE(gate.await_started(1));
  expect_error(handle.wait_for(150), Code::kDeadline, "goes on");
  gate.open();
  EXPECT_TRUE(handle.wait().ok());
}

TEST(TaskDeadline, WhatStandsBehindItRunsAtTheOtherChild) {
  const auto worker = started(short_grace(StartMethod::kFork, 2));
  const auto deaf = registered<deaf_at_gate>(*worker, "deaf");
  const auto stand = registered<stand_at_gate>(*worker, "stand");
  const auto count = registered<count_call>(*worker, "count");
  Gate never(*worker);
  Gate gate(*worker);
  Gate counts(*worker);
  RunHandle handle =
      worker
          ->submit([&](Orchestrator& orch) {
            orch.submit_sub(deaf, never.args(), {.deadline_ms = 100}).value();
            orch.submit_sub(stand, gate.args()).value();
            never.await_started(1);
            gate.await_started(1);  // at one child each, before anything stands behind
            for (int i = 0; i < 24; ++i) {
              orch.submit_sub(count, counts.args().add_scalar(kFirstFree)).value();
            }
          })
          .value();
  EXPECT_TRUE(await([&] { return handle.progress().failed == 1; }));
  gate.open();
  expect_error(handle.wait(), Code::kDeadline, "task 0 'deaf'");
  EXPECT_EQ(counts.get(kFirstFree), 24u);
  EXPECT_EQ(handle.progress().succeeded, 25u);
}

TEST(TaskDeadline, AStoppedChildFailsByItAlone) {
  const auto worker = started(short_grace(StartMethod::kFork, 2));
  const auto stand = registered<stand_at_gate>(*worker, "stand");
  Gate gate(*worker);
  RunHandle handle = submit_one(*worker, stand, gate.args(), 300);
  ASSERT_TRUE(gate.await_started(1));
  const auto pid = static_cast<int>(gate.get(kPid));
  ASSERT_EQ(::kill(pid, SIGSTOP), 0);
  expect_error(handle.wait(), Code::kDeadline, "its deadline of 300 ms has passed");
  EXPECT_EQ(gate.get(kCancelSeen), 0u);
  EXPECT_TRUE(Pidfd(pid).ended(kTestDeadline));
  EXPECT_TRUE(worker->close().ok());
}

TEST(TaskDeadline, IsKeptWhileNobodyWaits) {
  const auto worker = started(short_grace(StartMethod::kFork, 1));
  const auto deaf = registered<deaf_at_gate>(*worker, "deaf");
  Gate gate(*worker);
  RunHandle handle = submit_one(*worker, deaf, gate.args(), 50);
  EXPECT_TRUE(await([&] { return handle.done(); }));
  expect_error(handle.wait(), Code::kDeadline, "");
}

TEST(TaskDeadline, OfManyTasksAtManyChildrenEachFailsByItsOwn) {
  const auto worker = started(short_grace(StartMethod::kFork, 4));
  const auto stop = registered<stop_when_told>(*worker, "stop");
  const auto none = registered<nothing>(*worker, "nothing");
  TaskRef last;
  RunHandle handle =
      worker
          ->submit([&](Orchestrator& orch) {
            for (uint32_t i = 0; i < 40; ++i) {
              last =
                  orch.submit_sub(i % 2 == 0 ? stop : none, {}, {.deadline_ms = 1 + i % 5}).value();
            }
          })
          .value();
  expect_error(handle.wait(), Code::kDeadline, "task 0 'stop'");
  EXPECT_GE(handle.progress().failed, 20u);  // a slow machine may let more of them pass theirs
  expect_error(handle.result({last.run, 0}), Code::kDeadline, "deadline");
}

TEST(TaskDeadline, InThisProcessTheEndIsAwaitedAndFailsAllTheSame) {
  const auto worker = started(short_grace(StartMethod::kInline, 1));
  const auto says = registered<say_when_told>(*worker, "says");
  const auto stop = registered<stop_when_told>(*worker, "stop");
  const auto none = registered<nothing>(*worker, "nothing");
  expect_error(submit_one(*worker, says, {}, 20).wait(), Code::kDeadline, "it was told to stop");
  expect_error(submit_one(*worker, stop, {}, 20).wait(), Code::kDeadline, "ended after");
  EXPECT_TRUE(submit_one(*worker, none, {}, 60'000).wait().ok());
}

TEST(TaskDeadline, PoisonsWhatTheTaskShouldHaveWritten) {
  const auto worker = started(short_grace(StartMethod::kFork, 2));
  const auto stop = registered<stop_when_told>(*worker, "stop");
  const auto sum = registered<sum_all>(*worker, "sum");
  Buffer x = worker->create_buffer(8).value();
  const Tensor all = x.tensor<int64_t>({1});
  expect_error(submit_one(*worker, stop, TaskArgs().add_tensor(all, OUTPUT), 10).wait(),
               Code::kDeadline, "");
  expect_error(submit_one(*worker, sum, TaskArgs().add_tensor(all, INPUT)).wait(), Code::kSkipped,
               "its deadline of 10 ms has passed");
}

TEST(ChipDeadline, AKernelThatDoesNotEndCostsItsChip) {
  auto spec = chip_spec(StartMethod::kFork, 2);
  spec.timeouts.deadline_grace_ms = 0;
  const auto worker = started(spec);
  const auto stand = loaded(*worker, "chip_stand");
  Buffer gate = worker->create_buffer(4096).value();
  const TaskArgs args = TaskArgs().add_tensor(gate.tensor<uint32_t>({64}), NO_DEP, Transfer::kMap);
  // It heeds what it is told, and so may end by itself: either way by its deadline.
  expect_error(run_on_chip(*worker, stand, args, {.deadline_ms = 40}), Code::kDeadline,
               "task 0 'chip_stand'");
  gate.as<uint32_t>()[0] = 1;
  EXPECT_TRUE(run_on_chip(*worker, stand, args).ok());
}

// ---------------------------------------------------------------- in a tree

class NestedDeadline : public ::testing::Test {
 protected:
  void open(uint32_t grace_ms) {
    WorkerSpec spec = pod(StartMethod::kFork, 2, 1);
    spec.timeouts.deadline_grace_ms = grace_ms;
    worker_ = Worker::create(spec).value();
    deaf_ = registered<deaf_in_sub>(*worker_, "deaf_in_sub");
    stand_ = registered<gate_in_subs>(*worker_, "gate_in_subs");
    worker_->register_inner(local_function<deaf_at_gate>("deaf_at_gate")).value();
    worker_->register_inner(local_function<stand_at_gate>("stand_at_gate")).value();
    worker_->init().value();
    gate_.emplace(*worker_);
  }
  RunHandle submit(const CallableHandle& callable, uint32_t deadline_ms) {
    RunHandle handle = worker_
                           ->submit([&](Orchestrator& orch) {
                             orch.submit_next_level(callable, gate_->args().add_scalar(int64_t{1}),
                                                    {.deadline_ms = deadline_ms})
                                 .value();
                           })
                           .value();
    EXPECT_TRUE(gate_->await_started(1));
    return handle;
  }
  uint32_t hosts_alive() {
    uint32_t n = 0;
    for (const Worker::Child& child : worker_->next_level_children()) n += child.alive;
    return n;
  }

  std::unique_ptr<Worker> worker_;
  CallableHandle deaf_, stand_;
  std::optional<Gate> gate_;
};

TEST_F(NestedDeadline, OfATaskAboveIsToldToTheTasksBelow) {
  open(30'000);
  RunHandle handle = submit(stand_, 150);
  expect_error(handle.wait(), Code::kDeadline, "its deadline of 150 ms has passed: it ended after");
  EXPECT_EQ(gate_->get(kCancelSeen), 1u);
  EXPECT_EQ(hosts_alive(), 2u);
  EXPECT_TRUE(worker_->close().ok());
}

TEST_F(NestedDeadline, OfATaskAboveEndsTheTreeThatDoesNotHeedIt) {
  open(50);
  RunHandle handle = submit(deaf_, 250);
  const auto helper = static_cast<int>(gate_->get(kPid));
  const Result<void> ended = handle.wait();
  expect_error(ended, Code::kDeadline, "with all that ran below it");
  expect_error(ended, Code::kDeadline, "L4/");
  EXPECT_TRUE(Pidfd(helper).ended(kTestDeadline));
  EXPECT_EQ(hosts_alive(), 1u);
  // The other host goes on.
  gate_->open();
  EXPECT_TRUE(submit(stand_, 0).wait().ok());
}

TEST_F(NestedDeadline, ACancelWithAGraceEndsATreeThatDoesNotHeedIt) {
  open(1000);
  RunHandle handle = submit(deaf_, 0);
  const auto helper = static_cast<int>(gate_->get(kPid));
  handle.cancel(80);
  const Result<void> ended = handle.wait();
  expect_error(ended, Code::kCancelled, "was killed: L4/");
  EXPECT_TRUE(Pidfd(helper).ended(kTestDeadline));
  EXPECT_EQ(hosts_alive(), 1u);
}

// ---------------------------------------------------------------- cancel with a grace

TEST(CancelGrace, KillsWhatStillRunsAndNamesIt) {
  const auto worker = started(StartMethod::kFork, 2);
  const auto deaf = registered<deaf_at_gate>(*worker, "deaf");
  const auto heeds = registered<stand_at_gate>(*worker, "heeds");
  const auto count = registered<count_call>(*worker, "count");
  Gate gate(*worker);
  Gate other(*worker);
  Gate counts(*worker);
  RunHandle handle = worker
                         ->submit([&](Orchestrator& orch) {
                           orch.submit_sub(deaf, gate.args()).value();
                           orch.submit_sub(heeds, other.args()).value();
                           gate.await_started(1);
                           other.await_started(1);
                           for (int i = 0; i < 20; ++i) {
                             orch.submit_sub(count, counts.args().add_scalar(kFirstFree)).value();
                           }
                         })
                         .value();
  handle.cancel(60);
  const Result<void> ended = handle.wait();
  const auto pid = static_cast<int>(gate.get(kPid));
  expect_error(ended, Code::kCancelled, "pid " + std::to_string(pid) + ", task 0 'deaf'");
  EXPECT_EQ(ended.error().to_string().find("'heeds'"), std::string::npos);
  EXPECT_EQ(counts.get(kFirstFree), 0u);
  EXPECT_EQ(other.get(kCancelSeen), 1u);
  EXPECT_FALSE(alive(*worker, pid));
  EXPECT_TRUE(alive(*worker, static_cast<int>(other.get(kPid))));
  EXPECT_EQ(handle.stats().kills, 1u);
  EXPECT_TRUE(submit_one(*worker, count, counts.args().add_scalar(kFirstFree)).wait().ok());
  EXPECT_TRUE(worker->close().ok());
}

TEST(CancelGrace, OfZeroKillsAtOnceAndShortensALongerOne) {
  const auto worker = started(StartMethod::kFork, 2);
  const auto deaf = registered<deaf_at_gate>(*worker, "deaf");
  Gate gate(*worker);
  RunHandle handle = submit_one(*worker, deaf, gate.args());
  ASSERT_TRUE(gate.await_started(1));
  handle.cancel(600'000);
  expect_error(handle.wait_for(30), Code::kDeadline, "goes on");
  handle.cancel(0);
  expect_error(handle.wait(), Code::kCancelled, "was killed");
}

TEST(CancelGrace, WhoEndsInItIsNotKilled) {
  const auto worker = started(StartMethod::kFork, 1);
  const auto heeds = registered<stand_at_gate>(*worker, "heeds");
  Gate gate(*worker);
  RunHandle handle = submit_one(*worker, heeds, gate.args());
  ASSERT_TRUE(gate.await_started(1));
  handle.cancel(60'000);
  EXPECT_TRUE(handle.wait().ok());  // all that it had ran to its end
  EXPECT_EQ(gate.get(kCancelSeen), 1u);
  EXPECT_EQ(handle.stats().kills, 0u);
  Gate next(*worker);
  next.open();
  EXPECT_TRUE(submit_one(*worker, heeds, next.args()).wait().ok());
}

TEST(CancelGrace, OfTheNextRunLeavesTheOneThatExecutes) {
  const auto worker = started(StartMethod::kFork, 1);
  const auto deaf = registered<deaf_at_gate>(*worker, "deaf");
  Gate gate(*worker);
  RunHandle one = submit_one(*worker, deaf, gate.args());
  RunHandle two = submit_one(*worker, deaf, gate.args());
  ASSERT_TRUE(gate.await_started(1));
  two.cancel(0);
  expect_error(two.wait_for(40), Code::kDeadline, "goes on");
  gate.open();
  EXPECT_TRUE(one.wait().ok());
  expect_error(two.wait(), Code::kCancelled, "cancelled");
  EXPECT_EQ(gate.get(kStarted), 1u);
}

}  // namespace
}  // namespace strata
