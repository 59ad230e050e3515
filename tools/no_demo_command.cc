// `strata demo` of a build without the examples, whose kernels it would run.
#include <cstdio>

#include "tools/command.h"

namespace strata::tools {

void add_demo_command(CLI::App& app, Action* action) {
  CLI::App* const command =
      app.add_subcommand("demo", "Computes something real. This program was built without it.");
  command->allow_extras();
  command->callback([action] {
    *action = [] {
      std::fprintf(stderr,
                   "strata: this program was built without the demonstration; configure the build "
                   "with -DSTRATA_BUILD_EXAMPLES=ON to have it\n");
      return kExitFailed;
    };
  });
}

}  // namespace strata::tools
