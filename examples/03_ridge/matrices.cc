#include "matrices.h"

#include <algorithm>
#include <utility>

namespace ridge {

using strata::Result;

Result<Matrices> Matrices::create(strata::Worker& worker, const Samples& samples) {
  const size_t n = samples.learned.size(), m = samples.predicted.size();
  Matrices out;
  struct Matrix {
    strata::Buffer* buffer;
    strata::Tensor* tensor;
    size_t rows, columns;
  };
  const Matrix all[] = {{&out.x_learned_, &out.x, n, kPixels},
                        {&out.x_predicted_, &out.x_new, m, kPixels},
                        {&out.matrix_, &out.k, n, n},
                        {&out.targets_, &out.b, n, kClasses},
                        {&out.scores_, &out.s, m, kClasses}};
  for (const Matrix& matrix : all) {
    auto buffer = worker.create_buffer(matrix.rows * matrix.columns * sizeof(double));
    if (!buffer) return std::move(buffer).error();
    *matrix.buffer = *std::move(buffer);
    *matrix.tensor = matrix.buffer->tensor<double>({matrix.rows, matrix.columns});
  }
  out.fill(samples);
  return out;
}

// Buffers begin as zeros: the targets need their ones, and the scores are what they must be.
void Matrices::fill(const Samples& samples) {
  double* learned = x_learned_.as<double>().data();
  double* target = targets_.as<double>().data();
  for (const Digit& digit : samples.learned) {
    for (const uint8_t pixel : digit.pixels) *learned++ = pixel * kPixelScale;
    target[digit.label] = 1.0;
    target += kClasses;
  }
  double* predicted = x_predicted_.as<double>().data();
  for (const Digit& digit : samples.predicted) {
    for (const uint8_t pixel : digit.pixels) *predicted++ = pixel * kPixelScale;
    labels_.push_back(digit.label);
  }
}

std::vector<uint8_t> Matrices::predictions() const {
  const std::span<const double> scores = scores_.as<const double>();
  std::vector<uint8_t> digits;
  for (size_t row = 0; row < predicted(); ++row) {
    const auto first = scores.begin() + static_cast<ptrdiff_t>(row * kClasses);
    digits.push_back(static_cast<uint8_t>(std::max_element(first, first + kClasses) - first));
  }
  return digits;
}

}  // namespace ridge
