// The tasks of `ridge`, as a shared object that only the children load: OpenBLAS starts threads
// when it is loaded, and the program that starts the children must still have one thread then.
//
// Every tensor is a tile: a view of two dimensions into a row-major matrix, columns side by side,
// rows a stride apart. T, L and so on below are tiles; all work is in place.
//
// A last tensor of one uint64, if there is one, counts: a task that has done its work adds one to
// it. It is for all tasks at once, so it is passed as NO_DEP.
#include <cblas.h>
#include <strata/callable.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

// OpenBLAS has LAPACK in it but no header for it.
extern "C" void dpotrf_(const char* uplo, const int* n, double* a, const int* lda, int* info);

namespace {

// One thread for each child: the graph is what runs in parallel.
[[maybe_unused]] const bool kOneThread = [] {
  openblas_set_num_threads(1);
  return true;
}();

// A tile as BLAS wants it.
template <class T>
struct Tile {
  T* data;
  int rows;
  int columns;
  int stride;  // elements from one row to the next

  T* row(int i) const { return data + static_cast<ptrdiff_t>(i) * stride; }
};

template <class T>
Tile<T> tile(const strata::Call& call, uint32_t i) {
  constexpr uint64_t kSizeMax = std::numeric_limits<int>::max();
  const strata::TensorView<T> t = call.tensor<T>(i);
  const auto refuse = [i](const char* why) {
    throw std::invalid_argument("tensor " + std::to_string(i) + " " + why);
  };
  if (t.rank() != 2) refuse("has not two dimensions");
  if (t.data() == nullptr) refuse("has no storage");
  if (t.shape(0) == 0 || t.shape(1) == 0) refuse("is empty");
  if (t.shape(0) > kSizeMax || t.shape(1) > kSizeMax) refuse("is too large for BLAS");
  if (t.shape(1) > 1 && t.stride(1) != 1) refuse("has gaps between its columns");
  const auto columns = static_cast<int64_t>(t.shape(1));
  // The stride of a single row says nothing.
  const int64_t stride = t.shape(0) == 1 ? columns : t.stride(0);
  if (stride < columns || stride > static_cast<int64_t>(kSizeMax)) refuse("has a bad row stride");
  return {t.data(), static_cast<int>(t.shape(0)), static_cast<int>(columns),
          static_cast<int>(stride)};
}

void require(bool fits, const char* why) {
  if (!fits) throw std::invalid_argument(why);
}

template <class T>
bool square(const Tile<T>& t) {
  return t.rows == t.columns;
}

std::vector<double> squared_norms(const Tile<const double>& x) {
  std::vector<double> norms;
  norms.reserve(static_cast<size_t>(x.rows));
  for (int i = 0; i < x.rows; ++i) norms.push_back(cblas_ddot(x.columns, x.row(i), 1, x.row(i), 1));
  return norms;
}

// Of a task that has done its work.
void count(const strata::Call& call) {
  if (call.tensor_count() == 0) return;
  const uint32_t last = call.tensor_count() - 1;
  if (call.raw()->tensors[last].dtype != static_cast<uint8_t>(strata::DType::kU64)) return;
  std::atomic_ref<uint64_t>(*call.tensor<uint64_t>(last).data())
      .fetch_add(1, std::memory_order_relaxed);
}

// C = beta C + alpha op(A) B, for the solve and the prediction.
void multiply_add(double alpha, CBLAS_TRANSPOSE op, const Tile<const double>& a,
                  const Tile<const double>& b, const Tile<double>& c, double beta = 1.0) {
  const int inner = op == CblasNoTrans ? a.columns : a.rows;
  const int outer = op == CblasNoTrans ? a.rows : a.columns;
  require(c.rows == outer && c.columns == b.columns && b.rows == inner,
          "the tiles of a product do not fit");
  cblas_dgemm(CblasRowMajor, op, CblasNoTrans, c.rows, c.columns, inner, alpha, a.data, a.stride,
              b.data, b.stride, beta, c.data, c.stride);
}

// B = op(L)^-1 B for the lower triangle L.
void solve(CBLAS_TRANSPOSE op, const strata::Call& call) {
  const auto l = tile<const double>(call, 0);
  const auto b = tile<double>(call, 1);
  require(square(l) && l.rows == b.rows, "the tiles of a solve do not fit");
  cblas_dtrsm(CblasRowMajor, CblasLeft, CblasLower, op, CblasNonUnit, b.rows, b.columns, 1.0,
              l.data, l.stride, b.data, b.stride);
}

}  // namespace

// tensors X (rows of features), Y, K; scalars gamma, diagonal:
// K_ij = exp(-gamma |x_i - y_j|^2), and `diagonal` is added where i == j.
static void rbf_tile(strata::Call& call) {
  const auto x = tile<const double>(call, 0);
  const auto y = tile<const double>(call, 1);
  const auto k = tile<double>(call, 2);
  const auto gamma = call.scalar<double>(0);
  const auto diagonal = call.scalar<double>(1);
  require(x.columns == y.columns && k.rows == x.rows && k.columns == y.rows,
          "the tiles of rbf_tile do not fit");
  // |x|^2 + |y|^2 - 2 x.y: the product is the only part that costs.
  const std::vector<double> x_norms = squared_norms(x);
  const std::vector<double> y_norms = squared_norms(y);
  cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasTrans, k.rows, k.columns, x.columns, -2.0, x.data,
              x.stride, y.data, y.stride, 0.0, k.data, k.stride);
  for (int i = 0; i < k.rows; ++i) {
    double* const row = k.row(i);
    for (int j = 0; j < k.columns; ++j) {
      const double distance =
          row[j] + x_norms[static_cast<size_t>(i)] + y_norms[static_cast<size_t>(j)];
      row[j] = std::exp(-gamma * std::max(distance, 0.0));  // rounding may leave it below zero
    }
  }
  for (int i = 0; i < std::min(k.rows, k.columns); ++i) k.row(i)[i] += diagonal;
  count(call);
}
STRATA_EXPORT(rbf_tile);

// tensor A; scalar first_row (the tile's place in the matrix, for the text of a failure):
// the lower triangle of A becomes L with A = L L^T. What lies above the diagonal is left alone.
static void potrf(strata::Call& call) {
  const auto a = tile<double>(call, 0);
  const auto first_row = call.scalar<uint64_t>(0);
  require(square(a), "the tile of potrf is not square");
  const auto refuse = [first_row](int pivot) {
    throw std::runtime_error("the matrix is not positive definite: pivot " +
                             std::to_string(first_row + static_cast<uint64_t>(pivot)) + " fails");
  };
  int info = 0;
  // LAPACK goes by columns: its upper triangle is our lower one.
  dpotrf_("U", &a.rows, a.data, &a.stride, &info);
  if (info < 0) throw std::logic_error("dpotrf refuses its argument " + std::to_string(-info));
  if (info > 0) refuse(info);
  // A pivot that is not a number passes OpenBLAS's own test, which asks for one below zero.
  for (int i = 0; i < a.rows; ++i) {
    if (!std::isfinite(a.row(i)[i])) refuse(i + 1);
  }
  count(call);
}
STRATA_EXPORT(potrf);

// tensors L, A: A = A L^-T.
static void trsm(strata::Call& call) {
  const auto l = tile<const double>(call, 0);
  const auto a = tile<double>(call, 1);
  require(square(l) && a.columns == l.rows, "the tiles of trsm do not fit");
  cblas_dtrsm(CblasRowMajor, CblasRight, CblasLower, CblasTrans, CblasNonUnit, a.rows, a.columns,
              1.0, l.data, l.stride, a.data, a.stride);
  count(call);
}
STRATA_EXPORT(trsm);

// tensors A, C: the lower triangle of C -= A A^T.
static void syrk(strata::Call& call) {
  const auto a = tile<const double>(call, 0);
  const auto c = tile<double>(call, 1);
  require(square(c) && c.rows == a.rows, "the tiles of syrk do not fit");
  cblas_dsyrk(CblasRowMajor, CblasLower, CblasNoTrans, c.rows, a.columns, -1.0, a.data, a.stride,
              1.0, c.data, c.stride);
  count(call);
}
STRATA_EXPORT(syrk);

// tensors A, B, C: C -= A B^T.
static void gemm(strata::Call& call) {
  const auto a = tile<const double>(call, 0);
  const auto b = tile<const double>(call, 1);
  const auto c = tile<double>(call, 2);
  require(c.rows == a.rows && c.columns == b.rows && a.columns == b.columns,
          "the tiles of gemm do not fit");
  cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasTrans, c.rows, c.columns, a.columns, -1.0, a.data,
              a.stride, b.data, b.stride, 1.0, c.data, c.stride);
  count(call);
}
STRATA_EXPORT(gemm);

// tensors L, B: B = L^-1 B.
static void forward_solve(strata::Call& call) {
  solve(CblasNoTrans, call);
  count(call);
}
STRATA_EXPORT(forward_solve);

// tensors L, B: B = L^-T B.
static void backward_solve(strata::Call& call) {
  solve(CblasTrans, call);
  count(call);
}
STRATA_EXPORT(backward_solve);

// tensors L, X, B: B -= L X.
static void forward_update(strata::Call& call) {
  multiply_add(-1.0, CblasNoTrans, tile<const double>(call, 0), tile<const double>(call, 1),
               tile<double>(call, 2));
  count(call);
}
STRATA_EXPORT(forward_update);

// tensors L, X, B: B -= L^T X.
static void backward_update(strata::Call& call) {
  multiply_add(-1.0, CblasTrans, tile<const double>(call, 0), tile<const double>(call, 1),
               tile<double>(call, 2));
  count(call);
}
STRATA_EXPORT(backward_update);

// tensors K, A, S: S += K A.
static void predict_tile(strata::Call& call) {
  multiply_add(1.0, CblasNoTrans, tile<const double>(call, 0), tile<const double>(call, 1),
               tile<double>(call, 2));
  count(call);
}
STRATA_EXPORT(predict_tile);

// tensors K, A, S: S = K A.
static void score_tile(strata::Call& call) {
  multiply_add(1.0, CblasNoTrans, tile<const double>(call, 0), tile<const double>(call, 1),
               tile<double>(call, 2), 0.0);
  count(call);
}
STRATA_EXPORT(score_tile);

// tensors S, P, Q, ...; scalar: how many P, Q, ... there are: S = P + Q + ...
static void sum_tiles(strata::Call& call) {
  const auto s = tile<double>(call, 0);
  const auto terms = call.scalar<uint32_t>(0);
  for (uint32_t term = 1; term <= terms; ++term) {
    const auto p = tile<const double>(call, term);
    require(p.rows == s.rows && p.columns == s.columns, "the tiles of a sum do not fit");
  }
  for (int i = 0; i < s.rows; ++i) std::fill_n(s.row(i), s.columns, 0.0);
  for (uint32_t term = 1; term <= terms; ++term) {
    const auto p = tile<const double>(call, term);
    for (int i = 0; i < s.rows; ++i) cblas_daxpy(s.columns, 1.0, p.row(i), 1, s.row(i), 1);
  }
  count(call);
}
STRATA_EXPORT(sum_tiles);
