// chip_main: the life of a chip's process, which the fork server has forked.
#pragma once

#include "os/event_fd.h"
#include "os/fork_server.h"
#include "runtime/child_output.h"
#include "runtime/child_spec.h"

namespace strata::runtime {

// Gives the exit status. `parent` wakes the parent; it was taken out of `start`. `output` may be
// null.
Result<int> serve_chip(const ChildSpec& spec, os::ChildStart& start, os::EventFd parent,
                       ChildOutput* output);

}  // namespace strata::runtime
