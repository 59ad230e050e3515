#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "tools/build_info.h"
#include "tools/command.h"
#include "tools/text.h"

namespace strata::tools {

void add_version_command(CLI::App& app, Action* action) {
  CLI::App* const command = app.add_subcommand(
      "version", "Prints the version of this program and what it was built from.");
  auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "One JSON object on stdout instead of text.");
  command->footer(
      "Two programs exchange work through shared memory only where their layout ids are equal; a "
      "library of callables must have been built for the same callable ABI.\n\n"
      "Exit codes: 0 printed, 2 bad arguments.\n"
      "Example: strata version --json | jq -r .layout_id");
  command->callback([action, json] {
    *action = [json] {
      const BuildInfo build = build_info();
      if (*json) {
        print_json(to_json(build));
      } else {
        std::printf("%s", to_text(build).c_str());
      }
      return kExitOk;
    };
  });
}

}  // namespace strata::tools
