// Ridge: the registered kernels, and the three graphs that solve the problem of problem.h tile by
// tile. Computes nothing itself.
//
// One thread. The Worker must outlive it.
#pragma once

#include <strata/strata.h>

#include <utility>

#include "matrices.h"

namespace ridge {

class Ridge {
 public:
  // `tile`: rows and columns of a tile, from 1. Needs at least one sample of each kind.
  static strata::Result<Ridge> create(strata::Worker& worker, const Samples& samples, size_t tile);

  // Orchestration functions, to be run in this order.
  strata::Result<void> build_matrix(strata::Orchestrator& orch) const;   // K + lambda I
  strata::Result<void> build_factor(strata::Orchestrator& orch) const;   // in place: L L^T
  strata::Result<void> build_predict(strata::Orchestrator& orch) const;  // alpha, then scores

  const Matrices& matrices() const { return m_; }

 private:
  // One handle for each entry of libridge_kernels.so.
  struct Kernels {
    strata::CallableHandle rbf_tile, potrf, trsm, syrk, gemm;
    strata::CallableHandle forward_solve, forward_update, backward_solve, backward_update;
    strata::CallableHandle predict_tile;
  };
  explicit Ridge(Matrices matrices) : m_(std::move(matrices)) {}

  static strata::Result<Kernels> register_kernels(strata::Worker& worker);

  // Cuts rows [i * tile, (i + 1) * tile) of `whole`, fewer at the end; all columns, or the j-th
  // such piece of them.
  strata::Tensor rows(const strata::Tensor& whole, size_t i) const;
  strata::Tensor block(size_t i, size_t j) const;  // of the matrix
  size_t tiles(size_t size) const { return (size + tile_ - 1) / tile_; }

  size_t tile_ = 0;
  Kernels kernels_;
  Matrices m_;
};

}  // namespace ridge
