// Tensor: a view of a buffer's bytes as a strided array. A value of 176 bytes; holds no memory
// and keeps none alive: the Buffer must outlive the submits that name it (submitted tasks keep the
// bytes alive on their own).
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>

#include "strata/types.h"

namespace strata {

// 128 bits that mean one memory at every level: 64 random ones of the owner process, 64 counting.
struct Uid {
  uint64_t high = 0;
  uint64_t low = 0;
  friend bool operator==(const Uid&, const Uid&) = default;
};

struct Tensor {
  static constexpr int kRankMax = 8;
  static constexpr uint32_t kWithoutStorage = ~uint32_t{0};  // a buffer_index; see below

  Uid uid;
  uint32_t buffer_index = 0;  // where the owner's table holds it; checked against uid
  DType dtype = DType::kU8;
  uint8_t rank = 0;
  uint64_t offset = 0;                     // bytes from the buffer's start to the first element
  std::array<uint64_t, kRankMax> shape{};  // elements, outermost first; entries past rank are 0
  std::array<int64_t, kRankMax> stride{};  // elements, outermost first

  // A contiguous tensor of that shape that names no buffer yet. As an OUTPUT it gets automatic
  // storage when it is submitted (see Orchestrator). At most kRankMax dimensions count.
  static Tensor without_storage(DType dtype, std::initializer_list<uint64_t> shape) {
    Tensor tensor;
    tensor.buffer_index = kWithoutStorage;
    tensor.dtype = dtype;
    tensor.rank = static_cast<uint8_t>(shape.size() < 255 ? shape.size() : 255);
    int d = 0;
    for (const uint64_t n : shape) {
      if (d < kRankMax) tensor.shape[d++] = n;
    }
    uint64_t stride = 1;  // may overflow: a submit refuses such a shape
    while (d-- > 0) {
      tensor.stride[d] = static_cast<int64_t>(stride);
      stride *= tensor.shape[d];
    }
    return tensor;
  }
  template <class T>
  static Tensor without_storage(std::initializer_list<uint64_t> shape) {
    return without_storage(DTypeOf<T>::value, shape);
  }

  bool wants_storage() const { return buffer_index == kWithoutStorage && uid == Uid{}; }

  uint64_t elements() const {
    uint64_t n = 1;
    for (int d = 0; d < rank; ++d) n *= shape[d];
    return n;
  }

  // Rows [row, row + rows) and columns [column, column + columns) of a rank-2 tensor, as a view.
  // The caller keeps them inside the shape; submit refuses a view that leaves its buffer.
  Tensor block(uint64_t row, uint64_t column, uint64_t rows, uint64_t columns) const {
    Tensor view = *this;
    view.offset +=
        (row * static_cast<uint64_t>(stride[0]) + column * static_cast<uint64_t>(stride[1])) *
        size_of(dtype);
    view.shape[0] = rows;
    view.shape[1] = columns;
    return view;
  }
};

}  // namespace strata
