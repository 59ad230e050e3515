// The rival of strata_potrf: one call of OpenBLAS's dpotrf with a thread for each core.
#include <cblas.h>
#include <sched.h>

#include <cstring>
#include <memory>

#include "bench/dispatch/potrf.h"
#include "bench/figure.h"

extern "C" void dpotrf_(const char* uplo, const int* n, double* a, const int* lda, int* info);

namespace {

using namespace strata::bench;

constexpr double kLimitMs = 6'000;
constexpr uint64_t kElements = kPotrfRows * kPotrfRows;

}  // namespace

int main() {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  if (sched_getaffinity(0, sizeof cpus, &cpus) == 0) openblas_set_num_threads(CPU_COUNT(&cpus));
  const auto matrix = std::make_unique<double[]>(kElements);
  const auto factor = std::make_unique<double[]>(kElements);
  for (uint64_t column = 0; column < kPotrfRows; ++column) {
    for (uint64_t row = column; row < kPotrfRows; ++row) {
      matrix[column * kPotrfRows + row] = potrf_element(row, column);
    }
  }
  const int n = kPotrfRows;
  int info = 0;
  const auto timed = [&] {
    std::memcpy(factor.get(), matrix.get(), kElements * sizeof(double));
    const double begun = now_us();
    dpotrf_("L", &n, factor.get(), &n, &info);
    return now_us() - begun;
  };
  timed();  // starts its threads
  const double took_us = median_of(scaled(5, 1), kLimitMs, timed);
  const double residual = potrf_residual(
      [&](uint64_t row, uint64_t column) { return factor[column * kPotrfRows + row]; });
  if (info != 0 || !(residual <= kResidualMax)) {
    std::fprintf(stderr, "rival_potrf: dpotrf gives %d, residual %g\n", info, residual);
    return 1;
  }
  std::printf("# rival_potrf: %s, %d threads\n", openblas_get_corename(),
              openblas_get_num_threads());
  figure("rival.openblas.potrf4096", kPotrfFlop / took_us * 1e-3, "GFLOP/s");
  return 0;
}
