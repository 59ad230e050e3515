#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "tools/command.h"
#include "tools/info.h"
#include "tools/text.h"

namespace strata::tools {

void add_info_command(CLI::App& app, Action* action) {
  CLI::App* const command = app.add_subcommand(
      "info",
      "Shows this machine as Strata sees it: processors, memory, limits and what each means, how "
      "children can start, and what this build has.");
  auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json,
                    "One JSON object on stdout instead of text; what is not known is null.");
  command->footer(
      "It looks and judges nothing: `strata doctor` says what is wrong and what to do. Limits are "
      "those of the shell it runs in; a service manager may set others for your program.\n\n"
      "Exit codes: 0 printed, 2 bad arguments.\n"
      "Example: strata info --json | jq .limits.nofile");
  command->callback([action, json] {
    *action = [json] {
      const Info info = gather_info();
      if (*json) {
        print_json(to_json(info));
      } else {
        std::printf("%s", to_text(info).c_str());
      }
      return kExitOk;
    };
  });
}

}  // namespace strata::tools
