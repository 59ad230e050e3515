// An object that ends its process when it is loaded.
#include <cstdlib>

#include "strata/callable.h"

namespace {
struct Crash {
  Crash() { std::abort(); }
};
const Crash crash_at_load;
}  // namespace

static void crash(strata::Call&) {}
STRATA_EXPORT(crash);
