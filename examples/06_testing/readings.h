// A small graph as a user has one: lines of text become numbers, numbers are scaled, a total is
// taken. Its tests are in readings_test.cc.
#pragma once

#include <strata/strata.h>

#include <string>
#include <vector>

namespace readings {

struct Callables {
  strata::CallableHandle parse, scale, total, search;
};
strata::Result<Callables> register_all(strata::Worker& worker);

// One double a line, in `values`. What becomes of line i is written to place i; the total is the
// result of the task that it gives.
strata::Result<strata::TaskRef> build(strata::Orchestrator& orch, const Callables& callables,
                                      const std::vector<std::string>& lines, double factor,
                                      const strata::Buffer& values);

}  // namespace readings
