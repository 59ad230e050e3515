// ridge_reference DIGITS_CSV_GZ [--augment] > FILE: the same regression by LAPACK on whole
// matrices.
//
// A process of its own that shares with `ridge` the loader and the constants, and nothing that
// computes: distances by plain differences, matrices by columns, dpotrf and dpotrs on all of it.
// Exit codes: 0 done, 1 the computation or the output failed, 2 bad arguments or bad data.
//
// FILE: two uint64 (n learned, m predicted), the lower triangle of L by rows (n (n + 1) / 2
// doubles), m uint8 (the digits predicted). All in this machine's byte order.
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <vector>

#include "digits.h"
#include "problem.h"

extern "C" void openblas_set_num_threads(int threads);
// The last argument is the length of `uplo`, as Fortran passes it.
extern "C" void dpotrf_(const char* uplo, const int* n, double* a, const int* lda, int* info,
                        size_t uplo_size);
extern "C" void dpotrs_(const char* uplo, const int* n, const int* columns, const double* a,
                        const int* lda, double* b, const int* ldb, int* info, size_t uplo_size);

namespace {

using ridge::Digit;

// Pixels are small whole numbers: the sum is exact, whatever the order.
double rbf(const Digit& a, const Digit& b) {
  int sum = 0;
  for (size_t p = 0; p < ridge::kPixels; ++p) {
    const int difference = int{a.pixels[p]} - int{b.pixels[p]};
    sum += difference * difference;
  }
  return std::exp(-ridge::kGamma * (sum * (ridge::kPixelScale * ridge::kPixelScale)));
}

struct Solution {
  std::vector<double> factor;  // n x n by columns, the lower triangle counts
  std::vector<double> alpha;   // n x kClasses by columns
};

bool solve(const std::vector<Digit>& learned, Solution* solution) {
  const size_t n = learned.size();
  solution->factor.assign(n * n, 0.0);
  solution->alpha.assign(n * ridge::kClasses, 0.0);
  for (size_t j = 0; j < n; ++j) {
    for (size_t i = j; i < n; ++i) solution->factor[j * n + i] = rbf(learned[i], learned[j]);
    solution->factor[j * n + j] += ridge::kLambda;
    solution->alpha[learned[j].label * n + j] = 1.0;
  }
  const int size = static_cast<int>(n);
  const int columns = static_cast<int>(ridge::kClasses);
  int info = 0;
  dpotrf_("L", &size, solution->factor.data(), &size, &info, 1);
  if (info != 0) {
    std::fprintf(stderr, "ridge_reference: dpotrf fails with info %d\n", info);
    return false;
  }
  dpotrs_("L", &size, &columns, solution->factor.data(), &size, solution->alpha.data(), &size,
          &info, 1);
  if (info != 0) std::fprintf(stderr, "ridge_reference: dpotrs fails with info %d\n", info);
  return info == 0;
}

uint8_t predict(const Digit& digit, const std::vector<Digit>& learned, const Solution& solution) {
  double scores[ridge::kClasses] = {};
  for (size_t j = 0; j < learned.size(); ++j) {
    const double k = rbf(digit, learned[j]);
    for (size_t c = 0; c < ridge::kClasses; ++c) {
      scores[c] += k * solution.alpha[c * learned.size() + j];
    }
  }
  size_t best = 0;
  for (size_t c = 1; c < ridge::kClasses; ++c) {
    if (scores[c] > scores[best]) best = c;
  }
  return static_cast<uint8_t>(best);
}

template <class T>
void append(std::vector<char>* bytes, const T& value) {
  const char* const first = reinterpret_cast<const char*>(&value);
  bytes->insert(bytes->end(), first, first + sizeof value);
}

}  // namespace

int main(int argc, char** argv) {
  const bool augment = argc == 3 && std::strcmp(argv[2], "--augment") == 0;
  if ((argc != 2 && !augment) || isatty(STDOUT_FILENO) != 0) {
    std::fprintf(stderr, "usage: ridge_reference DIGITS_CSV_GZ [--augment] > FILE\n");
    return 2;
  }
  openblas_set_num_threads(1);
  const auto digits = ridge::load_digits(argv[1]);
  if (!digits) {
    std::fprintf(stderr, "ridge_reference: %s\n", digits.error().c_str());
    return 2;
  }
  const auto [learned, predicted, ignored] = ridge::split(*digits, augment);

  Solution solution;
  if (!solve(learned, &solution)) return 1;

  const size_t n = learned.size();
  std::vector<char> bytes;
  append(&bytes, uint64_t{n});
  append(&bytes, uint64_t{predicted.size()});
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j <= i; ++j) append(&bytes, solution.factor[j * n + i]);
  }
  for (const Digit& digit : predicted) append(&bytes, predict(digit, learned, solution));
  if (std::fwrite(bytes.data(), 1, bytes.size(), stdout) != bytes.size() || std::fflush(stdout)) {
    std::perror("ridge_reference: the output cannot be written");
    return 1;
  }
  return 0;
}
