// The kernels of the tests of chips.
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>

#include "strata/callable.h"
#include "strata/formats.h"

namespace {

// This block's part of `n` elements.
struct Part {
  uint64_t begin;
  uint64_t end;
};
Part part_of(const strata::Call& call, uint64_t n) {
  const auto blocks = static_cast<uint64_t>(call.block_dim());
  const auto block = static_cast<uint64_t>(call.block_idx());
  return {n * block / blocks, n * (block + 1) / blocks};
}

}  // namespace

// x[i] = x[i] * scalar 0, by blocks.
static void chip_scale(strata::Call& call) {
  const auto x = call.tensor<int64_t>(0);
  const Part part = part_of(call, x.size());
  for (uint64_t i = part.begin; i < part.end; ++i) x(i) *= call.scalar<int64_t>(0);
}
STRATA_EXPORT(chip_scale);

// Tensor 1 [i] = tensor 0 [i] + scalar 0.
static void chip_copy_add(strata::Call& call) {
  const auto from = call.tensor<int64_t>(0);
  const auto to = call.tensor<int64_t>(1);
  for (uint64_t i = 0; i < to.size(); ++i) to(i) = from(i) + call.scalar<int64_t>(0);
}
STRATA_EXPORT(chip_copy_add);

// Adds scalar 0 to every element of a rank-2 view.
static void chip_add_2d(strata::Call& call) {
  const auto x = call.tensor<int64_t>(0);
  for (uint64_t i = 0; i < x.shape(0); ++i) {
    for (uint64_t j = 0; j < x.shape(1); ++j) x(i, j) += call.scalar<int64_t>(0);
  }
}
STRATA_EXPORT(chip_add_2d);

// Writes 7 to element 0 of tensor 0; the result is element 0 of tensor 1 after that.
static void chip_alias(strata::Call& call) {
  call.tensor<int64_t>(0)(0) = 7;
  call.set_result(call.tensor<int64_t>(1)(0));
}
STRATA_EXPORT(chip_alias);

// The sum of all tensors' elements is the result.
static void chip_sum(strata::Call& call) {
  int64_t sum = 0;
  for (uint32_t t = 0; t < call.tensor_count(); ++t) {
    const auto x = call.tensor<int64_t>(t);
    for (uint64_t i = 0; i < x.size(); ++i) sum += x(i);
  }
  call.set_result(sum);
}
STRATA_EXPORT(chip_sum);

// The address of tensor 0.
static void chip_address(strata::Call& call) {
  call.set_result(reinterpret_cast<uint64_t>(call.raw()->tensors[0].data));
}
STRATA_EXPORT(chip_address);

static void chip_pid(strata::Call& call) {
  call.set_result(static_cast<int64_t>(::getpid()));
}
STRATA_EXPORT(chip_pid);

// Throws in block scalar 0.
static void chip_throw(strata::Call& call) {
  if (call.block_idx() == call.scalar<int32_t>(0)) throw std::runtime_error("thrown on the chip");
}
STRATA_EXPORT(chip_throw);

// Writes, then fails: what it wrote must not come back.
static void chip_write_and_throw(strata::Call& call) {
  call.tensor<int64_t>(0)(0) = -1;
  throw std::runtime_error("after it had written");
}
STRATA_EXPORT(chip_write_and_throw);

// Raises signal scalar 1 in block scalar 0.
static void chip_signal(strata::Call& call) {
  if (call.block_idx() == call.scalar<int32_t>(0)) ::raise(call.scalar<int32_t>(1));
}
STRATA_EXPORT(chip_signal);

// Writes to tensor 0 whatever its tag says.
static void chip_poke(strata::Call& call) {
  *static_cast<volatile unsigned char*>(call.raw()->tensors[0].data) = 1;
}
STRATA_EXPORT(chip_poke);

// Stands until word 0 of tensor 0 is not 0 or the call is cancelled; word 1 counts the starts.
static void chip_stand(strata::Call& call) {
  const auto gate = call.tensor<uint32_t>(0);
  __atomic_fetch_add(&gate.data()[1], 1, __ATOMIC_SEQ_CST);
  while (__atomic_load_n(&gate.data()[0], __ATOMIC_SEQ_CST) == 0 && !call.cancelled()) {
    ::poll(nullptr, 0, 1);
  }
}
STRATA_EXPORT(chip_stand);

// The sum of the values of a table in one of the small formats, as a double.
template <class Element>
static void sum_values(strata::Call& call) {
  const auto table = call.tensor<Element>(0);
  double sum = 0;
  for (const Element& element : table.span()) {
    if constexpr (requires { Element::kValues; }) {
      for (int i = 0; i < Element::kValues; ++i) sum += element.at(i) * (i + 1);
    } else {
      sum += element.value();
    }
  }
  call.set_result(sum);
}
static void chip_sum_bf16(strata::Call& call) {
  sum_values<strata::BF16>(call);
}
STRATA_EXPORT(chip_sum_bf16);
static void chip_sum_f8e4m3(strata::Call& call) {
  sum_values<strata::F8E4M3>(call);
}
STRATA_EXPORT(chip_sum_f8e4m3);
static void chip_sum_f8e5m2(strata::Call& call) {
  sum_values<strata::F8E5M2>(call);
}
STRATA_EXPORT(chip_sum_f8e5m2);
static void chip_sum_mxf8e4m3(strata::Call& call) {
  sum_values<strata::MxF8E4M3>(call);
}
STRATA_EXPORT(chip_sum_mxf8e4m3);
static void chip_sum_mxf8e5m2(strata::Call& call) {
  sum_values<strata::MxF8E5M2>(call);
}
STRATA_EXPORT(chip_sum_mxf8e5m2);
static void chip_sum_mxf4e2m1(strata::Call& call) {
  sum_values<strata::MxF4E2M1>(call);
}
STRATA_EXPORT(chip_sum_mxf4e2m1);
