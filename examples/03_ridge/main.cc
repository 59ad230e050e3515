// ridge: kernel ridge regression on handwritten digits, as graphs of tasks over tiles.
//
// Reads the digits, solves in child processes, tells what was measured, and compares with an
// independent program. Exit codes: 0 all well, 1 the work or a comparison failed, 2 bad arguments
// or bad data.
#include <strata/strata.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "digits.h"
#include "graph.h"
#include "problem.h"
#include "progress.h"
#include "verify.h"

namespace {

constexpr int kFailed = 1;
constexpr int kBadInput = 2;

struct Options {
  std::string folder;  // of this program: kernels, reference and data lie beside it
  std::string data;
  int workers = 2;
  size_t tile = 128;
  strata::StartMethod start = strata::StartMethod::kFork;
};

int fail(const std::string& why, int code = kFailed) {
  std::fprintf(stderr, "ridge: %s\n", why.c_str());
  return code;
}

// One graph, run to its end.
struct Step {
  const char* name;
  strata::Result<void> (ridge::Ridge::*build)(strata::Orchestrator&) const;
  double flops;  // 0: not told
};

strata::Result<void> run(strata::Worker& worker, const ridge::Ridge& problem, const Step& step) {
  const auto start = std::chrono::steady_clock::now();
  auto handle =
      worker.submit([&](strata::Orchestrator& orch) { return (problem.*step.build)(orch); });
  if (!handle) return std::move(handle).error();
  if (auto outcome = ridge::Progress(step.name).wait(*handle); !outcome) return outcome;
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;

  const strata::RunStats stats = handle->stats();
  std::printf("%-8s %8" PRIu64 " %13" PRIu64 " %8.3f", step.name, stats.progress.succeeded,
              stats.dependencies, seconds.count());
  if (step.flops > 0.0) std::printf(" %8.2f", step.flops / seconds.count() * 1e-9);
  std::printf("\n");
  return {};
}

// The whole work on a Worker that is ready.
int solve(strata::Worker& worker, const Options& options, const std::vector<ridge::Digit>& digits) {
  auto problem = ridge::Ridge::create(worker, digits, options.tile);
  if (!problem) return fail(problem.error().to_string());
  std::printf("%zu digits: %zu to learn from, %zu to predict; tiles of %zu, %d workers (%s)\n",
              digits.size(), problem->learned(), problem->predicted(), options.tile,
              options.workers, options.start == strata::StartMethod::kFork ? "fork" : "inline");
  std::printf("%-8s %8s %13s %8s %8s\n", "step", "tasks", "dependencies", "seconds", "Gflop/s");

  const auto n = static_cast<double>(problem->learned());
  const Step steps[] = {
      {"matrix", &ridge::Ridge::build_matrix, 0.0},
      {"factor", &ridge::Ridge::build_factor, n * n * n / 3 + n * n / 2 + n / 6},
      {"predict", &ridge::Ridge::build_predict, 0.0},
  };
  for (const Step& step : steps) {
    if (auto outcome = run(worker, *problem, step); !outcome) {
      return fail(std::string(step.name) + ": " + outcome.error().to_string());
    }
  }

  const std::vector<uint8_t> predictions = problem->predictions();
  size_t right = 0;
  for (size_t i = 0; i < predictions.size(); ++i) right += predictions[i] == problem->labels()[i];
  const double accuracy = static_cast<double>(right) / static_cast<double>(predictions.size());
  std::printf("accuracy %.4f (%zu of %zu)\n", accuracy, right, predictions.size());

  const auto reference = ridge::run_reference(options.folder + "/ridge_reference", options.data,
                                              problem->learned(), problem->predicted());
  if (!reference) return fail("no reference: " + reference.error());
  size_t different = 0;
  for (size_t i = 0; i < predictions.size(); ++i) {
    different += predictions[i] != reference->predictions[i];
  }
  const double error = ridge::factor_error(problem->factor(), problem->learned(), *reference);
  std::printf("reference: %zu of %zu predictions differ, factor differs by %.1e (limit %.0e)\n",
              different, predictions.size(), error, ridge::kFactorErrorMax);

  if (different > 0) return fail("the predictions are not those of the reference");
  if (!(error <= ridge::kFactorErrorMax)) return fail("the factor is not that of the reference");
  if (accuracy < ridge::kAccuracyMin) {
    return fail("the accuracy is below " + std::to_string(ridge::kAccuracyMin));
  }
  return 0;
}

int run_all(const Options& options) {
  const auto digits = ridge::load_digits(options.data);
  if (!digits) return fail(digits.error(), kBadInput);
  if (digits->size() < 3) {
    return fail(options.data + ": every third line is predicted, and it has fewer than three",
                kBadInput);
  }
  strata::WorkerSpec spec;
  spec.sub_workers = options.workers;
  spec.start = options.start;
  spec.library_path = {options.folder};
  auto worker = strata::Worker::create(spec);
  if (!worker) return fail(worker.error().to_string());
  if (auto started = (*worker)->init(); !started) return fail(started.error().to_string());
  const int code = solve(**worker, options, *digits);
  const auto closed = (*worker)->close();
  if (code == 0 && !closed) return fail(closed.error().to_string());
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  // In a log, too, lines stand in the order in which they were written.
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  std::error_code error;
  Options options;
  options.folder = std::filesystem::read_symlink("/proc/self/exe", error).parent_path().string();
  if (error) return fail("/proc/self/exe cannot be read: " + error.message());
  options.data = options.folder + "/digits.csv.gz";

  CLI::App app("Kernel ridge regression on handwritten digits by tiled Cholesky factorisation.");
  std::string start = "fork";
  app.add_option("--data", options.data, "Digits: gzip of lines of 64 pixels and the digit")
      ->default_str("digits.csv.gz beside the program");
  app.add_option("--workers", options.workers, "Child processes")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--tile", options.tile, "Rows and columns of a tile")
      ->check(CLI::Range(ridge::kTileMin, ridge::kTileMax))
      ->capture_default_str();
  app.add_option("--start", start, "How children start: fork, or inline (no processes)")
      ->check(CLI::IsMember({"fork", "inline"}))
      ->capture_default_str();
  app.footer(
      "Exit codes: 0 all well, 1 the work or a comparison failed, 2 bad arguments or bad data.");
  app.failure_message([](const CLI::App*, const CLI::Error& e) {
    return "ridge: " + std::string(e.what()) + " (--help tells the options)\n";
  });
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : kBadInput;
  }
  if (start == "inline") options.start = strata::StartMethod::kInline;
  return run_all(options);
}
