// The kernels of bench/chips.
#include <chrono>
#include <cstring>

#include "strata/callable.h"

static void bench_empty(strata::Call&) {}
STRATA_EXPORT(bench_empty);

// Reads tensor 0 from end to end by memcpy into tensor 1, which stays in the cache; the result is
// the seconds that took, as a double. Whatever moved the tensors here is not in it.
static void bench_read(strata::Call& call) {
  const auto table = call.tensor<uint8_t>(0);
  const auto scratch = call.tensor<uint8_t>(1);
  const uint64_t step = scratch.size();
  const auto begin = std::chrono::steady_clock::now();
  for (uint64_t at = 0; at + step <= table.size(); at += step) {
    std::memcpy(scratch.data(), table.data() + at, step);
    asm volatile("" ::"r"(scratch.data()) : "memory");
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  call.set_result(took.count());
}
STRATA_EXPORT(bench_read);
