#include "model/args.h"

#include <gtest/gtest.h>

#include "base/prng.h"
#include "model/extent.h"

namespace strata::model {
namespace {

constexpr size_t kSegmentBytes = 4096;
constexpr uint64_t kBufferOffset = 512;  // of every buffer in its segment
constexpr uint32_t kSegmentCount = 3;

// Three segments; a tensor's buffer_index names its segment.
class Memory {
 public:
  Memory() : bytes_(kSegmentCount * kSegmentBytes) {}
  static Placement place(const Tensor& tensor) { return {tensor.buffer_index, kBufferOffset}; }
  MappedSegment operator()(uint32_t index) {
    if (index >= kSegmentCount) return {};
    return {base(index), kSegmentBytes};
  }
  std::byte* base(uint32_t index) { return bytes_.data() + index * kSegmentBytes; }

 private:
  std::vector<std::byte> bytes_;
};

Tensor matrix(uint32_t segment, uint64_t offset, uint64_t rows, uint64_t columns, int64_t stride) {
  Tensor t;
  t.uid = {1, segment + 1};
  t.buffer_index = segment;
  t.dtype = DType::kF64;
  t.rank = 2;
  t.offset = offset;
  t.shape = {rows, columns};
  t.stride = {stride, 1};
  return t;
}

// 8-byte aligned, exactly as long as the encoding: a sanitizer sees any access beyond.
std::vector<uint64_t> encode(const TaskArgs& args) {
  const size_t n = encoded_bytes(args);
  EXPECT_EQ(n % 8, 0u);
  std::vector<uint64_t> out(n / 8, 0xa5a5a5a5a5a5a5a5ull);
  encode_args(args, Memory::place, reinterpret_cast<std::byte*>(out.data()));
  return out;
}

std::span<const std::byte> bytes_of(const std::vector<uint64_t>& words) {
  return std::as_bytes(std::span(words));
}

TEST(Args, HaveGoldenBytes) {
  TaskArgs args;
  args.add_tensor(matrix(2, 16, 3, 2, 5), INOUT).add_scalar(uint64_t{0x1122334455667788});
  const std::byte inlined[] = {std::byte{0xaa}, std::byte{0xbb}, std::byte{0xcc}};
  args.set_inline(inlined);
  const std::vector<uint64_t> expect = {
      0x00000001'00000001,     // one scalar, one tensor
      0x00000000'00000003,     // three inline bytes
      0x02'03'02'0c'00000002,  // map, INOUT, rank 2, f64; segment 2
      528,                     // 512 + 16
      8 * (2 * 5 + 1 + 1),     // to the end of the last element
      3,
      2,
      5,
      1,  // shape, strides
      0x1122334455667788,
      0xccbbaa,  // the scalar; inline bytes, padded
  };
  EXPECT_EQ(encode(args), expect);
}

TEST(Args, WithNothingAreAHeaderAlone) {
  const std::vector<uint64_t> words = encode(TaskArgs());
  EXPECT_EQ(words, (std::vector<uint64_t>{0, 0}));
  ArgsDecoder decoder;
  Memory memory;
  ASSERT_TRUE(decoder.decode(bytes_of(words), memory).ok());
  EXPECT_TRUE(decoder.tensors().empty());
  EXPECT_TRUE(decoder.scalars().empty());
  EXPECT_TRUE(decoder.inline_bytes().empty());
}

Tensor random_tensor(base::Prng& prng) {
  Tensor t;
  t.buffer_index = static_cast<uint32_t>(prng.below(kSegmentCount));
  t.dtype = static_cast<DType>(prng.between(1, 15));
  t.rank = static_cast<uint8_t>(prng.below(Tensor::kRankMax + 1));
  for (int d = 0; d < t.rank; ++d) {
    t.shape[d] = prng.chance(1, 12) ? 0 : prng.between(1, 3);
    t.stride[d] = static_cast<int64_t>(prng.below(9)) - 4;
  }
  t.offset = 1024;  // at most 8 dimensions x 2 steps x 4 elements x 8 bytes to either side
  return t;
}

// Every element by counting up its coordinates: the range that they cover.
Extent brute_extent(const Tensor& t) {
  Extent out{~0ull, 0};
  std::array<uint64_t, Tensor::kRankMax> at{};
  if (t.elements() == 0) return {t.offset, t.offset};
  for (;;) {
    int64_t element = 0;
    for (int d = 0; d < t.rank; ++d) element += static_cast<int64_t>(at[d]) * t.stride[d];
    const uint64_t begin =
        t.offset + static_cast<uint64_t>(element * static_cast<int64_t>(size_of(t.dtype)));
    out.begin = std::min(out.begin, begin);
    out.end = std::max<uint64_t>(out.end, begin + size_of(t.dtype));
    int d = t.rank - 1;
    while (d >= 0 && ++at[d] == t.shape[d]) at[d--] = 0;
    if (d < 0) return out;
  }
}

TEST(Extent, CoversExactlyTheElementsOfRandomTensors) {
  base::Prng prng(2);
  for (int round = 0; round < 5000; ++round) {
    const Tensor t = random_tensor(prng);
    const Extent expect = brute_extent(t);
    const Extent got = extent_of(t, 4096).value();
    ASSERT_EQ(got.begin, expect.begin);
    ASSERT_EQ(got.end, expect.end);
    EXPECT_TRUE(extent_of(t, expect.end).ok());
    if (expect.end > t.offset) {
      EXPECT_FALSE(extent_of(t, expect.end - 1).ok());
    }
    if (expect.begin < t.offset) {
      Tensor low = t;
      low.offset = t.offset - expect.begin - 1;
      EXPECT_FALSE(extent_of(low, 4096).ok());
    }
  }
}

TEST(Extent, NeverOverflows) {
  Tensor t = matrix(0, 0, 2, 2, 1);
  for (const uint64_t shape : {uint64_t{1} << 62, ~uint64_t{0}}) {
    for (const int64_t stride : {INT64_MAX, INT64_MIN, int64_t{1} << 40}) {
      t.shape[0] = shape;
      t.stride[0] = stride;
      EXPECT_FALSE(extent_of(t, ~uint64_t{0}).ok());
    }
  }
  t = matrix(0, ~uint64_t{0}, 1, 1, 1);
  EXPECT_FALSE(extent_of(t, ~uint64_t{0}).ok());
  EXPECT_FALSE(extent_of(t, 16).ok());
}

TEST(Extent, SaysWhatIsWrong) {
  Tensor t = matrix(0, 8, 4, 4, 4);
  EXPECT_EQ(extent_of(t, 128).error().message(),
            "a tensor of f64 [4 (stride 4) x 4] at byte 8 leaves its buffer of 128 bytes");
  t.rank = 9;
  EXPECT_EQ(extent_of(t, 128).error().message(), "a tensor of rank 9, more than 8");
  t.rank = 2;
  t.dtype = static_cast<DType>(77);
  EXPECT_EQ(extent_of(t, 128).error().message(), "a tensor of unknown dtype 77");
}

TEST(Args, ComeBackWhateverTheyAre) {
  base::Prng prng(3);
  ArgsDecoder decoder;
  Memory memory;
  for (int round = 0; round < 2000; ++round) {
    TaskArgs args;
    const uint64_t tensors = prng.chance(1, 20) ? prng.between(17, 256) : prng.below(17);
    for (uint64_t i = 0; i < tensors; ++i) {
      args.add_tensor(random_tensor(prng), static_cast<TensorArgType>(prng.between(1, 5)));
    }
    for (uint64_t i = prng.below(20); i > 0; --i) args.add_scalar(prng.next());
    std::vector<std::byte> inlined(prng.below(30));
    for (std::byte& b : inlined) b = static_cast<std::byte>(prng.next());
    args.set_inline(inlined);
    ASSERT_TRUE(check_args(args).ok());
    const std::vector<uint64_t> words = encode(args);
    const Result<void> decoded = decoder.decode(bytes_of(words), memory);
    ASSERT_TRUE(decoded.ok()) << decoded.error().to_string();
    ASSERT_EQ(decoder.tensors().size(), tensors);
    for (size_t i = 0; i < tensors; ++i) {
      const Tensor& t = args.tensors()[i].tensor;
      const strata_tensor& got = decoder.tensors()[i];
      ASSERT_EQ(got.data, memory.base(t.buffer_index) + kBufferOffset + t.offset);
      const Extent extent = brute_extent(t);
      ASSERT_EQ(got.nbytes, extent.begin == extent.end ? 0 : extent.end - t.offset);
      ASSERT_EQ(got.dtype, static_cast<uint8_t>(t.dtype));
      ASSERT_EQ(got.rank, t.rank);
      ASSERT_EQ(got.tag, static_cast<uint8_t>(args.tensors()[i].tag));
      ASSERT_EQ(got.transfer, kTransferMap);
      ASSERT_TRUE(std::equal(t.shape.begin(), t.shape.end(), got.shape));
      ASSERT_TRUE(std::equal(t.stride.begin(), t.stride.end(), got.stride));
    }
    ASSERT_TRUE(std::ranges::equal(decoder.scalars(), args.scalars()));
    ASSERT_TRUE(std::ranges::equal(decoder.inline_bytes(), inlined));
  }
}

TaskArgs sample() {
  TaskArgs args;
  args.add_tensor(matrix(0, 0, 4, 4, 4), INPUT).add_tensor(matrix(1, 64, 4, 4, 8), INOUT);
  args.add_scalar(1.5).add_scalar(7);
  const std::byte inlined[5] = {};
  return args.set_inline(inlined);
}

TEST(ArgsDecoder, RefusesBytesThatAreCutAnywhereOrTooMany) {
  ArgsDecoder decoder;
  Memory memory;
  std::vector<uint64_t> words = encode(sample());
  for (size_t n = 0; n < 8 * words.size(); ++n) {
    // A copy of its own length, so that a sanitizer sees a read beyond.
    std::vector<std::byte> cut(bytes_of(words).begin(), bytes_of(words).begin() + n);
    const Result<void> result = decoder.decode(cut, memory);
    ASSERT_FALSE(result.ok()) << n;
    EXPECT_EQ(result.error().code(), Code::kCorrupt);
    EXPECT_TRUE(decoder.tensors().empty());
    EXPECT_TRUE(decoder.scalars().empty());
  }
  words.push_back(0);
  EXPECT_FALSE(decoder.decode(bytes_of(words), memory).ok());
}

TEST(ArgsDecoder, RefusesBytesThatAreNotAligned) {
  std::vector<uint64_t> words(3);
  ArgsDecoder decoder;
  Memory memory;
  EXPECT_FALSE(decoder.decode(bytes_of(words).subspan(4, 16), memory).ok());
  EXPECT_TRUE(decoder.decode(bytes_of(words).first(16), memory).ok());
}

// Word 2 of the encoding is segment, dtype, rank, tag, transfer of the first tensor.
Result<void> decode_with(size_t word, uint64_t clear, uint64_t set) {
  std::vector<uint64_t> words = encode(sample());
  words[word] = (words[word] & ~clear) | set;
  ArgsDecoder decoder;
  Memory memory;
  return decoder.decode(bytes_of(words), memory);
}

TEST(ArgsDecoder, RefusesEachFieldThatIsWrong) {
  ASSERT_TRUE(decode_with(2, 0, 0).ok());
  const uint64_t byte = 0xff;
  EXPECT_EQ(decode_with(2, 0xffffffff, 3).error().code(), Code::kNotFound);  // segment
  EXPECT_EQ(decode_with(2, byte << 32, 0).error().code(), Code::kCorrupt);   // dtype
  EXPECT_EQ(decode_with(2, byte << 32, 19ull << 32).error().code(), Code::kCorrupt);
  EXPECT_EQ(decode_with(2, byte << 40, 9ull << 40).error().code(), Code::kCorrupt);  // rank
  EXPECT_EQ(decode_with(2, byte << 48, 0).error().code(), Code::kCorrupt);           // tag
  EXPECT_EQ(decode_with(2, byte << 48, 6ull << 48).error().code(), Code::kCorrupt);
  EXPECT_EQ(decode_with(2, byte << 56, 3ull << 56).error().code(), Code::kCorrupt);  // transfer
  EXPECT_EQ(decode_with(3, ~0ull, kSegmentBytes).error().code(), Code::kCorrupt);    // offset
  EXPECT_EQ(decode_with(3, ~0ull, ~0ull).error().code(), Code::kCorrupt);
  EXPECT_EQ(decode_with(4, 0, 1).error().code(), Code::kCorrupt);                // nbytes
  EXPECT_EQ(decode_with(5, ~0ull, 1ull << 61).error().code(), Code::kCorrupt);   // shape
  EXPECT_EQ(decode_with(7, ~0ull, ~0ull << 40).error().code(), Code::kCorrupt);  // stride
  EXPECT_EQ(decode_with(1, 0, 1ull << 32).error().code(), Code::kCorrupt);       // flags
  EXPECT_EQ(decode_with(1, 0, 2ull << 32).error().code(), Code::kCorrupt);
  EXPECT_EQ(decode_with(0, ~0ull, 257).error().code(), Code::kCorrupt);  // counts
  EXPECT_EQ(decode_with(0, ~0ull, 257ull << 32).error().code(), Code::kCorrupt);
  EXPECT_EQ(decode_with(1, ~0ull, 64 * 1024 + 1).error().code(), Code::kCorrupt);
}

TEST(ArgsDecoder, GivesReferencesAloneInASegmentThatIsKnownAndNotMapped) {
  const TaskArgs args = sample();
  const size_t bytes = encoded_bytes(args, true);
  std::vector<uint64_t> words(bytes / 8);
  const auto place = [](const Tensor& t) {
    return Placement{t.buffer_index, kBufferOffset, kTransferCopy, 1000, t.buffer_index == 1};
  };
  encode_args(args, place, reinterpret_cast<std::byte*>(words.data()), true);
  ArgsDecoder decoder;
  const auto unmapped = [](uint32_t) { return MappedSegment{nullptr, kSegmentBytes}; };
  ASSERT_TRUE(decoder.decode(bytes_of(words), unmapped).ok());
  EXPECT_EQ(decoder.tensors()[1].data, nullptr);
  EXPECT_EQ(decoder.tensors()[1].transfer, kTransferCopy);
  ASSERT_EQ(decoder.refs().size(), 2u);
  const DecodedRef& second = decoder.refs()[1];
  EXPECT_EQ(second.uid, (Uid{1, 2}));
  EXPECT_EQ(second.segment, 1u);
  EXPECT_EQ(second.buffer_offset, kBufferOffset);
  EXPECT_EQ(second.buffer_bytes, 1000u);
  EXPECT_EQ(second.offset, 64u);
  EXPECT_TRUE(second.read_only);
  EXPECT_FALSE(decoder.refs()[0].read_only);
  const auto small = [](uint32_t) { return MappedSegment{nullptr, 64}; };
  EXPECT_EQ(decoder.decode(bytes_of(words), small).error().code(), Code::kCorrupt);
}

TEST(ArgsDecoder, NeverGivesATensorOutsideItsSegmentWhateverTheBytes) {
  base::Prng prng(4);
  const std::vector<uint64_t> good = encode(sample());
  ArgsDecoder decoder;
  Memory memory;
  int accepted = 0;
  for (int round = 0; round < 50'000; ++round) {
    std::vector<uint64_t> words = good;
    auto* raw = reinterpret_cast<unsigned char*>(words.data());
    for (uint64_t n = prng.between(1, 4); n > 0; --n) {
      raw[prng.below(8 * words.size())] = static_cast<unsigned char>(prng.next());
    }
    if (!decoder.decode(bytes_of(words), memory).ok()) continue;
    ++accepted;
    for (const strata_tensor& t : decoder.tensors()) {
      const auto* data = static_cast<const std::byte*>(t.data);
      ASSERT_GE(data, memory.base(0));
      ASSERT_LE(data + t.nbytes, memory.base(kSegmentCount));
    }
  }
  EXPECT_GT(accepted, 0);
}

TEST(Args, OverALimitAreRefused) {
  TaskArgs args;
  for (size_t i = 0; i < TaskArgs::kTensorsMax; ++i) args.add_tensor(matrix(0, 0, 1, 1, 1), INPUT);
  for (size_t i = 0; i < TaskArgs::kScalarsMax; ++i) args.add_scalar(i);
  args.set_inline(std::vector<std::byte>(TaskArgs::kInlineBytesMax));
  EXPECT_TRUE(check_args(args).ok());
  EXPECT_LE(encoded_bytes(args), kEncodedArgsBytesMax);
  {
    TaskArgs more = args;
    more.add_tensor(matrix(0, 0, 1, 1, 1), INPUT);
    EXPECT_EQ(check_args(more).error().message(), "a task has at most 256 tensors, not 257");
  }
  {
    TaskArgs more = args;
    EXPECT_EQ(check_args(more.add_scalar(0)).error().message(),
              "a task has at most 256 scalars, not 257");
  }
  args.set_inline(std::vector<std::byte>(TaskArgs::kInlineBytesMax + 1));
  EXPECT_NE(check_args(args).error().message().find("65536 inline bytes"), std::string::npos);
}

TEST(Args, WithATensorThatIsNoneAreRefused) {
  Tensor t = matrix(0, 0, 1, 1, 1);
  t.rank = 9;
  EXPECT_NE(check_args(TaskArgs().add_tensor(t, INPUT)).error().message().find("rank 9"),
            std::string::npos);
  t = matrix(0, 0, 1, 1, 1);
  t.dtype = static_cast<DType>(0);
  EXPECT_NE(check_args(TaskArgs().add_tensor(t, INPUT)).error().message().find("dtype 0"),
            std::string::npos);
  t = matrix(0, 0, 1, 1, 1);
  EXPECT_NE(check_args(TaskArgs().add_tensor(t, static_cast<TensorArgType>(6)))
                .error()
                .message()
                .find("tag 6"),
            std::string::npos);
  EXPECT_NE(check_args(TaskArgs().add_tensor(t, INPUT, static_cast<Transfer>(3)))
                .error()
                .message()
                .find("transfer 3"),
            std::string::npos);
}

}  // namespace
}  // namespace strata::model
