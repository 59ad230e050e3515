// Arguments of tasks for child Workers: each tensor is told with the memory that it is.
#include <gtest/gtest.h>

#include "base/prng.h"
#include "model/args.h"

namespace strata::model {
namespace {

constexpr uint64_t kSegmentBytes = 8192;
std::byte memory[2][kSegmentBytes];

constexpr auto segment_of = [](uint32_t index) {
  return index < 2 ? MappedSegment{memory[index], kSegmentBytes} : MappedSegment{};
};

Tensor row(uint64_t low, uint64_t offset, uint64_t elements) {
  Tensor t;
  t.uid = {5, low};
  t.dtype = DType::kI64;
  t.rank = 1;
  t.offset = offset;
  t.shape[0] = elements;
  t.stride[0] = 1;
  return t;
}

std::vector<uint64_t> encode(const TaskArgs& args, const std::vector<Placement>& places,
                             bool refs) {
  std::vector<uint64_t> out(encoded_bytes(args, refs) / 8, 0xa5a5a5a5a5a5a5a5ull);
  size_t next = 0;
  encode_args(
      args, [&](const Tensor&) { return places[next++]; }, reinterpret_cast<std::byte*>(out.data()),
      refs);
  return out;
}

TaskArgs two_tensors() {
  const std::byte inlined[] = {std::byte{1}, std::byte{2}, std::byte{3}};
  return TaskArgs()
      .add_tensor(row(1, 16, 4), INPUT)
      .add_tensor(row(2, 0, 3), INOUT)
      .add_scalar(uint64_t{9})
      .set_inline(inlined);
}
const std::vector<Placement> kPlaces = {{1, 512, kTransferMap, 256}, {0, 64, kTransferMap, 24}};

TEST(ArgsRefs, SayWhichMemoryEachTensorIs) {
  ArgsDecoder decoder;
  const std::vector<uint64_t> bytes = encode(two_tensors(), kPlaces, true);
  decoder.decode(std::as_bytes(std::span(bytes)), segment_of).value();
  ASSERT_EQ(decoder.refs().size(), 2u);
  EXPECT_EQ(decoder.refs()[0].uid, (Uid{5, 1}));
  EXPECT_EQ(decoder.refs()[0].segment, 1u);
  EXPECT_EQ(decoder.refs()[0].buffer_offset, 512u);
  EXPECT_EQ(decoder.refs()[0].buffer_bytes, 256u);
  EXPECT_EQ(decoder.refs()[0].offset, 16u);
  EXPECT_EQ(decoder.refs()[1].uid, (Uid{5, 2}));
  EXPECT_EQ(decoder.refs()[1].buffer_offset, 64u);
  // All else is as without them.
  EXPECT_EQ(decoder.tensors()[0].data, memory[1] + 528);
  EXPECT_EQ(decoder.scalars()[0], 9u);
  EXPECT_EQ(decoder.inline_bytes()[2], std::byte{3});
}

TEST(ArgsRefs, AreLeftOutUnlessAskedFor) {
  ArgsDecoder decoder;
  const std::vector<uint64_t> with = encode(two_tensors(), kPlaces, true);
  decoder.decode(std::as_bytes(std::span(with)), segment_of).value();
  const std::vector<uint64_t> without = encode(two_tensors(), kPlaces, false);
  EXPECT_EQ(with.size(), without.size() + 2 * sizeof(ArgsRef) / 8);
  decoder.decode(std::as_bytes(std::span(without)), segment_of).value();
  EXPECT_TRUE(decoder.refs().empty());
  EXPECT_EQ(decoder.tensors().size(), 2u);
}

TEST(ArgsRefs, OfBuffersThatLeaveTheirSegmentAreRefused) {
  ArgsDecoder decoder;
  const auto refuses = [&](const Placement& place) {
    const std::vector<uint64_t> bytes = encode(two_tensors(), {kPlaces[0], place}, true);
    const Result<void> decoded = decoder.decode(std::as_bytes(std::span(bytes)), segment_of);
    EXPECT_EQ(decoder.refs().empty(), !decoded.ok());
    return !decoded.ok();
  };
  EXPECT_FALSE(refuses({0, 64, kTransferMap, kSegmentBytes - 64}));
  EXPECT_TRUE(refuses({0, 64, kTransferMap, kSegmentBytes - 63}));
  EXPECT_TRUE(refuses({0, 64, kTransferMap, ~uint64_t{0}}));
  Tensor no_uid = row(0, 0, 1);
  no_uid.uid = {};
  const TaskArgs nameless = TaskArgs().add_tensor(no_uid, INPUT);
  const std::vector<uint64_t> bytes = encode(nameless, kPlaces, true);
  EXPECT_FALSE(decoder.decode(std::as_bytes(std::span(bytes)), segment_of).ok());
}

TEST(ArgsRefs, NeverNameBytesOutsideASegmentWhateverTheBytes) {
  base::Prng prng(11);
  const std::vector<uint64_t> good = encode(two_tensors(), kPlaces, true);
  ArgsDecoder decoder;
  int decoded = 0;
  for (int i = 0; i < 50'000; ++i) {
    std::vector<uint64_t> bytes = good;
    for (uint64_t n = 1 + prng.below(3); n > 0; --n) {
      reinterpret_cast<uint8_t*>(bytes.data())[prng.below(bytes.size() * 8)] =
          static_cast<uint8_t>(prng.below(256));
    }
    if (!decoder.decode(std::as_bytes(std::span(bytes)), segment_of)) continue;
    ++decoded;
    for (const DecodedRef& ref : decoder.refs()) {
      ASSERT_LT(ref.segment, 2u);
      ASSERT_LE(ref.buffer_offset, kSegmentBytes);
      ASSERT_LE(ref.buffer_bytes, kSegmentBytes - ref.buffer_offset);
    }
  }
  EXPECT_GT(decoded, 1'000);
}

TEST(ArgsRefs, CutAnywhereAreRefused) {
  const std::vector<uint64_t> good = encode(two_tensors(), kPlaces, true);
  ArgsDecoder decoder;
  const auto all = std::as_bytes(std::span(good));
  for (size_t n = 0; n < all.size(); ++n) {
    ASSERT_FALSE(decoder.decode(all.first(n), segment_of).ok()) << n;
    ASSERT_TRUE(decoder.refs().empty()) << n;
  }
}

}  // namespace
}  // namespace strata::model
