#include "tools/doctor.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "os/clock.h"
#include "tools/doctor_checks.h"
#include "tools/text.h"

namespace strata::tools {
namespace {

using Json = nlohmann::ordered_json;

// What guarded() hands over; none where the text is no finding.
std::optional<Finding> parse(const std::string& text) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return std::nullopt;
  const auto string = [&json](const char* key) {
    return json.contains(key) && json[key].is_string() ? json[key].get<std::string>() : "";
  };
  Finding out;
  out.found = string("found");
  out.meaning = string("meaning");
  out.advice = string("advice");
  for (const Level level : {Level::kOk, Level::kWarning, Level::kProblem}) {
    if (string("level") != name_of(level)) continue;
    out.level = level;
    return out;
  }
  return std::nullopt;
}

std::string advice_for(const Error& error) {
  if (error.code() == Code::kDeadline) {
    return "Run it alone (strata doctor --check NAME), with a larger --deadline-ms on a busy "
           "machine; strace -f shows what it waits for.";
  }
  return "Run it alone (strata doctor --check NAME); a core file or dmesg may say more.";
}

}  // namespace

std::string_view name_of(Level level) {
  switch (level) {
    case Level::kOk:
      return "ok";
    case Level::kWarning:
      return "warning";
    case Level::kProblem:
      return "problem";
  }
  return "problem";
}

const std::vector<Check>& all_checks() {
  static const std::vector<Check> kChecks = {
      {"memfd", "memory files, their seals and mappings", check_memory_files},
      {"pidfd", "whether the death of a process can be seen", check_pidfd},
      {"syscalls", "whether the kernel or a filter refuses a call", check_system_calls},
      {"fork", "whether a fresh program may be forked", check_fork},
      {"cores", "cores in the affinity mask", check_cores},
      {"quota", "the control group's CPU quota", check_quota},
      {"descriptors", "room for descriptors", check_descriptors},
      {"processes", "room for processes", check_processes},
      {"memory", "memory that can be had", check_memory},
      {"heap", "address space for the default heap", check_heap},
      {"hugepages", "huge pages of shared memory", check_huge_pages},
      {"shm", "/dev/shm", check_shm},
      {"forkserver", "a child that ends and one that is killed", check_fork_server},
      {"worker", "a Worker, tasks, and a task whose child is killed", check_worker},
      {"wakeups", "the cost of waking a sleeping process", check_wakeups},
      {"noise", "what others take of a core", check_noise},
      {"clock", "the clock source and the cost of a look", check_clock},
      {"ptrace", "whether children can be debugged", check_ptrace},
      {"leftovers", "processes of programs that are gone", check_leftovers},
      {"timeline", "a folder for timelines", check_timeline},
      {"program", "the libraries of a program (--program)", check_program},
  };
  return kChecks;
}

Finding guarded(const Check& check, const Probes& probes, base::Duration deadline) {
  const base::Instant begin = os::monotonic_now();
  const auto answer = call_in_process(
      [&] {
        return to_json(check.judge(probes)).dump(-1, ' ', false, Json::error_handler_t::replace);
      },
      deadline);
  Finding out;
  std::optional<Finding> told = answer.ok() ? parse(*answer) : std::nullopt;
  if (told.has_value()) {
    out = *std::move(told);
  } else {
    out.level = Level::kProblem;
    out.found = answer.ok() ? "the check says nothing that is a finding"
                            : "the check does not come to its end: " + answer.error().message();
    out.meaning = "What it looks at (" + std::string(check.title) + ") is not known to work.";
    out.advice = answer.ok() ? "" : advice_for(answer.error());
  }
  out.check = check.name;
  out.ms = (os::monotonic_now() - begin).seconds() * 1e3;
  return out;
}

Json to_json(const Finding& finding) {
  return {{"check", finding.check},     {"level", name_of(finding.level)}, {"found", finding.found},
          {"meaning", finding.meaning}, {"advice", finding.advice},        {"ms", finding.ms}};
}

std::string to_text(const Finding& finding, bool verbose) {
  constexpr size_t kColumns = 88;
  constexpr size_t kIndent = 22;
  std::string out = fmt::format("{:<8} {:<12} {}\n", name_of(finding.level), finding.check,
                                wrapped(finding.found, kColumns, kIndent));
  const auto line = [&out](std::string_view name, const std::string& text) {
    if (text.empty()) return;
    out += fmt::format("{:>20}: {}\n", name, wrapped(text, kColumns, kIndent));
  };
  if (finding.level != Level::kOk || verbose) {
    line("means", finding.meaning);
    line("do", finding.advice);
  }
  return out;
}

}  // namespace strata::tools
