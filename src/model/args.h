// The arguments of one task as they stand in a mailbox's byte ring: written once at submit, copied
// by memcpy at dispatch, decoded in the child in place.
//
// Not the wire form of a TASK: both ends have the same layout id. All fields little-endian, all
// parts 8-byte aligned: ArgsHeader; for each tensor an ArgsTensor, u64 shape x rank,
// i64 stride x rank; for a child Worker or a chip an ArgsRef for each tensor; u64 scalars; inline
// bytes, padded with zeros to 8. Pure; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "base/check.h"
#include "strata/call.h"
#include "strata/result.h"
#include "strata/task_args.h"

namespace strata::model {

inline constexpr uint8_t kTransferCopy = 1;
inline constexpr uint8_t kTransferMap = 2;

struct ArgsHeader {
  uint32_t tensor_count;
  uint32_t scalar_count;
  uint32_t inline_bytes;
  uint32_t flags;  // kArgsWithRefs
};
static_assert(sizeof(ArgsHeader) == 16);
inline constexpr uint32_t kArgsWithRefs = 1;

struct ArgsTensor {
  uint32_t segment;
  uint8_t dtype;
  uint8_t rank;
  uint8_t tag;
  uint8_t transfer;
  uint64_t offset;  // of the first element in the segment
  uint64_t nbytes;  // from the first element to the end of the last
};
static_assert(sizeof(ArgsTensor) == 24);

// What a child Worker needs to pass a tensor on, and a chip to map it: which memory it is.
struct ArgsRef {
  Uid uid;
  uint64_t offset;        // of the first element in the buffer
  uint64_t buffer_bytes;  // the buffer lies in the tensor's segment, this many bytes
  uint64_t read_only;     // 1: nobody may write the buffer
};
static_assert(sizeof(ArgsRef) == 40);

// Where a tensor's buffer begins.
struct Placement {
  uint32_t segment = 0;
  uint64_t offset = 0;  // of the buffer in the segment
  uint8_t transfer = kTransferMap;
  uint64_t buffer_bytes = 0;  // told with refs, as is the next
  bool read_only = false;
};

// The limits of TaskArgs, and dtype, tag and rank of each tensor. Says nothing of buffers.
Result<void> check_args(const TaskArgs& args);

// At most this many for any arguments that check_args accepts.
inline constexpr size_t kEncodedArgsBytesMax =
    sizeof(ArgsHeader) +
    TaskArgs::kTensorsMax * (sizeof(ArgsTensor) + 16 * Tensor::kRankMax + sizeof(ArgsRef)) +
    TaskArgs::kScalarsMax * 8 + TaskArgs::kInlineBytesMax;

// Of arguments that check_args accepts. A multiple of 8.
inline size_t encoded_bytes(const TaskArgs& args, bool refs = false) {
  size_t n = sizeof(ArgsHeader) + 8 * args.scalars().size() +
             ((args.inline_bytes().size() + 7) & ~size_t{7});
  if (refs) n += sizeof(ArgsRef) * args.tensors().size();
  for (const TensorArg& arg : args.tensors()) {
    n += sizeof(ArgsTensor) + 16 * size_t{arg.tensor.rank};
  }
  return n;
}

// Writes encoded_bytes(args, refs) bytes to `out`. `resolve(const Tensor&)` gives the Placement of
// its buffer, once for each tensor in their order. Every tensor lies inside its buffer (extent_of),
// else nbytes means nothing. `refs`: for a child Worker or a chip.
template <class Resolve>
void encode_args(const TaskArgs& args, Resolve&& resolve, std::byte* out, bool refs = false) {
  const auto put = [&out](const void* from, size_t n) {
    std::memcpy(out, from, n);
    out += n;
  };
  const ArgsHeader header{
      static_cast<uint32_t>(args.tensors().size()), static_cast<uint32_t>(args.scalars().size()),
      static_cast<uint32_t>(args.inline_bytes().size()), refs ? kArgsWithRefs : 0};
  put(&header, sizeof header);
  std::byte* ref = nullptr;  // of the next tensor
  if (refs) {
    ref = out;
    for (const TensorArg& arg : args.tensors()) {
      ref += sizeof(ArgsTensor) + 16 * size_t{arg.tensor.rank};
    }
  }
  for (const TensorArg& arg : args.tensors()) {
    const Tensor& t = arg.tensor;
    const Placement place = resolve(t);
    uint64_t last = 0;  // elements from the first one to the last one, upwards
    uint64_t any = 1;
    for (int d = 0; d < t.rank; ++d) {
      any = t.shape[d] == 0 ? 0 : any;
      last += t.stride[d] > 0 ? (t.shape[d] - 1) * static_cast<uint64_t>(t.stride[d]) : 0;
    }
    const ArgsTensor fixed{place.segment,
                           static_cast<uint8_t>(t.dtype),
                           t.rank,
                           static_cast<uint8_t>(arg.tag),
                           place.transfer,
                           place.offset + t.offset,
                           any == 0 ? 0 : (last + 1) * size_of(t.dtype)};
    put(&fixed, sizeof fixed);
    for (int d = 0; d < t.rank; ++d) put(&t.shape[d], 8);
    for (int d = 0; d < t.rank; ++d) put(&t.stride[d], 8);
    if (!refs) continue;
    const ArgsRef named{t.uid, t.offset, place.buffer_bytes, place.read_only};
    std::memcpy(ref, &named, sizeof named);
    ref += sizeof named;
  }
  if (refs) out = ref;
  if (header.scalar_count > 0) put(args.scalars().data(), 8 * args.scalars().size());
  if (header.inline_bytes > 0) {
    put(args.inline_bytes().data(), header.inline_bytes);
    const size_t pad = -size_t{header.inline_bytes} & 7;
    if (pad > 0) std::memset(out, 0, pad);
  }
}

// A segment as this process knows it: bytes 0: not at all; base null: known, and not mapped, so
// that its tensors have a reference but no data pointer.
struct MappedSegment {
  std::byte* base = nullptr;
  uint64_t bytes = 0;
};

// Of a decoded tensor: which memory it is, and where that begins in its segment.
struct DecodedRef {
  Uid uid;
  uint32_t segment;
  uint64_t buffer_offset;  // of the buffer in the segment
  uint64_t buffer_bytes;
  uint64_t offset;  // of the first element in the buffer
  bool read_only;
};

// The child's side: one object for each child, reused for each task; the views it gives hold until
// the next decode and as long as the bytes decoded from. Allocates nothing for up to 16 tensors.
// One thread.
class ArgsDecoder {
 public:
  static constexpr size_t kTensorsInPlace = 16;

  ArgsDecoder() = default;
  ArgsDecoder(const ArgsDecoder&) = delete;
  ArgsDecoder& operator=(const ArgsDecoder&) = delete;

  // `segment_of(uint32_t)` gives a MappedSegment. Bytes are checked against themselves and every
  // tensor against its segment: kCorrupt, kNotFound (segment) or nothing. They begin 8-byte
  // aligned and are consumed exactly. After an Error all views are empty.
  template <class SegmentOf>
  Result<void> decode(std::span<const std::byte> bytes, SegmentOf&& segment_of) {
    return decode_erased(
        bytes,
        [](void* context, uint32_t index) -> MappedSegment {
          return (*static_cast<std::remove_reference_t<SegmentOf>*>(context))(index);
        },
        const_cast<void*>(static_cast<const void*>(&segment_of)));
  }

  std::span<const strata_tensor> tensors() const { return tensors_; }
  std::span<const uint64_t> scalars() const { return scalars_; }
  std::span<const std::byte> inline_bytes() const { return inline_; }
  // One for each tensor where they were encoded with refs, else none.
  std::span<const DecodedRef> refs() const { return told_; }

 private:
  using SegmentFn = MappedSegment (*)(void* context, uint32_t index);
  Result<void> decode_erased(std::span<const std::byte> bytes, SegmentFn segment_of, void* context);
  Result<void> take_refs(std::span<const std::byte>* rest, SegmentFn segment_of, void* context);

  std::array<strata_tensor, kTensorsInPlace> in_place_;
  std::vector<strata_tensor> spilled_;
  std::span<const strata_tensor> tensors_;
  std::span<const uint64_t> scalars_;
  std::span<const std::byte> inline_;
  std::span<const DecodedRef> told_;
  std::vector<DecodedRef> refs_;
};

}  // namespace strata::model
