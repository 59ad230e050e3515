#include "tools/build_info.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "mailbox/layout.h"
#include "strata/call.h"
#include "strata/version.h"
#include "tools/git_describe.h"

namespace strata::tools {

BuildInfo build_info() {
  BuildInfo out;
  out.version = STRATA_VERSION;
  out.git = kGitDescribe;
  out.compiler = mailbox::compiler_name();
  out.build_type = STRATA_TOOLS_BUILD_TYPE;
  out.sanitizers = STRATA_TOOLS_SANITIZE;
#ifdef STRATA_FAULTS
  out.faults = true;
#endif
#ifdef STRATA_COMMAND_HAS_SIM
  out.simulator = true;
#endif
#ifdef STRATA_COMMAND_HAS_DEMO
  out.demo = true;
#endif
#ifdef STRATA_COMMAND_HAS_CHIPS
  out.chips = true;
#endif
  out.abi = STRATA_ABI;
  out.layout_version = mailbox::kLayoutVersion;
  out.layout_id = mailbox::layout_id();
  return out;
}

std::string layout_id_text(const BuildInfo& build) {
  return fmt::format("{:#018x}", build.layout_id);
}

nlohmann::ordered_json to_json(const BuildInfo& build) {
  return {{"version", build.version},
          {"git", build.git},
          {"abi", build.abi},
          {"layout_version", build.layout_version},
          {"layout_id", layout_id_text(build)},
          {"compiler", build.compiler},
          {"build_type", build.build_type},
          {"sanitizers", build.sanitizers},
          {"faults", build.faults},
          {"simulator", build.simulator},
          {"demo", build.demo}};
}

std::string to_text(const BuildInfo& build) {
  const auto has = [](bool there) { return there ? "in this build" : "not in this build"; };
  std::string out = fmt::format("strata {}\n", build.version);
  const auto line = [&out](std::string_view name, std::string_view value) {
    out += fmt::format("  {:<14} {}\n", name, value);
  };
  line("git", build.git.empty() ? "not built from a clone" : build.git);
  line("callable ABI", std::to_string(build.abi));
  line("layout", fmt::format("version {}, id {}", build.layout_version, layout_id_text(build)));
  line("compiler", build.compiler);
  line("build", fmt::format("{}{}{}", build.build_type, build.sanitizers.empty() ? "" : ", ",
                            build.sanitizers));
  line("faults", build.faults ? "deliberate faults compiled in: not for production" : "none");
  line("strata sim", has(build.simulator));
  line("strata demo", has(build.demo));
  return out;
}

}  // namespace strata::tools
