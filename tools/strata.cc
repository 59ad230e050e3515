// The command `strata`: one program, one subcommand for each thing that it does.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <functional>

#include "strata/version.h"
#ifdef STRATA_COMMAND_HAS_SIM
#include "tools/sim_command.h"
#endif

namespace {

// What the chosen subcommand does; gives the exit status.
using Action = std::function<int()>;

void add_version(CLI::App& app, Action* action) {
  CLI::App* const command =
      app.add_subcommand("version", "Prints the version of this program and ends.");
  command->callback([action] {
    *action = [] {
      std::printf("strata %s\n", STRATA_VERSION);
      return 0;
    };
  });
}

#ifdef STRATA_COMMAND_HAS_SIM
void add_sim(CLI::App& app, Action* action) {
  strata::tools::add_sim_command(app, action);
}
#else
void add_sim(CLI::App& app, Action* action) {
  CLI::App* const command = app.add_subcommand(
      "sim", "Runs the simulator. This program was built without it; see the help of the option.");
  command->allow_extras();
  command->callback([action] {
    *action = [] {
      std::fprintf(stderr,
                   "strata: this program was built without the simulator; configure the build with "
                   "-DSTRATA_BUILD_TESTS=ON to have it\n");
      return 1;
    };
  });
}
#endif

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Strata runs one task graph over every level of a cluster.", "strata");
  app.require_subcommand(1);
  Action action;
  add_version(app, &action);
  add_sim(app, &action);
  CLI11_PARSE(app, argc, argv);
  return action();
}
