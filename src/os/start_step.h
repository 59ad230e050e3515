// start_step(): where a test may kill a process that starts, under STRATA_FAULTS alone: the
// environment's STRATA_TEST_KILL_AT names the step. Elsewhere it compiles to nothing. The thread
// that starts.
#pragma once

#ifdef STRATA_FAULTS
#include <csignal>
#include <cstdlib>
#include <string_view>
#endif

namespace strata::os {

#ifdef STRATA_FAULTS
inline void start_step(std::string_view step) {
  const char* const at = std::getenv("STRATA_TEST_KILL_AT");
  if (at != nullptr && step == at) ::raise(SIGKILL);
}
#else
inline void start_step(const char*) {}
#endif

}  // namespace strata::os
