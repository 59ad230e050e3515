// A library as a user builds it: two entries, and the ABI number of the headers (or another, where
// the build says so).
#include <cstdlib>

#include "strata/callable.h"

static void native_add(strata::Call& call) {
  for (int64_t& v : call.tensor<int64_t>(0).span()) v += call.scalar<int64_t>(0);
}
STRATA_EXPORT(native_add);

static void native_throw(strata::Call&) {
  throw std::runtime_error("thrown inside the library");
}
STRATA_EXPORT(native_throw);
