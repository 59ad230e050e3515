// The command `strata`: one program, one command for each thing that it does.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>

#include "strata/child_entry.h"
#include "tools/command.h"
#include "tools/help_format.h"
#ifdef STRATA_COMMAND_HAS_SIM
#include "tools/sim_command.h"
#endif

namespace {

using strata::tools::Action;

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
      return strata::tools::kExitFailed;
    };
  });
}
#endif

}  // namespace

int main(int argc, char** argv) {
  // `strata child-server`, as a Worker's init() starts it, ends here.
  strata::child_entry(argc, argv);
  if (const std::optional<int> status = strata::tools::run_if_runner(argc, argv)) return *status;
  // In a log, too, lines stand in the order in which they were written.
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  CLI::App app("Strata runs one task graph over every level of a cluster.", "strata");
  app.formatter(std::make_shared<strata::tools::HelpFormat>());
  app.require_subcommand(1);
  app.footer(
      "First steps: `strata doctor` checks this machine, `strata demo` computes something real, "
      "`strata info` shows what there is. `strata COMMAND --help` tells a command's options and "
      "exit codes.");
  app.failure_message([](const CLI::App*, const CLI::Error& e) {
    return "strata: " + std::string(e.what()) + " (--help tells the options)\n";
  });
  Action action;
  strata::tools::add_demo_command(app, &action);
  // DOC
  strata::tools::add_doctor_command(app, &action);
  strata::tools::add_info_command(app, &action);
  strata::tools::add_serve_command(app, &action);
  strata::tools::add_key_command(app, &action);
  strata::tools::add_child_server_command(app, &action);
  strata::tools::add_version_command(app, &action);
  add_sim(app, &action);
  for (CLI::App* const command : app.get_subcommands({})) command->group("Commands");
  if (argc < 2) {
    std::fprintf(stderr, "%s", app.help().c_str());
    return strata::tools::kExitBadArguments;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? strata::tools::kExitOk : strata::tools::kExitBadArguments;
  }
  return action();
}
