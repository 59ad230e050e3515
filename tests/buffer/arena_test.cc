#include "buffer/arena.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/prng.h"

namespace strata::buffer {
namespace {

constexpr uint64_t kMiB = 1 << 20;

// Gives the arena segments as a driver does, and keeps what exists.
class Driver {
 public:
  explicit Driver(uint64_t heap_bytes) : arena(heap_bytes) {}

  Result<Arena::Range> allocate(uint64_t bytes) {
    for (;;) {
      Result<Arena::Allocation> got = arena.allocate(bytes);
      take_droppable();
      if (!got.ok()) return std::move(got).error();
      if (!got->needs_segment) return got->range;
      uint32_t index = 0;
      while (segments.contains(index)) ++index;
      segments[index] = got->segment_bytes;
      arena.add_segment(index, got->segment_bytes);
    }
  }
  void free(const Arena::Range& range) {
    arena.free(range.segment, range.offset);
    take_droppable();
  }
  void take_droppable() {
    std::vector<uint32_t> out;
    arena.take_droppable(&out);
    for (const uint32_t index : out) ASSERT_EQ(segments.erase(index), 1u);
  }
  uint64_t segment_bytes() const {
    uint64_t sum = 0;
    for (const auto& [index, bytes] : segments) sum += bytes;
    return sum;
  }

  Arena arena;
  std::map<uint32_t, uint64_t> segments;  // bytes by index
};

TEST(Arena, SmallBuffersShareOneSlab) {
  Driver driver(64 * kMiB);
  for (const uint64_t bytes : {1, 64, 65, 4096, 4097, 100'000, 256 * 1024}) {
    const Arena::Range range = driver.allocate(bytes).value();
    EXPECT_EQ(range.segment, 0u);
    EXPECT_GE(range.bytes, bytes);
    EXPECT_EQ(range.bytes, Arena::rounded(bytes));
  }
  EXPECT_EQ(driver.segments, (std::map<uint32_t, uint64_t>{{0, 4 * kMiB}}));
}

TEST(Arena, LargeBuffersHaveASegmentOfTheirOwnThatGoesWithThem) {
  Driver driver(64 * kMiB);
  const Arena::Range range = driver.allocate(256 * 1024 + 1).value();
  EXPECT_EQ(range.offset, 0u);
  EXPECT_EQ(range.bytes, 256 * 1024u + 4096);
  EXPECT_TRUE(range.zero);
  EXPECT_EQ(driver.segments.at(range.segment), range.bytes);
  driver.free(range);
  EXPECT_TRUE(driver.segments.empty());
  EXPECT_EQ(driver.arena.segment_bytes(), 0u);
}

TEST(Arena, RoundsByLittle) {
  EXPECT_EQ(Arena::rounded(0), 0u);
  uint64_t last = 0;
  for (uint64_t bytes = 1; bytes <= 300 * 1024; ++bytes) {
    const uint64_t rounded = Arena::rounded(bytes);
    ASSERT_GE(rounded, bytes);
    ASSERT_GE(rounded, last);
    ASSERT_EQ(rounded % (bytes >= 4096 ? 4096 : 64), 0u) << bytes;
    if (bytes <= 256) {
      ASSERT_LT(rounded, bytes + 64);
    } else if (bytes < 4096 || (bytes > 16 * 1024 && bytes <= 32 * 1024)) {
      ASSERT_LE(rounded, bytes + bytes / 4) << bytes;
    } else if (bytes <= 256 * 1024) {
      ASSERT_LE(rounded, 2 * bytes);
    } else {
      ASSERT_LT(rounded, bytes + 4096);
    }
    last = rounded;
  }
}

TEST(Arena, RunThatIsEmptyServesAnyClassAgain) {
  Driver driver(4 * kMiB);
  for (const uint64_t bytes : {64, 5000, 40'000, 200'000, 64}) {
    std::vector<Arena::Range> ranges;
    while (true) {
      const Result<Arena::Range> got = driver.allocate(bytes);
      if (!got.ok()) break;
      ranges.push_back(*got);
    }
    EXPECT_EQ(ranges.size(), 16 * (256 * 1024 / Arena::rounded(bytes)));
    for (const Arena::Range& range : ranges) driver.free(range);
    EXPECT_EQ(driver.arena.used_bytes(), 0u);
  }
  EXPECT_EQ(driver.segments.size(), 1u);
}

TEST(Arena, FullHeapIsACleanError) {
  Driver driver(kMiB);
  const Arena::Range half = driver.allocate(512 * 1024).value();
  const auto refused = driver.allocate(512 * 1024 + 1);
  EXPECT_EQ(refused.error().code(), Code::kResourceExhausted);
  EXPECT_NE(refused.error().message().find("Limits::heap_bytes"), std::string::npos);
  EXPECT_TRUE(driver.allocate(100).ok());  // a slab of what is left
  EXPECT_LE(driver.segment_bytes(), kMiB);
  driver.free(half);
  EXPECT_FALSE(driver.arena.allocate(kMiB + 1).ok());
  EXPECT_FALSE(driver.arena.allocate(~uint64_t{0}).ok());
  EXPECT_EQ(driver.arena.allocate(0).error().code(), Code::kInvalidArgument);
}

TEST(Arena, IdleSlabsMakeRoomForLargeBuffers) {
  Driver driver(4 * kMiB);
  driver.free(driver.allocate(64).value());
  EXPECT_EQ(driver.segment_bytes(), 4 * kMiB);
  const Arena::Range all = driver.allocate(4 * kMiB).value();
  EXPECT_EQ(driver.segment_bytes(), 4 * kMiB);
  driver.free(all);
  EXPECT_TRUE(driver.allocate(64).ok());
}

TEST(Arena, SegmentThatNobodyTookIsTrimmed) {
  Arena arena(64 * kMiB);
  const auto got = arena.allocate(kMiB).value();
  ASSERT_TRUE(got.needs_segment);
  arena.add_segment(7, got.segment_bytes);
  arena.trim();
  std::vector<uint32_t> droppable;
  arena.take_droppable(&droppable);
  EXPECT_EQ(droppable, std::vector<uint32_t>{7});
  EXPECT_EQ(arena.segment_bytes(), 0u);
}

TEST(ArenaDeathTest, FreeOfWhatIsNotLiveStopsTheProcess) {
  Driver driver(64 * kMiB);
  const Arena::Range a = driver.allocate(64).value(), b = driver.allocate(64).value();
  driver.arena.free(a.segment, a.offset);
  EXPECT_DEATH(driver.arena.free(a.segment, a.offset), "broken invariant");
  EXPECT_DEATH(driver.arena.free(b.segment, b.offset + 1), "broken invariant");
  EXPECT_DEATH(driver.arena.free(b.segment, 512 * 1024), "broken invariant");
  EXPECT_DEATH(driver.arena.free(9, 0), "broken invariant");
}

uint64_t random_size(base::Prng& prng) {
  switch (prng.below(4)) {
    case 0:
      return prng.between(1, 4096);
    case 1:
      return prng.between(4096, 256 * 1024);
    case 2:
      return prng.between(256 * 1024 + 1, 3 * kMiB);
    default:
      return uint64_t{1} << prng.below(20);
  }
}

// Against the set of live ranges: inside their segment, aligned, never overlapping; all comes back.
TEST(Arena, RandomLivesNeverOverlapAndAllIsReturned) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    base::Prng prng(seed);
    const uint64_t heap = prng.between(1, 40) * kMiB;
    Driver driver(heap);
    std::map<std::pair<uint32_t, uint64_t>, Arena::Range> live;  // by place
    uint64_t used = 0, refused = 0;
    for (int step = 0; step < 3000; ++step) {
      if (live.empty() || prng.chance(step % 1000 < 600 ? 6 : 3, 10)) {
        const uint64_t bytes = random_size(prng);
        const Result<Arena::Range> got = driver.allocate(bytes);
        if (!got.ok()) {
          ++refused;
          ASSERT_EQ(got.error().code(), Code::kResourceExhausted);
          ASSERT_GT(driver.segment_bytes() + std::max(bytes, Arena::kRunBytes), heap - 4096);
          continue;
        }
        ASSERT_GE(got->bytes, bytes);
        ASSERT_EQ(got->offset % (bytes >= 4096 ? 4096 : 64), 0u);
        ASSERT_LE(got->offset + got->bytes, driver.segments.at(got->segment));
        const auto after = live.lower_bound({got->segment, got->offset});
        if (after != live.end() && after->first.first == got->segment) {
          ASSERT_LE(got->offset + got->bytes, after->second.offset);
        }
        if (after != live.begin()) {
          const Arena::Range& before = std::prev(after)->second;
          if (before.segment == got->segment) {
            ASSERT_LE(before.offset + before.bytes, got->offset);
          }
        }
        live[{got->segment, got->offset}] = *got;
        used += got->bytes;
      } else {
        auto it = live.begin();
        std::advance(it, static_cast<std::ptrdiff_t>(prng.below(live.size())));
        driver.free(it->second);
        used -= it->second.bytes;
        live.erase(it);
      }
      ASSERT_EQ(driver.arena.used_bytes(), used);
      ASSERT_EQ(driver.arena.segment_bytes(), driver.segment_bytes());
      ASSERT_LE(driver.segment_bytes(), heap);
      for (const auto& [place, range] : live) {
        ASSERT_TRUE(driver.segments.contains(place.first));
      }
      if (prng.chance(1, 200)) {
        driver.arena.trim();
        driver.take_droppable();
      }
    }
    for (const auto& [place, range] : live) driver.free(range);
    driver.arena.trim();
    driver.take_droppable();
    EXPECT_EQ(driver.arena.used_bytes(), 0u);
    EXPECT_EQ(driver.arena.segment_bytes(), 0u);
    EXPECT_TRUE(driver.segments.empty());
  }
}

}  // namespace
}  // namespace strata::buffer
