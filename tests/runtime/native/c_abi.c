/* A library in C. STRATA_TEST_ABI is the number that it claims to be built for; without it, it
 * exports none. */
#include "strata/call.h"

#ifdef STRATA_TEST_ABI
__attribute__((visibility("default"))) extern const uint32_t strata_abi;
const uint32_t strata_abi = STRATA_TEST_ABI;
#endif

__attribute__((visibility("default"))) int32_t c_entry(const strata_call* call);
int32_t c_entry(const strata_call* call) {
  return call->scalar_count == 1 ? (int32_t)call->scalars[0] : -1;
}
