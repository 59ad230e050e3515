// Every kernel of 03_ridge against plain loops, through the C entry that a child would call.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <strata/callable.h>

#include <cmath>
#include <initializer_list>
#include <random>
#include <string>
#include <vector>

namespace {

// A tile inside a larger matrix, so that its rows lie apart; what surrounds it must not change.
class Tile {
 public:
  static constexpr size_t kMargin = 3;

  Tile(size_t rows, size_t columns, unsigned seed)
      : rows_(rows), columns_(columns), stride_(columns + 2 * kMargin) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<double> unit(-1.0, 1.0);
    all_.resize((rows + 2 * kMargin) * stride_);
    for (double& v : all_) v = unit(random);
    before_ = all_;
  }

  // A positive definite one.
  static Tile definite(size_t n, unsigned seed) {
    Tile a(n, n, seed);
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j < i; ++j) a(j, i) = a(i, j);
      a(i, i) += static_cast<double>(n);
    }
    a.before_ = a.all_;
    return a;
  }

  size_t rows() const { return rows_; }
  size_t columns() const { return columns_; }
  double& operator()(size_t i, size_t j) { return all_[(i + kMargin) * stride_ + kMargin + j]; }
  double operator()(size_t i, size_t j) const {
    return all_[(i + kMargin) * stride_ + kMargin + j];
  }

  strata_tensor tensor() {
    strata_tensor t = {};
    t.data = &(*this)(0, 0);
    t.nbytes = ((rows_ - 1) * stride_ + columns_) * sizeof(double);
    t.dtype = static_cast<uint8_t>(strata::DType::kF64);
    t.rank = 2;
    t.shape[0] = rows_;
    t.shape[1] = columns_;
    t.stride[0] = static_cast<int64_t>(stride_);
    t.stride[1] = 1;
    return t;
  }

  bool surroundings_unchanged() const {
    for (size_t at = 0; at < all_.size(); ++at) {
      const size_t i = at / stride_, j = at % stride_;
      const bool inside =
          i >= kMargin && i < kMargin + rows_ && j >= kMargin && j < kMargin + columns_;
      if (!inside && all_[at] != before_[at]) return false;
    }
    return true;
  }
  bool unchanged() const { return all_ == before_; }

 private:
  size_t rows_, columns_, stride_;
  std::vector<double> all_, before_;
};

class Kernels : public testing::Test {
 protected:
  static void SetUpTestSuite() { library_ = dlopen(RIDGE_KERNELS, RTLD_NOW | RTLD_LOCAL); }
  void SetUp() override { ASSERT_NE(library_, nullptr) << dlerror(); }

  // Calls an entry; the text of its failure, or "" where it returned 0.
  template <class... Scalars>
  std::string call(const char* entry, std::vector<strata_tensor> tensors, Scalars... scalars) {
    const auto fn = reinterpret_cast<strata_entry>(dlsym(library_, entry));
    if (fn == nullptr) return std::string("no entry ") + entry;
    std::vector<uint64_t> bits;
    ((bits.push_back(0), std::memcpy(&bits.back(), &scalars, sizeof scalars)), ...);
    Outcome outcome;
    strata_call c = {};
    c.size = sizeof c;
    c.abi = STRATA_ABI;
    c.tensors = tensors.data();
    c.tensor_count = static_cast<uint32_t>(tensors.size());
    c.scalars = bits.data();
    c.scalar_count = static_cast<uint32_t>(bits.size());
    c.block_dim = 1;
    c.set_error = [](const strata_call* raw, const char* text, uint64_t n) {
      static_cast<Outcome*>(raw->runtime)->text.assign(text, n);
    };
    c.cancelled = [](const strata_call*) { return 0; };
    c.runtime = &outcome;
    const int32_t code = fn(&c);
    EXPECT_EQ(code != 0, !outcome.text.empty()) << outcome.text;
    return outcome.text;
  }

  static void expect_near(const Tile& got, const std::vector<double>& want) {
    for (size_t i = 0; i < got.rows(); ++i) {
      for (size_t j = 0; j < got.columns(); ++j) {
        ASSERT_NEAR(got(i, j), want[i * got.columns() + j], 1e-12) << i << ", " << j;
      }
    }
    EXPECT_TRUE(got.surroundings_unchanged());
  }

  struct Outcome {
    std::string text;
  };
  static inline void* library_ = nullptr;
};

// want = c + alpha * op(a) * op(b), element (i, k) of op(a) by `at`.
template <class A, class B>
std::vector<double> product(const Tile& c, size_t inner, double alpha, A a, B b) {
  std::vector<double> want;
  for (size_t i = 0; i < c.rows(); ++i) {
    for (size_t j = 0; j < c.columns(); ++j) {
      double sum = 0;
      for (size_t k = 0; k < inner; ++k) sum += a(i, k) * b(k, j);
      want.push_back(c(i, j) + alpha * sum);
    }
  }
  return want;
}

TEST_F(Kernels, TheObjectTellsItsAbi) {
  const auto* abi = static_cast<const uint32_t*>(dlsym(library_, "strata_abi"));
  ASSERT_NE(abi, nullptr);
  EXPECT_EQ(*abi, STRATA_ABI);
}

TEST_F(Kernels, RbfTileIsTheKernelOfEachPairOfRows) {
  Tile x(7, 64, 1), y(5, 64, 2), k(7, 5, 3);
  ASSERT_EQ(call("rbf_tile", {x.tensor(), y.tensor(), k.tensor()}, 0.05, 0.0), "");
  std::vector<double> want;
  for (size_t i = 0; i < 7; ++i) {
    for (size_t j = 0; j < 5; ++j) {
      double sum = 0;
      for (size_t p = 0; p < 64; ++p) sum += (x(i, p) - y(j, p)) * (x(i, p) - y(j, p));
      want.push_back(std::exp(-0.05 * sum));
    }
  }
  expect_near(k, want);
  EXPECT_TRUE(x.unchanged() && y.unchanged());
}

TEST_F(Kernels, RbfTileAddsToTheDiagonal) {
  Tile x(6, 64, 4), k(6, 6, 5);
  ASSERT_EQ(call("rbf_tile", {x.tensor(), x.tensor(), k.tensor()}, 0.05, 0.25), "");
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_NEAR(k(i, i), 1.25, 1e-12);
    for (size_t j = 0; j < i; ++j) EXPECT_NEAR(k(i, j), k(j, i), 1e-12);
  }
}

TEST_F(Kernels, PotrfFactorsTheLowerTriangleAndLeavesTheUpper) {
  for (const size_t n : {size_t{1}, size_t{2}, size_t{17}, size_t{100}}) {
    Tile a = Tile::definite(n, 6);
    const Tile before = a;
    ASSERT_EQ(call("potrf", {a.tensor()}, uint64_t{0}), "");
    for (size_t i = 0; i < n; ++i) {
      EXPECT_GT(a(i, i), 0.0);
      for (size_t j = 0; j <= i; ++j) {
        double sum = 0;
        for (size_t k = 0; k <= j; ++k) sum += a(i, k) * a(j, k);
        ASSERT_NEAR(sum, before(i, j), 1e-11);
      }
      for (size_t j = i + 1; j < n; ++j) ASSERT_EQ(a(i, j), before(i, j));
    }
    EXPECT_TRUE(a.surroundings_unchanged());
  }
}

TEST_F(Kernels, PotrfOfAnIndefiniteTileNamesThePivotInTheMatrix) {
  Tile a = Tile::definite(8, 7);
  a(5, 5) = -1.0;
  EXPECT_EQ(call("potrf", {a.tensor()}, uint64_t{256}),
            "the matrix is not positive definite: pivot 262 fails");
}

TEST_F(Kernels, PotrfOfNotANumberIsAFailure) {
  Tile a = Tile::definite(8, 8);
  a(3, 3) = std::nan("");
  EXPECT_EQ(call("potrf", {a.tensor()}, uint64_t{0}),
            "the matrix is not positive definite: pivot 4 fails");
}

TEST_F(Kernels, TrsmSolvesFromTheRightWithTheTransposedTriangle) {
  Tile l = Tile::definite(9, 9), a(5, 9, 10);
  const Tile before = a;
  ASSERT_EQ(call("trsm", {l.tensor(), a.tensor()}), "");
  for (size_t i = 0; i < 5; ++i) {
    for (size_t j = 0; j < 9; ++j) {
      double sum = 0;
      for (size_t k = 0; k <= j; ++k) sum += a(i, k) * l(j, k);
      EXPECT_NEAR(sum, before(i, j), 1e-12);
    }
  }
  EXPECT_TRUE(l.unchanged() && a.surroundings_unchanged());
}

TEST_F(Kernels, SyrkSubtractsFromTheLowerTriangleAlone) {
  Tile a(6, 11, 11), c(6, 6, 12);
  std::vector<double> want = product(
      c, 11, -1.0, [&](size_t i, size_t k) { return a(i, k); },
      [&](size_t k, size_t j) { return a(j, k); });
  for (size_t i = 0; i < 6; ++i) {
    for (size_t j = i + 1; j < 6; ++j) want[i * 6 + j] = c(i, j);
  }
  ASSERT_EQ(call("syrk", {a.tensor(), c.tensor()}), "");
  expect_near(c, want);
  EXPECT_TRUE(a.unchanged());
}

TEST_F(Kernels, GemmSubtractsAProductWithTheTransposed) {
  Tile a(6, 11, 13), b(4, 11, 14), c(6, 4, 15);
  const std::vector<double> want = product(
      c, 11, -1.0, [&](size_t i, size_t k) { return a(i, k); },
      [&](size_t k, size_t j) { return b(j, k); });
  ASSERT_EQ(call("gemm", {a.tensor(), b.tensor(), c.tensor()}), "");
  expect_near(c, want);
  EXPECT_TRUE(a.unchanged() && b.unchanged());
}

TEST_F(Kernels, ForwardSolveUndoesTheTriangle) {
  Tile l = Tile::definite(9, 16), b(9, 10, 17);
  const Tile before = b;
  ASSERT_EQ(call("forward_solve", {l.tensor(), b.tensor()}), "");
  for (size_t i = 0; i < 9; ++i) {
    for (size_t j = 0; j < 10; ++j) {
      double sum = 0;
      for (size_t k = 0; k <= i; ++k) sum += l(i, k) * b(k, j);
      EXPECT_NEAR(sum, before(i, j), 1e-12);
    }
  }
  EXPECT_TRUE(l.unchanged() && b.surroundings_unchanged());
}

TEST_F(Kernels, BackwardSolveUndoesTheTransposedTriangle) {
  Tile l = Tile::definite(9, 18), b(9, 10, 19);
  const Tile before = b;
  ASSERT_EQ(call("backward_solve", {l.tensor(), b.tensor()}), "");
  for (size_t i = 0; i < 9; ++i) {
    for (size_t j = 0; j < 10; ++j) {
      double sum = 0;
      for (size_t k = i; k < 9; ++k) sum += l(k, i) * b(k, j);
      EXPECT_NEAR(sum, before(i, j), 1e-12);
    }
  }
  EXPECT_TRUE(l.unchanged() && b.surroundings_unchanged());
}

TEST_F(Kernels, ForwardUpdateSubtractsAProduct) {
  Tile l(6, 9, 20), x(9, 10, 21), b(6, 10, 22);
  const std::vector<double> want = product(
      b, 9, -1.0, [&](size_t i, size_t k) { return l(i, k); },
      [&](size_t k, size_t j) { return x(k, j); });
  ASSERT_EQ(call("forward_update", {l.tensor(), x.tensor(), b.tensor()}), "");
  expect_near(b, want);
}

TEST_F(Kernels, BackwardUpdateSubtractsAProductOfTheTransposed) {
  Tile l(6, 9, 23), x(6, 10, 24), b(9, 10, 25);
  const std::vector<double> want = product(
      b, 6, -1.0, [&](size_t i, size_t k) { return l(k, i); },
      [&](size_t k, size_t j) { return x(k, j); });
  ASSERT_EQ(call("backward_update", {l.tensor(), x.tensor(), b.tensor()}), "");
  expect_near(b, want);
}

TEST_F(Kernels, PredictTileAddsAProduct) {
  Tile k(6, 9, 26), a(9, 10, 27), s(6, 10, 28);
  const std::vector<double> want = product(
      s, 9, 1.0, [&](size_t i, size_t p) { return k(i, p); },
      [&](size_t p, size_t j) { return a(p, j); });
  ASSERT_EQ(call("predict_tile", {k.tensor(), a.tensor(), s.tensor()}), "");
  expect_near(s, want);
}

TEST_F(Kernels, ScoreTileIsAProductWhateverWasThere) {
  Tile k(6, 9, 40), a(9, 10, 41), s(6, 10, 42);
  for (size_t i = 0; i < 6; ++i) s(i, i) = std::nan("");
  Tile zero(6, 10, 43);
  for (size_t i = 0; i < 6; ++i) {
    for (size_t j = 0; j < 10; ++j) zero(i, j) = 0.0;
  }
  const std::vector<double> want = product(
      zero, 9, 1.0, [&](size_t i, size_t p) { return k(i, p); },
      [&](size_t p, size_t j) { return a(p, j); });
  ASSERT_EQ(call("score_tile", {k.tensor(), a.tensor(), s.tensor()}), "");
  expect_near(s, want);
}

TEST_F(Kernels, SumTilesAddsAsManyAsItIsTold) {
  Tile s(5, 10, 44), p(5, 10, 45), q(5, 10, 46), r(4, 10, 47);
  std::vector<double> want;
  for (size_t i = 0; i < 5; ++i) {
    for (size_t j = 0; j < 10; ++j) want.push_back(p(i, j) + q(i, j));
  }
  EXPECT_EQ(call("sum_tiles", {s.tensor(), p.tensor(), r.tensor()}, uint32_t{2}),
            "the tiles of a sum do not fit");
  EXPECT_TRUE(s.unchanged());
  ASSERT_EQ(call("sum_tiles", {s.tensor(), p.tensor(), q.tensor(), r.tensor()}, uint32_t{2}), "");
  expect_near(s, want);
}

TEST_F(Kernels, ATaskThatHasDoneItsWorkIsCountedAndAFailedOneIsNot) {
  uint64_t done = 41;
  strata_tensor counter = {};
  counter.data = &done;
  counter.nbytes = sizeof done;
  counter.dtype = static_cast<uint8_t>(strata::DType::kU64);
  counter.rank = 2;
  counter.shape[0] = counter.shape[1] = 1;
  counter.stride[0] = counter.stride[1] = 1;
  Tile l = Tile::definite(6, 48), b(6, 10, 49), c(6, 6, 50), s(6, 10, 51);
  const strata_tensor tl = l.tensor(), tb = b.tensor(), tc = c.tensor(), ts = s.tensor();
  struct Entry {
    const char* name;
    std::vector<strata_tensor> tensors;
  };
  const Entry entries[] = {
      {"potrf", {tl}},
      {"trsm", {tl, tc}},
      {"syrk", {tl, tc}},
      {"gemm", {tl, tl, tc}},
      {"forward_solve", {tl, tb}},
      {"backward_solve", {tl, tb}},
      {"forward_update", {tl, tb, ts}},
      {"backward_update", {tl, tb, ts}},
      {"predict_tile", {tl, tb, ts}},
      {"score_tile", {tl, tb, ts}},
      {"sum_tiles", {ts, tb}},
      {"rbf_tile", {tl, tl, tc}},
  };
  for (const Entry& entry : entries) {
    std::vector<strata_tensor> tensors = entry.tensors;
    tensors.push_back(counter);
    const uint64_t before = done;
    // Of sum_tiles the number of terms, of the others nothing or what is not looked at here.
    ASSERT_EQ(call(entry.name, tensors, uint64_t{1}, 0.0), "") << entry.name;
    EXPECT_EQ(done, before + 1) << entry.name;
  }
  const uint64_t before = done;
  EXPECT_NE(call("gemm", {tb, tl, tc, counter}), "");
  EXPECT_EQ(done, before);
}

TEST_F(Kernels, ATileOfOneRowNeedsNoRowStride) {
  Tile a(1, 5, 29), b(1, 5, 30), c(1, 1, 31);
  strata_tensor row = a.tensor();
  row.stride[0] = 0;
  const double want = c(0, 0) - (a(0, 0) * b(0, 0) + a(0, 1) * b(0, 1) + a(0, 2) * b(0, 2) +
                                 a(0, 3) * b(0, 3) + a(0, 4) * b(0, 4));
  ASSERT_EQ(call("gemm", {row, b.tensor(), c.tensor()}), "");
  EXPECT_NEAR(c(0, 0), want, 1e-12);
}

TEST_F(Kernels, WhatIsNoTileIsRefusedAndNothingIsWritten) {
  Tile a = Tile::definite(4, 32);
  const auto potrf_of = [&](auto change) {
    strata_tensor t = a.tensor();
    change(t);
    return call("potrf", {t}, uint64_t{0});
  };
  EXPECT_EQ(potrf_of([](strata_tensor& t) { t.rank = 1; }), "tensor 0 has not two dimensions");
  EXPECT_EQ(potrf_of([](strata_tensor& t) { t.data = nullptr; }), "tensor 0 has no storage");
  EXPECT_EQ(potrf_of([](strata_tensor& t) { t.shape[0] = 0; }), "tensor 0 is empty");
  EXPECT_EQ(potrf_of([](strata_tensor& t) { t.shape[0] = 1ull << 31; }),
            "tensor 0 is too large for BLAS");
  EXPECT_EQ(potrf_of([](strata_tensor& t) { t.stride[1] = 2; }),
            "tensor 0 has gaps between its columns");
  for (const int64_t stride : {int64_t{-10}, int64_t{0}, int64_t{3}, int64_t{1} << 31}) {
    EXPECT_EQ(potrf_of([stride](strata_tensor& t) { t.stride[0] = stride; }),
              "tensor 0 has a bad row stride");
  }
  EXPECT_EQ(potrf_of([](strata_tensor& t) { t.dtype = static_cast<uint8_t>(strata::DType::kF32); }),
            "tensor 0 has another element type");
  EXPECT_EQ(potrf_of([](strata_tensor& t) { t.shape[0] = 3; }), "the tile of potrf is not square");
  EXPECT_TRUE(a.unchanged());
}

TEST_F(Kernels, MissingArgumentsAreNamed) {
  Tile a = Tile::definite(4, 33);
  EXPECT_EQ(call("potrf", {}, uint64_t{0}), "no tensor 0");
  EXPECT_EQ(call("potrf", {a.tensor()}), "no scalar 0");
  EXPECT_EQ(call("gemm", {a.tensor(), a.tensor()}), "no tensor 2");
  EXPECT_TRUE(a.unchanged());
}

TEST_F(Kernels, TilesThatDoNotFitAreRefused) {
  Tile a(4, 6, 34), b(5, 7, 35), c(4, 4, 36);
  const strata_tensor ta = a.tensor(), tb = b.tensor(), tc = c.tensor();
  EXPECT_EQ(call("gemm", {ta, tb, tc}), "the tiles of gemm do not fit");
  EXPECT_EQ(call("syrk", {tb, tc}), "the tiles of syrk do not fit");
  EXPECT_EQ(call("trsm", {tc, ta}), "the tiles of trsm do not fit");
  EXPECT_EQ(call("rbf_tile", {ta, tb, tc}, 0.1, 0.0), "the tiles of rbf_tile do not fit");
  EXPECT_EQ(call("forward_solve", {tc, tb}), "the tiles of a solve do not fit");
  EXPECT_EQ(call("backward_solve", {ta, tc}), "the tiles of a solve do not fit");
  EXPECT_EQ(call("forward_update", {ta, tb, tc}), "the tiles of a product do not fit");
  EXPECT_EQ(call("backward_update", {ta, tb, tc}), "the tiles of a product do not fit");
  EXPECT_EQ(call("predict_tile", {ta, tb, tc}), "the tiles of a product do not fit");
  EXPECT_TRUE(a.unchanged() && b.unchanged() && c.unchanged());
}

}  // namespace
