#include "stages.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "problem.h"

namespace ridge_pod {
namespace {

using strata::Call;
using strata::INOUT;
using strata::INPUT;
using strata::NO_DEP;
using strata::OUTPUT;
using strata::TaskArgs;
using strata::Tensor;

// A panel, which is a view of rows and columns, in tiles. Those at its end may be smaller.
class Tiles {
 public:
  Tiles(const Tensor& panel, uint64_t tile) : panel_(panel), tile_(tile) {}

  uint64_t rows() const { return (panel_.shape[0] + tile_ - 1) / tile_; }
  uint64_t columns() const { return (panel_.shape[1] + tile_ - 1) / tile_; }
  Tensor operator()(uint64_t i, uint64_t j) const {
    const uint64_t row = i * tile_, column = j * tile_;
    return panel_.block(row, column, std::min(tile_, panel_.shape[0] - row),
                        std::min(tile_, panel_.shape[1] - column));
  }
  // All columns of a row of tiles.
  Tensor row(uint64_t i) const {
    const uint64_t first = i * tile_;
    return panel_.block(first, 0, std::min(tile_, panel_.shape[0] - first), panel_.shape[1]);
  }

 private:
  Tensor panel_;
  uint64_t tile_;
};

// A number that no other Worker of this tree has.
uint64_t worker_number(const Call& call) {
  const strata_orchestrator* const table = call.raw()->orchestrator;
  strata_inner_handle handle{};
  if (table->find_native(table->context, ridge::kKernelLibrary, "potrf", &handle) != 0) {
    throw std::runtime_error(table->last_error(table->context));
  }
  return handle.worker;
}

// What every stage has: the panels by tiles, and kernels to submit, each of which is counted.
class Stage {
 public:
  Stage(Call& call, uint32_t panels)
      : call_(call), orch_(call.orchestrator()), counters_(call.ref(panels)) {
    tile_ = call.scalar<uint64_t>(0);
    const auto table = call.tensor<uint64_t>(panels);
    const uint64_t number = worker_number(call);
    uint64_t row = 0;
    while (row < table.shape(0) && table(row, 0) != number) ++row;
    if (row == table.shape(0)) throw std::logic_error("an L3 that has not been enrolled");
    counter_ = counters_.block(row, 1, 1, 1);
  }

  Tiles tiles(uint32_t i) const { return {call_.ref(i), tile_}; }
  strata::InnerHandle kernel(const char* symbol) const {
    return orch_.inner_handle(ridge::kKernelLibrary, symbol);
  }
  void submit(const strata::InnerHandle& kernel, TaskArgs& args) const {
    orch_.submit_sub(kernel, args.add_tensor(counter_, NO_DEP));
  }
  void submit(const strata::InnerHandle& kernel, TaskArgs&& args) const { submit(kernel, args); }
  const strata::InnerOrchestrator& orch() const { return orch_; }
  uint64_t tile() const { return tile_; }

 private:
  Call& call_;
  strata::InnerOrchestrator orch_;
  Tensor counters_, counter_;
  uint64_t tile_;
};

TaskArgs reads(const Tensor& tensor) {
  return TaskArgs().add_tensor(tensor, INPUT);
}

}  // namespace

void enroll(Call& call) {
  call.tensor<uint64_t>(0)(0, 0) = worker_number(call);
  call.tensor<uint64_t>(0)(0, 1) = 0;
}

void matrix_part(Call& call) {
  const Stage stage(call, 3);
  const auto first_row = call.scalar<uint64_t>(1), first_column = call.scalar<uint64_t>(2);
  const auto gamma = call.scalar<double>(3), lambda = call.scalar<double>(4);
  const Tiles x = stage.tiles(0), y = stage.tiles(1), k = stage.tiles(2);
  const strata::InnerHandle rbf_tile = stage.kernel("rbf_tile");
  for (uint64_t i = 0; i < k.rows(); ++i) {
    for (uint64_t j = 0; j < k.columns(); ++j) {
      const uint64_t row = first_row + i * stage.tile(), column = first_column + j * stage.tile();
      if (column > row) break;
      stage.submit(rbf_tile, reads(x.row(i))
                                 .add_tensor(y.row(j), INPUT)
                                 .add_tensor(k(i, j), OUTPUT)
                                 .add_scalar(gamma)
                                 .add_scalar(row == column ? lambda : 0.0));
    }
  }
}

void factor_panel(Call& call) {
  const Stage stage(call, 1);
  const auto first_row = call.scalar<uint64_t>(1);
  const Tiles a = stage.tiles(0);
  const strata::InnerHandle potrf = stage.kernel("potrf"), trsm = stage.kernel("trsm"),
                            syrk = stage.kernel("syrk"), gemm = stage.kernel("gemm");
  for (uint64_t k = 0; k < a.rows(); ++k) {
    stage.submit(potrf,
                 TaskArgs().add_tensor(a(k, k), INOUT).add_scalar(first_row + k * stage.tile()));
    for (uint64_t i = k + 1; i < a.rows(); ++i) {
      stage.submit(trsm, reads(a(k, k)).add_tensor(a(i, k), INOUT));
    }
    for (uint64_t i = k + 1; i < a.rows(); ++i) {
      for (uint64_t j = k + 1; j < i; ++j) {
        stage.submit(gemm, reads(a(i, k)).add_tensor(a(j, k), INPUT).add_tensor(a(i, j), INOUT));
      }
      stage.submit(syrk, reads(a(i, k)).add_tensor(a(i, i), INOUT));
    }
  }
}

void solve_panel(Call& call) {
  const Stage stage(call, 2);
  const Tiles l = stage.tiles(0), a = stage.tiles(1);
  const strata::InnerHandle trsm = stage.kernel("trsm"), gemm = stage.kernel("gemm");
  for (uint64_t j = 0; j < a.columns(); ++j) {
    for (uint64_t i = 0; i < a.rows(); ++i) {
      for (uint64_t k = 0; k < j; ++k) {
        stage.submit(gemm, reads(a(i, k)).add_tensor(l(j, k), INPUT).add_tensor(a(i, j), INOUT));
      }
      stage.submit(trsm, reads(l(j, j)).add_tensor(a(i, j), INOUT));
    }
  }
}

void update_diagonal(Call& call) {
  const Stage stage(call, 2);
  const Tiles a = stage.tiles(0), c = stage.tiles(1);
  const strata::InnerHandle syrk = stage.kernel("syrk"), gemm = stage.kernel("gemm");
  for (uint64_t k = 0; k < a.columns(); ++k) {
    for (uint64_t i = 0; i < c.rows(); ++i) {
      for (uint64_t j = 0; j < i; ++j) {
        stage.submit(gemm, reads(a(i, k)).add_tensor(a(j, k), INPUT).add_tensor(c(i, j), INOUT));
      }
      stage.submit(syrk, reads(a(i, k)).add_tensor(c(i, i), INOUT));
    }
  }
}

void update_panel(Call& call) {
  const Stage stage(call, 3);
  const Tiles a = stage.tiles(0), b = stage.tiles(1), c = stage.tiles(2);
  const strata::InnerHandle gemm = stage.kernel("gemm");
  for (uint64_t k = 0; k < a.columns(); ++k) {
    for (uint64_t i = 0; i < c.rows(); ++i) {
      for (uint64_t j = 0; j < c.columns(); ++j) {
        stage.submit(gemm, reads(a(i, k)).add_tensor(b(j, k), INPUT).add_tensor(c(i, j), INOUT));
      }
    }
  }
}

void forward_panel(Call& call) {
  const Stage stage(call, 2);
  const Tiles l = stage.tiles(0), b = stage.tiles(1);
  const strata::InnerHandle solve = stage.kernel("forward_solve"),
                            update = stage.kernel("forward_update");
  const uint64_t before = l.columns() - l.rows();
  for (uint64_t i = 0; i < l.rows(); ++i) {
    const Tensor target = b.row(before + i);
    for (uint64_t j = 0; j < before + i; ++j) {
      stage.submit(update, reads(l(i, j)).add_tensor(b.row(j), INPUT).add_tensor(target, INOUT));
    }
    stage.submit(solve, reads(l(i, before + i)).add_tensor(target, INOUT));
  }
}

void backward_panel(Call& call) {
  const Stage stage(call, 2);
  const Tiles l = stage.tiles(0), b = stage.tiles(1);
  const strata::InnerHandle solve = stage.kernel("backward_solve"),
                            update = stage.kernel("backward_update");
  for (uint64_t j = l.columns(); j-- > 0;) {
    for (uint64_t i = l.rows(); i-- > j + 1;) {
      stage.submit(update, reads(l(i, j)).add_tensor(b.row(i), INPUT).add_tensor(b.row(j), INOUT));
    }
    stage.submit(solve, reads(l(j, j)).add_tensor(b.row(j), INOUT));
  }
}

void score_part(Call& call) {
  const Stage stage(call, 4);
  const auto gamma = call.scalar<double>(1);
  const Tiles x = stage.tiles(0), y = stage.tiles(1), p = stage.tiles(3);
  const Tensor alpha = call.ref(2);
  const strata::InnerHandle rbf_tile = stage.kernel("rbf_tile"), score = stage.kernel("score_tile");
  for (uint64_t i = 0; i < x.rows(); ++i) {
    const Tensor x_new = x.row(i);
    // The kernel rows of new samples are needed once: a temporary that ends with its tasks.
    const auto scope = stage.orch().scope();
    const Tensor k = stage.orch().temporary<double>({x_new.shape[0], alpha.shape[0]});
    const Tiles k_tiles(k, stage.tile());
    for (uint64_t j = 0; j < y.rows(); ++j) {
      stage.submit(rbf_tile, reads(x_new)
                                 .add_tensor(y.row(j), INPUT)
                                 .add_tensor(k_tiles(0, j), OUTPUT)
                                 .add_scalar(gamma)
                                 .add_scalar(0.0));
    }
    stage.submit(score, reads(k).add_tensor(alpha, INPUT).add_tensor(p.row(i), OUTPUT));
  }
}

void sum_parts(Call& call) {
  const uint32_t parts = call.tensor_count() - 2;  // without the sum and the counters
  const Stage stage(call, parts + 1);
  const Tiles sum = stage.tiles(0);
  const strata::InnerHandle sum_tiles = stage.kernel("sum_tiles");
  for (uint64_t i = 0; i < sum.rows(); ++i) {
    TaskArgs args;
    args.add_tensor(sum.row(i), OUTPUT);
    for (uint32_t part = 1; part <= parts; ++part) {
      args.add_tensor(stage.tiles(part).row(i), INPUT);
    }
    stage.submit(sum_tiles, args.add_scalar(parts));
  }
}

}  // namespace ridge_pod
