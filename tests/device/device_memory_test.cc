#include "device/device_memory.h"

#include <gtest/gtest.h>

#include <map>

#include "base/prng.h"

namespace strata::device {
namespace {

TEST(DeviceMemory, GivesRangesUntilItIsFullAndThenNone) {
  DeviceMemory memory(1024);
  EXPECT_EQ(memory.allocate(1), 0u);
  EXPECT_EQ(memory.allocate(64), 64u);
  EXPECT_EQ(memory.allocate(65), 128u);
  EXPECT_EQ(memory.used(), 256u);
  EXPECT_EQ(memory.allocate(769), std::nullopt);
  EXPECT_EQ(memory.allocate(768), 256u);
  EXPECT_EQ(memory.allocate(1), std::nullopt);
  EXPECT_EQ(memory.largest_gap(), 0u);
  EXPECT_EQ(memory.allocate(~uint64_t{0}), std::nullopt);
}

TEST(DeviceMemory, JoinsFreeNeighboursOnBothSides) {
  DeviceMemory memory(192);
  memory.allocate(64);
  memory.allocate(64);
  memory.allocate(64);
  memory.free(0);
  memory.free(128);
  EXPECT_EQ(memory.allocate(128), std::nullopt);
  EXPECT_EQ(memory.largest_gap(), 64u);
  memory.free(64);
  EXPECT_EQ(memory.allocate(192), 0u);
  EXPECT_EQ(memory.peak(), 192u);
}

TEST(DeviceMemory, NeverGivesAByteTwiceAndForgetsNone) {
  base::Prng prng(1);
  DeviceMemory memory(64 * 1024);
  std::map<uint64_t, uint64_t> live;
  for (int round = 0; round < 20'000; ++round) {
    if (!live.empty() && prng.chance(1, 2)) {
      auto it = live.begin();
      std::advance(it, prng.below(live.size()));
      memory.free(it->first);
      live.erase(it);
      continue;
    }
    const uint64_t bytes = prng.between(1, 4096);
    const auto got = memory.allocate(bytes);
    if (!got) continue;
    EXPECT_EQ(*got % DeviceMemory::kAlignBytes, 0u);
    ASSERT_LE(*got + bytes, memory.bytes());
    const auto next = live.lower_bound(*got);
    if (next != live.end()) {
      ASSERT_LE(*got + bytes, next->first);
    }
    if (next != live.begin()) {
      ASSERT_LE(std::prev(next)->first + std::prev(next)->second, *got);
    }
    live.emplace(*got, bytes);
  }
  for (const auto& [offset, bytes] : live) memory.free(offset);
  EXPECT_EQ(memory.used(), 0u);
  EXPECT_EQ(memory.largest_gap(), memory.bytes());
}

}  // namespace
}  // namespace strata::device
