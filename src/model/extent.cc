#include "model/extent.h"

#include <fmt/format.h>

namespace strata::model {
namespace {

std::string shape_of(const Tensor& tensor) {
  std::string text;
  for (int d = 0; d < tensor.rank; ++d) {
    text += fmt::format("{}{}", d == 0 ? "" : " x ", tensor.shape[d]);
    if (tensor.stride[d] != 1) text += fmt::format(" (stride {})", tensor.stride[d]);
  }
  return text;
}

}  // namespace

Result<Extent> extent_of(const Tensor& tensor, uint64_t buffer_bytes) {
  Extent out;
  if (extent_inside(tensor.dtype, tensor.rank, tensor.offset, tensor.shape.data(),
                    tensor.stride.data(), buffer_bytes, &out)) {
    return out;
  }
  const auto invalid = [](std::string text) {
    return Error(Code::kInvalidArgument, Scope::kCall, std::move(text));
  };
  if (tensor.rank > Tensor::kRankMax) {
    return invalid(fmt::format("a tensor of rank {}, more than {}", tensor.rank, Tensor::kRankMax));
  }
  if (size_of(tensor.dtype) == 0) {
    return invalid(
        fmt::format("a tensor of unknown dtype {}", static_cast<unsigned>(tensor.dtype)));
  }
  return invalid(fmt::format("a tensor of {} [{}] at byte {} leaves its buffer of {} bytes",
                             name_of(tensor.dtype), shape_of(tensor), tensor.offset, buffer_bytes));
}

}  // namespace strata::model
