// Context: the servers of this process, which make the servers of its Workers: one by fork, one by
// exec, each made when the first Worker needs it.
//
// Kept until the process ends, so that later Workers can start although the process has threads by
// then. The one thing of Strata that is global: a process can be forked safely only once. Any
// thread.
#pragma once

#include <memory>

#include "os/fork_server.h"
#include "strata/start_report.h"

namespace strata::runtime {

struct StartDecision {
  StartMethod method = StartMethod::kFork;  // kFork or kExec
  std::string reason;
};
// What init() would take for kFork, kExec or kAuto in this process, now.
Result<StartDecision> decide_start(StartMethod asked, bool allow_threads);

struct MadeServer {
  std::unique_ptr<os::ForkServer> server;
  StartReport report;
};

// A server for one more Worker; of the spec start, allow_threads, child_server, inherit_fds and
// timeouts count. kWrongState by name where kFork is asked for and the process has other threads
// (or a Python interpreter, or UCX) and no server by fork yet, unless `allow_threads`.
Result<MadeServer> make_server(const WorkerSpec& spec);

// In a child that the fork server has forked, before anything else here: what it has of the
// program's is not its own.
void forget_context();
// Ends the servers of this process, where it has some; those of its Workers are shut down.
void end_context();

}  // namespace strata::runtime
