#include "graph/poison.h"

#include <gtest/gtest.h>

#include <array>
#include <set>

#include "views.h"

namespace strata::graph {
namespace {

using Range = PoisonMap::Range;

std::vector<Range> ranges_of(const PoisonMap& map, uint32_t buffer) {
  const std::span<const Range> ranges = map.ranges(buffer);
  return {ranges.begin(), ranges.end()};
}

TEST(PoisonMap, ReaderOfAPoisonedByteGetsItsCause) {
  PoisonMap map;
  EXPECT_FALSE(map.any(3));
  map.poison(3, Region::range(10, 20), 7);
  EXPECT_TRUE(map.any(3));
  EXPECT_FALSE(map.any(2));
  EXPECT_EQ(map.cause_of(3, Region::range(0, 11)), 7u);
  EXPECT_EQ(map.cause_of(3, Region::range(19, 30)), 7u);
  EXPECT_EQ(map.cause_of(3, Region::range(0, 10)), std::nullopt);
  EXPECT_EQ(map.cause_of(3, Region::range(20, 30)), std::nullopt);
  EXPECT_EQ(map.cause_of(2, Region::range(0, 11)), std::nullopt);
  EXPECT_EQ(map.cause_of(3, Region{}), std::nullopt);
}

TEST(PoisonMap, HealRemovesExactlyTheRowsOfARectangle) {
  PoisonMap map;
  map.poison(0, Region::range(0, 40), 1);
  map.heal(0, Region{5, 5, 3, 10, false});
  EXPECT_EQ(ranges_of(map, 0),
            (std::vector<Range>{{0, 5, 1}, {10, 15, 1}, {20, 25, 1}, {30, 40, 1}}));
  EXPECT_EQ(map.cause_of(0, Region{5, 5, 3, 10, false}), std::nullopt);
  EXPECT_EQ(map.cause_of(0, Region{5, 5, 4, 10, false}), 1u);
  map.heal(0, Region::range(0, 40));
  EXPECT_FALSE(map.any(0));
  EXPECT_FALSE(map.any());
}

TEST(PoisonMap, RangesThatTouchCoalesce) {
  PoisonMap map;
  map.poison(0, Region{0, 5, 3, 10, false}, 1);
  EXPECT_EQ(map.ranges(0).size(), 3u);
  map.poison(0, Region{5, 5, 3, 10, false}, 1);
  EXPECT_EQ(ranges_of(map, 0), (std::vector<Range>{{0, 30, 1}}));
  map.poison(0, Region::range(30, 40), 2);
  EXPECT_EQ(ranges_of(map, 0), (std::vector<Range>{{0, 30, 1}, {30, 40, 2}}));
}

TEST(PoisonMap, NewestCauseExplainsAByteAndTheLowestByteAnswers) {
  PoisonMap map;
  map.poison(0, Region::range(0, 30), 1);
  map.poison(0, Region::range(10, 20), 2);
  EXPECT_EQ(map.cause_of(0, Region::range(12, 25)), 2u);
  EXPECT_EQ(map.cause_of(0, Region::range(5, 25)), 1u);
}

TEST(PoisonMap, CoverHealsNothingAndReadsItsWholeRange) {
  PoisonMap map;
  map.poison(0, Region::range(4, 6), 1);
  map.heal(0, Region{0, 10, 1, 0, true});
  EXPECT_TRUE(map.any(0));
  EXPECT_EQ(map.cause_of(0, Region{0, 10, 1, 0, true}), 1u);
  map.poison(1, Region{0, 10, 1, 0, true}, 2);
  EXPECT_EQ(map.cause_of(1, Region::range(9, 10)), 2u);
}

TEST(PoisonMap, FailedTileLeavesTheTilesBesideItReadable) {
  PoisonMap map;
  const uint64_t rows = PoisonMap::kRangesMax;
  map.poison(0, Region{64, 64, rows, 1024, false}, 1);
  EXPECT_EQ(map.ranges(0).size(), rows);
  EXPECT_EQ(map.cause_of(0, Region{0, 64, rows, 1024, false}), std::nullopt);
  EXPECT_EQ(map.cause_of(0, Region{0, 65, rows, 1024, false}), 1u);
}

TEST(PoisonMap, BeyondTheBoundAllBetweenIsPoisonedUntilItIsWritten) {
  PoisonMap map;
  const uint64_t rows = PoisonMap::kRangesMax;
  map.poison(0, Region::range(100, 101), 5);
  map.poison(0, Region{1000, 1, rows, 2, false}, 6);
  EXPECT_EQ(ranges_of(map, 0), (std::vector<Range>{{100, 1000 + 2 * rows - 1, 5}}));
  map.poison(0, Region{0, 1, 1'000'000'000'000, 2, false}, 7);  // costs no more than the bound
  EXPECT_EQ(ranges_of(map, 0), (std::vector<Range>{{0, 1'999'999'999'999, 7}}));
  map.heal(0, Region{10, 1, 2 * rows, 2, false});  // would leave more than the bound
  EXPECT_EQ(map.ranges(0).size(), 1u);
  map.heal(0, Region{10, 1, rows - 1, 2, false});
  EXPECT_EQ(map.ranges(0).size(), rows);
  map.heal(0, Region::range(0, 2'000'000'000'000));
  EXPECT_FALSE(map.any(0));
  map.poison(0, Region::range(1'000'000, 1'000'001), 5);
  map.poison(0, Region{1000, 1, rows, 2, false}, 6);
  EXPECT_EQ(ranges_of(map, 0), (std::vector<Range>{{1000, 1'000'001, 6}}));
}

TEST(PoisonMap, ClearAndDropForgetOneBuffer) {
  PoisonMap map;
  for (uint32_t buffer = 0; buffer < 4; ++buffer) {
    map.poison(buffer, Region::range(0, 8), 10 + buffer);
  }
  map.clear(0);
  map.drop_buffer(2);
  map.clear(2);
  EXPECT_FALSE(map.any(0));
  EXPECT_EQ(map.cause_of(1, Region::range(0, 1)), 11u);
  EXPECT_FALSE(map.any(2));
  EXPECT_EQ(map.cause_of(3, Region::range(0, 1)), 13u);
  std::set<uint32_t> causes;
  map.for_each_cause([&](uint32_t cause) { causes.insert(cause); });
  EXPECT_EQ(causes, (std::set<uint32_t>{11, 13}));
}

TEST(PoisonMap, RandomCallsAgreeWithAnArrayOfBytes) {
  constexpr uint32_t kBuffers = 3;
  for (uint64_t seed = 0; seed < 150; ++seed) {
    base::Prng prng(seed);
    PoisonMap map;
    std::array<std::array<uint32_t, kBufferBytes>, kBuffers> model{};  // cause, or 0
    for (int step = 0; step < 300; ++step) {
      const uint32_t buffer = static_cast<uint32_t>(prng.below(kBuffers));
      const Region region = region_of(random_fitting_view(prng), kBufferBytes).value();
      const Bytes bytes = bytes_of(region);
      std::array<uint32_t, kBufferBytes>& causes = model[buffer];
      const uint64_t what = prng.below(20);
      const uint32_t cause = static_cast<uint32_t>(prng.between(1, 3));
      if (what < 7) map.poison(buffer, region, cause);
      if (what >= 7 && what < 19) map.heal(buffer, region);
      if (what == 19) map.clear(buffer);
      std::optional<uint32_t> lowest;
      for (uint64_t i = 0; i < kBufferBytes; ++i) {
        if (what == 19 || (what >= 7 && bytes.test(i) && !region.cover)) causes[i] = 0;
        if (what < 7 && bytes.test(i)) causes[i] = cause;
      }
      const Region asked = region_of(random_fitting_view(prng), kBufferBytes).value();
      const Bytes asked_bytes = bytes_of(asked);
      std::vector<Range> ranges;
      for (uint64_t i = 0; i < kBufferBytes; ++i) {
        if (causes[i] == 0) continue;
        if (asked_bytes.test(i) && !lowest) lowest = causes[i];
        if (!ranges.empty() && ranges.back().end == i && ranges.back().cause == causes[i]) {
          ++ranges.back().end;
        } else {
          ranges.push_back({i, i + 1, causes[i]});
        }
      }
      ASSERT_EQ(ranges_of(map, buffer), ranges) << "seed " << seed << " step " << step;
      ASSERT_EQ(map.any(buffer), !ranges.empty());
      ASSERT_EQ(map.cause_of(buffer, asked), lowest) << "seed " << seed << " step " << step;
    }
  }
}

}  // namespace
}  // namespace strata::graph
