#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "options.h"
#include "problem.h"
#include "solve.h"
#include "tools/command.h"
#include "tools/text.h"

namespace strata::tools {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// Where the parts of the demonstration lie, seen from the folder of this program: in an installed
// tree, and in a build's.
struct Places {
  const char* libraries;  // libridge_kernels.so, ridge_reference
  const char* data;       // digits.csv.gz
};
constexpr Places kPlaces[] = {{STRATA_DEMO_LIBRARIES, STRATA_DEMO_DATA},
                              {"../examples", "../examples"}};

// Fills the three paths; false where the parts are not there.
bool find_parts(const fs::path& folder, ridge::Options* options) {
  for (const Places& places : kPlaces) {
    const fs::path libraries = (folder / places.libraries).lexically_normal();
    const fs::path data = (folder / places.data / "digits.csv.gz").lexically_normal();
    std::error_code ignored;
    if (!fs::exists(libraries / "libridge_kernels.so", ignored)) continue;
    options->kernels = libraries.string();
    options->reference = (libraries / "ridge_reference").string();
    options->data = data.string();
    return true;
  }
  return false;
}

Json to_json(const ridge::Options& options, const ridge::Report& report) {
  Json steps = Json::array();
  for (const ridge::StepReport& step : report.steps) {
    Json one = {{"name", step.name},
                {"tasks", step.tasks},
                {"dependencies", step.dependencies},
                {"seconds", step.seconds}};
    if (step.flops > 0) one["gflop_per_second"] = step.flops / step.seconds * 1e-9;
    steps.push_back(std::move(one));
  }
  Json out = {
      {"ok", report.code == 0},    {"error", report.error},        {"digits", report.digits},
      {"learned", report.learned}, {"workers", options.workers},   {"start", options.start},
      {"tile", options.tile},      {"steps", std::move(steps)},    {"predicted", report.predicted},
      {"right", report.right},     {"accuracy", report.accuracy()}};
  out["reference"] = report.compared ? Json{{"predictions_differ", report.different},
                                            {"factor_error", report.factor_error},
                                            {"factor_error_max", ridge::kFactorErrorMax}}
                                     : Json(nullptr);
  return out;
}

int fail(const std::string& why, int code) {
  std::fprintf(stderr, "strata demo: %s\n", why.c_str());
  return code;
}

int run_demo(const ridge::Options& options, bool json) {
  if (options.kernels.empty()) {
    return fail("libridge_kernels.so lies neither in " STRATA_DEMO_LIBRARIES
                " beside the folder of this program nor in a build beside it: install Strata whole",
                kExitFailed);
  }
  const ridge::Report report = ridge::solve(options, json ? nullptr : stdout);
  if (json) print_json(to_json(options, report));
  return report.code == 0 ? kExitOk : fail(report.error, report.code);
}

}  // namespace

void add_demo_command(CLI::App& app, Action* action) {
  CLI::App* const command = app.add_subcommand(
      "demo",
      "Computes something real: kernel ridge regression on 1,797 handwritten digits, as graphs of "
      "tasks over tiles in child processes, and compares with an independent program.");
  struct Choice {
    ridge::Options options;
    bool json = false;
  };
  auto choice = std::make_shared<Choice>();
  choice->options.program = "strata demo";
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (!error) find_parts(program.parent_path(), &choice->options);
  ridge::add_options(*command, &choice->options);
  command->add_flag("--json", choice->json,
                    "One JSON object on stdout instead of text, also after a failure.");
  command->footer(
      "What it shows: hundreds of tasks whose order follows from the bytes they name, run by "
      "children that load OpenBLAS (this program does not: it starts threads, and only a program "
      "of one thread may fork children). Its source is examples/03_ridge.\n\n"
      "Exit codes: 0 all well, 1 the work or a comparison failed, 2 bad arguments or bad data.\n"
      "Example: strata demo --tile 64 --workers 4");
  command->callback(
      [action, choice] { *action = [choice] { return run_demo(choice->options, choice->json); }; });
}

}  // namespace strata::tools
