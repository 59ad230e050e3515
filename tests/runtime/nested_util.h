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

// ---------------------------------------------------------------- orchestration functions

// scale_add of tensor 0, with scalars 0 and 1, as one inner task.
inline void scale_in_subs(Call& call) {
  InnerOrchestrator orch = call.orchestrator();
  orch.submit_sub(orch.inner_handle<scale_add>(), TaskArgs()
                                                      .add_tensor(call.ref(0), INOUT)
                                                      .add_scalar(call.scalar<int64_t>(0))
                                                      .add_scalar(call.scalar<int64_t>(1)));
}

// throw_text with the inline bytes, as an inner task.
inline void fail_in_sub(Call& call) {
  InnerOrchestrator orch = call.orchestrator();
  orch.submit_sub(orch.inner_handle<throw_text>(), TaskArgs().set_inline(call.inline_bytes()));
}

}  // namespace strata::test
