#include "solve.h"

#include <strata/strata.h>

#include <chrono>
#include <cinttypes>
#include <cstdarg>
#include <utility>

#include "digits.h"
#include "graph.h"
#include "problem.h"
#include "progress.h"
#include "verify.h"

namespace ridge {
namespace {

struct Step {
  const char* name;
  strata::Result<void> (Ridge::*build)(strata::Orchestrator&) const;
  double flops;
};

class Solver {
 public:
  Solver(const Options& options, std::FILE* out, Report* report)
      : options_(options), out_(out), report_(*report) {}

  void run();

 private:
  void fail(std::string why, int code = kFailed) {
    if (report_.code != 0) return;
    report_.code = code;
    report_.error = std::move(why);
  }
  __attribute__((format(printf, 2, 3))) void say(const char* format, ...) const {
    if (out_ == nullptr) return;
    va_list args;
    va_start(args, format);
    std::vfprintf(out_, format, args);
    va_end(args);
  }

  // On a Worker that is ready.
  void solve(strata::Worker& worker, const std::vector<Digit>& digits);
  strata::Result<void> run_step(strata::Worker& worker, const Ridge& problem, const Step& step);
  void judge(const Ridge& problem);

  const Options& options_;
  std::FILE* const out_;
  Report& report_;
};

void Solver::run() {
  const auto digits = load_digits(options_.data);
  if (!digits) return fail(digits.error(), kBadInput);
  if (digits->size() < 3) {
    return fail(options_.data + ": every third line is predicted, and it has fewer than three",
                kBadInput);
  }
  strata::WorkerSpec spec;
  spec.sub_workers = options_.workers;
  spec.start =
      options_.start == "inline" ? strata::StartMethod::kInline : strata::StartMethod::kFork;
  spec.library_path = {options_.kernels};
  auto worker = strata::Worker::create(spec);
  if (!worker) return fail(worker.error().to_string());
  if (auto started = (*worker)->init(); !started) return fail(started.error().to_string());
  solve(**worker, *digits);
  if (const auto closed = (*worker)->close(); !closed) fail(closed.error().to_string());
}

void Solver::solve(strata::Worker& worker, const std::vector<Digit>& digits) {
  auto problem = Ridge::create(worker, digits, options_.tile);
  if (!problem) return fail(problem.error().to_string());
  report_.digits = digits.size();
  report_.learned = problem->learned();
  report_.predicted = problem->predicted();
  say("%zu digits: %zu to learn from, %zu to predict; tiles of %zu, %d workers (%s)\n",
      digits.size(), problem->learned(), problem->predicted(), options_.tile, options_.workers,
      options_.start.c_str());
  say("%-8s %8s %13s %8s %8s\n", "step", "tasks", "dependencies", "seconds", "Gflop/s");

  const auto n = static_cast<double>(problem->learned());
  const Step steps[] = {
      {"matrix", &Ridge::build_matrix, 0.0},
      {"factor", &Ridge::build_factor, n * n * n / 3 + n * n / 2 + n / 6},
      {"predict", &Ridge::build_predict, 0.0},
  };
  for (const Step& step : steps) {
    if (auto outcome = run_step(worker, *problem, step); !outcome) {
      return fail(std::string(step.name) + ": " + outcome.error().to_string());
    }
  }
  judge(*problem);
}

strata::Result<void> Solver::run_step(strata::Worker& worker, const Ridge& problem,
                                      const Step& step) {
  const auto start = std::chrono::steady_clock::now();
  auto handle =
      worker.submit([&](strata::Orchestrator& orch) { return (problem.*step.build)(orch); });
  if (!handle) return std::move(handle).error();
  if (auto outcome = Progress(options_.program, step.name).wait(*handle); !outcome) return outcome;
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;

  const strata::RunStats stats = handle->stats();
  const StepReport told{step.name, stats.progress.succeeded, stats.dependencies, seconds.count(),
                        step.flops};
  say("%-8s %8" PRIu64 " %13" PRIu64 " %8.3f", step.name, told.tasks, told.dependencies,
      told.seconds);
  if (step.flops > 0.0) say(" %8.2f", step.flops / told.seconds * 1e-9);
  say("\n");
  report_.steps.push_back(told);
  return {};
}

// Counts what is right, and compares with the reference.
void Solver::judge(const Ridge& problem) {
  const std::vector<uint8_t> predictions = problem.predictions();
  for (size_t i = 0; i < predictions.size(); ++i) {
    report_.right += predictions[i] == problem.labels()[i];
  }
  say("accuracy %.4f (%zu of %zu)\n", report_.accuracy(), report_.right, predictions.size());

  const auto reference =
      run_reference(options_.reference, options_.data, problem.learned(), problem.predicted());
  if (!reference) return fail("no reference: " + reference.error());
  report_.compared = true;
  for (size_t i = 0; i < predictions.size(); ++i) {
    report_.different += predictions[i] != reference->predictions[i];
  }
  report_.factor_error = factor_error(problem.factor(), problem.learned(), *reference);
  say("reference: %zu of %zu predictions differ, factor differs by %.1e (limit %.0e)\n",
      report_.different, predictions.size(), report_.factor_error, kFactorErrorMax);

  if (report_.different > 0) return fail("the predictions are not those of the reference");
  if (!(report_.factor_error <= kFactorErrorMax)) {
    return fail("the factor is not that of the reference");
  }
  if (report_.accuracy() < kAccuracyMin) {
    fail("the accuracy is below " + std::to_string(kAccuracyMin));
  }
}

}  // namespace

Report solve(const Options& options, std::FILE* out) {
  Report report;
  Solver(options, out, &report).run();
  return report;
}

}  // namespace ridge
