// Registrations of real children that are killed while they are asked, and inner callables that
// nobody may use before all have prepared them, however far below.
#include <atomic>
#include <thread>

#include "tests/runtime/nested_util.h"

namespace strata {
namespace {

using namespace test;  // NOLINT

// How many of tensor 0's words from kFirstFree on are set by who finds `nothing` as an inner one.
void look_for_it(Call& call) {
  InnerOrchestrator orch = call.orchestrator();
  const auto seen = call.tensor<uint32_t>(0);
  try {
    static_cast<void>(orch.inner_handle<nothing>());
    ++word(seen, kFirstFree);
  } catch (const InnerError& e) {
    ++word(seen, e.code() == Code::kNotFound ? kFirstFree + 1 : kFirstFree + 2);
  }
}

// The same one level further down.
void look_below(Call& call) {
  InnerOrchestrator orch = call.orchestrator();
  orch.submit_next_level(orch.inner_handle<look_for_it>(),
                         TaskArgs().add_tensor(call.ref(0), NO_DEP));
}

struct Seen {
  explicit Seen(Worker& worker) : buffer(worker.create_buffer(kGateWords * 4).value()) {}
  uint32_t found() const { return get(kFirstFree); }
  uint32_t missing() const { return get(kFirstFree + 1); }
  uint32_t get(uint32_t i) const {
    return std::atomic_ref<uint32_t>(buffer.as<uint32_t>()[i]).load();
  }
  TaskArgs args() const {
    return TaskArgs().add_tensor(buffer.tensor<uint32_t>({kGateWords}), NO_DEP);
  }
  Buffer buffer;
};

// L5 over two L4s, each over one L3 with a SUB child.
WorkerSpec two_pods() {
  const WorkerSpec pod_spec = level(4, StartMethod::kFork, 0, {level(3, StartMethod::kFork, 1)});
  return level(5, StartMethod::kFork, 0, {pod_spec, pod_spec});
}

TEST(Registration, AnInnerCallableIsUsableNowhereBeforeAllHavePrepared) {
  auto worker = started(two_pods());
  worker->register_inner(local_function<look_for_it>("look_for_it")).value();
  const auto look = registered<look_below>(*worker, "look_below");
  const auto stand = registered<stand_at_gate>(*worker, "stand");
  Gate gate(*worker);
  const Seen seen(*worker);
  worker
      ->run([&](Orchestrator& orch) {
        // The second L4 is busy, so its PREPARE waits, and the first one's is answered.
        orch.submit_next_level(stand, gate.args(), {}, 1).value();
        ASSERT_TRUE(gate.await_started(1));
        std::thread other(
            [&] { worker->register_inner(local_function<nothing>("nothing")).value(); });
        for (int i = 0; i < 50; ++i) {
          orch.wait(orch.submit_next_level(look, seen.args(), {}, 0).value()).value();
          ::poll(nullptr, 0, 1);
        }
        EXPECT_EQ(seen.missing(), 50u);
        gate.open();
        other.join();
        orch.submit_next_level(look, seen.args(), {}, 0).value();
        orch.submit_next_level(look, seen.args(), {}, 1).value();
      })
      .value();
  EXPECT_EQ(seen.found(), 2u);
  EXPECT_EQ(seen.missing(), 50u);
  worker->close().value();
}

TEST(Registration, AChildWorkerKilledBetweenPrepareAndCommitUndoesItFarBelow) {
  auto worker = started(two_pods());
  worker->register_inner(local_function<look_for_it>("look_for_it")).value();
  const auto look = registered<look_below>(*worker, "look_below");
  const auto stand = registered<stand_at_gate>(*worker, "stand");
  Gate gate(*worker);
  const Seen seen(*worker);
  const auto run = worker->run([&](Orchestrator& orch) {
    orch.submit_next_level(stand, gate.args(), {}, 1).value();
    ASSERT_TRUE(gate.await_started(1));
    std::atomic<bool> begins{false};
    std::thread other([&] {
      begins = true;
      expect_error(worker->register_inner(local_function<nothing>("nothing")).ok()
                       ? Result<void>()
                       : Result<void>(Error(Code::kEndpointFailed, Scope::kCall, "as it must")),
                   Code::kEndpointFailed, "as it must");
    });
    orch.wait(orch.submit_next_level(look, seen.args(), {}, 0).value()).value();
    while (!begins) ::poll(nullptr, 0, 1);
    ::poll(nullptr, 0, 50);  // until its PREPARE is on its way, which nothing tells
    ASSERT_EQ(::kill(static_cast<int>(gate.get(kPid)), SIGKILL), 0);
    other.join();
    orch.submit_next_level(look, seen.args(), {}, 0).value();
  });
  expect_error(run, Code::kEndpointFailed, "it may have run in part");
  EXPECT_EQ(seen.found(), 0u);
  EXPECT_EQ(seen.missing(), 2u);
  // What was undone can be registered again.
  worker->register_inner(local_function<nothing>("nothing")).value();
  worker->run([&](Orchestrator& orch) { orch.submit_next_level(look, seen.args(), {}, 0).value(); })
      .value();
  EXPECT_EQ(seen.found(), 1u);
  worker->close().value();
}

TEST(Registration, AChildKilledBetweenPrepareAndCommitUndoesItEverywhere) {
  auto worker = started(StartMethod::kFork, 2);
  const CallableHandle stand =
      worker->register_callable(local_function<stand_at_gate>("stand"), {1}).value();
  const CallableHandle idle =
      worker->register_callable(local_function<count_call>("count_call"), {0}).value();
  Gate gate(*worker);
  const auto run = worker->run([&](Orchestrator& orch) {
    orch.submit_sub(stand, gate.args()).value();
    ASSERT_TRUE(gate.await_started(1));
    std::optional<Error> error;
    std::atomic<bool> begun = false;
    std::thread other([&] {
      begun = true;
      const auto made = worker->register_callable(local_function<nothing>("nothing"));
      if (!made) error = made.error();
    });
    ASSERT_TRUE(await([&] { return begun.load(); }));
    ::poll(nullptr, 0, 100);  // the call is a moment behind its thread's first word
    // Tasks of the first child that are done say that it has answered what was asked before.
    for (int i = 0; i < 20; ++i) {
      const auto args = gate.args().add_scalar(uint32_t{kFirstFree});
      orch.wait(orch.submit_sub(idle, args).value()).value();
    }
    ASSERT_EQ(::kill(static_cast<int>(gate.get(kPid)), SIGKILL), 0);
    other.join();
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(error->code(), Code::kEndpointFailed) << error->to_string();
  });
  expect_error(run, Code::kEndpointFailed, "it may have run in part");
  const auto again = registered<nothing>(*worker, "nothing");
  worker->run([&](Orchestrator& orch) { orch.submit_sub(again, TaskArgs()).value(); }).value();
  worker->unregister_callable(again).value();
  worker->close().value();
}

}  // namespace
}  // namespace strata
