// The start method of the tests of processes. For tests alone.
#pragma once

#include <cstdlib>
#include <string_view>

#include "strata/worker_spec.h"

namespace strata::test {

// What a test of children by fork takes: exec where the environment asks for that, so that whole
// suites run by either.
inline StartMethod by_processes() {
  const char* const asked = std::getenv("STRATA_TEST_START");
  return asked != nullptr && std::string_view(asked) == "exec" ? StartMethod::kExec
                                                               : StartMethod::kFork;
}

}  // namespace strata::test
