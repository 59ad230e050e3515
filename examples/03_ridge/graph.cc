#include "graph.h"

#include <algorithm>
#include <utility>

namespace ridge {
namespace {

using strata::INOUT;
using strata::INPUT;
using strata::Orchestrator;
using strata::OUTPUT;
using strata::Result;
using strata::TaskArgs;
using strata::Tensor;

// Submits until the first refusal, and keeps that.
class Submitter {
 public:
  explicit Submitter(Orchestrator& orch) : orch_(orch) {}

  void operator()(const strata::CallableHandle& kernel, const TaskArgs& args) {
    if (!result_) return;
    if (auto task = orch_.submit_sub(kernel, args); !task) result_ = std::move(task).error();
  }
  Result<void> result() && { return std::move(result_); }

 private:
  Orchestrator& orch_;
  Result<void> result_;
};

TaskArgs reads(const Tensor& tensor) {
  return TaskArgs().add_tensor(tensor, INPUT);
}

}  // namespace

Result<Ridge> Ridge::create(strata::Worker& worker, const Samples& samples, size_t tile) {
  Result<Matrices> matrices = Matrices::create(worker, samples);
  if (!matrices) return std::move(matrices).error();
  Ridge ridge(*std::move(matrices));
  ridge.tile_ = tile;
  Result<Kernels> kernels = register_kernels(worker);
  if (!kernels) return std::move(kernels).error();
  ridge.kernels_ = *std::move(kernels);
  return ridge;
}

Result<Ridge::Kernels> Ridge::register_kernels(strata::Worker& worker) {
  Kernels kernels;
  const std::pair<const char*, strata::CallableHandle*> all[] = {
      {"rbf_tile", &kernels.rbf_tile},
      {"potrf", &kernels.potrf},
      {"trsm", &kernels.trsm},
      {"syrk", &kernels.syrk},
      {"gemm", &kernels.gemm},
      {"forward_solve", &kernels.forward_solve},
      {"forward_update", &kernels.forward_update},
      {"backward_solve", &kernels.backward_solve},
      {"backward_update", &kernels.backward_update},
      {"predict_tile", &kernels.predict_tile},
  };
  for (const auto& [symbol, handle] : all) {
    auto registered = worker.register_callable(strata::NativeImport{kKernelLibrary, symbol});
    if (!registered) return std::move(registered).error();
    *handle = *std::move(registered);
  }
  return kernels;
}

Tensor Ridge::rows(const Tensor& whole, size_t i) const {
  const size_t first = i * tile_;
  return whole.block(first, 0, std::min(tile_, whole.shape[0] - first), whole.shape[1]);
}

Tensor Ridge::block(size_t i, size_t j) const {
  const size_t row = i * tile_, column = j * tile_;
  return m_.k.block(row, column, std::min(tile_, m_.learned() - row),
                    std::min(tile_, m_.learned() - column));
}

Result<void> Ridge::build_matrix(Orchestrator& orch) const {
  Submitter submit(orch);
  for (size_t i = 0; i < tiles(m_.learned()); ++i) {
    for (size_t j = 0; j <= i; ++j) {
      submit(kernels_.rbf_tile, reads(rows(m_.x, i))
                                    .add_tensor(rows(m_.x, j), INPUT)
                                    .add_tensor(block(i, j), OUTPUT)
                                    .add_scalar(kGamma)
                                    .add_scalar(i == j ? kLambda : 0.0));
    }
  }
  return std::move(submit).result();
}

// The right-looking tiled Cholesky factorisation, written as if it ran in this order. What may run
// side by side follows from the tiles that each task names.
Result<void> Ridge::build_factor(Orchestrator& orch) const {
  Submitter submit(orch);
  const size_t n = tiles(m_.learned());
  for (size_t k = 0; k < n; ++k) {
    submit(kernels_.potrf,
           TaskArgs().add_tensor(block(k, k), INOUT).add_scalar(uint64_t{k * tile_}));
    for (size_t i = k + 1; i < n; ++i) {
      submit(kernels_.trsm, reads(block(k, k)).add_tensor(block(i, k), INOUT));
    }
    for (size_t i = k + 1; i < n; ++i) {
      for (size_t j = k + 1; j < i; ++j) {
        submit(kernels_.gemm,
               reads(block(i, k)).add_tensor(block(j, k), INPUT).add_tensor(block(i, j), INOUT));
      }
      submit(kernels_.syrk, reads(block(i, k)).add_tensor(block(i, i), INOUT));
    }
  }
  return std::move(submit).result();
}

Result<void> Ridge::build_predict(Orchestrator& orch) const {
  Submitter submit(orch);
  const size_t n = tiles(m_.learned());
  for (size_t k = 0; k < n; ++k) {
    submit(kernels_.forward_solve, reads(block(k, k)).add_tensor(rows(m_.b, k), INOUT));
    for (size_t i = k + 1; i < n; ++i) {
      submit(kernels_.forward_update,
             reads(block(i, k)).add_tensor(rows(m_.b, k), INPUT).add_tensor(rows(m_.b, i), INOUT));
    }
  }
  for (size_t k = n; k-- > 0;) {
    submit(kernels_.backward_solve, reads(block(k, k)).add_tensor(rows(m_.b, k), INOUT));
    for (size_t i = 0; i < k; ++i) {
      submit(kernels_.backward_update,
             reads(block(k, i)).add_tensor(rows(m_.b, k), INPUT).add_tensor(rows(m_.b, i), INOUT));
    }
  }
  for (size_t t = 0; t < tiles(m_.predicted()); ++t) {
    const Tensor x_new = rows(m_.x_new, t);
    // The kernel rows of new digits are needed once: temporaries that end with their tasks.
    auto scope = orch.scope();
    if (!scope) return std::move(scope).error();
    for (size_t j = 0; j < n; ++j) {
      const Tensor x = rows(m_.x, j);
      auto k_new = orch.temporary<double>({x_new.shape[0], x.shape[0]});
      if (!k_new) return std::move(k_new).error();
      submit(kernels_.rbf_tile, reads(x_new)
                                    .add_tensor(x, INPUT)
                                    .add_tensor(*k_new, OUTPUT)
                                    .add_scalar(kGamma)
                                    .add_scalar(0.0));
      submit(kernels_.predict_tile,
             reads(*k_new).add_tensor(rows(m_.b, j), INPUT).add_tensor(rows(m_.s, t), INOUT));
    }
  }
  return std::move(submit).result();
}

}  // namespace ridge
