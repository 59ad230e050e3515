// What the graph room costs a submit, in nanoseconds: the median, least and most of 15 runs of
// each loop. Built with the tests, run by hand in a release build; proves nothing by itself.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "graph/poison.h"
#include "graph/region.h"
#include "graph/tensor_map.h"

namespace strata::graph {
namespace {

constexpr uint32_t kTasks = 1024;
constexpr uint64_t kEdge = 512;  // rows and columns of a tile, of 8 bytes each
constexpr uint64_t kTiles = 16;  // of a matrix, in each direction
constexpr uint64_t kPitch = kTiles * kEdge * 8;
constexpr uint64_t kBytes = kPitch * kTiles * kEdge;

using Clock = std::chrono::steady_clock;
volatile uint64_t g_sink;

double ns_since(Clock::time_point start, uint64_t operations) {
  return std::chrono::duration<double, std::nano>(Clock::now() - start).count() /
         static_cast<double>(operations);
}

// run() gives the nanoseconds of one operation.
template <class Run>
void report(const char* what, Run&& run) {
  std::vector<double> all;
  for (int i = 0; i < 15; ++i) all.push_back(run());
  std::sort(all.begin(), all.end());
  std::printf("%-58s %7.1f   (%.1f to %.1f)\n", what, all[7], all[0], all[14]);
}

Tensor tile_view(uint64_t row, uint64_t column) {
  Tensor tensor;
  tensor.dtype = DType::kF64;
  tensor.rank = 2;
  tensor.offset = row * kEdge * kPitch + column * kEdge * 8;
  tensor.shape = {kEdge, kEdge};
  tensor.stride = {static_cast<int64_t>(kPitch / 8), 1};
  return tensor;
}
Region tile(uint64_t i) {
  return region_of(tile_view(i / kTiles % kTiles, i % kTiles), kBytes).value();
}

void region_speed() {
  std::vector<Tensor> tensors[3];
  for (uint64_t i = 0; i < 256; ++i) {
    tensors[1].push_back(tile_view(i / kTiles, i % kTiles));
    Tensor line;
    line.dtype = DType::kF32;
    line.rank = 1;
    line.offset = 4096 * i;
    line.shape[0] = 1024;
    line.stride[0] = 1;
    tensors[0].push_back(line);
    Tensor deep = line;
    deep.rank = 3;
    deep.shape = {4, 16, 16};
    deep.stride = {256, 16, 1};
    tensors[2].push_back(deep);
  }
  const char* names[] = {"region_of, rank 1", "region_of, rank 2 (tile)", "region_of, rank 3"};
  for (int kind = 0; kind < 3; ++kind) {
    report(names[kind], [&] {
      uint64_t sum = 0;
      const Clock::time_point start = Clock::now();
      for (int round = 0; round < 400; ++round) {
        for (const Tensor& tensor : tensors[kind]) sum += region_of(tensor, kBytes)->row_bytes;
      }
      const double ns = ns_since(start, 400 * 256);
      g_sink = sum;
      return ns;
    });
  }
}

// Each task makes one access, of regions[task % size]; then all leave.
void map_speed(const char* what, const std::vector<Region>& regions, uint32_t buffers,
               bool writes) {
  TensorMap map(TensorMap::Limits{.tasks = kTasks});
  uint64_t edges = 0;
  double remove_ns = 0;
  std::vector<double> removes;
  const auto round = [&](double& add_ns) {
    const Clock::time_point start = Clock::now();
    for (uint32_t task = 0; task < kTasks; ++task) {
      const bool ok = map.add(task, task % buffers, regions[task % regions.size()], true, writes,
                              [&](uint32_t producer, bool) { edges += producer + 1; })
                          .ok();
      if (!ok) std::abort();
    }
    add_ns += ns_since(start, kTasks);
    const Clock::time_point middle = Clock::now();
    for (uint32_t task = 0; task < kTasks; ++task) map.remove(task);
    remove_ns += ns_since(middle, kTasks);
  };
  double warm = 0;
  round(warm);
  report(what, [&] {
    double add_ns = 0;
    remove_ns = 0;
    for (int i = 0; i < 100; ++i) round(add_ns);
    removes.push_back(remove_ns / 100);
    return add_ns / 100;
  });
  std::sort(removes.begin(), removes.end());
  std::printf("%-58s %7.1f   (%.1f to %.1f)\n", "  its remove", removes[7], removes[0],
              removes[14]);
  g_sink = edges;
}

// `apart`: their ranges do not meet. Else they are column panels of one matrix, each told from each
// by its columns.
void new_cell_speed(uint64_t cells, bool apart) {
  char what[64];
  std::snprintf(what, sizeof what, "add of a new %s beside %llu others", apart ? "range" : "panel",
                0ull + cells);
  TensorMap map(TensorMap::Limits{.tasks = kTasks, .idle_of_buffer = 1u << 20});
  uint64_t at = 0;
  const auto next = [&] {
    const Region region = apart ? Region::range(at, at + 64) : Region{at, 64, 64, 1 << 20, false};
    if (!map.add(0, 0, region, true, true, [](uint32_t, bool) {}).ok()) std::abort();
    map.remove(0);
    at += 64;
  };
  report(what, [&] {
    map.drop_buffer(0);
    at = 0;
    for (uint64_t i = 0; i < cells; ++i) next();
    const Clock::time_point start = Clock::now();
    for (uint64_t i = 0; i < 64; ++i) next();
    return ns_since(start, 64);
  });
}

// A tiled matrix product: each task names two tiles that it reads and one that it updates.
void product_speed() {
  TensorMap map(TensorMap::Limits{.tasks = kTasks});
  uint64_t edges = 0;
  report("task of a tiled product: 3 x region_of, reserve, 3 x add", [&] {
    double ns = 0;
    for (uint64_t step = 0; step < kTiles * 4; ++step) {
      const Clock::time_point start = Clock::now();
      for (uint32_t task = 0; task < kTasks; ++task) {
        const uint64_t i = task / 16 % kTiles, j = task % kTiles, k = (step + task / 256) % kTiles;
        const TensorMap::Access accesses[] = {
            {0, region_of(tile_view(i, k), kBytes).value(), true, false},
            {1, region_of(tile_view(k, j), kBytes).value(), true, false},
            {2, region_of(tile_view(i, j), kBytes).value(), true, true}};
        if (!map.reserve(accesses).ok()) std::abort();
        for (const TensorMap::Access& access : accesses) {
          const bool ok = map.add(task, access.buffer, access.region, access.reads, access.writes,
                                  [&](uint32_t producer, bool) { edges += producer; })
                              .ok();
          if (!ok) std::abort();
        }
      }
      ns += ns_since(start, kTasks);
      for (uint32_t task = 0; task < kTasks; ++task) map.remove(task);
    }
    return ns / static_cast<double>(kTiles * 4);
  });
  g_sink = edges;
}

void poison_speed() {
  PoisonMap map;
  map.poison(1, Region::range(0, 8), 1);
  const Region region = tile(0);
  report("PoisonMap::cause_of, nothing poisoned in the buffer", [&] {
    uint64_t sum = 0;
    const Clock::time_point start = Clock::now();
    for (uint32_t i = 0; i < 1'000'000; ++i) sum += map.cause_of(i & 1 ? 0 : 7, region).has_value();
    const double ns = ns_since(start, 1'000'000);
    g_sink = sum;
    return ns;
  });
  report("PoisonMap: poison and heal a tile of 512 rows", [&] {
    const Clock::time_point start = Clock::now();
    for (int i = 0; i < 200; ++i) {
      map.poison(0, region, 1);
      map.heal(0, region);
    }
    return ns_since(start, 200);
  });
}

}  // namespace
}  // namespace strata::graph

int main() {
  using namespace strata::graph;
  region_speed();
  const Region whole = Region::range(0, kBytes);
  std::vector<Region> tiles;
  for (uint64_t i = 0; i < kTiles * kTiles; ++i) tiles.push_back(tile(i));
  map_speed("add: write, one region, each after the last", {whole}, 1, true);
  map_speed("add: read, one region", {whole}, 1, false);
  map_speed("add: write, 256 tiles of a matrix", tiles, 1, true);
  map_speed("add: read, 256 tiles of a matrix", tiles, 1, false);
  map_speed("add: write, 1024 buffers", {whole}, 1024, true);
  std::vector<Region> halos;
  for (uint64_t i = 0; i < 64; ++i) halos.push_back(Region::range(96 * i, 96 * i + 128));
  map_speed("add: write, 64 ranges with 2 neighbours each", halos, 1, true);
  for (const uint64_t cells : {64, 256, 1024}) {
    new_cell_speed(cells, true);
    new_cell_speed(cells, false);
  }
  product_speed();
  poison_speed();
}
