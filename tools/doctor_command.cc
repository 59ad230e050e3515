#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "os/clock.h"
#include "tools/command.h"
#include "tools/doctor.h"
#include "tools/text.h"

namespace strata::tools {
namespace {

struct Choice {
  std::vector<std::string> checks;
  std::string program;
  uint32_t deadline_ms = 20'000;
  bool json = false;
  bool strict = false;
  bool verbose = false;
  bool list = false;
};

bool chosen(const Choice& choice, const Check& check) {
  const std::string name = check.name;
  if (!choice.checks.empty()) {
    return std::find(choice.checks.begin(), choice.checks.end(), name) != choice.checks.end();
  }
  // Without a program there is nothing to look at.
  return name != "program" || !choice.program.empty();
}

int list_checks() {
  for (const Check& check : all_checks()) std::printf("%-12s %s\n", check.name, check.title);
  return kExitOk;
}

int run_doctor(const Choice& choice) {
  if (choice.list) return list_checks();
  Probes probes = real_probes();
  probes.program = choice.program;
  const base::Instant begin = os::monotonic_now();
  std::array<size_t, 3> counts{};
  nlohmann::ordered_json findings = nlohmann::ordered_json::array();
  for (const Check& check : all_checks()) {
    if (!chosen(choice, check)) continue;
    const Finding finding = guarded(check, probes, base::Duration::from_ms(choice.deadline_ms));
    ++counts[static_cast<size_t>(finding.level)];
    if (choice.json) {
      findings.push_back(to_json(finding));
    } else {
      std::printf("%s", to_text(finding, choice.verbose).c_str());
    }
  }
  const double seconds = (os::monotonic_now() - begin).seconds();
  const bool well = counts[2] == 0 && !(choice.strict && counts[1] > 0);
  if (choice.json) {
    print_json({{"ok", well},
                {"ok_count", counts[0]},
                {"warning_count", counts[1]},
                {"problem_count", counts[2]},
                {"seconds", seconds},
                {"findings", std::move(findings)}});
  } else {
    std::printf("%zu ok, %zu warning%s, %zu problem%s, after %.1f s\n", counts[0], counts[1],
                counts[1] == 1 ? "" : "s", counts[2], counts[2] == 1 ? "" : "s", seconds);
  }
  return well ? kExitOk : kExitFailed;
}

}  // namespace

void add_doctor_command(CLI::App& app, Action* action) {
  CLI::App* const command = app.add_subcommand(
      "doctor",
      "Tries what Strata needs of this machine, and says of each thing: ok, warning or problem, "
      "what was found, what it means and what to do.");
  auto choice = std::make_shared<Choice>();
  std::set<std::string> names;
  for (const Check& check : all_checks()) names.insert(check.name);
  command
      ->add_option("--check", choice->checks,
                   "Runs this check only; may be given more than once (--list names them)")
      ->check(CLI::IsMember(names).description(""))
      ->allow_extra_args(false)
      ->type_name("NAME");
  command
      ->add_option("--program", choice->program,
                   "Also looks at the libraries that this program loads before main: whether "
                   "its init() can fork. They are loaded in a process of its own.")
      ->check(CLI::Validator(CLI::ExistingFile).description(""))
      ->type_name("FILE");
  command
      ->add_option("--deadline-ms", choice->deadline_ms,
                   "A check that takes longer is ended, and is a problem")
      ->check(CLI::Range(1, 3'600'000))
      ->capture_default_str()
      ->type_name("MS");
  command->add_flag("--strict", choice->strict, "Warnings count as problems.");
  command->add_flag("--verbose", choice->verbose, "Says also of what is ok what it means.");
  command->add_flag("--list", choice->list, "Lists the checks and runs none.");
  command->add_flag("--json", choice->json, "One JSON object on stdout instead of text.");
  command->footer(
      "Each check runs in a process of its own, for at most --deadline-ms, and leaves nothing "
      "behind. The doctor changes nothing, and ends no process that it has not started.\n\n"
      "Exit codes: 0 no problem (there may be warnings), 1 a problem, or with --strict a warning, "
      "2 bad arguments.\n"
      "Example: strata doctor --program ./app");
  command->callback([action, choice] { *action = [choice] { return run_doctor(*choice); }; });
}

}  // namespace strata::tools
