// The tasks of the L4: each is the orchestration function of an L3, which cuts the panels that it
// was given into tiles and submits the kernels of 03_ridge on them. Computes nothing itself.
//
// Each runs in an L3 Worker, in the thread that runs its call. Where they are not said, the
// arguments are in the order of the names, then the table of counters (see LeafCounters), then the
// scalar `tile`.
#pragma once

#include <strata/inner.h>

#include <cstdint>

namespace ridge_pod {

// How many tasks ran below each L3: a row for each of them in shared memory. The kernels count, in
// the processes that ran them.
struct LeafCounters {
  static constexpr uint64_t kColumns = 2;  // the Worker's number; tasks done below it
};

// tensor: the row of this L3, which gets its number. Before all others, one for each L3.
void enroll(strata::Call& call);

// tensors X, Y, K; scalars tile, first_row, first_column, gamma, lambda: the part of the kernel
// matrix over the samples X and Y that is not above its diagonal.
void matrix_part(strata::Call& call);

// tensor A; scalars tile, first_row: A = L L^T, in place.
void factor_panel(strata::Call& call);
// tensors L, A: A = A L^-T.
void solve_panel(strata::Call& call);
// tensors A, C: C -= A A^T, of its lower triangle.
void update_diagonal(strata::Call& call);
// tensors A, B, C: C -= A B^T.
void update_panel(strata::Call& call);

// tensors L, B: the last rows of the lower triangle, down to the diagonal, and the targets of all
// their columns: solves for the targets of these rows, given those before.
void forward_panel(strata::Call& call);
// tensors L, B: the first columns of the lower triangle from the diagonal down, and the targets of
// all their rows: solves L^T for the targets of these columns, given those after.
void backward_panel(strata::Call& call);

// tensors X (new samples), Y, A (samples and their part of the solution), P; scalars tile, gamma:
// P = K(X, Y) A. K is a temporary of the L3.
void score_part(strata::Call& call);
// tensors S, P, Q, ...: S = P + Q + ...
void sum_parts(strata::Call& call);

}  // namespace ridge_pod
