#include "device/runs.h"

#include <gtest/gtest.h>

#include <set>

#include "base/prng.h"

namespace strata::device {
namespace {

strata_tensor view(DType dtype, std::initializer_list<uint64_t> shape,
                   std::initializer_list<int64_t> stride) {
  strata_tensor t{};
  t.dtype = static_cast<uint8_t>(dtype);
  t.rank = static_cast<uint8_t>(shape.size());
  std::copy(shape.begin(), shape.end(), t.shape);
  std::copy(stride.begin(), stride.end(), t.stride);
  return t;
}

TEST(Runs, AContiguousViewIsOneRun) {
  const Runs runs(view(DType::kF32, {4, 8}, {8, 1}), 100);
  EXPECT_EQ(runs.count(), 1u);
  EXPECT_EQ(runs.begin(), 100u);
  EXPECT_EQ(runs.run_bytes(), 128u);
  EXPECT_EQ(runs.extent(), 128u);
}

TEST(Runs, ABlockIsOneRunForEachRowAndATransposedOneToo) {
  for (const auto& t : {view(DType::kF64, {3, 4}, {10, 1}), view(DType::kF64, {4, 3}, {1, 10})}) {
    const Runs runs(t, 16);
    EXPECT_EQ(runs.count(), 3u);
    EXPECT_EQ(runs.run_bytes(), 32u);
    EXPECT_EQ(runs.extent(), 2 * 80 + 32u);
    std::vector<uint64_t> begins;
    runs.for_each([&](uint64_t offset) { return begins.push_back(offset), true; });
    EXPECT_EQ(begins, (std::vector<uint64_t>{16, 96, 176}));
  }
}

TEST(Runs, BlocksOf32ValuesAreElements) {
  const Runs runs(view(DType::kMxF4E2M1, {2, 4}, {8, 1}), 0);
  EXPECT_EQ(runs.run_bytes(), 4 * 17u);
  EXPECT_EQ(runs.extent(), 12 * 17u);
}

TEST(Runs, AViewWithoutElementsHasNone) {
  const Runs runs(view(DType::kF64, {3, 0}, {10, 1}), 16);
  EXPECT_EQ(runs.count(), 0u);
  EXPECT_EQ(runs.extent(), 0u);
}

TEST(Runs, EndsWhereItIsToldTo) {
  const Runs runs(view(DType::kU8, {5}, {2}), 0);
  int seen = 0;
  EXPECT_FALSE(runs.for_each([&](uint64_t) { return ++seen < 3; }));
  EXPECT_EQ(seen, 3);
}

// The bytes of every element, by counting up its coordinates.
std::set<uint64_t> brute(const strata_tensor& t, uint64_t first) {
  std::set<uint64_t> out;
  std::array<uint64_t, STRATA_TENSOR_RANK_MAX> at{};
  for (uint32_t d = 0; d < t.rank; ++d) {
    if (t.shape[d] == 0) return out;
  }
  for (;;) {
    int64_t element = 0;
    for (uint32_t d = 0; d < t.rank; ++d) element += static_cast<int64_t>(at[d]) * t.stride[d];
    const uint64_t bytes = size_of(static_cast<DType>(t.dtype));
    for (uint64_t b = 0; b < bytes; ++b) {
      out.insert(first + static_cast<uint64_t>(element * static_cast<int64_t>(bytes)) + b);
    }
    int d = t.rank - 1;
    while (d >= 0 && ++at[d] == t.shape[d]) at[d--] = 0;
    if (d < 0) return out;
  }
}

TEST(Runs, TogetherAreExactlyTheBytesOfRandomViews) {
  base::Prng prng(7);
  for (int round = 0; round < 20'000; ++round) {
    strata_tensor t{};
    t.dtype = static_cast<uint8_t>(prng.between(1, 18));
    t.rank = static_cast<uint8_t>(prng.below(5));
    for (uint32_t d = 0; d < t.rank; ++d) {
      t.shape[d] = prng.chance(1, 15) ? 0 : prng.between(1, 4);
      t.stride[d] = static_cast<int64_t>(prng.below(25)) - 12;
    }
    constexpr uint64_t kFirst = 100'000;
    const Runs runs(t, kFirst);
    std::set<uint64_t> got;
    runs.for_each([&](uint64_t offset) {
      for (uint64_t b = 0; b < runs.run_bytes(); ++b) got.insert(offset + b);
      return true;
    });
    const std::set<uint64_t> expect = brute(t, kFirst);
    ASSERT_EQ(got, expect) << round;
    if (expect.empty()) continue;
    ASSERT_EQ(runs.begin(), *expect.begin());
    ASSERT_EQ(runs.begin() + runs.extent(), *expect.rbegin() + 1);
  }
}

}  // namespace
}  // namespace strata::device
