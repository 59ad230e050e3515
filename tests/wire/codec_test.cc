// Every message: there and back, its golden bytes, and what a decoder must refuse.
#include "wire/codec.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/sha256.h"
#include "messages.h"

namespace strata::wire {
namespace {

template <class T>
std::vector<std::byte> encoded(const T& message) {
  std::vector<std::byte> out;
  const Result<void> done = encode(message, &out);
  EXPECT_TRUE(done.ok()) << (done.ok() ? "" : done.error().to_string());
  return out;
}

template <class Fn>
void for_each_sample(Fn&& fn) {
  std::apply([&](const auto&... message) { (fn(message), ...); }, sample::all());
}

std::string hex(std::span<const std::byte> bytes) {
  std::string out;
  for (const std::byte b : bytes) out += fmt::format("{:02x}", static_cast<uint8_t>(b));
  return out;
}

TEST(Codec, EachMessageComesBackAndGivesTheSameBytesAgain) {
  for_each_sample([](const auto& message) {
    using T = std::decay_t<decltype(message)>;
    const std::vector<std::byte> bytes = encoded(message);
    const Result<T> back = decode<T>(bytes);
    ASSERT_TRUE(back.ok()) << back.error().to_string();
    EXPECT_EQ(encoded(*back), bytes) << T::kName;
  });
}

TEST(Codec, TruncationAtEveryByteIsRefusedInWords) {
  for_each_sample([](const auto& message) {
    using T = std::decay_t<decltype(message)>;
    const std::vector<std::byte> bytes = encoded(message);
    for (size_t n = 0; n < bytes.size(); ++n) {
      const Result<T> back = decode<T>(std::span(bytes).first(n));
      ASSERT_FALSE(back.ok()) << T::kName << " cut at " << n;
      EXPECT_EQ(back.error().code(), Code::kCorrupt);
      EXPECT_TRUE(back.error().message().starts_with(T::kName)) << back.error().message();
    }
  });
}

TEST(Codec, TrailingBytesAreRefused) {
  for_each_sample([](const auto& message) {
    using T = std::decay_t<decltype(message)>;
    std::vector<std::byte> bytes = encoded(message);
    bytes.push_back({});
    EXPECT_FALSE(decode<T>(bytes).ok()) << T::kName;
  });
}

// No byte can be changed to something that decodes and encodes to other bytes: nothing is ignored.
TEST(Codec, NoByteIsWithoutMeaning) {
  for_each_sample([](const auto& message) {
    using T = std::decay_t<decltype(message)>;
    std::vector<std::byte> bytes = encoded(message);
    for (size_t i = 0; i < bytes.size(); ++i) {
      for (const uint8_t flip : {0x01, 0x80, 0xff}) {
        bytes[i] ^= std::byte{flip};
        if (const Result<T> back = decode<T>(bytes)) {
          EXPECT_EQ(encoded(*back), bytes) << T::kName << " byte " << i;
        }
        bytes[i] ^= std::byte{flip};
      }
    }
  });
}

TEST(Codec, AShutdownHasGoldenBytes) {
  EXPECT_EQ(hex(encoded(Shutdown{5000})), "88130000");
}

TEST(Codec, AHealthHasGoldenBytes) {
  EXPECT_EQ(hex(encoded(Health{100, 90, 12, 11, 3, 1 << 20})),
            "6400000000000000"
            "5a00000000000000"
            "0c00000000000000"
            "0b00000000000000"
            "03000000"
            "0000100000000000");
}

TEST(Codec, ATaskHasGoldenBytes) {
  EXPECT_EQ(hex(encoded(sample::task())),
            "0708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20212223242526"
            "0200000002000000dc05000000000000"
            "050000006f75742f61"
            "02000000"
            "0c020302"
            "0400000000000000080000000000000010000000000000000100000000000000"
            "02000000"
            "887766554433221100ffeeddccbbaa99"
            "0300000000000000000000000000000040000000000000000002000000000000"
            "0000000000000000"
            "0b010101"
            "02000000000000000100000000000000"
            "01000000"
            "00000000000000000000000000000000"
            "0000000000000000000000000000000000000000000000000000000000000000"
            "0400000008000000"
            "020000000100000000000000feffffffffffffff"
            "0c0000006162636465666768696a6b6c");
}

// Of all messages of version 1, in the order of sample::all(). It changes only with the version.
TEST(Codec, AllMessagesTogetherHaveAGoldenDigest) {
  std::vector<std::byte> all;
  for_each_sample([&](const auto& message) {
    const std::vector<std::byte> bytes = encoded(message);
    all.insert(all.end(), bytes.begin(), bytes.end());
  });
  EXPECT_EQ(hex(base::sha256(all)),
            "bb26eade58b28cdccf63d1c42cfc40f4faa6ba9375bd9184ed241a0e1e1b5db7");
}

TEST(Codec, ACountBeyondTheBytesLeftTakesNoMemory) {
  Task task = sample::task();
  task.tensors.clear();
  std::vector<std::byte> bytes = encoded(task);
  const size_t at = 32 + 16 + 4 + 5;  // of the number of tensors
  bytes[at] = std::byte{200};
  const Result<Task> back = decode<Task>(bytes);
  ASSERT_FALSE(back.ok());
  bytes[at + 3] = std::byte{0x7f};
  const Result<Task> more = decode<Task>(bytes);
  ASSERT_FALSE(more.ok());
  EXPECT_NE(more.error().message().find("at most 256"), std::string::npos)
      << more.error().message();
}

TEST(Codec, WhatIsOverItsLimitIsNotSent) {
  std::vector<std::byte> out = sample::bytes("before");
  Ack ack;
  ack.code = 6;
  ack.text.assign(kAckTextBytesMax + 1, 'x');
  const Result<void> done = encode(ack, &out);
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.error().code(), Code::kInvalidArgument);
  EXPECT_EQ(done.error().message(), "ACK: text: 1025, at most 1024");
  EXPECT_EQ(out, sample::bytes("before"));
}

TEST(Codec, TextsAreUtf8) {
  Abort abort{6, "caf\xc3\xa9"};
  std::vector<std::byte> bytes = encoded(abort);
  EXPECT_TRUE(decode<Abort>(bytes).ok());
  bytes.back() = std::byte{'e'};
  EXPECT_EQ(decode<Abort>(bytes).error().message(), "ABORT: text is not UTF-8");
}

// ---- rules beyond one field

template <class T>
std::string refusal(const T& message) {
  std::vector<std::byte> out;
  const Result<void> done = encode(message, &out);
  return done.ok() ? "" : done.error().message();
}

TEST(TaskPayload, ATensorMustFitItsSpace) {
  const auto with = [](auto&& change) {
    Task task = sample::task();
    change(task.tensors[0], task.tensors[1]);
    return refusal(task);
  };
  EXPECT_EQ(with([](TaskTensor&, TaskTensor&) {}), "");
  EXPECT_EQ(with([](TaskTensor& o, TaskTensor&) { o.desc.import_id = 1; }),
            "TASK: tensor 0: an import_id of an OWNED buffer");
  EXPECT_EQ(with([](TaskTensor& o, TaskTensor&) { o.desc.space = Space::kImported; }),
            "TASK: tensor 0: IMPORTED without import_id");
  EXPECT_EQ(with([](TaskTensor& o, TaskTensor&) { o.desc.inline_len = 1; }),
            "TASK: tensor 0: inline fields of a tensor that is not HOST_INLINE");
  EXPECT_EQ(with([](TaskTensor& o, TaskTensor&) { o.desc.generation = 0; }),
            "TASK: tensor 0: a buffer without uid or generation");
  EXPECT_EQ(with([](TaskTensor& o, TaskTensor&) { o.desc.offset = ~uint64_t{0}; }),
            "TASK: tensor 0: offset and nbytes overflow");
  EXPECT_EQ(with([](TaskTensor& o, TaskTensor&) { o.desc.nbytes = 100; }),
            "TASK: tensor 0: a shape that leaves its bytes");
  EXPECT_EQ(with([](TaskTensor& o, TaskTensor&) { o.shape[0] = uint64_t{1} << 62; }),
            "TASK: tensor 0: a shape that leaves its bytes");
  EXPECT_EQ(with([](TaskTensor&, TaskTensor& i) { i.tag = TensorArgType::kInout; }),
            "TASK: tensor 1: HOST_INLINE that is no INPUT");
  EXPECT_EQ(with([](TaskTensor&, TaskTensor& i) { i.desc.inline_offset = 5; }),
            "TASK: tensor 1: inline bytes 5 to 13 of 12");
  EXPECT_EQ(with([](TaskTensor&, TaskTensor& i) { i.desc.inline_offset = ~0u; }),
            "TASK: tensor 1: inline bytes 4294967295 to 4294967303 of 12");
  EXPECT_EQ(with([](TaskTensor&, TaskTensor& i) { i.shape[0] = 3; }),
            "TASK: tensor 1: a shape that leaves its bytes");
  EXPECT_EQ(with([](TaskTensor&, TaskTensor& i) { i.desc.uid = sample::kUid; }),
            "TASK: tensor 1: fields of a buffer where there is none");
}

TEST(TaskPayload, ATensorWithoutStorageHasAShapeAndNothingElse) {
  Task task = sample::task();
  task.tensors[0].desc = {};
  EXPECT_EQ(refusal(task), "");
  task.tensors[0].desc.nbytes = 8;
  EXPECT_NE(refusal(task), "");
}

TEST(TaskPayload, ARankOver8IsRefusedBeforeItsPlacesAreRead) {
  std::vector<std::byte> bytes = encoded(sample::task());
  const size_t rank_at = 32 + 16 + 4 + 5 + 4 + 1;
  ASSERT_EQ(bytes[rank_at], std::byte{2});
  bytes[rank_at] = std::byte{9};
  EXPECT_EQ(decode<Task>(bytes).error().message(), "TASK: shape has more places than there are");
}

TEST(TaskPayload, OutputStaysInItsFolder) {
  for (const char* bad : {"/etc", "..", "a/../b", "a/..", "../a"}) {
    Task task = sample::task();
    task.config.output_prefix = bad;
    EXPECT_NE(refusal(task), "") << bad;
  }
  for (const char* good : {"", "a", "a/b", "a..b", "..a/b", "a/..b"}) {
    Task task = sample::task();
    task.config.output_prefix = good;
    EXPECT_EQ(refusal(task), "") << good;
  }
}

TEST(TaskPayload, ReservedFlagsAndFieldsAreRefused) {
  Task task = sample::task();
  task.config.flags = 4;
  EXPECT_EQ(refusal(task), "TASK: flags 0x4, of which this version knows 1 and 2");
  std::vector<std::byte> bytes = encoded(sample::task());
  for (const size_t at : {32 + 12, 32 + 13, 32 + 14, 32 + 15}) {
    bytes[at] = std::byte{1};
    EXPECT_EQ(decode<Task>(bytes).error().message(), "TASK: a reserved field is not zero");
    bytes[at] = {};
  }
}

TEST(CompletionPayload, SaysTheSameOfItselfEverywhere) {
  Completion ok;
  EXPECT_EQ(refusal(ok), "");
  ok.message = "well";
  EXPECT_EQ(refusal(ok), "COMPLETION: a text of success");
  Completion failed = sample::completion();
  failed.code = 99;
  EXPECT_EQ(refusal(failed), "COMPLETION: code 99, which this version does not know");
  failed = sample::completion();
  failed.scope = 0;
  EXPECT_EQ(refusal(failed), "COMPLETION: scope 0, which this version does not know");
  failed = sample::completion();
  failed.result = sample::bytes("r");
  EXPECT_EQ(refusal(failed), "COMPLETION: a result of a failure");
  failed = sample::completion();
  failed.ended_ns = 1;
  EXPECT_EQ(refusal(failed), "COMPLETION: it ended before it started");
}

TEST(ControlPayload, ReservedAndUnknownNumbersAreRefused) {
  std::vector<std::byte> bytes = encoded(sample::control());
  for (const uint8_t command : {0, 10, 32, 64, 255}) {
    bytes[0] = static_cast<std::byte>(command);
    EXPECT_EQ(decode<Control>(bytes).error().message(),
              fmt::format("CONTROL: command is {}, which this version does not know", command));
  }
  Control control = sample::control();
  control.version = 2;
  EXPECT_EQ(refusal(control), "CONTROL: UNREGISTER of version 2, this version knows 1");
}

TEST(ControlPayload, KindsGoToTheirRegistries) {
  PrepareRegister prepare = sample::prepare_register();
  EXPECT_EQ(refusal(prepare), "");
  prepare.registry = RegistryKind::kDispatcher;
  EXPECT_EQ(refusal(prepare), "PREPARE_REGISTER: DISPATCHER takes no CHIP_CALLABLE; INNER does");
  for (const uint8_t kind : {2, 5}) {  // reserved, and never on the wire
    std::vector<std::byte> bytes = encoded(sample::prepare_register());
    bytes[12] = static_cast<std::byte>(kind);
    EXPECT_FALSE(decode<PrepareRegister>(bytes).ok());
  }
}

TEST(ControlPayload, RangesAndRightsMustBeSome) {
  ExportBuffer wrong{{sample::kUid, 3, 64, 0, 1}, "L4/1"};
  EXPECT_EQ(refusal(wrong), "EXPORT_BUFFER: 0 bytes from 64 are no range");
  wrong.span.nbytes = ~uint64_t{0};
  EXPECT_NE(refusal(wrong), "");
  wrong.span.nbytes = 8;
  wrong.span.access = 4;
  EXPECT_EQ(refusal(wrong), "EXPORT_BUFFER: access 4");
  EXPECT_EQ(refusal(AllocBuffer{8, Place::kHost, 0, 0}), "ALLOC_BUFFER: chip 0 of place HOST");
  EXPECT_EQ(refusal(AllocBuffer{8, Place::kHost, -1, 1}),
            "ALLOC_BUFFER: flags 0x1, none are known");
}

TEST(LanePayload, ChunksAreOfOneByteTo256KiB) {
  const std::vector<std::byte> bytes(kChunkBytes + 1);
  EXPECT_EQ(refusal(Chunk{0, std::span(bytes).first(kChunkBytes)}), "");
  EXPECT_NE(refusal(Chunk{0, bytes}), "");
  EXPECT_NE(refusal(Chunk{0, {}}), "");
  EXPECT_NE(refusal(Chunk{~uint64_t{0}, std::span(bytes).first(2)}), "");
  EXPECT_EQ(refusal(Cancel{2, 1}), "CANCEL: 2 to 1");
  EXPECT_EQ(refusal(SetLog{5}), "SET_LOG: level 5");
}

}  // namespace
}  // namespace strata::wire
