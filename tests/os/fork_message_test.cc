#include "os/fork_message.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/prng.h"
#include "os/socket_pair.h"

namespace strata::os {
namespace {

Code code_of(ForkReceiver receiver, std::span<const std::byte> bytes, size_t fds = 0,
             bool lost = false) {
  const Result<ForkMessage> got = parse_fork_message(receiver, bytes, fds, lost);
  return got.ok() ? Code{} : got.error().code();
}

TEST(ForkMessage, RoundTripKeepsAllFields) {
  const std::vector<std::byte> spec(ForkHeader{}.kMagic % 1000, std::byte{7});
  const std::vector<std::byte> bytes = encode_fork_message(
      {.type = ForkMessageType::kSpawn, .spawn_id = 99, .pid = -1, .status = -9, .fds = 3}, spec);
  const ForkMessage got = parse_fork_message(ForkReceiver::kServer, bytes, 3, false).value();
  EXPECT_EQ(got.header.spawn_id, 99u);
  EXPECT_EQ(got.header.pid, -1);
  EXPECT_EQ(got.header.status, -9);
  EXPECT_TRUE(std::equal(got.payload.begin(), got.payload.end(), spec.begin(), spec.end()));
}

TEST(ForkMessage, LongTextIsCut) {
  const std::vector<std::byte> bytes =
      encode_fork_message({.type = ForkMessageType::kSpawnFailed}, std::string(5000, 't'));
  EXPECT_EQ(parse_fork_message(ForkReceiver::kParent, bytes, 0, false).value().text(),
            std::string(kForkTextBytesMax, 't'));
}

TEST(ForkMessage, EveryTypeHasOneReceiver) {
  for (uint32_t type = 0; type < 64; ++type) {
    int taken = 0;
    for (const ForkReceiver receiver : {ForkReceiver::kServer, ForkReceiver::kParent}) {
      for (const uint32_t fds : {0u, 1u}) {
        const auto bytes = encode_fork_message(
            {.type = static_cast<ForkMessageType>(type), .fds = fds}, std::string_view());
        if (code_of(receiver, bytes, fds) == Code{}) {
          ++taken;
          break;
        }
      }
    }
    const bool exists = (type >= 1 && type <= 5) || (type >= 16 && type <= 22);
    EXPECT_EQ(taken, exists ? 1 : 0) << type;
  }
}

TEST(ForkMessage, GreetingsOfOtherVersionsAreReadAsFarAsTheyGo) {
  ForkGreeting greeting;
  put_identity({7, std::string(100, 'v'), "c\nd"}, &greeting);
  greeting.owner = 42;
  std::vector<std::byte> bytes = encode_fork_greeting(greeting);
  EXPECT_EQ(decode_fork_greeting(bytes).value().owner, 42);
  bytes.resize(bytes.size() + 8);
  EXPECT_EQ(decode_fork_greeting(bytes).value().owner, 42);
  bytes.resize(104);
  EXPECT_EQ(decode_fork_greeting(bytes).value().layout_id, 7u);
  EXPECT_EQ(decode_fork_greeting(bytes).value().owner, 0);
  bytes.resize(103);
  EXPECT_EQ(decode_fork_greeting(bytes).error().code(), Code::kCorrupt);
  const Result<void> checked = check_greeting(greeting, {8, "w", "d"}, "it");
  ASSERT_FALSE(checked.ok());
  // Bounded, and only what prints.
  EXPECT_NE(checked.error().message().find(std::string(31, 'v') + " (c?d)"), std::string::npos)
      << checked.error().message();
  EXPECT_TRUE(check_greeting(greeting, {7, "w", "d"}, "it").ok());
}

TEST(ForkMessage, WrongSizesAndNumbersAreRefused) {
  const auto spawn = [](size_t bytes, uint32_t fds) {
    return encode_fork_message({.type = ForkMessageType::kSpawn, .fds = fds},
                               std::vector<std::byte>(bytes));
  };
  EXPECT_EQ(code_of(ForkReceiver::kServer, {}), Code::kCorrupt);
  EXPECT_EQ(code_of(ForkReceiver::kServer, spawn(0, 0)), Code{});
  EXPECT_EQ(code_of(ForkReceiver::kServer, std::span<const std::byte>(spawn(0, 0)).first(31)),
            Code::kCorrupt);
  EXPECT_EQ(code_of(ForkReceiver::kServer, std::span<const std::byte>(spawn(9, 0)).first(40)),
            Code::kCorrupt);
  EXPECT_EQ(code_of(ForkReceiver::kServer, spawn(kForkSpecBytesMax, 0)), Code{});
  EXPECT_EQ(code_of(ForkReceiver::kServer, spawn(kForkSpecBytesMax + 1, 0)), Code::kCorrupt);
  EXPECT_EQ(code_of(ForkReceiver::kServer, spawn(0, 2), 1), Code::kCorrupt);
  EXPECT_EQ(code_of(ForkReceiver::kServer, spawn(0, 2), 0), Code::kCorrupt);
  EXPECT_EQ(code_of(ForkReceiver::kServer, spawn(0, 2), 0, true), Code{});
  EXPECT_EQ(code_of(ForkReceiver::kServer, spawn(0, 17), 17), Code::kCorrupt);
  std::vector<std::byte> magic = spawn(0, 0);
  magic[0] ^= std::byte{1};
  EXPECT_EQ(code_of(ForkReceiver::kServer, magic), Code::kCorrupt);
}

TEST(ForkMessage, RandomDamageIsEitherRefusedOrWithinTheLimits) {
  base::Prng prng(20240611);
  int taken = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::vector<std::byte> bytes =
        encode_fork_message({.type = static_cast<ForkMessageType>(prng.below(24)),
                             .fds = static_cast<uint32_t>(prng.below(3))},
                            std::vector<std::byte>(prng.below(40)));
    for (uint64_t n = prng.below(3); n > 0; --n) {
      bytes[prng.below(bytes.size())] = static_cast<std::byte>(prng.next());
    }
    if (prng.chance(1, 4)) bytes.resize(prng.below(bytes.size() + 1));
    const auto receiver = prng.chance(1, 2) ? ForkReceiver::kServer : ForkReceiver::kParent;
    const Result<ForkMessage> got =
        parse_fork_message(receiver, bytes, prng.below(3), prng.chance(1, 8));
    if (!got.ok()) continue;
    ++taken;
    EXPECT_EQ(got->payload.size() + sizeof(ForkHeader), bytes.size());
    EXPECT_LE(got->header.fds, SeqPacket::kFdsMax);
  }
  EXPECT_GT(taken, 0);
}

}  // namespace
}  // namespace strata::os
