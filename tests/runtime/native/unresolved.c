/* A library that needs a function which nobody has. */
#include "strata/call.h"

__attribute__((visibility("default"))) extern const uint32_t strata_abi;
const uint32_t strata_abi = STRATA_ABI;

int32_t function_that_nobody_has(void);

__attribute__((visibility("default"))) int32_t c_entry(const strata_call* call);
int32_t c_entry(const strata_call* call) {
  (void)call;
  return function_that_nobody_has();
}
