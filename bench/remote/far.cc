// What the remote Worker runs: nothing.
#include "strata/callable.h"

static void far_nothing(strata::Call&) {}
STRATA_EXPORT(far_nothing);
