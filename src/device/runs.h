// Runs: the bytes of a strided view as runs of contiguous bytes. Together they are exactly the
// bytes of its elements; a byte comes twice only where dimensions beyond the run overlap each
// other.
//
// Pure; any thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "strata/call.h"
#include "strata/types.h"

namespace strata::device {

// A view without an element has no run. Strides are taken as they are: negative ones run down from
// the first element, zero ones name the same bytes again.
class Runs {
 public:
  // `first`: offset of the first element. The view is known to lie in its memory.
  Runs(const strata_tensor& view, uint64_t first) : begin_(first) {
    run_ = size_of(static_cast<DType>(view.dtype));
    for (uint32_t d = 0; d < view.rank; ++d) {
      if (view.shape[d] == 0) run_ = 0;
      if (view.shape[d] < 2 || view.stride[d] == 0) continue;
      const bool down = view.stride[d] < 0;
      const uint64_t step =
          (down ? -static_cast<uint64_t>(view.stride[d]) : static_cast<uint64_t>(view.stride[d])) *
          size_of(static_cast<DType>(view.dtype));
      if (down) begin_ -= step * (view.shape[d] - 1);
      dims_[rank_++] = {step, view.shape[d]};
    }
    std::sort(dims_.begin(), dims_.begin() + rank_,
              [](const Dim& a, const Dim& b) { return a.step < b.step; });
    // Steps within the run so far only lengthen it.
    uint32_t inner = 0;
    while (inner < rank_ && dims_[inner].step <= run_) {
      run_ += dims_[inner].step * (dims_[inner].count - 1);
      ++inner;
    }
    outer_ = inner;
  }

  uint64_t run_bytes() const { return run_; }
  uint64_t count() const {
    uint64_t n = run_ == 0 ? 0 : 1;
    for (uint32_t d = outer_; d < rank_; ++d) n *= dims_[d].count;
    return n;
  }
  uint64_t begin() const { return begin_; }  // of the lowest byte
  uint64_t extent() const {                  // from there to the end of the highest
    uint64_t bytes = run_;
    if (run_ == 0) return 0;
    for (uint32_t d = outer_; d < rank_; ++d) bytes += dims_[d].step * (dims_[d].count - 1);
    return bytes;
  }

  // fn(offset) -> bool for each run; ends, and gives false, where it does.
  template <class Fn>
  bool for_each(Fn&& fn) const {
    std::array<uint64_t, STRATA_TENSOR_RANK_MAX> at{};
    uint64_t offset = begin_;
    for (uint64_t left = count(); left > 0; --left) {
      if (!fn(offset)) return false;
      for (uint32_t d = outer_; d < rank_; ++d) {
        offset += dims_[d].step;
        if (++at[d] < dims_[d].count) break;
        offset -= dims_[d].step * dims_[d].count;
        at[d] = 0;
      }
    }
    return true;
  }

 private:
  struct Dim {
    uint64_t step;  // bytes
    uint64_t count;
  };
  uint64_t begin_;
  uint64_t run_ = 0;
  std::array<Dim, STRATA_TENSOR_RANK_MAX> dims_{};
  uint32_t rank_ = 0;
  uint32_t outer_ = 0;  // the first dimension that is no part of the run
};

}  // namespace strata::device
