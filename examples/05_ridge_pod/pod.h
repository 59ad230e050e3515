// Pod: the regression of 03_ridge on an L4 Worker over L3 Workers. Its graphs are of panels: some
// tiles by some tiles, each a task of an L3, which makes a graph of tiles of it (stages.h).
//
// One thread. The Worker must outlive it.
#pragma once

#include <strata/strata.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "matrices.h"

namespace ridge_pod {

class Pod {
 public:
  struct Sizes {
    size_t tile;   // rows and columns of a tile
    size_t panel;  // tiles of a panel
    int hosts;     // Workers below the L4
  };
  // On a Worker that is ready. Needs at least one sample of each kind.
  static strata::Result<Pod> create(strata::Worker& worker, const ridge::Samples& samples,
                                    Sizes sizes);

  // Orchestration functions, to be run in this order.
  strata::Result<void> build_enroll(strata::Orchestrator& orch) const;   // the leaf counters
  strata::Result<void> build_matrix(strata::Orchestrator& orch) const;   // K + lambda I
  strata::Result<void> build_factor(strata::Orchestrator& orch) const;   // in place: L L^T
  strata::Result<void> build_solve(strata::Orchestrator& orch) const;    // the targets become alpha
  strata::Result<void> build_predict(strata::Orchestrator& orch) const;  // scores

  const ridge::Matrices& matrices() const { return m_; }
  // Tasks that ran below each host until now.
  std::vector<uint64_t> leaves() const;

 private:
  struct Stages {
    strata::CallableHandle enroll, matrix_part, factor_panel, solve_panel;
    strata::CallableHandle update_diagonal, update_panel, forward_panel, backward_panel;
    strata::CallableHandle score_part, sum_parts;
  };
  Pod(ridge::Matrices matrices, Sizes sizes)
      : m_(std::move(matrices)), sizes_(sizes), rows_(sizes.tile * sizes.panel) {}

  static strata::Result<Stages> register_stages(strata::Worker& worker);
  static strata::Result<void> register_kernels(strata::Worker& worker);

  // Rows [i * panel, (i + 1) * panel) of `whole`, fewer at the end; all columns.
  strata::Tensor rows(const strata::Tensor& whole, size_t i) const;
  strata::Tensor block(size_t i, size_t j) const;  // of the matrix
  size_t panels(size_t size) const { return (size + rows_ - 1) / rows_; }
  // Cuts `size` rows into one part for each host, whole tiles but for the end; empty ones left out.
  struct Part {
    size_t first, size;
  };
  std::vector<Part> parts(size_t size) const;
  // What every stage has after its panels.
  strata::TaskArgs& finish(strata::TaskArgs& args) const;
  int host(size_t i) const { return static_cast<int>(i % static_cast<size_t>(sizes_.hosts)); }
  std::vector<int> first_hosts(size_t n) const;

  ridge::Matrices m_;
  Sizes sizes_;
  size_t rows_;  // of a panel
  Stages stages_;
  strata::Buffer leaf_counters_;
  strata::Tensor counters_;
};

}  // namespace ridge_pod
