#include "solve.h"

#include <strata/strata.h>

#include <utility>

#include "graph.h"

namespace ridge {
namespace {

struct Step {
  const char* name;
  strata::Result<void> (Ridge::*build)(strata::Orchestrator&) const;
  double flops;
};

// On a Worker that is ready.
void solve(strata::Worker& worker, const Samples& samples, const Options& options,
           Account* account) {
  auto problem = Ridge::create(worker, samples, options.tile);
  if (!problem) return account->fail(problem.error().to_string());
  account->say("tiles of %zu, %d workers (%s)\n", options.tile, options.workers,
               options.start.c_str());
  account->tell_head(0);
  const Step steps[] = {
      {"matrix", &Ridge::build_matrix, 0.0},
      {"factor", &Ridge::build_factor, factor_flops(samples.learned.size())},
      {"predict", &Ridge::build_predict, 0.0},
  };
  for (const Step& step : steps) {
    auto told = account->run_step(worker, step.name, [&](strata::Orchestrator& orch) {
      return ((*problem).*step.build)(orch);
    });
    if (!told) return account->fail(std::string(step.name) + ": " + told.error().to_string());
    told->flops = step.flops;
    account->tell(*std::move(told));
  }
  account->judge(problem->matrices());
}

}  // namespace

Report solve(const Options& options, std::FILE* out) {
  Account account(options, out);
  const std::optional<Samples> samples = account.load();
  if (!samples) return account.report();
  strata::WorkerSpec spec;
  spec.sub_workers = options.workers;
  spec.start =
      options.start == "inline" ? strata::StartMethod::kInline : strata::StartMethod::kFork;
  spec.library_path = {options.kernels};
  spec.timeline = options.timeline;
  auto worker = strata::Worker::create(spec);
  if (!worker) {
    account.fail(worker.error().to_string());
    return account.report();
  }
  // Ctrl-C lets the graph that runs end, and no other begin.
  auto signals = strata::drain_on_signals(**worker);
  if (!signals) {
    account.fail(signals.error().to_string());
    return account.report();
  }
  if (auto started = (*worker)->init(); started) {
    solve(**worker, *samples, options, &account);
    account.close(**worker);
  } else {
    account.fail(started.error().to_string());
  }
  account.end(signals->signal_number());
  return account.report();
}

}  // namespace ridge
