#include "tools/sim_command.h"

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>

#include "base/fault.h"
#include "sim/session_seed.h"
#include "sim/simulation.h"
#include "tools/sim_jobs.h"

namespace strata::tools {
namespace {

struct Arguments {
  uint64_t seed = 0;
  SimJobs jobs;
  int fault = 0;
  std::string mode = "swarm";
  std::string world = "level";
  bool verbose = false;
};

bool choose_fault(int number) {
  if (number == 0) return true;
#ifdef STRATA_FAULTS
  base::set_fault(number);
  return true;
#else
  std::fprintf(stderr,
               "strata: this program was built without the deliberate faults; configure the "
               "build with -DSTRATA_FAULTS=ON to have them\n");
  return false;
#endif
}

int run_one(const Arguments& arguments) {
  report_crashes();
  const sim::Options options = sim::draw_options(arguments.seed, arguments.jobs.mode);
  const sim::SeedResult result =
      arguments.verbose ? sim::run_seed(options, true) : sim::run_seed_twice(options);
  std::printf("%s", sim::describe(options).c_str());
  std::printf(
      "%s: %llu events, %llu tasks (%llu succeeded, %llu failed, %llu skipped), %llu runs, "
      "%llu steps, %.3f ms of virtual time, fingerprint %016llx\n",
      result.counts() ? "counts" : "does not count", static_cast<unsigned long long>(result.events),
      static_cast<unsigned long long>(result.tasks),
      static_cast<unsigned long long>(result.succeeded),
      static_cast<unsigned long long>(result.failed),
      static_cast<unsigned long long>(result.skipped), static_cast<unsigned long long>(result.runs),
      static_cast<unsigned long long>(result.steps), static_cast<double>(result.virtual_ns) * 1e-6,
      static_cast<unsigned long long>(result.fingerprint));
  if (result.verdict != sim::Verdict::kOk) {
    std::printf("verdict %d: %s\n%s", static_cast<int>(result.verdict), result.what.c_str(),
                result.last_events.c_str());
  }
  return static_cast<int>(result.verdict);
}

int run_many(const Arguments& arguments) {
  const auto began = std::chrono::steady_clock::now();
  const SimOutcome outcome = run_jobs(arguments.jobs);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  std::printf("%s", outcome.report.to_string().c_str());
  std::printf("%.1f s, %.1f counting seeds a second with %u processes\n", took.count(),
              static_cast<double>(outcome.report.counting()) / took.count(), arguments.jobs.jobs);
  return outcome.verdict;
}

int run_one_of_sessions(const Arguments& arguments) {
  const sim::SessionOptions options = sim::draw_session_options(arguments.seed);
  const sim::SessionSeed result = arguments.verbose ? sim::run_session_seed(options, true)
                                                    : sim::run_session_seed_twice(options);
  std::printf("%s", sim::describe(result).c_str());
  if (arguments.verbose && result.verdict == sim::Verdict::kOk) {
    std::printf("%s", result.last_events.c_str());
  }
  return static_cast<int>(result.verdict);
}

int run_many_of_sessions(const SimJobs& jobs) {
  const auto began = std::chrono::steady_clock::now();
  sim::SessionReport report;
  int verdict = 0;
  for (uint64_t seed = jobs.from;
       report.counting() < jobs.counting && report.failing() < jobs.failures_max; ++seed) {
    const sim::SessionOptions options = sim::draw_session_options(seed);
    const bool twice = jobs.twice_one_in != 0 && seed % jobs.twice_one_in == 0;
    const sim::SessionSeed result =
        twice ? sim::run_session_seed_twice(options) : sim::run_session_seed(options, false);
    report.add(result);
    if (result.verdict != sim::Verdict::kOk) {
      if (verdict == 0) verdict = static_cast<int>(result.verdict);
      std::printf("%s", sim::describe(sim::run_session_seed(options, true)).c_str());
    }
    if (jobs.progress && seed % 1000 == 0) {
      std::printf("%llu seeds\n", static_cast<unsigned long long>(seed));
      std::fflush(stdout);
    }
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  std::printf("%s%.1f s, %.1f counting seeds a second\n", report.to_string().c_str(), took.count(),
              static_cast<double>(report.counting()) / took.count());
  return verdict;
}

int run_sessions(const Arguments& arguments) {
  if (arguments.mode != "swarm" || arguments.jobs.jobs != 1) {
    std::fprintf(stderr, "strata: the world of sessions has one mode, swarm, and one process\n");
    return 1;
  }
  if (!choose_fault(arguments.fault)) return 1;
  return arguments.seed != 0 ? run_one_of_sessions(arguments)
                             : run_many_of_sessions(arguments.jobs);
}

int run_sim(Arguments arguments) {
  if (arguments.world == "session") return run_sessions(arguments);
  const auto mode = sim::mode_of(arguments.mode);
  if (!mode) {
    std::fprintf(stderr, "strata: no mode '%s'\n", arguments.mode.c_str());
    return 1;
  }
  arguments.jobs.mode = *mode;
  if (!choose_fault(arguments.fault)) return 1;
  return arguments.seed != 0 ? run_one(arguments) : run_many(arguments);
}

}  // namespace

void add_sim_command(CLI::App& app, std::function<int()>* action) {
  CLI::App* const command = app.add_subcommand(
      "sim",
      "Runs the engine, its scheduler and its mailboxes in a simulated world, whose threads, time "
      "and faults a seed decides, and checks what comes out.");
  command->footer(
      "Exit codes: 0 all is right, 1 nothing was run, 2 bad arguments, 3 a result is wrong, 4 "
      "something does not come to its end, 5 the code ended the process, 6 a seed gave two "
      "different runs.\n"
      "Example: strata sim --seeds 1000 --jobs 2");
  auto arguments = std::make_shared<Arguments>();
  SimJobs& jobs = arguments->jobs;
  CLI::Option* const one = command->add_option(
      "--seed", arguments->seed, "Runs this one seed, twice, and says what happened.");
  CLI::Option* const many = command->add_option(
      "--seeds", jobs.counting, "Runs seeds until this many count, and prints a report.");
  one->check(CLI::PositiveNumber)->excludes(many);
  many->check(CLI::PositiveNumber)->capture_default_str();
  command->add_option("--from", jobs.from, "The first of many seeds.")
      ->check(CLI::PositiveNumber)
      ->excludes(one)
      ->capture_default_str();
  command->add_option("--jobs", jobs.jobs, "How many processes share the seeds.")
      ->check(CLI::Range(1, 1024))
      ->excludes(one)
      ->capture_default_str();
  command
      ->add_option("--failures", jobs.failures_max,
                   "Each process stops when this many of its seeds have failed.")
      ->check(CLI::PositiveNumber)
      ->excludes(one)
      ->capture_default_str();
  command
      ->add_option("--twice", jobs.twice_one_in,
                   "One seed in so many is run twice and compared; 0 compares none.")
      ->excludes(one)
      ->capture_default_str();
  command->add_option("--fault", arguments->fault,
                      "Switches the deliberate fault of this number on, which the simulator must "
                      "find. The program must be built with STRATA_FAULTS.");
  command
      ->add_option("--mode", arguments->mode,
                   "swarm draws everything; lite has three workers and crashes alone; "
                   "performance has no faults and always the same work.")
      ->capture_default_str();
  command
      ->add_option("--world", arguments->world,
                   "level is one level with its local children; session is a parent and its "
                   "remote Workers, joined by links that fail.")
      ->check(CLI::IsMember({"level", "session"}))
      ->capture_default_str();
  command->add_flag("--verbose", arguments->verbose,
                    "Prints every event of the one seed, and runs it once.");
  command->add_flag("--progress", jobs.progress, "Prints a line after each thousand seeds.");
  command->callback([arguments, action] { *action = [arguments] { return run_sim(*arguments); }; });
}

}  // namespace strata::tools
