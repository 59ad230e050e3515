// ChildServer: which program serves where children start by exec, and what both sides must agree
// on. Looks, starts nothing. Any thread.
#pragma once

#include <string>

#include "os/fork_message.h"
#include "strata/result.h"

namespace strata::runtime {

// main has called child_entry(), in this process or in the one that it was forked from.
void note_child_entry();
bool child_entry_noted();

// This process comes from a child server by exec: called once, in its child main. The program of
// such a process, for people; empty in others.
void note_served();
std::string served_program();

// Covers the mailbox, and the values that travel to a child.
os::ForkIdentity start_identity();

struct ChildServerProgram {
  std::string path;  // "/proc/self/exe" for the program itself
  std::string name;  // for people
};

// The first of: `option` (WorkerSpec::child_server), the program itself where child_entry_noted(),
// the environment's STRATA_CHILD_SERVER, `strata` beside the program or beside libstrata. kNotFound
// that names every place; also where one that is named (the first, the third) is not there.
Result<ChildServerProgram> find_child_server(const std::string& option);

}  // namespace strata::runtime
