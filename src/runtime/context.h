// Context: the fork server of this process, which forks the servers of its Workers.
//
// Made by the first init() and kept until the process ends, so that later Workers can start
// although the process has threads by then. The one thing of Strata that is global: a process can
// be forked safely only once. Any thread.
#pragma once

#include <memory>
#include <vector>

#include "os/fork_server.h"

namespace strata::runtime {

// A server for one more Worker. kWrongState by name where this process has other threads (or a
// Python interpreter, or UCX) and none was made before, unless `allow_threads`.
Result<std::unique_ptr<os::ForkServer>> make_fork_server(bool allow_threads,
                                                         const std::vector<int>& inherit_fds);

// In a child that the fork server has forked, before anything else here: what it has of the
// program's is not its own.
void forget_context();
// Ends the server of this process, where it has one; the servers of its Workers are shut down.
void end_context();

}  // namespace strata::runtime
