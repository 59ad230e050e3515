// Preamble, header, and the cutting of a stream into frames.
#include "wire/frame.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/crc32c.h"
#include "base/prng.h"
#include "messages.h"

namespace strata::wire {
namespace {

std::string text_of(const Error& error) {
  return error.message();
}

std::vector<std::byte> frame_of_task(uint64_t sequence = 5) {
  std::vector<std::byte> out;
  append_frame({FrameType::kTask, 77, 3, 0, sequence, 0, 0}, sample::task(), &out).value();
  return out;
}

// After a change, so that the CRC does not hide what is tested.
void mend_crc(std::vector<std::byte>* frame) {
  const uint32_t crc = base::crc32c(std::span(*frame).first(40));
  std::memcpy(frame->data() + 40, &crc, 4);
}

Result<FrameHeader> header_of(const std::vector<std::byte>& frame) {
  return decode_header(std::span(frame).first<kHeaderBytes>());
}

TEST(Crc32c, HasTheKnownValuesAndBothWaysAgree) {
  const auto bytes = [](std::string_view text) { return std::as_bytes(std::span(text)); };
  EXPECT_EQ(base::crc32c(bytes("123456789")), 0xe3069283u);
  const std::vector<std::byte> zeros(32);
  EXPECT_EQ(base::crc32c(zeros), 0x8a9136aau);  // RFC 3720, B.4
  base::Prng prng(1);
  std::vector<std::byte> random(300);
  for (std::byte& b : random) b = static_cast<std::byte>(prng.below(256));
  for (size_t n = 0; n < random.size(); ++n) {
    const auto part = std::span(random).first(n);
    const uint32_t whole = base::crc32c(part);
    ASSERT_EQ(base::crc32c_portable(part), whole) << n;
    ASSERT_EQ(base::crc32c(part.subspan(n / 3), base::crc32c(part.first(n / 3))), whole) << n;
  }
}

TEST(Preamble, ComesBack) {
  const Preamble sent{Lane::kPeer, 77, sample::counted<16>(1)};
  const auto bytes = encode_preamble(sent);
  const Preamble got = decode_preamble(bytes).value();
  EXPECT_EQ(got.lane, sent.lane);
  EXPECT_EQ(got.session_id, sent.session_id);
  EXPECT_EQ(got.token, sent.token);
  EXPECT_EQ(encode_preamble(got), bytes);
}

TEST(Preamble, RefusesInWords) {
  const auto good = encode_preamble({Lane::kCommand, 77, sample::counted<16>(1)});
  const auto with = [&](size_t at, uint8_t value) {
    auto bytes = good;
    bytes[at] = static_cast<std::byte>(value);
    const Result<Preamble> got = decode_preamble(bytes);
    return got.ok() ? "" : text_of(got.error());
  };
  EXPECT_EQ(with(0, 'G'),
            "preamble: its first bytes are not \"STRP\": the other side does not speak this "
            "protocol");
  EXPECT_EQ(with(4, 2), "preamble: protocol version 2, this side has 1: upgrade this side");
  EXPECT_EQ(with(6, 6), "preamble: lane 6 is none");
  EXPECT_EQ(with(47, 1), "preamble: a reserved field is not zero");
  EXPECT_EQ(with(6, 1), "preamble: session 0x4d and its token do not go with lane BOOTSTRAP");
}

TEST(FrameHeader, HasGoldenBytes) {
  const std::vector<std::byte> frame = frame_of_task();
  std::string hex;
  for (const std::byte b : std::span(frame).first(36)) {
    hex += fmt::format("{:02x}", static_cast<uint8_t>(b));
  }
  EXPECT_EQ(hex,
            "535452410100020"
            "04d000000000000000300000000000000"
            "050000000000000011010000");
}

TEST(FrameHeader, EachFieldIsChecked) {
  const auto with = [](size_t at, uint8_t value, bool mend = true) {
    std::vector<std::byte> frame = frame_of_task();
    frame[at] = static_cast<std::byte>(value);
    if (mend) mend_crc(&frame);
    const Result<FrameHeader> got = header_of(frame);
    return got.ok() ? "" : text_of(got.error());
  };
  EXPECT_EQ(with(8, 78), "");
  EXPECT_EQ(with(8, 78, false), "frame: the header's CRC is wrong");
  EXPECT_EQ(with(6, 0), "frame: type 0 is none");
  EXPECT_EQ(with(6, 21), "frame: type 21 is none");
  EXPECT_EQ(with(20, 1), "TASK: flags 0x1");
  EXPECT_EQ(with(20, 2), "TASK: flags 0x2");
  EXPECT_EQ(with(44, 1), "frame: a reserved field is not zero");
  EXPECT_EQ(with(39, 1), "");  // the payload's CRC is the splitter's to check
  EXPECT_EQ(with(35, 0x7f), "TASK: a payload of 2130706705 bytes, at most 16777216 were agreed on");
}

TEST(FrameHeader, OfAnotherVersionSaysWhichSideToUpgrade) {
  std::vector<std::byte> frame = frame_of_task();
  frame[4] = std::byte{2};
  const Result<FrameHeader> got = header_of(frame);
  ASSERT_FALSE(got.ok());
  EXPECT_EQ(got.error().code(), Code::kAbiMismatch);
}

TEST(Splitter, GivesTheSameFramesHoweverTheBytesCome) {
  std::vector<std::byte> stream;
  for (uint64_t i = 0; i < 50; ++i) {
    const std::vector<std::byte> frame = frame_of_task(i);
    stream.insert(stream.end(), frame.begin(), frame.end());
  }
  base::Prng prng(7);
  for (const uint64_t most : {1, 7, 100, 100'000}) {
    Splitter splitter;
    uint64_t expected = 0;
    std::span<const std::byte> left = stream;
    while (!left.empty()) {
      const std::span<std::byte> space = splitter.space();
      const size_t n = std::min({1 + prng.below(most), left.size(), space.size()});
      std::copy_n(left.begin(), n, space.begin());
      splitter.came(n);
      left = left.subspan(n);
      for (;;) {
        const auto frame = splitter.next().value();
        if (!frame) break;
        EXPECT_EQ(frame->header.sequence, expected++);
        EXPECT_TRUE(decode<Task>(frame->payload).ok());
      }
    }
    EXPECT_EQ(expected, 50u);
    EXPECT_EQ(splitter.pending(), 0u);
  }
}

TEST(Splitter, AWrongPayloadBreaksTheStreamForGood) {
  std::vector<std::byte> stream = frame_of_task();
  stream.back() ^= std::byte{1};
  const std::vector<std::byte> good = frame_of_task();
  stream.insert(stream.end(), good.begin(), good.end());
  Splitter splitter;
  std::copy(stream.begin(), stream.end(), splitter.space().begin());
  splitter.came(stream.size());
  for (int i = 0; i < 2; ++i) {
    const auto got = splitter.next();
    ASSERT_FALSE(got.ok());
    EXPECT_EQ(text_of(got.error()), "TASK: the payload's CRC is wrong");
  }
}

TEST(Splitter, AnnouncedBytesOverTheLimitTakeNoMemory) {
  std::vector<std::byte> out;
  const std::vector<std::byte> bytes(1000);
  append_frame({FrameType::kData, 1, -1, 0, kTransferBit, 0, 0}, Chunk{0, bytes}, &out, false)
      .value();
  Splitter splitter(100);
  const size_t before = splitter.space().size();
  std::copy(out.begin(), out.end(), splitter.space().begin());
  splitter.came(kHeaderBytes);
  const auto got = splitter.next();
  ASSERT_FALSE(got.ok());
  EXPECT_EQ(got.error().code(), Code::kResourceExhausted);
  EXPECT_LE(splitter.space().size(), before);
}

TEST(Splitter, DataWithoutACrcIsTakenAsItIs) {
  std::vector<std::byte> out;
  const std::vector<std::byte> bytes(1000, std::byte{7});
  append_frame({FrameType::kData, 1, -1, 0, kTransferBit | 4, 0, 0}, Chunk{64, bytes}, &out, false)
      .value();
  Splitter splitter;
  std::copy(out.begin(), out.end(), splitter.space().begin());
  splitter.came(out.size());
  const auto frame = splitter.next().value();
  ASSERT_TRUE(frame);
  const Chunk chunk = decode<Chunk>(frame->payload).value();
  EXPECT_EQ(chunk.offset, 64u);
  EXPECT_TRUE(std::equal(chunk.bytes.begin(), chunk.bytes.end(), bytes.begin(), bytes.end()));
}

}  // namespace
}  // namespace strata::wire
