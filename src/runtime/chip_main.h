// chip_main: the life of a chip's process, which the fork server has forked.
#pragma once

#include "os/fork_server.h"
#include "runtime/child_main.h"

namespace strata::runtime {

// Beside the descriptors of every child, in this order: mailbox, hub, heap, the eventfd that wakes
// the parent, and the chip's note. Gives the exit status.
inline constexpr size_t kChipFds = ChildSpec::kFds + 1;
Result<int> serve_chip(const ChildSpec& spec, os::ChildStart& start);

}  // namespace strata::runtime
