// The tasks of strata_potrf, as a shared object that only the children load: OpenBLAS starts
// threads when it is loaded, and the program that starts the children must have one thread then.
//
// A tile is contiguous and goes by columns; tiles of one row stand side by side, so that a range of
// them is one matrix of as many rows. Scalar 0 is the number of rows of a tile. All in place.
#include <cblas.h>
#include <strata/callable.h>

#include <stdexcept>
#include <string>

// OpenBLAS has LAPACK in it but no header for it.
extern "C" void dpotrf_(const char* uplo, const int* n, double* a, const int* lda, int* info);

namespace {

[[maybe_unused]] const bool kOneThread = [] {
  openblas_set_num_threads(1);
  return true;
}();

int rows_of(const strata::Call& call) {
  return static_cast<int>(call.scalar<uint64_t>(0));
}

// Columns of the range of tiles that argument i is.
int columns_of(const strata::Call& call, uint32_t i) {
  return static_cast<int>(call.tensor<const double>(i).shape(0)) / rows_of(call);
}

}  // namespace

// tensor A: its lower triangle becomes L with A = L L^T.
static void potrf(strata::Call& call) {
  const int n = rows_of(call);
  int info = 0;
  dpotrf_("L", &n, call.tensor<double>(0).data(), &n, &info);
  if (info != 0) throw std::runtime_error("dpotrf gives " + std::to_string(info));
}
STRATA_EXPORT(potrf);

// tensors L, A: A = A L^-T.
static void trsm(strata::Call& call) {
  const int n = rows_of(call);
  cblas_dtrsm(CblasColMajor, CblasRight, CblasLower, CblasTrans, CblasNonUnit, n, n, 1.0,
              call.tensor<const double>(0).data(), n, call.tensor<double>(1).data(), n);
}
STRATA_EXPORT(trsm);

// tensors A (a range of tiles), C: the lower triangle of C -= A A^T.
static void syrk(strata::Call& call) {
  const int n = rows_of(call);
  cblas_dsyrk(CblasColMajor, CblasLower, CblasNoTrans, n, columns_of(call, 0), -1.0,
              call.tensor<const double>(0).data(), n, 1.0, call.tensor<double>(1).data(), n);
}
STRATA_EXPORT(syrk);

// tensors A, B (ranges of as many tiles), C: C -= A B^T.
static void gemm(strata::Call& call) {
  const int n = rows_of(call);
  cblas_dgemm(CblasColMajor, CblasNoTrans, CblasTrans, n, n, columns_of(call, 0), -1.0,
              call.tensor<const double>(0).data(), n, call.tensor<const double>(1).data(), n, 1.0,
              call.tensor<double>(2).data(), n);
}
STRATA_EXPORT(gemm);
