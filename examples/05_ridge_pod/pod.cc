#include "pod.h"

#include <algorithm>
#include <numeric>
#include <span>

#include "problem.h"
#include "stages.h"

namespace ridge_pod {
namespace {

using strata::CallableHandle;
using strata::INOUT;
using strata::INPUT;
using strata::NO_DEP;
using strata::Orchestrator;
using strata::OUTPUT;
using strata::Result;
using strata::TaskArgs;
using strata::Tensor;

constexpr int kAnyHost = -1;

// Submits until the first refusal, and keeps that.
class Submitter {
 public:
  explicit Submitter(Orchestrator& orch) : orch_(orch) {}

  void operator()(const CallableHandle& stage, const TaskArgs& args, int host) {
    if (result_) keep(orch_.submit_next_level(stage, args, {}, host));
  }
  // Members whose OUTPUT without storage get it.
  void group(const CallableHandle& stage, std::vector<TaskArgs>& members,
             std::span<const int> hosts) {
    if (result_) keep(orch_.submit_next_level_group(stage, members, {}, hosts));
  }
  Result<void> result() && { return std::move(result_); }

 private:
  void keep(Result<strata::TaskRef> task) {
    if (!task) result_ = std::move(task).error();
  }
  Orchestrator& orch_;
  Result<void> result_;
};

TaskArgs reads(const Tensor& tensor) {
  return TaskArgs().add_tensor(tensor, INPUT);
}
Tensor cut(const Tensor& whole, size_t first, size_t size) {
  return whole.block(first, 0, size, whole.shape[1]);
}

}  // namespace

Result<Pod> Pod::create(strata::Worker& worker, const ridge::Samples& samples, Sizes sizes) {
  Result<ridge::Matrices> matrices = ridge::Matrices::create(worker, samples);
  if (!matrices) return std::move(matrices).error();
  Pod pod(*std::move(matrices), sizes);
  const auto hosts = static_cast<uint64_t>(sizes.hosts);
  auto counters = worker.create_buffer(hosts * LeafCounters::kColumns * sizeof(uint64_t));
  if (!counters) return std::move(counters).error();
  pod.leaf_counters_ = *std::move(counters);
  pod.counters_ = pod.leaf_counters_.tensor<uint64_t>({hosts, LeafCounters::kColumns});
  if (auto registered = register_kernels(worker); !registered) {
    return std::move(registered).error();
  }
  Result<Stages> stages = register_stages(worker);
  if (!stages) return std::move(stages).error();
  pod.stages_ = *std::move(stages);
  return pod;
}

// What the L4 submits to the L3s: functions of this program.
Result<Pod::Stages> Pod::register_stages(strata::Worker& worker) {
  Stages stages;
  const std::pair<strata::LocalFunction, CallableHandle*> all[] = {
      {strata::local_function<enroll>("enroll"), &stages.enroll},
      {strata::local_function<matrix_part>("matrix_part"), &stages.matrix_part},
      {strata::local_function<factor_panel>("factor_panel"), &stages.factor_panel},
      {strata::local_function<solve_panel>("solve_panel"), &stages.solve_panel},
      {strata::local_function<update_diagonal>("update_diagonal"), &stages.update_diagonal},
      {strata::local_function<update_panel>("update_panel"), &stages.update_panel},
      {strata::local_function<forward_panel>("forward_panel"), &stages.forward_panel},
      {strata::local_function<backward_panel>("backward_panel"), &stages.backward_panel},
      {strata::local_function<score_part>("score_part"), &stages.score_part},
      {strata::local_function<sum_parts>("sum_parts"), &stages.sum_parts},
  };
  for (const auto& [function, handle] : all) {
    auto registered = worker.register_callable(function);
    if (!registered) return std::move(registered).error();
    *handle = *std::move(registered);
  }
  return stages;
}

// What the L3s submit to their SUB children: entries of a library that only those load.
Result<void> Pod::register_kernels(strata::Worker& worker) {
  for (const char* symbol :
       {"rbf_tile", "potrf", "trsm", "syrk", "gemm", "forward_solve", "forward_update",
        "backward_solve", "backward_update", "score_tile", "sum_tiles"}) {
    auto registered = worker.register_inner(strata::NativeImport{ridge::kKernelLibrary, symbol});
    if (!registered) return std::move(registered).error();
  }
  return {};
}

Tensor Pod::rows(const Tensor& whole, size_t i) const {
  const size_t first = i * rows_;
  return cut(whole, first, std::min(rows_, whole.shape[0] - first));
}

Tensor Pod::block(size_t i, size_t j) const {
  const size_t n = m_.learned(), row = i * rows_, column = j * rows_;
  return m_.k.block(row, column, std::min(rows_, n - row), std::min(rows_, n - column));
}

std::vector<Pod::Part> Pod::parts(size_t size) const {
  const size_t tiles = (size + sizes_.tile - 1) / sizes_.tile;
  const auto hosts = static_cast<size_t>(sizes_.hosts);
  std::vector<Part> out;
  for (size_t host = 0; host < hosts; ++host) {
    const size_t first = tiles * host / hosts * sizes_.tile;
    const size_t end = std::min(tiles * (host + 1) / hosts * sizes_.tile, size);
    if (first < end) out.push_back({first, end - first});
  }
  return out;
}

TaskArgs& Pod::finish(TaskArgs& args) const {
  return args.add_tensor(counters_, NO_DEP).add_scalar(uint64_t{sizes_.tile});
}

std::vector<int> Pod::first_hosts(size_t n) const {
  std::vector<int> hosts(n);
  std::iota(hosts.begin(), hosts.end(), 0);
  return hosts;
}

// A group of tasks that say on which host they are: each host writes its number into its own row.
Result<void> Pod::build_enroll(Orchestrator& orch) const {
  std::vector<TaskArgs> members;
  for (size_t host = 0; host < counters_.shape[0]; ++host) {
    members.push_back(TaskArgs().add_tensor(cut(counters_, host, 1), OUTPUT));
  }
  Submitter submit(orch);
  submit.group(stages_.enroll, members, first_hosts(members.size()));
  return std::move(submit).result();
}

// Each panel of rows is a group over the hosts, which share its columns.
Result<void> Pod::build_matrix(Orchestrator& orch) const {
  Submitter submit(orch);
  for (size_t i = 0; i < panels(m_.learned()); ++i) {
    const Tensor x = rows(m_.x, i);
    const size_t first_row = i * rows_;
    std::vector<TaskArgs> members;
    for (const Part& part : parts(first_row + x.shape[0])) {
      TaskArgs args =
          reads(x)
              .add_tensor(cut(m_.x, part.first, part.size), INPUT)
              .add_tensor(m_.k.block(first_row, part.first, x.shape[0], part.size), OUTPUT);
      members.push_back(finish(args)
                            .add_scalar(uint64_t{first_row})
                            .add_scalar(uint64_t{part.first})
                            .add_scalar(ridge::kGamma)
                            .add_scalar(ridge::kLambda));
    }
    submit.group(stages_.matrix_part, members, {});
  }
  return std::move(submit).result();
}

// The factorisation of 03_ridge once more, of panels instead of tiles. A row of panels has a host
// that solves it, so that the hosts take turns; updates go to whoever is free.
Result<void> Pod::build_factor(Orchestrator& orch) const {
  Submitter submit(orch);
  const size_t n = panels(m_.learned());
  for (size_t k = 0; k < n; ++k) {
    TaskArgs diagonal = TaskArgs().add_tensor(block(k, k), INOUT);
    submit(stages_.factor_panel, finish(diagonal).add_scalar(uint64_t{k * rows_}), host(k));
    for (size_t i = k + 1; i < n; ++i) {
      TaskArgs below = reads(block(k, k)).add_tensor(block(i, k), INOUT);
      submit(stages_.solve_panel, finish(below), host(i));
    }
    for (size_t i = k + 1; i < n; ++i) {
      for (size_t j = k + 1; j < i; ++j) {
        TaskArgs args =
            reads(block(i, k)).add_tensor(block(j, k), INPUT).add_tensor(block(i, j), INOUT);
        submit(stages_.update_panel, finish(args), kAnyHost);
      }
      TaskArgs args = reads(block(i, k)).add_tensor(block(i, i), INOUT);
      submit(stages_.update_diagonal, finish(args), kAnyHost);
    }
  }
  return std::move(submit).result();
}

Result<void> Pod::build_solve(Orchestrator& orch) const {
  Submitter submit(orch);
  const size_t n = m_.learned();
  for (size_t i = 0; i < panels(n); ++i) {
    const size_t first = i * rows_, end = std::min(first + rows_, n);
    TaskArgs args =
        reads(m_.k.block(first, 0, end - first, end)).add_tensor(cut(m_.b, 0, end), INOUT);
    submit(stages_.forward_panel, finish(args), host(i));
  }
  for (size_t i = panels(n); i-- > 0;) {
    const size_t first = i * rows_, end = std::min(first + rows_, n);
    TaskArgs args = reads(m_.k.block(first, first, n - first, end - first))
                        .add_tensor(cut(m_.b, first, n - first), INOUT);
    submit(stages_.backward_panel, finish(args), host(i));
  }
  return std::move(submit).result();
}

// The hosts share what was learned: each scores all new samples of a panel by its part of it, and
// the sums of these parts are the scores.
Result<void> Pod::build_predict(Orchestrator& orch) const {
  Submitter submit(orch);
  for (size_t t = 0; t < panels(m_.predicted()); ++t) {
    const Tensor x_new = rows(m_.x_new, t);
    auto scope = orch.scope();  // of the parts
    if (!scope) return std::move(scope).error();
    std::vector<TaskArgs> members;
    for (const Part& part : parts(m_.learned())) {
      TaskArgs args =
          reads(x_new)
              .add_tensor(cut(m_.x, part.first, part.size), INPUT)
              .add_tensor(cut(m_.b, part.first, part.size), INPUT)
              .add_tensor(Tensor::without_storage<double>({x_new.shape[0], ridge::kClasses}),
                          OUTPUT);
      members.push_back(finish(args).add_scalar(ridge::kGamma));
    }
    submit.group(stages_.score_part, members, first_hosts(members.size()));
    TaskArgs sum = TaskArgs().add_tensor(rows(m_.s, t), OUTPUT);
    for (const TaskArgs& member : members) sum.add_tensor(member.tensor(3), INPUT);
    submit(stages_.sum_parts, finish(sum), kAnyHost);
  }
  return std::move(submit).result();
}

std::vector<uint64_t> Pod::leaves() const {
  std::vector<uint64_t> out;
  const std::span<const uint64_t> counters = leaf_counters_.as<const uint64_t>();
  for (size_t host = 0; host < counters_.shape[0]; ++host) {
    out.push_back(counters[host * LeafCounters::kColumns + 1]);
  }
  return out;
}

}  // namespace ridge_pod
