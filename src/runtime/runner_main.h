// runner_main: what a runner does with its session, from its start to its end; gives the exit
// status. The main thread of a process that `strata serve` has started for one session.
#pragma once

#include "runtime/runner_socket.h"

namespace strata::runtime {

int runner_main(RunnerStart start);

// `strata runner --link=3`: takes the start from that descriptor, then runner_main. Where there is
// none the reason goes to stderr, with status 2.
int run_as_runner(int link_fd);

}  // namespace strata::runtime
