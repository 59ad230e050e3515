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

Result<Ridge> Ridge::create(strata::Worker& worker, const std::vector<Digit>& digits, size_t tile) {
  Ridge ridge;
  ridge.tile_ = tile;
  for (size_t line = 0; line < digits.size(); ++line) {
    if (is_predicted(line)) {
      ridge.labels_.push_back(digits[line].label);
    } else {
      ++ridge.learned_;
    }
  }
  Result<Kernels> kernels = register_kernels(worker);
  if (!kernels) return std::move(kernels).error();
  ridge.kernels_ = *std::move(kernels);
  if (auto created = ridge.create_buffers(worker); !created) return std::move(created).error();
  ridge.fill(digits);
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
    auto registered = worker.register_callable(strata::NativeImport{"libridge_kernels.so", symbol});
    if (!registered) return std::move(registered).error();
    *handle = *std::move(registered);
  }
  return kernels;
}

Result<void> Ridge::create_buffers(strata::Worker& worker) {
  struct Matrix {
    strata::Buffer* buffer;
    Tensor* tensor;
    size_t rows, columns;
  };
  const Matrix all[] = {{&x_learned_, &x_, learned_, kPixels},
                        {&x_predicted_, &x_new_, predicted(), kPixels},
                        {&matrix_, &k_, learned_, learned_},
                        {&targets_, &b_, learned_, kClasses},
                        {&scores_, &s_, predicted(), kClasses}};
  for (const Matrix& m : all) {
    auto buffer = worker.create_buffer(m.rows * m.columns * sizeof(double));
    if (!buffer) return std::move(buffer).error();
    *m.buffer = *std::move(buffer);
    *m.tensor = m.buffer->tensor<double>({m.rows, m.columns});
  }
  return {};
}

// Buffers begin as zeros: the targets need their ones, and the scores are what they must be.
void Ridge::fill(const std::vector<Digit>& digits) {
  double* learned = x_learned_.as<double>().data();
  double* predicted = x_predicted_.as<double>().data();
  double* target = targets_.as<double>().data();
  for (size_t line = 0; line < digits.size(); ++line) {
    double*& x = is_predicted(line) ? predicted : learned;
    for (const uint8_t pixel : digits[line].pixels) *x++ = pixel * kPixelScale;
    if (!is_predicted(line)) {
      target[digits[line].label] = 1.0;
      target += kClasses;
    }
  }
}

Tensor Ridge::rows(const Tensor& whole, size_t i) const {
  const size_t first = i * tile_;
  return whole.block(first, 0, std::min(tile_, whole.shape[0] - first), whole.shape[1]);
}

Tensor Ridge::block(size_t i, size_t j) const {
  const size_t row = i * tile_, column = j * tile_;
  return k_.block(row, column, std::min(tile_, learned_ - row), std::min(tile_, learned_ - column));
}

Result<void> Ridge::build_matrix(Orchestrator& orch) const {
  Submitter submit(orch);
  for (size_t i = 0; i < tiles(learned_); ++i) {
    for (size_t j = 0; j <= i; ++j) {
      submit(kernels_.rbf_tile, reads(rows(x_, i))
                                    .add_tensor(rows(x_, j), INPUT)
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
  const size_t n = tiles(learned_);
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
  const size_t n = tiles(learned_);
  for (size_t k = 0; k < n; ++k) {
    submit(kernels_.forward_solve, reads(block(k, k)).add_tensor(rows(b_, k), INOUT));
    for (size_t i = k + 1; i < n; ++i) {
      submit(kernels_.forward_update,
             reads(block(i, k)).add_tensor(rows(b_, k), INPUT).add_tensor(rows(b_, i), INOUT));
    }
  }
  for (size_t k = n; k-- > 0;) {
    submit(kernels_.backward_solve, reads(block(k, k)).add_tensor(rows(b_, k), INOUT));
    for (size_t i = 0; i < k; ++i) {
      submit(kernels_.backward_update,
             reads(block(k, i)).add_tensor(rows(b_, k), INPUT).add_tensor(rows(b_, i), INOUT));
    }
  }
  for (size_t t = 0; t < tiles(predicted()); ++t) {
    const Tensor x_new = rows(x_new_, t);
    // The kernel rows of new digits are needed once: temporaries that end with their tasks.
    auto scope = orch.scope();
    if (!scope) return std::move(scope).error();
    for (size_t j = 0; j < n; ++j) {
      const Tensor x = rows(x_, j);
      auto k_new = orch.temporary<double>({x_new.shape[0], x.shape[0]});
      if (!k_new) return std::move(k_new).error();
      submit(kernels_.rbf_tile, reads(x_new)
                                    .add_tensor(x, INPUT)
                                    .add_tensor(*k_new, OUTPUT)
                                    .add_scalar(kGamma)
                                    .add_scalar(0.0));
      submit(kernels_.predict_tile,
             reads(*k_new).add_tensor(rows(b_, j), INPUT).add_tensor(rows(s_, t), INOUT));
    }
  }
  return std::move(submit).result();
}

std::vector<uint8_t> Ridge::predictions() const {
  const std::span<const double> scores = scores_.as<const double>();
  std::vector<uint8_t> digits;
  for (size_t row = 0; row < predicted(); ++row) {
    const auto first = scores.begin() + static_cast<ptrdiff_t>(row * kClasses);
    digits.push_back(static_cast<uint8_t>(std::max_element(first, first + kClasses) - first));
  }
  return digits;
}

}  // namespace ridge
