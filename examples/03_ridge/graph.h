// Ridge: the buffers, the registered kernels, and the three graphs that solve the problem of
// problem.h tile by tile. Computes nothing itself.
//
// One thread. The Worker must outlive it; results are read once the run that writes them is done.
#pragma once

#include <strata/strata.h>

#include <cstdint>
#include <span>
#include <vector>

#include "digits.h"

namespace ridge {

class Ridge {
 public:
  // `tile`: rows and columns of a tile, from 1. Needs at least three digits.
  static strata::Result<Ridge> create(strata::Worker& worker, const std::vector<Digit>& digits,
                                      size_t tile);

  // Orchestration functions, to be run in this order.
  strata::Result<void> build_matrix(strata::Orchestrator& orch) const;   // K + lambda I
  strata::Result<void> build_factor(strata::Orchestrator& orch) const;   // in place: L L^T
  strata::Result<void> build_predict(strata::Orchestrator& orch) const;  // alpha, then scores

  size_t learned() const { return learned_; }
  size_t predicted() const { return labels_.size(); }
  // The digits that the predicted lines say, and those that the scores say.
  const std::vector<uint8_t>& labels() const { return labels_; }
  std::vector<uint8_t> predictions() const;
  // n x n by rows; the lower triangle counts.
  std::span<const double> factor() const { return matrix_.as<const double>(); }

 private:
  // One handle for each entry of libridge_kernels.so.
  struct Kernels {
    strata::CallableHandle rbf_tile, potrf, trsm, syrk, gemm;
    strata::CallableHandle forward_solve, forward_update, backward_solve, backward_update;
    strata::CallableHandle predict_tile;
  };
  Ridge() = default;

  static strata::Result<Kernels> register_kernels(strata::Worker& worker);
  strata::Result<void> create_buffers(strata::Worker& worker);
  void fill(const std::vector<Digit>& digits);

  // Cuts rows [i * tile, (i + 1) * tile) of `whole`, fewer at the end; all columns, or the j-th
  // such piece of them.
  strata::Tensor rows(const strata::Tensor& whole, size_t i) const;
  strata::Tensor block(size_t i, size_t j) const;  // of the matrix
  size_t tiles(size_t size) const { return (size + tile_ - 1) / tile_; }

  size_t tile_ = 0;
  size_t learned_ = 0;
  std::vector<uint8_t> labels_;
  Kernels kernels_;
  strata::Buffer x_learned_, x_predicted_, matrix_, targets_, scores_;
  strata::Tensor x_, x_new_, k_, b_, s_;  // the whole of each buffer, in this order
};

}  // namespace ridge
