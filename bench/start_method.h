// How the children of a benchmark's Workers start: as `scripts/bench --start` says, by way of the
// environment; else as Strata chooses. For the programs of bench/ only.
#pragma once

#include <strata/worker_spec.h>

#include <cstdlib>
#include <string_view>

namespace strata::bench {

inline StartMethod start_method() {
  const char* const asked = std::getenv("STRATA_BENCH_START");
  const std::string_view name = asked != nullptr ? asked : "";
  if (name == "fork") return StartMethod::kFork;
  return name == "exec" ? StartMethod::kExec : StartMethod::kAuto;
}

}  // namespace strata::bench
