// The Cholesky factorisation of a matrix of 4,096 rows as a graph of tile tasks on SUB children of
// one thread each. What is timed is the run, from its first submit to the end of the wait.
//
//   strata_potrf [TILE [TILES_AT_ONCE]]
//
// docs/investigations/tiled-cholesky.md says why the graph is as it is.
#include <sched.h>
#include <strata/strata.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string_view>
#include <vector>

#include "bench/dispatch/potrf.h"
#include "bench/figure.h"
#include "bench/start_method.h"

namespace {

using namespace strata::bench;
using strata::CallableHandle;
using strata::Orchestrator;
using strata::TaskArgs;
using strata::Tensor;
using strata::Worker;

constexpr double kLimitMs = 6'000;
constexpr uint64_t kTile = 512;
constexpr uint64_t kAtOnce = 2;

[[noreturn]] void fail(std::string_view what, std::string_view why) {
  std::fprintf(stderr, "strata_potrf: %.*s: %.*s\n", static_cast<int>(what.size()), what.data(),
               static_cast<int>(why.size()), why.data());
  std::fflush(nullptr);
  _exit(1);
}

template <class T>
T need(strata::Result<T> result, std::string_view what) {
  if (!result) fail(what, result.error().to_string());
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

int cores() {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  return sched_getaffinity(0, sizeof cpus, &cpus) == 0 ? CPU_COUNT(&cpus) : 1;
}

// Tiles of the lower triangle, row by row; each goes by columns.
class Tiles {
 public:
  explicit Tiles(uint64_t tile) : tile_(tile) {}

  uint64_t count() const { return kPotrfRows / tile_; }
  uint64_t tile() const { return tile_; }
  uint64_t elements() const { return first(count(), 0); }
  uint64_t first(uint64_t row, uint64_t column) const {
    return (row * (row + 1) / 2 + column) * tile_ * tile_;
  }
  uint64_t at(uint64_t row, uint64_t column) const {
    return first(row / tile_, column / tile_) + column % tile_ * tile_ + row % tile_;
  }

 private:
  uint64_t tile_;
};

class Factor {
 public:
  Factor(Worker& worker, uint64_t tile, uint64_t at_once)
      : tiles_(tile),
        at_once_(at_once),
        potrf_(kernel(worker, "potrf")),
        trsm_(kernel(worker, "trsm")),
        syrk_(kernel(worker, "syrk")),
        gemm_(kernel(worker, "gemm")),
        buffer_(need(worker.create_buffer(tiles_.elements() * sizeof(double)), "buffer")),
        matrix_(tiles_.elements()) {
    for (uint64_t row = 0; row < kPotrfRows; ++row) {
      for (uint64_t column = 0; column <= row; ++column) {
        matrix_[tiles_.at(row, column)] = potrf_element(row, column);
      }
    }
  }

  // Microseconds.
  double run(Worker& worker) {
    std::memcpy(buffer_.as<double>().data(), matrix_.data(), matrix_.size() * sizeof(double));
    const double begun = now_us();
    need(worker.run([this](Orchestrator& orch) { build(orch); }), "run");
    return now_us() - begun;
  }

  double residual() {
    const double* factor = buffer_.as<double>().data();
    return potrf_residual(
        [&](uint64_t row, uint64_t column) { return factor[tiles_.at(row, column)]; });
  }

 private:
  static CallableHandle kernel(Worker& worker, const char* symbol) {
    return need(worker.register_callable(strata::NativeImport{"libpotrf_kernels.so", symbol}),
                symbol);
  }

  // `count` tiles of a row, side by side.
  Tensor range(uint64_t row, uint64_t column, uint64_t count = 1) const {
    return buffer_.tensor<double>({count * tiles_.tile() * tiles_.tile()},
                                  tiles_.first(row, column) * sizeof(double));
  }

  void submit(Orchestrator& orch, const CallableHandle& kernel, TaskArgs&& args) const {
    args.add_scalar(tiles_.tile());
    if (auto ref = orch.submit_sub(kernel, args); !ref) fail("submit", ref.error().to_string());
  }

  // Column by column, each tile from the columns left of it, some of them at once.
  void build(Orchestrator& orch) const {
    for (uint64_t column = 0; column < tiles_.count(); ++column) {
      for (uint64_t row = column; row < tiles_.count(); ++row) {
        const Tensor tile = range(row, column);
        for (uint64_t left = 0; left < column; left += at_once_) {
          const uint64_t count = std::min(at_once_, column - left);
          TaskArgs args;
          args.add_tensor(range(row, left, count), strata::INPUT);
          if (row != column) args.add_tensor(range(column, left, count), strata::INPUT);
          args.add_tensor(tile, strata::INOUT);
          submit(orch, row == column ? syrk_ : gemm_, std::move(args));
        }
        TaskArgs args;
        if (row != column) args.add_tensor(range(column, column), strata::INPUT);
        args.add_tensor(tile, strata::INOUT);
        submit(orch, row == column ? potrf_ : trsm_, std::move(args));
      }
    }
  }

  Tiles tiles_;
  uint64_t at_once_;
  CallableHandle potrf_, trsm_, syrk_, gemm_;
  strata::Buffer buffer_;
  std::vector<double> matrix_;
};

uint64_t number(int argc, char** argv, int i, uint64_t otherwise) {
  return argc > i ? std::strtoull(argv[i], nullptr, 10) : otherwise;
}

}  // namespace

int main(int argc, char** argv) {
  strata::child_entry(argc, argv);
  const uint64_t tile = number(argc, argv, 1, kTile);
  const uint64_t at_once = number(argc, argv, 2, kAtOnce);
  if (tile == 0 || kPotrfRows % tile != 0 || at_once == 0) {
    fail("usage", "[TILE, which divides 4096 [TILES_AT_ONCE]]");
  }
  strata::WorkerSpec spec;
  spec.sub_workers = cores();
  spec.start = start_method();
  spec.library_path = {std::filesystem::read_symlink("/proc/self/exe").parent_path()};
  auto worker = need(Worker::create(std::move(spec)), "create");
  {
    Factor factor(*worker, tile, at_once);
    need(worker->init(), "init");
    const auto timed = [&] { return factor.run(*worker); };
    timed();  // the children touch the matrix for the first time
    const double took_us = median_of(scaled(5, 1), kLimitMs, timed);
    const double residual = factor.residual();
    if (!(residual <= kResidualMax)) fail("residual", std::to_string(residual));
    figure("strata.potrf4096", kPotrfFlop / took_us * 1e-3, "GFLOP/s");
  }
  need(worker->close(), "close");
  return 0;
}
