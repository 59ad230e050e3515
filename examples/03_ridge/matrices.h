// Matrices: the shared memory of the problem of problem.h, filled from the digits, and what its
// last contents say. Knows no tiles and no tasks.
//
// One thread. The Worker must outlive it; results are read once the run that writes them is done.
#pragma once

#include <strata/strata.h>

#include <cstdint>
#include <span>
#include <vector>

#include "digits.h"

namespace ridge {

class Matrices {
 public:
  // Needs at least one sample of each kind.
  static strata::Result<Matrices> create(strata::Worker& worker, const Samples& samples);

  size_t learned() const { return x.shape[0]; }
  size_t predicted() const { return labels_.size(); }
  // The digits that the predicted lines say, and those that the scores say.
  const std::vector<uint8_t>& labels() const { return labels_; }
  std::vector<uint8_t> predictions() const;
  // n x n by rows; the lower triangle counts.
  std::span<const double> factor() const { return matrix_.as<const double>(); }

  // The whole of each: n and m rows of pixels, the kernel matrix n x n, n rows of targets, which
  // the solution replaces, m rows of scores.
  strata::Tensor x, x_new, k, b, s;

 private:
  void fill(const Samples& samples);

  std::vector<uint8_t> labels_;
  strata::Buffer x_learned_, x_predicted_, matrix_, targets_, scores_;  // in the order above
};

}  // namespace ridge
