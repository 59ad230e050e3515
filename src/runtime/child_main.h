// child_main: main of a local child that the fork server has forked.
#pragma once

#include "os/fork_server.h"

namespace strata::runtime {

// Exit statuses beside those of mailbox::ChildLoop.
inline constexpr int kExitBadStart = 4;  // the parent was told why, or the text is on stderr

int child_main(os::ChildStart& start);

}  // namespace strata::runtime
