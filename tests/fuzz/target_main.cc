// One target as a libFuzzer program: STRATA_FUZZ_THIS is the function that gives it.
//
//   STRATA_FUZZ_EDGES=FOLDER    runs the files there, prints the edges that they reach and leaves
//   STRATA_FUZZ_FAULT=NUMBER    switches a deliberate fault on, which must be found
#include <cstdlib>

#include "base/fault.h"
#include "tests/fuzz/target.h"

namespace strata::fuzz {
Target STRATA_FUZZ_THIS();
}  // namespace strata::fuzz

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  using namespace strata::fuzz;
  if (const char* const number = std::getenv("STRATA_FUZZ_FAULT")) {
#ifdef STRATA_FAULTS
    strata::base::set_fault(std::atoi(number));
#else
    found("a build without deliberate faults", number);
#endif
  }
  if (const char* const folder = std::getenv("STRATA_FUZZ_EDGES")) {
    print_edges(STRATA_FUZZ_THIS(), folder);
    std::exit(0);
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  strata::fuzz::STRATA_FUZZ_THIS().test(std::as_bytes(std::span(data, size)));
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t size_max,
                                          unsigned seed) {
  return strata::fuzz::STRATA_FUZZ_THIS().mutate(data, size, size_max, seed);
}
