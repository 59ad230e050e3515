/* An object without the ABI number of the headers, or with another. */
#include "strata/call.h"

#ifdef STRATA_TEST_ABI
const uint32_t strata_abi = STRATA_TEST_ABI;
#endif

int32_t plain(const strata_call* call) {
  (void)call;
  return 0;
}
