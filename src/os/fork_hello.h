// The first moments of a fork server, as its parent sees them, whether it came by fork or by exec.
// Internal to os; fork_server.h is what others use. One thread at a time.
#pragma once

#include <sys/types.h>

#include <optional>
#include <vector>

#include "base/time.h"
#include "os/fd.h"
#include "os/fork_message.h"
#include "os/socket_pair.h"
#include "strata/result.h"

namespace strata::os {

inline constexpr base::Duration kStartMax = base::Duration::from_s(30);

struct Hello {
  int pid = 0;
  Fd pidfd = {};
  std::optional<ForkGreeting> greeting = {};  // of a server by exec
};

// The first message of a new server. Its refusal is an Error with its words.
Result<Hello> await_hello(const SeqPacket& channel, base::Duration start_max);

// The limits and the openness of descriptors to inherit.
Result<void> check_inherited(const std::vector<int>& fds);

// A child that was never handed out: ends and takes it.
void kill_and_reap(pid_t pid);

}  // namespace strata::os
