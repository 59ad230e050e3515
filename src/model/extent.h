// Which bytes of its buffer a tensor touches, as the smallest covering range.
// Not the exact set: gaps between rows are inside. Pure; any thread.
#pragma once

#include <cstdint>

#include "strata/result.h"
#include "strata/tensor.h"

namespace strata::model {

// Bytes from the buffer's start: every element of the tensor lies in [begin, end). Both are the
// tensor's offset where the tensor has no element.
struct Extent {
  uint64_t begin = 0;
  uint64_t end = 0;
};

// False where dtype or rank is no valid one, or where the range is not within [0, buffer_bytes);
// no overflow for any input.
inline bool extent_inside(DType dtype, uint32_t rank, uint64_t offset, const uint64_t* shape,
                          const int64_t* stride, uint64_t buffer_bytes, Extent* out) {
  const uint64_t element = size_of(dtype);
  if (element == 0 || rank > Tensor::kRankMax || offset > buffer_bytes) return false;
  *out = {offset, offset};
  for (uint32_t d = 0; d < rank; ++d) {
    if (shape[d] == 0) return true;
  }
  uint64_t below = 0;
  uint64_t above = element;
  for (uint32_t d = 0; d < rank; ++d) {
    const uint64_t steps = shape[d] - 1;
    const bool down = stride[d] < 0;
    const uint64_t step =
        down ? -static_cast<uint64_t>(stride[d]) : static_cast<uint64_t>(stride[d]);
    uint64_t reach;
    uint64_t* const sum = down ? &below : &above;
    if (__builtin_mul_overflow(steps, step, &reach) ||
        __builtin_mul_overflow(reach, element, &reach) ||
        __builtin_add_overflow(*sum, reach, sum)) {
      return false;
    }
  }
  if (below > offset || above > buffer_bytes - offset) return false;
  *out = {offset - below, offset + above};
  return true;
}

// The same with an Error that names what is wrong.
Result<Extent> extent_of(const Tensor& tensor, uint64_t buffer_bytes);

}  // namespace strata::model
