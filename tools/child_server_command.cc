#include <cstdio>

#include "tools/command.h"

namespace strata::tools {

void add_child_server_command(CLI::App& app, Action* action) {
  CLI::App* const command = app.add_subcommand(
      "child-server",
      "Makes the local children of a program's Workers. Strata starts it by itself, where the "
      "program cannot be forked safely (StartMethod::kExec, or kAuto) and its main does not begin "
      "with strata::child_entry.");
  command->footer(
      "Nothing to run by hand: what it needs comes by a socket that it inherits. It is found by "
      "WorkerSpec::child_server, by the environment's STRATA_CHILD_SERVER, or as `strata` beside "
      "the program or beside libstrata. It ends with the program.\n\n"
      "Exit codes: 2 it was run by hand; as a server 0 the program has ended, 1 it could not "
      "start.");
  command->callback([action] {
    *action = [] {
      std::fprintf(stderr,
                   "strata: child-server is started by a Worker's init(), with a socket to it; "
                   "there is nothing to run by hand (--help tells what it is for)\n");
      return kExitBadArguments;
    };
  });
}

}  // namespace strata::tools
