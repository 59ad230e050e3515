// One entry whose result says which object it is; two objects export it.
#include "strata/callable.h"

static void version(strata::Call& call) {
  static int64_t calls = 0;  // of this object alone
  ++calls;
  call.set_result(int64_t{STRATA_TEST_VERSION} * 1000 + calls);
}
STRATA_EXPORT(version);
