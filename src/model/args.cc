#include "model/args.h"

#include <fmt/format.h>

#include "base/result.h"
#include "model/extent.h"

namespace strata::model {
namespace {

Error refused(std::string text) {
  return Error(Code::kInvalidArgument, Scope::kCall, std::move(text));
}

Error corrupt(std::string text) {
  return Error(Code::kCorrupt, Scope::kTask, "the arguments of a task: " + std::move(text));
}

bool is_tag(uint8_t tag) {
  return tag >= static_cast<uint8_t>(TensorArgType::kInput) &&
         tag <= static_cast<uint8_t>(TensorArgType::kNoDep);
}

// Takes n bytes off the front; null where fewer are left.
const std::byte* take(std::span<const std::byte>* rest, size_t n) {
  if (n > rest->size()) return nullptr;
  const std::byte* out = rest->data();
  *rest = rest->subspan(n);
  return out;
}

// One tensor off the front of `rest`, all but its data pointer; `offset` is that of its first
// element in the segment.
Result<void> take_tensor(std::span<const std::byte>* rest, uint32_t number, strata_tensor* out,
                         uint32_t* segment, uint64_t* offset) {
  const std::byte* raw = take(rest, sizeof(ArgsTensor));
  if (raw == nullptr) return corrupt(fmt::format("tensor {} is cut off", number));
  ArgsTensor fixed;
  std::memcpy(&fixed, raw, sizeof fixed);
  if (fixed.rank > Tensor::kRankMax) {
    return corrupt(fmt::format("tensor {} has rank {}", number, fixed.rank));
  }
  if (size_of(static_cast<DType>(fixed.dtype)) == 0) {
    return corrupt(fmt::format("tensor {} has dtype {}", number, fixed.dtype));
  }
  if (!is_tag(fixed.tag)) return corrupt(fmt::format("tensor {} has tag {}", number, fixed.tag));
  if (fixed.transfer != kTransferCopy && fixed.transfer != kTransferMap) {
    return corrupt(fmt::format("tensor {} has transfer {}", number, fixed.transfer));
  }
  const size_t dims = 8 * size_t{fixed.rank};
  raw = take(rest, 2 * dims);
  if (raw == nullptr) return corrupt(fmt::format("tensor {} is cut off", number));
  out->data = nullptr;
  out->nbytes = fixed.nbytes;
  out->dtype = fixed.dtype;
  out->rank = fixed.rank;
  out->tag = fixed.tag;
  out->transfer = fixed.transfer;
  out->reserved = 0;
  // Word by word: clearing the whole and copying a length known only at run time was half of a
  // decode.
  for (uint32_t d = 0; d < Tensor::kRankMax; ++d) {
    out->shape[d] = 0;
    out->stride[d] = 0;
    if (d >= fixed.rank) continue;
    std::memcpy(&out->shape[d], raw + 8 * d, 8);
    std::memcpy(&out->stride[d], raw + dims + 8 * d, 8);
  }
  *segment = fixed.segment;
  *offset = fixed.offset;
  return {};
}

}  // namespace

Result<void> check_args(const TaskArgs& args) {
  if (args.tensors().size() > TaskArgs::kTensorsMax) {
    return refused(fmt::format("a task has at most {} tensors, not {}", TaskArgs::kTensorsMax,
                               args.tensors().size()));
  }
  if (args.scalars().size() > TaskArgs::kScalarsMax) {
    return refused(fmt::format("a task has at most {} scalars, not {}", TaskArgs::kScalarsMax,
                               args.scalars().size()));
  }
  if (args.inline_bytes().size() > TaskArgs::kInlineBytesMax) {
    return refused(fmt::format("a task has at most {} inline bytes, not {}; use a buffer",
                               TaskArgs::kInlineBytesMax, args.inline_bytes().size()));
  }
  size_t number = 0;
  for (const TensorArg& arg : args.tensors()) {
    if (arg.tensor.rank > Tensor::kRankMax) {
      return refused(fmt::format("tensor {} has rank {}, more than {}", number, arg.tensor.rank,
                                 Tensor::kRankMax));
    }
    if (size_of(arg.tensor.dtype) == 0) {
      return refused(fmt::format("tensor {} has unknown dtype {}", number,
                                 static_cast<unsigned>(arg.tensor.dtype)));
    }
    if (!is_tag(static_cast<uint8_t>(arg.tag))) {
      return refused(
          fmt::format("tensor {} has unknown tag {}", number, static_cast<unsigned>(arg.tag)));
    }
    if (static_cast<uint8_t>(arg.transfer) > static_cast<uint8_t>(Transfer::kMap)) {
      return refused(fmt::format("tensor {} has unknown transfer {}", number,
                                 static_cast<unsigned>(arg.transfer)));
    }
    ++number;
  }
  return {};
}

Result<void> ArgsDecoder::decode_erased(std::span<const std::byte> bytes, SegmentFn segment_of,
                                        void* context) {
  tensors_ = {};
  scalars_ = {};
  inline_ = {};
  told_ = {};
  refs_.clear();
  if (reinterpret_cast<uintptr_t>(bytes.data()) % alignof(uint64_t) != 0) {
    return corrupt("they are not 8-byte aligned");
  }
  std::span<const std::byte> rest = bytes;
  const std::byte* raw = take(&rest, sizeof(ArgsHeader));
  if (raw == nullptr) return corrupt("the header is cut off");
  ArgsHeader header;
  std::memcpy(&header, raw, sizeof header);
  if (header.tensor_count > TaskArgs::kTensorsMax || header.scalar_count > TaskArgs::kScalarsMax ||
      header.inline_bytes > TaskArgs::kInlineBytesMax || header.flags > kArgsWithRefs) {
    return corrupt(fmt::format("{} tensors, {} scalars, {} inline bytes, flags {}",
                               header.tensor_count, header.scalar_count, header.inline_bytes,
                               header.flags));
  }
  // Each tensor has at least its fixed part: no storage for counts that the bytes do not hold.
  if (header.tensor_count * sizeof(ArgsTensor) > rest.size()) {
    return corrupt(fmt::format("{} tensors in {} bytes", header.tensor_count, rest.size()));
  }
  strata_tensor* tensors = in_place_.data();
  if (header.tensor_count > kTensorsInPlace) {
    spilled_.resize(header.tensor_count);
    tensors = spilled_.data();
  }
  for (uint32_t i = 0; i < header.tensor_count; ++i) {
    strata_tensor& tensor = tensors[i];
    uint32_t index = 0;
    uint64_t offset = 0;
    STRATA_TRY(take_tensor(&rest, i, &tensor, &index, &offset));
    const MappedSegment segment = segment_of(context, index);
    if (segment.bytes == 0) {
      return Error(Code::kNotFound, Scope::kTask,
                   fmt::format("tensor {} is in segment {}, which is not mapped here", i, index));
    }
    Extent extent;
    if (!extent_inside(static_cast<DType>(tensor.dtype), tensor.rank, offset, tensor.shape,
                       tensor.stride, segment.bytes, &extent)) {
      return corrupt(fmt::format("tensor {} at byte {} leaves segment {} of {} bytes", i, offset,
                                 index, segment.bytes));
    }
    // Not extent.end - extent.begin: elements before the first one do not count.
    const uint64_t nbytes = extent.begin == extent.end ? 0 : extent.end - offset;
    if (tensor.nbytes != nbytes) {
      return corrupt(
          fmt::format("tensor {} says {} bytes, its shape says {}", i, tensor.nbytes, nbytes));
    }
    if (segment.base != nullptr) tensor.data = segment.base + offset;
    if (header.flags == kArgsWithRefs) refs_.push_back({{}, index, offset, 0, 0, false});
  }
  if (header.flags == kArgsWithRefs) STRATA_TRY(take_refs(&rest, segment_of, context));
  const std::byte* scalars = take(&rest, 8 * size_t{header.scalar_count});
  const size_t padded = (size_t{header.inline_bytes} + 7) & ~size_t{7};
  const std::byte* inlined = scalars == nullptr ? nullptr : take(&rest, padded);
  if (inlined == nullptr) return corrupt("scalars or inline bytes are cut off");
  if (!rest.empty()) return corrupt(fmt::format("{} bytes behind their end", rest.size()));
  told_ = refs_;
  tensors_ = {tensors, header.tensor_count};
  scalars_ = {reinterpret_cast<const uint64_t*>(scalars), header.scalar_count};
  inline_ = {inlined, header.inline_bytes};
  return {};
}

// One for each entry of refs_, which so far has the segment and, as buffer_offset, the place of the
// first element in it.
Result<void> ArgsDecoder::take_refs(std::span<const std::byte>* rest, SegmentFn segment_of,
                                    void* context) {
  uint32_t number = 0;
  for (DecodedRef& ref : refs_) {
    const std::byte* raw = take(rest, sizeof(ArgsRef));
    if (raw == nullptr)
      return corrupt(fmt::format("the reference of tensor {} is cut off", number));
    ArgsRef fixed;
    std::memcpy(&fixed, raw, sizeof fixed);
    const uint64_t segment_bytes = segment_of(context, ref.segment).bytes;
    const bool inside = fixed.offset <= ref.buffer_offset &&
                        fixed.buffer_bytes <= segment_bytes - (ref.buffer_offset - fixed.offset);
    if (!inside || fixed.uid == Uid{} || fixed.read_only > 1) {
      return corrupt(
          fmt::format("tensor {} is at byte {} of a buffer of {} bytes that leaves its "
                      "segment, or has no uid",
                      number, fixed.offset, fixed.buffer_bytes));
    }
    ref.uid = fixed.uid;
    ref.buffer_offset -= fixed.offset;
    ref.buffer_bytes = fixed.buffer_bytes;
    ref.offset = fixed.offset;
    ref.read_only = fixed.read_only == 1;
    ++number;
  }
  return {};
}

}  // namespace strata::model
