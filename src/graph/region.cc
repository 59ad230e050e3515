#include "graph/region.h"

#include <algorithm>
#include <array>
#include <string>

#include "base/check.h"
#include "base/result.h"

namespace strata::graph {
namespace {

using Wide = unsigned __int128;

struct Dimension {
  uint64_t extent;  // at least 2
  uint64_t stride;  // in bytes, at least 1
};

std::string list_of(const auto& numbers, int count) {
  std::string text = "[";
  for (int d = 0; d < count; ++d) text += (d ? ", " : "") + std::to_string(numbers[d]);
  return text + "]";
}

std::string text_of(const Tensor& tensor) {
  const int rank = std::min<int>(tensor.rank, Tensor::kRankMax);
  return "shape " + list_of(tensor.shape, rank) + ", strides " + list_of(tensor.stride, rank) +
         ", offset " + std::to_string(tensor.offset) + ", " +
         std::to_string(size_of(tensor.dtype)) + " bytes an element";
}

Error refused(std::string text) {
  return Error(Code::kInvalidArgument, Scope::kCall, std::move(text));
}

Error leaves(const Tensor& tensor, uint64_t buffer_bytes, const char* where) {
  return refused("the view leaves its buffer of " + std::to_string(buffer_bytes) + " bytes " +
                 where + ": " + text_of(tensor));
}

Result<void> check_elements(const Tensor& tensor, uint64_t element_bytes) {
  uint64_t bytes = element_bytes;
  for (int d = 0; d < tensor.rank; ++d) {
    if (__builtin_mul_overflow(bytes, tensor.shape[d], &bytes)) {
      return refused("the view's size overflows 64 bits: " + text_of(tensor));
    }
  }
  return {};
}

// Adds a dimension, innermost first, to runs of bytes. False where the bytes become neither a
// range nor a rectangle.
bool widen(Region& region, const Dimension& dimension) {
  const uint64_t more = dimension.extent - 1;
  if (region.rows == 1) {
    if (dimension.stride <= region.row_bytes) {  // they touch, or repeat bytes: still one run
      region.row_bytes += more * dimension.stride;
      return true;
    }
    region.rows = dimension.extent;
    region.pitch = dimension.stride;
    return true;
  }
  const uint64_t rows_apart = dimension.stride / region.pitch;
  if (dimension.stride % region.pitch != 0 || rows_apart > region.rows) return false;
  region.rows += more * rows_apart;
  return true;
}

Result<Region> general_region_of(const Tensor& tensor, uint64_t buffer_bytes) {
  const uint64_t element_bytes = size_of(tensor.dtype);
  if (element_bytes == 0) {
    return refused("unknown dtype " + std::to_string(static_cast<int>(tensor.dtype)));
  }
  if (tensor.rank > Tensor::kRankMax) {
    return refused("rank " + std::to_string(tensor.rank) + ", the most is " +
                   std::to_string(Tensor::kRankMax));
  }
  for (int d = 0; d < tensor.rank; ++d) {
    if (tensor.shape[d] == 0) return Region{};
  }
  STRATA_TRY(check_elements(tensor, element_bytes));

  // The bytes do not depend on the order of the dimensions, nor on their direction once the begin
  // is that of the lowest element; one of stride 0 or extent 1 adds none.
  std::array<Dimension, Tensor::kRankMax> dimensions;  // by stride, innermost first
  int count = 0;
  Wide below = 0, above = 0;  // bytes from the first element down and up to the farthest
  for (int d = 0; d < tensor.rank; ++d) {
    const int64_t stride = tensor.stride[d];
    const uint64_t extent = tensor.shape[d];
    if (extent == 1 || stride == 0) continue;
    const uint64_t magnitude =
        stride < 0 ? ~static_cast<uint64_t>(stride) + 1 : static_cast<uint64_t>(stride);
    // No overflow: the extents' product in bytes has 64 bits, a stride has 63.
    (stride < 0 ? below : above) += Wide{extent - 1} * magnitude * element_bytes;
    // One that wraps is of a view that is refused before it is looked at.
    const Dimension dimension{extent, magnitude * element_bytes};
    int at = count++;
    for (; at > 0 && dimensions[at - 1].stride > dimension.stride; --at) {
      dimensions[at] = dimensions[at - 1];
    }
    dimensions[at] = dimension;
  }
  if (below > tensor.offset) return leaves(tensor, buffer_bytes, "below");
  if (tensor.offset + above + element_bytes > buffer_bytes) {
    return leaves(tensor, buffer_bytes, "above");
  }
  Region region{tensor.offset - static_cast<uint64_t>(below), element_bytes, 1, 0, false};
  for (int d = 0; d < count; ++d) {
    if (widen(region, dimensions[d])) continue;
    region.row_bytes = static_cast<uint64_t>(below + above) + element_bytes;
    region.rows = 1;
    region.pitch = 0;
    region.cover = true;
    break;
  }
  return region;
}

}  // namespace

// Row-major views of one and two dimensions are decided here; everything else, and everything that
// must be refused, goes the general way and gives the same region.
Result<Region> region_of(const Tensor& tensor, uint64_t buffer_bytes) {
  const uint64_t element_bytes = size_of(tensor.dtype);
  const int rank = tensor.rank;
  if (element_bytes == 0 || rank < 1 || rank > 2 || tensor.stride[rank - 1] != 1) {
    return general_region_of(tensor, buffer_bytes);
  }
  const uint64_t columns = tensor.shape[rank - 1];
  uint64_t rows = 1;
  uint64_t pitch = 0;
  uint64_t row_bytes = 0;
  uint64_t bytes = 0;  // from the first to the last
  bool odd = __builtin_mul_overflow(columns, element_bytes, &row_bytes) || columns == 0;
  if (rank == 2) {
    rows = tensor.shape[0];
    odd = odd || rows == 0 || tensor.stride[0] < 0 ||
          static_cast<uint64_t>(tensor.stride[0]) < columns ||
          __builtin_mul_overflow(static_cast<uint64_t>(tensor.stride[0]), element_bytes, &pitch) ||
          __builtin_mul_overflow(rows - 1, pitch, &bytes);
  }
  uint64_t end = 0;
  odd = odd || __builtin_add_overflow(bytes, row_bytes, &bytes) ||
        __builtin_add_overflow(tensor.offset, bytes, &end) || end > buffer_bytes;
  if (odd) return general_region_of(tensor, buffer_bytes);
  if (rows == 1 || pitch == row_bytes) return Region{tensor.offset, bytes, 1, 0, false};
  return Region{tensor.offset, row_bytes, rows, pitch, false};
}

Overlap overlap_kind(const Region& a, const Region& b) {
  if (a.empty() || b.empty()) return Overlap::kNone;
  const Region& low = a.begin <= b.begin ? a : b;
  const Region& high = a.begin <= b.begin ? b : a;
  const uint64_t distance = high.begin - low.begin;
  if (high.begin >= low.end()) return Overlap::kNone;
  if (a.cover || b.cover) return Overlap::kCover;
  // A first row of `high` that begins in a run that `low` begins with, whatever their pitches.
  if (distance < low.row_bytes) return Overlap::kExact;
  // From here `low` has more rows. One row of `high` has every pitch.
  if (high.rows > 1 && high.pitch != low.pitch) return Overlap::kCover;
  // Row k of `low` is the first that ends after high's begin; it is there, since `low` ends after
  // it. A later one meets high's rows only where this one does, as many rows up in both.
  const uint64_t k = (distance - low.row_bytes) / low.pitch + 1;
  return k * low.pitch < distance + high.row_bytes ? Overlap::kExact : Overlap::kNone;
}

bool contains(const Region& outer, const Region& inner) {
  if (inner.empty()) return true;
  if (outer.empty() || outer.cover) return false;
  if (inner.begin < outer.begin || inner.end() > outer.end()) return false;
  if (outer.rows == 1) return true;
  if (inner.rows > 1 && inner.pitch % outer.pitch != 0) return false;
  // All rows of `inner` begin at the same column of `outer`, so that the first decides for all;
  // that outer has those rows follows from the ends.
  const uint64_t column = (inner.begin - outer.begin) % outer.pitch;
  return column < outer.row_bytes && inner.row_bytes <= outer.row_bytes - column;
}

}  // namespace strata::graph
