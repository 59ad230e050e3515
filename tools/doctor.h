// The doctor: checks of this machine, each with what was found, what it means for Strata and what
// to do. A check judges; what it judges comes from Probes (doctor_probes.h), which tests replace.
// One thread, and the only one of its process: guarded() forks.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/time.h"
#include "tools/doctor_probes.h"

namespace strata::tools {

enum class Level {
  kOk,
  kWarning,  // Strata works, worse than it could
  kProblem,  // something of Strata does not work here
};
std::string_view name_of(Level level);

struct Finding {
  std::string check = {};  // its name
  Level level = Level::kOk;
  std::string found = {};    // what is so, with figures
  std::string meaning = {};  // for Strata
  std::string advice = {};   // what to do; empty where there is nothing to do
  double ms = 0;             // that the check took
};

struct Check {
  const char* name;
  const char* title;  // what it looks at
  Finding (*judge)(const Probes& probes);
};
// In the order in which they run: what others build on comes first.
const std::vector<Check>& all_checks();

// Runs the check in a process of its own. Where that does not answer within `deadline` it is
// killed, and the finding is a problem that says so; also where it ends without an answer.
Finding guarded(const Check& check, const Probes& probes, base::Duration deadline);

nlohmann::ordered_json to_json(const Finding& finding);
// One line, and for what is not ok the meaning and the advice below it; or always (`verbose`).
std::string to_text(const Finding& finding, bool verbose);

}  // namespace strata::tools
