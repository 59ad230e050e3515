// The problem of strata_potrf and of its rival: a symmetric positive definite matrix, how many
// operations its Cholesky factorisation takes, and whether a factor is one. Plain loops, no BLAS.
// Any thread.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

namespace strata::bench {

inline constexpr uint64_t kPotrfRows = 4'096;
// What LAPACK counts for a matrix of n rows.
inline constexpr double kPotrfFlop = kPotrfRows * double{kPotrfRows} * kPotrfRows / 3;
// Of |A x - L L^T x| / (|A| |x|), in the norm of the largest entry: some n times the rounding error
// of a double.
inline constexpr double kResidualMax = 1e-12;

// From -1 to 1, the same for the same numbers.
inline double noise(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9e3779b97f4a7c15u + b + 1;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return static_cast<double>(x >> 11) * 0x1p-52 - 1;
}

// An element of the lower triangle; the diagonal outweighs its row.
inline double potrf_element(uint64_t row, uint64_t column) {
  return noise(row, column) + (row == column ? double{kPotrfRows} : 0);
}

// `element(row, column)` of the factor, on and below the diagonal. Where all entries but the
// diagonal's are below 1, the norm of A is below twice the diagonal.
template <class Element>
double potrf_residual(Element&& element) {
  constexpr uint64_t n = kPotrfRows;
  std::vector<double> x(n), right(n, 0), left(n, 0), half(n, 0);
  for (uint64_t i = 0; i < n; ++i) x[i] = noise(i, n);
  for (uint64_t j = 0; j < n; ++j) {
    for (uint64_t i = j; i < n; ++i) {
      const double a = potrf_element(i, j);
      right[i] += a * x[j];
      if (i != j) right[j] += a * x[i];
      half[j] += element(i, j) * x[i];
    }
  }
  for (uint64_t j = 0; j < n; ++j) {
    for (uint64_t i = j; i < n; ++i) left[i] += element(i, j) * half[j];
  }
  double worst = 0;
  for (uint64_t i = 0; i < n; ++i) {
    const double off = std::abs(left[i] - right[i]) / (2.0 * n);
    if (!(off <= worst)) worst = off;  // also what is no number
  }
  return worst;
}

}  // namespace strata::bench
