// The problem that `ridge` solves and `ridge_reference` solves again: constants, no code that
// computes.
//
// Kernel ridge regression: K_ij = exp(-gamma |x_i - x_j|^2) over the training digits, then
// (K + lambda I) alpha = T with one column of T for each digit class, then scores = K_test alpha.
#pragma once

#include <cstddef>

namespace ridge {

inline constexpr int kSide = 8;  // of an image, in pixels
inline constexpr size_t kPixels = kSide * kSide;
inline constexpr size_t kClasses = 10;
inline constexpr int kPixelMax = 16;

// A pixel p enters as p * kPixelScale, from 0 to 1.
inline constexpr double kPixelScale = 1.0 / kPixelMax;

// Not tuned to the last line: gammas of 0.02, 0.03, 0.05 and 0.1 with lambdas of 1e-4 and 1e-3 all
// predict 593 or 594 of the 599 right.
inline constexpr double kGamma = 0.05;
inline constexpr double kLambda = 1e-3;

// The tasks; only child processes load it.
inline constexpr char kKernelLibrary[] = "libridge_kernels.so";

// Every third line is predicted, the others are learned from. `index` counts lines from 0.
constexpr bool is_predicted(size_t index) {
  return index % 3 == 2;
}

inline constexpr double kAccuracyMin = 0.985;
// The factor's largest difference from the reference's, over the reference's largest element.
inline constexpr double kFactorErrorMax = 1e-10;

inline constexpr size_t kTileMin = 16;
inline constexpr size_t kTileMax = 256;

}  // namespace ridge
