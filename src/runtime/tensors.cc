#include "runtime/tensors.h"

#include <fmt/format.h>

namespace strata::runtime {

Result<Tensor> contiguous(DType dtype, std::span<const uint64_t> shape) {
  if (shape.size() > Tensor::kRankMax) {
    return Error(
        Code::kInvalidArgument, Scope::kCall,
        fmt::format("a tensor has at most {} dimensions, not {}", Tensor::kRankMax, shape.size()));
  }
  Tensor tensor;
  tensor.dtype = dtype;
  tensor.rank = static_cast<uint8_t>(shape.size());
  uint64_t elements = 1;
  for (int d = tensor.rank - 1; d >= 0; --d) {
    tensor.shape[d] = shape[d];
    tensor.stride[d] = static_cast<int64_t>(elements);
    uint64_t bytes = 0;
    if (__builtin_mul_overflow(elements, shape[d], &elements) ||
        __builtin_mul_overflow(elements, size_of(dtype), &bytes) || bytes > uint64_t{1} << 62) {
      return Error(Code::kInvalidArgument, Scope::kCall, "a tensor's bytes overflow");
    }
  }
  return tensor;
}

Tensor contiguous_or_bad(DType dtype, std::span<const uint64_t> shape) {
  if (Result<Tensor> tensor = contiguous(dtype, shape)) return *tensor;
  Tensor bad;
  bad.dtype = dtype;
  bad.rank = Tensor::kRankMax + 1;
  return bad;
}

}  // namespace strata::runtime
