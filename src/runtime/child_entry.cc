#include "strata/child_entry.h"

#include <unistd.h>

#include <cstdio>

#include "os/fork_server.h"
#include "runtime/child_main.h"
#include "runtime/child_server.h"

namespace strata {
namespace {

int child_main_by_exec(os::ChildStart& start) {
  runtime::note_served();
  return runtime::child_main(start);
}

}  // namespace

void child_entry(int argc, char** argv) {
  runtime::note_child_entry();
  const std::optional<int> status =
      os::ForkServer::serve_if_asked(argc, argv, &child_main_by_exec, runtime::start_identity());
  if (!status) return;
  std::fflush(nullptr);
  // No destructor, no atexit: what they would end is not this process's.
  ::_exit(*status);
}

}  // namespace strata
