// Helpers of the tests of nested Workers: their specs, and tasks that are orchestration functions.
#pragma once

#include "strata/inner.h"
#include "tests/runtime/worker_test_util.h"

namespace strata::test {

inline WorkerSpec level(int number, StartMethod start, int subs,
                        std::vector<WorkerSpec> workers = {}) {
  WorkerSpec spec = spec_of(start, subs);
  spec.level = number;
  spec.limits.heap_bytes = 64 << 20;
  spec.workers = std::move(workers);
  return spec;
}

// An L4 over `hosts` L3s, each with `subs` SUB children.
inline WorkerSpec pod(StartMethod start, int hosts, int subs) {
  return level(4, start, 0,
               std::vector<WorkerSpec>(static_cast<size_t>(hosts), level(3, start, subs)));
}

inline Result<TaskRef> submit_next(Orchestrator& orch, const CallableHandle& callable,
                                   const TaskArgs& args) {
  return orch.submit_next_level(callable, args);
}

// The error of one task.
inline Result<void> run_one(Worker& worker, const CallableHandle& callable, const TaskArgs& args) {
  return worker.run([&](Orchestrator& orch) { submit_next(orch, callable, args).value(); });
}

// ---------------------------------------------------------------- orchestration functions

// scale_add of tensor 0, with scalars 0 and 1, as one inner task.
inline void scale_in_subs(Call& call) {
  InnerOrchestrator orch = call.orchestrator();
  orch.submit_sub(orch.inner_handle<scale_add>(), TaskArgs()
                                                      .add_tensor(call.ref(0), INOUT)
                                                      .add_scalar(call.scalar<int64_t>(0))
                                                      .add_scalar(call.scalar<int64_t>(1)));
}

// The same one level further down.
inline void scale_two_below(Call& call) {
  InnerOrchestrator orch = call.orchestrator();
  orch.submit_next_level(orch.inner_handle<scale_in_subs>(),
                         TaskArgs()
                             .add_tensor(call.ref(0), INOUT)
                             .add_scalar(call.scalar<int64_t>(0))
                             .add_scalar(call.scalar<int64_t>(1)));
}

// throw_text with the inline bytes, as an inner task.
inline void fail_in_sub(Call& call) {
  InnerOrchestrator orch = call.orchestrator();
  orch.submit_sub(orch.inner_handle<throw_text>(), TaskArgs().set_inline(call.inline_bytes()));
}

inline void fail_two_below(Call& call) {
  InnerOrchestrator orch = call.orchestrator();
  orch.submit_next_level(orch.inner_handle<fail_in_sub>(),
                         TaskArgs().set_inline(call.inline_bytes()));
}

// Tensor 0 is a gate, passed on to as many inner tasks as scalar 0 says.
inline void gate_in_subs(Call& call) {
  InnerOrchestrator orch = call.orchestrator();
  const InnerHandle stand = orch.inner_handle<stand_at_gate>();
  for (int64_t i = 0; i < call.scalar<int64_t>(0); ++i) {
    orch.submit_sub(stand, TaskArgs().add_tensor(call.ref(0), NO_DEP));
  }
}

inline void gate_two_below(Call& call) {
  InnerOrchestrator orch = call.orchestrator();
  orch.submit_next_level(
      orch.inner_handle<gate_in_subs>(),
      TaskArgs().add_tensor(call.ref(0), NO_DEP).add_scalar(call.scalar<int64_t>(0)));
}

// ---------------------------------------------------------------- processes

// The processes of one Worker that is a child: its own, and those of its SUB children.
struct Host {
  int pid = 0;
  std::set<int> all;  // with servers and helpers
};

inline Host host_of(int pid) {
  Host out{pid, descendants(pid)};
  out.all.insert(pid);
  return out;
}

}  // namespace strata::test
