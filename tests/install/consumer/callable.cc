// Two callables written in C++, in one object that does not link libstrata.
#include <strata/callable.h>

static void scale(strata::Call& call) {
  auto x = call.tensor<double>(0);
  for (double& v : x.span()) v *= call.scalar<double>(0);
}
STRATA_EXPORT(scale);

static void refuse(strata::Call&) {
  throw std::runtime_error("no such thing");
}
STRATA_EXPORT(refuse);
