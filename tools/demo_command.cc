#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "pod_options.h"
#include "pod_solve.h"
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

struct Choice {
  ridge_pod::Options options;
  bool flat = false;
  bool json = false;
};

Json to_json(const Choice& choice, const ridge::Report& report) {
  const ridge_pod::Options& options = choice.options;
  Json steps = Json::array();
  for (const ridge::StepReport& step : report.steps) {
    Json one = {{"name", step.name},
                {"tasks", step.tasks},
                {"dependencies", step.dependencies},
                {"seconds", step.seconds}};
    if (!choice.flat) one["tasks_below"] = step.leaves;
    if (step.flops > 0) one["gflop_per_second"] = step.flops / step.seconds * 1e-9;
    steps.push_back(std::move(one));
  }
  Json out = {{"ok", report.code == 0},
              {"error", report.error},
              {"digits", report.digits},
              {"learned", report.learned},
              {"flat", choice.flat},
              {"hosts", choice.flat ? Json(nullptr) : Json(options.hosts)},
              {"workers", options.workers},
              {"start", options.start},
              {"tile", options.tile},
              {"panel", choice.flat ? Json(nullptr) : Json(options.panel)},
              {"augment", options.augment},
              {"steps", std::move(steps)},
              {"seconds", report.seconds},
              {"predicted", report.predicted},
              {"right", report.right},
              {"accuracy", report.accuracy()},
              {"accuracy_as_they_were", report.plain_accuracy()}};
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

int run_demo(const Choice& choice) {
  if (choice.options.kernels.empty()) {
    return fail("libridge_kernels.so lies neither in " STRATA_DEMO_LIBRARIES
                " beside the folder of this program nor in a build beside it: install Strata whole",
                kExitFailed);
  }
  std::FILE* const out = choice.json ? nullptr : stdout;
  const ridge::Report report =
      choice.flat ? ridge::solve(choice.options, out) : ridge_pod::solve(choice.options, out);
  if (choice.json) print_json(to_json(choice, report));
  return report.code == 0 ? kExitOk : fail(report.error, report.code);
}

}  // namespace

void add_demo_command(CLI::App& app, Action* action) {
  CLI::App* const command = app.add_subcommand(
      "demo",
      "Computes something real: kernel ridge regression on 1,797 handwritten digits and their "
      "shifts, as graphs of graphs of tasks on an L4 Worker over two L3 Workers with child "
      "processes, and compares with an independent program.");
  auto choice = std::make_shared<Choice>();
  choice->options.program = "strata demo";
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (!error) find_parts(program.parent_path(), &choice->options);
  ridge_pod::add_options(*command, &choice->options);
  command->add_flag("--flat", choice->flat,
                    "One L3 Worker and its child processes instead; and without --augment, unless "
                    "that is said. --hosts and --panel mean nothing then.");
  command->add_flag("--json", choice->json,
                    "One JSON object on stdout instead of text, also after a failure.");
  command->footer(
      "What it shows: tasks of an L4 that are graphs of an L3 each, thousands of tasks whose order "
      "follows from the bytes they name, run by children that load OpenBLAS (this program does "
      "not: "
      "it starts threads, and only a program of one thread may fork children). Its source is "
      "examples/05_ridge_pod, and examples/03_ridge for what it shares with --flat.\n\n"
      "Exit codes: 0 all well, 1 the work or a comparison failed, 2 bad arguments or bad data, 130 "
      "ended by SIGINT, 143 by SIGTERM (what runs is finished; once more ends it at once).\n"
      "Example: strata demo --tile 64 --workers 4");
  command->callback([action, choice, command] {
    if (choice->flat && command->count("--augment") == 0) choice->options.augment = false;
    *action = [choice] { return run_demo(*choice); };
  });
}

}  // namespace strata::tools
