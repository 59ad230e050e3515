// ForkMessage: what a ForkServer and its process say to each other, one message of a SeqPacket
// each. Both are the same binary on one machine, so the header travels as it lies in memory; it is
// checked all the same. Pure: no I/O. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "strata/result.h"

namespace strata::os {

enum class ForkMessageType : uint32_t {
  // to the server
  kSpawn = 1,      // payload: the spec; descriptors: the child's
  kSubServer = 2,  // one descriptor: the new server's end of its socket
  kKill = 3,       // SIGKILL to the child of that spawn, if it lives
  // to the parent
  kHello = 16,        // the server stands; a sub-server sends its own pidfd along
  kStarted = 17,      // one descriptor: the child's pidfd
  kSpawnFailed = 18,  // payload: text. As the first message: the server could not be set up
  kExited = 19,
  kStopped = 20,
  kContinued = 21,
  kLeaving = 22,  // payload: text
};

inline constexpr size_t kForkSpecBytesMax = 64 * 1024;
inline constexpr size_t kForkTextBytesMax = 1024;

struct ForkHeader {
  static constexpr uint32_t kMagic = 0x464b5253;
  uint32_t magic = kMagic;
  ForkMessageType type{};
  uint64_t spawn_id = 0;
  int32_t pid = 0;
  int32_t status = 0;
  uint32_t fds = 0;            // that were sent along
  uint32_t payload_bytes = 0;  // that follow the header
};
static_assert(sizeof(ForkHeader) == 32);

struct ForkMessage {
  ForkHeader header;
  std::span<const std::byte> payload;  // of the bytes that were parsed
  std::string_view text() const {
    return {reinterpret_cast<const char*>(payload.data()), payload.size()};
  }
};

enum class ForkReceiver { kServer, kParent };

// Header and payload in one piece; a payload beyond its limit is the caller's error (texts are
// cut).
std::vector<std::byte> encode_fork_message(ForkHeader header, std::span<const std::byte> payload);
std::vector<std::byte> encode_fork_message(ForkHeader header, std::string_view text);

// kCorrupt for anything that the receiver must not get. `fds_received` may fall short of the
// header's number only where `fds_lost`.
Result<ForkMessage> parse_fork_message(ForkReceiver receiver, std::span<const std::byte> bytes,
                                       size_t fds_received, bool fds_lost);

}  // namespace strata::os
