#include "graph/region.h"

#include <gtest/gtest.h>

#include <limits>

#include "views.h"

namespace strata::graph {
namespace {

constexpr uint64_t kHuge = std::numeric_limits<uint64_t>::max();

Region exact(const Tensor& tensor, uint64_t buffer_bytes = 4096) {
  return region_of(tensor, buffer_bytes).value();
}

void expect_refused(const Tensor& tensor, uint64_t buffer_bytes, const char* words) {
  const Result<Region> region = region_of(tensor, buffer_bytes);
  ASSERT_FALSE(region.ok());
  EXPECT_EQ(region.error().code(), Code::kInvalidArgument);
  EXPECT_EQ(region.error().scope(), Scope::kCall);
  EXPECT_NE(region.error().message().find(words), std::string::npos) << region.error().message();
}

TEST(Region, ScalarIsOneElement) {
  EXPECT_EQ(exact(view(DType::kF64, 16, {}, {})), (Region{16, 8, 1, 0, false}));
}

TEST(Region, ContiguousViewIsOneRun) {
  EXPECT_EQ(exact(view(DType::kF32, 4, {10}, {1})), (Region{4, 40, 1, 0, false}));
  EXPECT_EQ(exact(view(DType::kF32, 4, {5, 6}, {6, 1})), (Region{4, 120, 1, 0, false}));
  EXPECT_EQ(exact(view(DType::kF32, 4, {2, 3, 4}, {12, 4, 1})), (Region{4, 96, 1, 0, false}));
  EXPECT_EQ(exact(view(DType::kU8, 0, {1, 7}, {100, 1})), (Region{0, 7, 1, 0, false}));
}

TEST(Region, TileIsARectangle) {
  EXPECT_EQ(exact(view(DType::kF64, 8, {4, 2}, {10, 1})), (Region{8, 16, 4, 80, false}));
  EXPECT_EQ(exact(view(DType::kF64, 8, {2, 2, 2}, {20, 10, 1})), (Region{8, 16, 4, 80, false}));
  EXPECT_EQ(exact(view(DType::kF64, 8, {3}, {10})), (Region{8, 8, 3, 80, false}));
}

TEST(Region, TransposedReversedAndRepeatedViewsNameTheSameBytes) {
  const Region tile{8, 16, 4, 80, false};
  EXPECT_EQ(exact(view(DType::kF64, 8, {2, 4}, {1, 10})), tile);
  EXPECT_EQ(exact(view(DType::kF64, 8 + 240, {4, 2}, {-10, 1})), tile);
  EXPECT_EQ(exact(view(DType::kF64, 16, {4, 2}, {10, -1})), tile);
  EXPECT_EQ(exact(view(DType::kF64, 8, {5, 4, 2}, {0, 10, 1})), tile);
  EXPECT_EQ(exact(view(DType::kU8, 0, {5, 8}, {4, 1})), (Region{0, 24, 1, 0, false}));  // windows
}

TEST(Region, OtherShapesAreCovered) {
  EXPECT_EQ(exact(view(DType::kU8, 3, {2, 2, 2}, {50, 10, 1})), (Region{3, 62, 1, 0, true}));
}

TEST(Region, ZeroExtentNamesNoByteWhereverItPoints) {
  EXPECT_EQ(exact(view(DType::kF64, 100'000, {0}, {1})), Region{});
  EXPECT_EQ(exact(view(DType::kF64, 8, {4, 0}, {10, 1})), Region{});
  EXPECT_EQ(exact(view(DType::kF64, 8, {kHuge, kHuge, 0}, {10, 1, 1})), Region{});
}

TEST(Region, ViewThatLeavesItsBufferIsRefused) {
  EXPECT_TRUE(region_of(view(DType::kF64, 8, {4}, {1}), 40).ok());
  expect_refused(view(DType::kF64, 9, {4}, {1}), 40, "leaves its buffer of 40 bytes above");
  expect_refused(view(DType::kF64, 40, {}, {}), 40, "above");
  expect_refused(view(DType::kF64, 0, {3, 2}, {2, 1}), 47, "shape [3, 2], strides [2, 1]");
  expect_refused(view(DType::kF64, 8, {3}, {-1}), 4096, "below");
}

TEST(Region, NumbersThatOverflowAreRefused) {
  expect_refused(view(DType::kF64, 0, {kHuge}, {1}), kHuge, "overflows");
  expect_refused(view(DType::kF64, 0, {kHuge / 8 + 1}, {1}), kHuge, "overflows");
  expect_refused(view(DType::kU8, kHuge - 3, {8}, {1}), kHuge, "above");
  expect_refused(view(DType::kF64, 0, {1ull << 32, 1ull << 32}, {0, 0}), 64, "overflows");
  const int64_t lowest = std::numeric_limits<int64_t>::min();
  const int64_t highest = std::numeric_limits<int64_t>::max();
  expect_refused(view(DType::kF64, kHuge, {2}, {lowest}), kHuge, "below");
  expect_refused(view(DType::kF64, 0, {2, 1}, {highest, 1}), kHuge, "above");
  expect_refused(view(DType::kU8, 0, {4, 4}, {highest, 1}), kHuge, "above");
  expect_refused(view(DType::kU8, 0, {1ull << 40, 2, 2}, {highest, highest, 1}), kHuge, "above");
}

TEST(Region, UnknownTypesAndRanksAreRefused) {
  expect_refused(view(static_cast<DType>(99), 0, {1}, {1}), 64, "dtype 99");
  Tensor tensor = view(DType::kU8, 0, {1}, {1});
  tensor.rank = 9;
  expect_refused(tensor, 64, "rank 9");
}

TEST(Region, RandomViewsNameTheBytesThatTheyEnumerate) {
  base::Prng prng(1);
  int covers = 0, rectangles = 0, refused = 0;
  for (int i = 0; i < 60'000; ++i) {
    const Tensor tensor = random_view(prng);
    const Result<Region> region = region_of(tensor, kBufferBytes);
    ASSERT_EQ(region.ok(), fits(tensor)) << i;
    refused += !region.ok();
    if (!region.ok()) continue;
    const Bytes bytes = bytes_of(tensor);
    ASSERT_EQ(region->empty(), bytes.none()) << i;
    if (region->empty()) {
      ASSERT_EQ(*region, Region{}) << i;
      continue;
    }
    ASSERT_TRUE(region->rows > 1 ? region->row_bytes < region->pitch : region->pitch == 0) << i;
    ASSERT_TRUE(bytes.test(region->begin) && bytes.test(region->end() - 1)) << i;
    if (region->cover) {
      ASSERT_EQ(region->rows, 1u);
      ASSERT_EQ(bytes & ~bytes_of(*region), Bytes{}) << i;
      ASSERT_NE(bytes, bytes_of(*region)) << i;
    } else {
      ASSERT_EQ(bytes, bytes_of(*region)) << i;
    }
    covers += region->cover;
    rectangles += region->rows > 1;
  }
  EXPECT_GT(covers, 500);
  EXPECT_GT(rectangles, 1'000);
  EXPECT_GT(refused, 1'000);
}

TEST(Overlap, TilesOfOneMatrixAreApart) {
  const Region left{0, 8, 4, 16, false}, right{8, 8, 4, 16, false};
  EXPECT_FALSE(overlap(left, right));
  EXPECT_TRUE(overlap(left, Region::range(24, 33)));
  EXPECT_FALSE(overlap(left, Region::range(24, 32)));
  EXPECT_FALSE(overlap(left, Region{}));
}

TEST(Overlap, OfACoverIsByCover) {
  EXPECT_EQ(overlap_kind(Region{0, 64, 1, 0, true}, Region::range(8, 9)), Overlap::kCover);
  EXPECT_EQ(overlap_kind(Region{0, 4, 4, 16, false}, Region{8, 4, 4, 12, false}), Overlap::kCover);
  EXPECT_EQ(overlap_kind(Region{0, 64, 1, 0, true}, Region::range(64, 65)), Overlap::kNone);
}

// Every pair of rectangles of a pitch, rows that straddle its boundary among them.
TEST(Overlap, IsExactForEveryPairOfOnePitch) {
  for (uint64_t pitch = 2; pitch <= 6; ++pitch) {
    std::vector<Region> regions;
    for (uint64_t begin = 0; begin < 2 * pitch; ++begin) {
      for (uint64_t bytes = 1; bytes < pitch; ++bytes) {
        for (uint64_t rows = 1; rows <= 4; ++rows) {
          regions.push_back({begin, bytes, rows, rows == 1 ? 0 : pitch, false});
        }
      }
    }
    for (uint64_t bytes = pitch; bytes < 3 * pitch; ++bytes) {
      for (uint64_t begin = 0; begin < 3 * pitch; ++begin) {
        regions.push_back(Region::range(begin, begin + bytes));
      }
    }
    for (const Region& a : regions) {
      const Bytes bytes = bytes_of(a);
      for (const Region& b : regions) {
        const Bytes others = bytes_of(b);
        ASSERT_EQ(overlap_kind(a, b), (bytes & others).any() ? Overlap::kExact : Overlap::kNone)
            << a.begin << " " << a.row_bytes << " " << a.rows << " / " << b.begin << " "
            << b.row_bytes << " " << b.rows << " pitch " << pitch;
        ASSERT_EQ(contains(a, b), (others & ~bytes).none());
      }
    }
  }
}

TEST(Overlap, OfRandomViewsNeverMissesAByte) {
  base::Prng prng(2);
  int kinds[3] = {}, held = 0;
  for (int i = 0; i < 60'000; ++i) {
    const Tensor a = random_fitting_view(prng), b = random_fitting_view(prng);
    const Region region_a = region_of(a, kBufferBytes).value();
    const Region region_b = region_of(b, kBufferBytes).value();
    const bool meet = (bytes_of(a) & bytes_of(b)).any();
    const Overlap kind = overlap_kind(region_a, region_b);
    ++kinds[static_cast<int>(kind)];
    ASSERT_EQ(kind, overlap_kind(region_b, region_a)) << i;
    ASSERT_TRUE(!meet || kind != Overlap::kNone) << i;
    ASSERT_TRUE(meet || kind != Overlap::kExact) << i;
    const bool holds = contains(region_a, region_b);
    ASSERT_TRUE(!holds || (bytes_of(b) & ~bytes_of(a)).none()) << i;
    ASSERT_TRUE(!holds || !region_a.cover || region_b.empty()) << i;
    held += holds;
  }
  for (const int count : kinds) EXPECT_GT(count, 3'000);
  EXPECT_GT(held, 1'500);
}

TEST(Overlap, HoldsAtTheEndOfTheAddressSpace) {
  const Region last{kHuge - 64, 8, 4, 16, false};
  EXPECT_EQ(last.end(), kHuge - 8);
  EXPECT_TRUE(overlap(last, Region::range(kHuge - 16, kHuge)));
  EXPECT_FALSE(overlap(last, Region::range(kHuge - 8, kHuge)));
  EXPECT_TRUE(overlap(Region::range(0, kHuge), last));
  EXPECT_TRUE(contains(Region::range(0, kHuge), last));
}

}  // namespace
}  // namespace strata::graph
