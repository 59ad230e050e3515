#include "pod_solve.h"

#include <cinttypes>
#include <optional>
#include <utility>

#include "pod.h"

namespace ridge_pod {
namespace {

using ridge::Account;

struct Step {
  const char* name;
  strata::Result<void> (Pod::*build)(strata::Orchestrator&) const;
  double flops;
};

strata::WorkerSpec spec_of(const Options& options) {
  strata::WorkerSpec host;
  host.level = 3;
  host.sub_workers = options.workers;
  host.start =
      options.start == "inline" ? strata::StartMethod::kInline : strata::StartMethod::kFork;
  host.library_path = {options.kernels};
  strata::WorkerSpec pod;
  pod.level = 4;
  pod.start = host.start;
  pod.timeline = options.timeline;
  pod.workers.assign(static_cast<size_t>(options.hosts), host);
  return pod;
}

void tell_tree(const strata::Worker& worker, const Options& options, const Account& account) {
  account.say("an L4 Worker over");
  int host = 0;
  for (const strata::Worker::Child& child : worker.next_level_children()) {
    account.say("%s L4/%d (pid %d)", host == 0 ? "" : ",", host, child.pid);
    ++host;
  }
  account.say(", each with %d SUB children (%s); tiles of %zu, panels of %zu\n", options.workers,
              options.start.c_str(), options.tile, options.tile * options.panel);
}

// Tasks below each host, of all steps.
void tell_leaves(const std::vector<uint64_t>& leaves, const ridge::Report& report,
                 const Account& account) {
  uint64_t tasks = 0, all = 0;
  for (const ridge::StepReport& step : report.steps) tasks += step.tasks;
  for (const uint64_t n : leaves) all += n;
  account.say("in all %.3f s: %" PRIu64 " tasks of the L4, %" PRIu64 " below it:", report.seconds,
              tasks, all);
  for (size_t host = 0; host < leaves.size(); ++host) {
    account.say("%s %" PRIu64 " in L4/%zu", host == 0 ? "" : ",", leaves[host], host);
  }
  account.say("\n");
}

// On a Worker that is ready.
void solve(strata::Worker& worker, const ridge::Samples& samples, const Options& options,
           Account* account) {
  auto pod = Pod::create(worker, samples, {options.tile, options.panel, options.hosts});
  if (!pod) return account->fail(pod.error().to_string());
  tell_tree(worker, options, *account);
  account->tell_head(static_cast<size_t>(options.hosts));
  const Step steps[] = {
      {"enroll", &Pod::build_enroll, 0.0},
      {"matrix", &Pod::build_matrix, 0.0},
      {"factor", &Pod::build_factor, ridge::factor_flops(samples.learned.size())},
      {"solve", &Pod::build_solve, 0.0},
      {"predict", &Pod::build_predict, 0.0},
  };
  std::vector<uint64_t> before = pod->leaves();
  for (const Step& step : steps) {
    auto told = account->run_step(
        worker, step.name, [&](strata::Orchestrator& orch) { return ((*pod).*step.build)(orch); });
    if (!told) return account->fail(std::string(step.name) + ": " + told.error().to_string());
    const std::vector<uint64_t> after = pod->leaves();
    for (size_t host = 0; host < after.size(); ++host) {
      told->leaves.push_back(after[host] - before[host]);
    }
    before = after;
    told->flops = step.flops;
    account->tell(*std::move(told));
  }
  tell_leaves(before, account->report(), *account);
  account->judge(pod->matrices());
}

}  // namespace

ridge::Report solve(const Options& options, std::FILE* out) {
  Account account(options, out);
  const std::optional<ridge::Samples> samples = account.load();
  if (!samples) return account.report();
  auto worker = strata::Worker::create(spec_of(options));
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

}  // namespace ridge_pod
