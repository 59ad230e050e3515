// Orchestration functions as a user writes them in a library of their own, which does not link
// libstrata.
#include <cstdlib>

#include "strata/inner.h"

// Adds scalar 0 to tensor 0 by an inner task of another library.
static void native_stage(strata::Call& call) {
  strata::InnerOrchestrator orch = call.orchestrator();
  const strata::InnerHandle add = orch.inner_handle("libnative_good.so", "native_add");
  orch.wait(orch.submit_sub(add, strata::TaskArgs()
                                     .add_tensor(call.ref(0), strata::INOUT)
                                     .add_scalar(call.scalar<int64_t>(0))));
}
STRATA_EXPORT(native_stage);

// The code of what inner_handle throws is the result.
static void native_without_handle(strata::Call& call) {
  try {
    call.orchestrator().inner_handle("libnative_good.so", "native_add");
    call.set_result(int64_t{0});
  } catch (const strata::InnerError& e) {
    call.set_result(static_cast<int64_t>(e.code()));
  }
}
STRATA_EXPORT(native_without_handle);
