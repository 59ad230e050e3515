#include "graph/tensor_map.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "views.h"

namespace strata::graph {
namespace {

struct Edge {
  uint32_t producer;
  bool by_cover;
  friend auto operator<=>(const Edge&, const Edge&) = default;
};
using Edges = std::vector<Edge>;

constexpr TensorMap::Limits kSmall{.tasks = 64,
                                   .buffers = 8,
                                   .accesses = 256,
                                   .idle_cells = 64,
                                   .idle_of_buffer = 32,
                                   .links = 1024};

// The edges of one access, sorted, each once.
Edges add(TensorMap& map, uint32_t task, uint32_t buffer, const Region& region, bool reads,
          bool writes) {
  Edges edges;
  map.add(task, buffer, region, reads, writes,
          [&](uint32_t producer, bool by_cover) {
            edges.push_back({producer, by_cover});
          })
      .value();
  std::sort(edges.begin(), edges.end());
  edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
  return edges;
}
Edges read(TensorMap& map, uint32_t task, const Region& region, uint32_t buffer = 0) {
  return add(map, task, buffer, region, true, false);
}
Edges write(TensorMap& map, uint32_t task, const Region& region, uint32_t buffer = 0) {
  return add(map, task, buffer, region, false, true);
}

const Region kAll = Region::range(0, 64);
const Region kLeft{0, 8, 4, 16, false};   // the left half of a matrix of 4 rows of 16 bytes
const Region kRight{8, 8, 4, 16, false};  // its right half
const Region kCover{0, 64, 1, 0, true};

TEST(TensorMap, ReaderAfterWriterIsOrdered) {
  TensorMap map(kSmall);
  EXPECT_EQ(write(map, 0, kAll), Edges{});
  EXPECT_EQ(read(map, 1, kAll), (Edges{{0, false}}));
  EXPECT_EQ(read(map, 2, kAll), (Edges{{0, false}}));
}

TEST(TensorMap, ReadersAreNotOrdered) {
  TensorMap map(kSmall);
  EXPECT_EQ(read(map, 0, kAll), Edges{});
  EXPECT_EQ(read(map, 1, kAll), Edges{});
  EXPECT_EQ(read(map, 2, kLeft), Edges{});
}

TEST(TensorMap, WriterAfterReadersAndWriterIsOrdered) {
  TensorMap map(kSmall);
  write(map, 0, kAll);
  read(map, 1, kAll);
  read(map, 2, kAll);
  EXPECT_EQ(write(map, 3, kAll), (Edges{{0, false}, {1, false}, {2, false}}));
}

TEST(TensorMap, WriterStandsForWhatItCameAfter) {
  TensorMap map(kSmall);
  write(map, 0, kLeft);
  read(map, 1, kRight);
  EXPECT_EQ(add(map, 2, 0, kAll, true, true), (Edges{{0, false}, {1, false}}));
  EXPECT_EQ(write(map, 3, kLeft), (Edges{{2, false}}));
  EXPECT_EQ(read(map, 4, kRight), (Edges{{2, false}}));
}

TEST(TensorMap, WriterOfAPartDoesNotStandForTheWhole) {
  TensorMap map(kSmall);
  write(map, 0, kAll);
  EXPECT_EQ(write(map, 1, kLeft), (Edges{{0, false}}));
  EXPECT_EQ(read(map, 2, kRight), (Edges{{0, false}}));
  EXPECT_EQ(read(map, 3, kLeft), (Edges{{0, false}, {1, false}}));
}

TEST(TensorMap, BytesApartMakeNoEdge) {
  TensorMap map(kSmall);
  write(map, 0, kLeft);
  EXPECT_EQ(write(map, 1, kRight), Edges{});
  EXPECT_EQ(write(map, 2, kLeft, 1), Edges{});
  EXPECT_EQ(map.links(), 0u);
}

TEST(TensorMap, TaskIsNotOrderedAfterItself) {
  TensorMap map(kSmall);
  EXPECT_EQ(read(map, 0, kLeft), Edges{});
  EXPECT_EQ(write(map, 0, kAll), Edges{});
  EXPECT_EQ(write(map, 0, kAll), Edges{});
  EXPECT_EQ(read(map, 0, kAll), Edges{});
  EXPECT_EQ(read(map, 0, kLeft), Edges{});
  EXPECT_EQ(write(map, 1, kRight), (Edges{{0, false}}));
  map.remove(1);
  map.remove(0);
  EXPECT_EQ(map.live_accesses(), 0u);
}

TEST(TensorMap, TaskThatNamesABlockTwiceHasOneAccessOfIt) {
  TensorMap map(kSmall);
  read(map, 0, kLeft);
  read(map, 0, kLeft);
  EXPECT_EQ(map.live_accesses(), 1u);
  write(map, 1, kRight);
  read(map, 1, kRight);
  EXPECT_EQ(map.live_accesses(), 2u);
}

TEST(TensorMap, EdgesOfCoversAreMarked) {
  TensorMap map(kSmall);
  write(map, 0, kCover);
  EXPECT_EQ(read(map, 1, kLeft), (Edges{{0, true}}));
  EXPECT_EQ(write(map, 2, kCover), (Edges{{0, true}, {1, true}}));
  // A cover is not known to have written what another names: task 1 still reads the left half.
  EXPECT_EQ(write(map, 3, kLeft), (Edges{{1, false}, {2, true}}));
}

TEST(TensorMap, WhatIsDoneIsForgotten) {
  TensorMap map(kSmall);
  write(map, 0, kAll);
  map.remove(0);
  EXPECT_EQ(read(map, 1, kAll), Edges{});
  read(map, 2, kAll);
  read(map, 3, kAll);
  map.remove(2);
  EXPECT_EQ(write(map, 4, kAll), (Edges{{1, false}, {3, false}}));
  map.remove(63);  // had no access
  EXPECT_EQ(map.live_accesses(), 3u);
  EXPECT_EQ(map.live_cells(), 1u);
}

TEST(TensorMap, NothingIsNoAccess) {
  TensorMap map(kSmall);
  write(map, 0, Region{});
  add(map, 1, 0, kAll, false, false);
  EXPECT_EQ(map.live_accesses(), 0u);
  EXPECT_EQ(map.cells(), 0u);
}

TEST(TensorMap, DroppedBufferLeavesNothingToItsSuccessor) {
  TensorMap map(kSmall);
  write(map, 0, kAll);
  read(map, 0, kLeft);
  map.remove(0);
  EXPECT_EQ(map.cells(), 2u);
  map.drop_buffer(0);
  map.drop_buffer(5);
  EXPECT_EQ(map.cells(), 0u);
  EXPECT_EQ(map.links(), 0u);
  EXPECT_EQ(read(map, 1, kAll), Edges{});
}

TEST(TensorMapDeathTest, DropOfABufferInUseStopsTheProcess) {
  TensorMap map(kSmall);
  write(map, 0, kAll);
  EXPECT_DEATH(map.drop_buffer(0), "idle");
}

TEST(TensorMap, IdleCellsOfAllBuffersStayWithinTheirLimitAndTheOldestGo) {
  TensorMap map(kSmall);
  for (uint64_t i = 0; i < 5'000; ++i) {
    write(map, 0, Region::range(8 * i, 8 * i + 8), static_cast<uint32_t>(i % 8));
    map.remove(0);
    ASSERT_LE(map.cells(), kSmall.idle_cells * 3 / 2 + 1);
    if (i < 8) continue;
    ASSERT_TRUE(map.has_cell(static_cast<uint32_t>(i % 8), Region::range(8 * i - 64, 8 * i - 56)));
  }
}

TEST(TensorMap, IdleCellsOfOneBufferStayWithinTheirLimitAndTheOldestGo) {
  TensorMap map(TensorMap::Limits{.idle_of_buffer = 32});
  for (uint64_t i = 0; i < 5'000; ++i) {
    write(map, 0, Region::range(8 * i, 8 * i + 8));
    map.remove(0);
    ASSERT_LE(map.cells(), 32u + 32u / 2 + 1);
    ASSERT_TRUE(i < 8 || map.has_cell(0, Region::range(8 * i - 64, 8 * i - 56)));
  }
}

TEST(TensorMap, RegionThatGrowsKeepsItsYoungestNeighbours) {
  TensorMap map(TensorMap::Limits{.idle_of_buffer = 1 << 20});
  for (uint32_t i = 2; i < 5'000; ++i) {
    EXPECT_EQ(write(map, i, Region::range(0, i)), i == 2 ? Edges{} : (Edges{{i - 1, false}}));
    if (i > 2) map.remove(i - 1);
    ASSERT_LE(map.cells(), TensorMap::kIdleNeighboursMax + 2);
    for (uint32_t back = 1; back < TensorMap::kIdleNeighboursMax && back < i - 2; ++back) {
      ASSERT_TRUE(map.has_cell(0, Region::range(0, i - back))) << i << " " << back;
    }
    // One that is read each time stays, however old it is.
    ASSERT_TRUE(i == 2 || map.has_cell(0, Region::range(0, 1)));
    EXPECT_EQ(read(map, 1, Region::range(0, 1)), (Edges{{i, false}}));
    map.remove(1);
  }
}

TEST(TensorMap, ManyCellsAreFoundAgainAfterOthersWereDropped) {
  TensorMap map(TensorMap::Limits{});
  for (const uint64_t each : {60, 500}) {  // nearly half a table, then one that grows
    const auto touch_all = [&](uint32_t skipped) {
      for (uint32_t buffer = 0; buffer < 8; ++buffer) {
        for (uint64_t i = 0; i < each && buffer != skipped; ++i) {
          write(map, 0, Region::range(8 * i, 8 * i + 8), buffer);
          map.remove(0);
        }
      }
    };
    touch_all(8);
    EXPECT_EQ(map.cells(), 8 * each);
    for (uint32_t dropped = 0; dropped < 8; ++dropped) {
      map.drop_buffer(dropped);
      touch_all(dropped);
      EXPECT_EQ(map.cells(), 7 * each);
      touch_all(8);
    }
  }
}

TEST(TensorMap, LimitOfAccessesIsAnErrorThatRecordsNothing) {
  TensorMap::Limits limits = kSmall;
  limits.accesses = 3;
  TensorMap map(limits);
  for (uint32_t task = 0; task < 3; ++task) read(map, task, Region::range(task, task + 1));
  int edges = 0;
  const Result<void> full = map.add(3, 0, kAll, false, true, [&](uint32_t, bool) { ++edges; });
  ASSERT_FALSE(full.ok());
  EXPECT_EQ(full.error().code(), Code::kResourceExhausted);
  EXPECT_EQ(full.error().scope(), Scope::kCall);
  EXPECT_NE(full.error().message().find("`accesses` is 3"), std::string::npos);
  EXPECT_EQ(edges, 0);
  EXPECT_EQ(map.cells(), 3u);
  map.remove(1);
  EXPECT_EQ(write(map, 3, kAll), (Edges{{0, false}, {2, false}}));
  const TensorMap::Access two[] = {{0, kAll, true, false}, {1, kAll, true, false}};
  map.remove(0);
  EXPECT_FALSE(map.reserve(two).ok());
  map.remove(2);
  EXPECT_TRUE(map.reserve(two).ok());
}

TEST(TensorMap, LimitOfLinksIsAnErrorThatRecordsNothing) {
  TensorMap::Limits limits = kSmall;
  limits.links = 10;
  TensorMap map(limits);
  for (uint32_t task = 0; task < 5; ++task) read(map, task, Region::range(0, task + 1));
  EXPECT_EQ(map.links(), 10u);
  const TensorMap::Access next[] = {{0, Region::range(0, 6), false, true}};
  EXPECT_EQ(map.reserve(next).error().code(), Code::kResourceExhausted);
  const Result<void> full =
      map.add(5, 0, Region::range(0, 6), false, true, [](uint32_t, bool) { FAIL(); });
  ASSERT_FALSE(full.ok());
  EXPECT_NE(full.error().message().find("`links` is 10"), std::string::npos);
  EXPECT_EQ(map.live_accesses(), 5u);
  EXPECT_EQ(map.cells(), 5u);
  map.remove(0);  // its idle cell makes room
  map.remove(1);
  EXPECT_TRUE(map.reserve(next).ok());
  EXPECT_EQ(write(map, 5, Region::range(0, 6)), (Edges{{2, false}, {3, false}, {4, false}}));
}

// A model that keeps the bytes of every live access, and the transitive closure of the edges.
class ByteModel {
 public:
  static constexpr uint32_t kTasks = 24;
  static constexpr uint32_t kBuffers = 3;
  using TaskSet = std::bitset<kTasks>;

  ByteModel(uint64_t seed, const TensorMap::Limits& limits) : prng_(seed), map_(limits) {}

  void step() {
    if (prng_.chance(1, 2)) {
      submit();
    } else {
      remove_one();
    }
    if (prng_.chance(1, 16)) drop_one_buffer();
  }
  void finish() {
    while (live_.any()) remove_one();
    EXPECT_EQ(map_.live_accesses(), 0u);
    EXPECT_EQ(map_.live_cells(), 0u);
    for (uint32_t buffer = 0; buffer < kBuffers; ++buffer) map_.drop_buffer(buffer);
    EXPECT_EQ(map_.cells(), 0u);
    EXPECT_EQ(map_.links(), 0u);
  }
  int refused = 0;
  int conflicts = 0;
  int exact_edges = 0;
  int cover_edges = 0;

 private:
  struct ByteAccess {
    uint32_t buffer;
    Bytes bytes;
    bool writes;
  };
  static bool meet(const ByteAccess& a, const ByteAccess& b) {
    return a.buffer == b.buffer && (a.writes || b.writes) && (a.bytes & b.bytes).any();
  }
  static bool meet(const std::vector<ByteAccess>& all, const ByteAccess& one) {
    return std::any_of(all.begin(), all.end(), [&](const ByteAccess& a) { return meet(a, one); });
  }

  void submit() {
    if (live_.all()) return;
    uint32_t task = static_cast<uint32_t>(prng_.below(kTasks));
    while (live_.test(task)) task = (task + 1) % kTasks;
    std::vector<TensorMap::Access> accesses(prng_.between(1, 4));
    std::vector<ByteAccess> bytes;
    for (TensorMap::Access& access : accesses) {
      // Few distinct views, so that cells are met again.
      base::Prng views(prng_.below(24));
      const Tensor tensor = random_fitting_view(views);
      access.buffer = static_cast<uint32_t>(prng_.below(kBuffers));
      access.region = region_of(tensor, kBufferBytes).value();
      access.reads = prng_.chance(2, 3);
      access.writes = !access.reads || prng_.chance(1, 4);
      bytes.push_back({access.buffer, bytes_of(tensor), access.writes});
    }
    const uint32_t before = map_.live_accesses();
    if (!map_.reserve(accesses).ok()) {
      ++refused;
      ASSERT_EQ(map_.live_accesses(), before);
      return;
    }
    TaskSet direct;
    for (size_t i = 0; i < accesses.size(); ++i) add_one(task, accesses[i], bytes[i], direct);
    live_.set(task);
    accesses_[task] = bytes;
    producers_[task] = direct;
    closure_[task] = direct;
    for (uint32_t other = 0; other < kTasks; ++other) {
      if (direct.test(other)) closure_[task] |= closure_[other];
    }
    check_conflicts_are_ordered(task);
  }

  void add_one(uint32_t task, const TensorMap::Access& access, const ByteAccess& bytes,
               TaskSet& direct) {
    const Result<void> added = map_.add(task, access.buffer, access.region, access.reads,
                                        access.writes, [&](uint32_t producer, bool by_cover) {
                                          EXPECT_NE(producer, task);
                                          EXPECT_TRUE(live_.test(producer));
                                          EXPECT_TRUE(by_cover || meet(accesses_[producer], bytes))
                                              << "an edge without conflict";
                                          ++(by_cover ? cover_edges : exact_edges);
                                          direct.set(producer);
                                        });
    ASSERT_TRUE(added.ok()) << added.error().to_string();
  }

  void check_conflicts_are_ordered(uint32_t task) {
    for (uint32_t other = 0; other < kTasks; ++other) {
      if (!live_.test(other) || other == task) continue;
      for (const ByteAccess& access : accesses_[task]) {
        if (!meet(accesses_[other], access)) continue;
        ++conflicts;
        ASSERT_TRUE(closure_[task].test(other)) << "task " << task << " runs beside " << other;
      }
    }
  }

  // A task whose producers have left, any of them.
  void remove_one() {
    if (live_.none()) return;
    uint32_t task = static_cast<uint32_t>(prng_.below(kTasks));
    while (!live_.test(task) || producers_[task].any()) task = (task + 1) % kTasks;
    map_.remove(task);
    live_.reset(task);
    for (uint32_t other = 0; other < kTasks; ++other) {
      producers_[other].reset(task);
      closure_[other].reset(task);
    }
  }

  void drop_one_buffer() {
    const uint32_t buffer = static_cast<uint32_t>(prng_.below(kBuffers));
    for (uint32_t task = 0; task < kTasks; ++task) {
      if (!live_.test(task)) continue;
      for (const ByteAccess& access : accesses_[task]) {
        if (access.buffer == buffer) return;
      }
    }
    map_.drop_buffer(buffer);
  }

  base::Prng prng_;
  TensorMap map_;
  TaskSet live_;
  std::vector<ByteAccess> accesses_[kTasks];
  TaskSet producers_[kTasks];
  TaskSet closure_[kTasks];
};

void run_model(const TensorMap::Limits& limits, bool refuses) {
  int refused = 0, conflicts = 0, exact = 0, cover = 0;
  for (uint64_t seed = 0; seed < 100 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    ByteModel model(seed, limits);
    for (int i = 0; i < 400 && !testing::Test::HasFailure(); ++i) model.step();
    model.finish();
    refused += model.refused;
    conflicts += model.conflicts;
    exact += model.exact_edges;
    cover += model.cover_edges;
  }
  EXPECT_EQ(refused > 0, refuses);
  EXPECT_GT(conflicts, 5'000);
  EXPECT_GT(exact, 5'000);
  EXPECT_GT(cover, 500);
}

TEST(TensorMap, RandomGraphsOrderEveryConflictOfBytes) {
  run_model(kSmall, false);
}

TEST(TensorMap, RandomGraphsWithTightLimitsOrderEveryConflictOfBytes) {
  run_model({.tasks = ByteModel::kTasks,
             .buffers = ByteModel::kBuffers,
             .accesses = 40,
             .idle_cells = 6,
             .idle_of_buffer = 3,
             .links = 60},
            true);
}

}  // namespace
}  // namespace strata::graph
