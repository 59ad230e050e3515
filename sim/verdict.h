// judge(): whether the outcomes of all runs are right: the oracle's view of every task, what the
// run records say, the results, the root errors, and the content of the buffers that still live.
// All runs are done; nothing runs. From the fiber that takes the simulation down.
#pragma once

#include "sim/level.h"

namespace strata::sim {

// What is wrong goes to the level's checks.
void judge(Level& level);

// Of one run alone; the outcomes of its tasks are `outcomes`, in order of submission. Gives what is
// wrong, or nothing.
std::string judge_record(Shared& shared, const SimRun& run, const std::vector<Outcome>& outcomes);

}  // namespace strata::sim
