// spawn: a program as a process of its own session, with chosen stdio and one descriptor more. It
// is a child of this process, but ends neither with it nor with its terminal. Any thread.
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

#include "strata/result.h"

namespace strata::os {

struct SpawnRequest {
  static constexpr int kChannel = 3;  // the number of `channel` there

  std::string program;
  std::vector<std::string> arguments;  // from argv[0] on
  // In place of, or beside, this process's own.
  std::vector<std::pair<std::string, std::string>> environment;
  int output = -1;   // stdout and stderr; -1: this process's
  int channel = -1;  // the only other one that is open there
};

// No signal is blocked or ignored there, and stdin is /dev/null. An Error where exec fails, too.
Result<pid_t> spawn(const SpawnRequest& request);

}  // namespace strata::os
