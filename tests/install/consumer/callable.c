/* A callable written in C. */
#include <strata/call.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT const uint32_t strata_abi = STRATA_ABI;

EXPORT int32_t twice(const strata_call* call) {
  double* x = (double*)call->tensors[0].data;
  uint64_t i;
  for (i = 0; i < call->tensors[0].shape[0]; ++i) x[i] *= 2.0;
  return 0;
}
