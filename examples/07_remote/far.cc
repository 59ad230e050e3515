// What runs on the other host: libremote_far.so, in a folder that its daemon allows. It needs
// Strata's headers and not its library.
#include <strata/inner.h>

#include <cstdint>
#include <stdexcept>

// The sum of tensor 0, which came along with the task.
static void sum(strata::Call& call) {
  double total = 0;
  for (const double v : call.tensor<const double>(0).span()) total += v;
  call.set_result(total);
}
STRATA_EXPORT(sum);

// An orchestration function: a task for each of its own helpers, which it waits for.
static void halves(strata::Call& call) {
  strata::InnerOrchestrator orch = call.orchestrator();
  const strata::InnerHandle part = orch.inner_handle("libremote_far.so", "positive");
  const uint64_t half = call.tensor<const double>(0).size() / 2;
  for (uint64_t i = 0; i < 2; ++i) {
    strata::Tensor piece = call.ref(0);
    piece.offset += i * half * sizeof(double);
    piece.shape[0] = half;
    orch.submit_sub(part, strata::TaskArgs().add_tensor(piece, strata::INPUT));
  }
}
STRATA_EXPORT(halves);

static void positive(strata::Call& call) {
  for (const double v : call.tensor<const double>(0).span()) {
    if (v < 0) throw std::runtime_error("a negative number");
  }
}
STRATA_EXPORT(positive);
