// Random views and the bytes that they name, one by one: what the tests of the graph room hold its
// arithmetic against. Knows nothing of Region.
#pragma once

#include <bitset>

#include "base/prng.h"
#include "graph/region.h"
#include "strata/tensor.h"

namespace strata::graph {

inline constexpr uint64_t kBufferBytes = 96;
using Bytes = std::bitset<kBufferBytes>;

inline Tensor view(DType dtype, uint64_t offset, std::initializer_list<uint64_t> shape,
                   std::initializer_list<int64_t> stride) {
  Tensor tensor;
  tensor.dtype = dtype;
  tensor.offset = offset;
  tensor.rank = static_cast<uint8_t>(shape.size());
  std::copy(shape.begin(), shape.end(), tensor.shape.begin());
  std::copy(stride.begin(), stride.end(), tensor.stride.begin());
  return tensor;
}

// Calls visit(byte offset, signed) for every byte of every element; returns false at once where
// visit does.
template <class Visit>
bool each_byte(const Tensor& tensor, Visit&& visit) {
  for (int d = 0; d < tensor.rank; ++d) {
    if (tensor.shape[d] == 0) return true;
  }
  std::array<uint64_t, Tensor::kRankMax> at{};
  for (;;) {
    int64_t byte = static_cast<int64_t>(tensor.offset);
    for (int d = 0; d < tensor.rank; ++d) {
      byte += static_cast<int64_t>(at[d]) * tensor.stride[d] *
              static_cast<int64_t>(size_of(tensor.dtype));
    }
    for (size_t i = 0; i < size_of(tensor.dtype); ++i) {
      if (!visit(byte + static_cast<int64_t>(i))) return false;
    }
    int d = tensor.rank - 1;
    for (; d >= 0 && ++at[d] == tensor.shape[d]; --d) at[d] = 0;
    if (d < 0) return true;
  }
}

inline bool fits(const Tensor& tensor) {
  return each_byte(
      tensor, [](int64_t byte) { return byte >= 0 && byte < static_cast<int64_t>(kBufferBytes); });
}

inline Bytes bytes_of(const Tensor& tensor) {
  Bytes bytes;
  each_byte(tensor, [&](int64_t byte) {
    bytes.set(static_cast<size_t>(byte));
    return true;
  });
  return bytes;
}

inline Bytes bytes_of(const Region& region) {
  Bytes bytes;
  for (uint64_t row = 0; row < region.rows; ++row) {
    for (uint64_t i = 0; i < region.row_bytes; ++i)
      bytes.set(region.begin + row * region.pitch + i);
  }
  return bytes;
}

// Any view, inside a buffer of kBufferBytes or not.
inline Tensor random_view(base::Prng& prng) {
  constexpr DType kTypes[] = {DType::kU8, DType::kU8, DType::kU16, DType::kU32, DType::kF64};
  Tensor tensor;
  tensor.dtype = kTypes[prng.below(5)];
  tensor.rank = static_cast<uint8_t>(prng.below(5));
  tensor.offset = prng.below(kBufferBytes);
  for (int d = tensor.rank - 1; d >= 0; --d) {
    tensor.shape[d] = prng.chance(1, 20) ? 0 : prng.between(1, 6);
    if (prng.chance(1, 2)) {  // as if it were contiguous
      tensor.stride[d] = d + 1 == tensor.rank
                             ? 1
                             : tensor.stride[d + 1] * static_cast<int64_t>(tensor.shape[d + 1]);
    } else {
      tensor.stride[d] = static_cast<int64_t>(prng.below(28)) - 6;
    }
  }
  return tensor;
}

// Often a rectangle of one of a few pitches, as tiles of a matrix are; sometimes anything.
inline Tensor random_fitting_view(base::Prng& prng) {
  for (;;) {
    Tensor tensor = random_view(prng);
    if (prng.chance(3, 4)) {
      const int64_t pitch = prng.chance(3, 4) ? 12 : prng.between(4, 16);
      tensor = view(DType::kU8, prng.below(kBufferBytes), {prng.between(1, 8), prng.between(1, 12)},
                    {pitch, 1});
    }
    if (fits(tensor)) return tensor;
  }
}

}  // namespace strata::graph
