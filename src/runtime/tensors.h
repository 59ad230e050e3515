// Contiguous tensors of a shape, without a buffer yet.
#pragma once

#include <span>

#include "strata/result.h"
#include "strata/tensor.h"

namespace strata::runtime {

// kInvalidArgument for a rank over 8 or a size that overflows.
Result<Tensor> contiguous(DType dtype, std::span<const uint64_t> shape);
// The same, where a bad shape gives a tensor of a rank that every submit refuses.
Tensor contiguous_or_bad(DType dtype, std::span<const uint64_t> shape);

}  // namespace strata::runtime
