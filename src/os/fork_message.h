// ForkMessage: what a ForkServer and its process say to each other, one message of a SeqPacket
// each. Both are on one machine, so the header travels as it lies in memory; it is checked all the
// same. A server by exec may be of another installation: ForkGreeting says so before anything else
// travels. Pure: no I/O. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "strata/result.h"

namespace strata::os {

enum class ForkMessageType : uint32_t {
  // to the server
  kSpawn = 1,      // payload: the spec; descriptors: the child's
  kSubServer = 2,  // one descriptor: the new server's end of its socket
  kKill = 3,       // SIGKILL to the child of that spawn, if it lives
  kGreeting = 4,   // by exec, the first of all: a ForkGreeting; descriptors: the owner's pidfd, and
                   // where this socket only brings the start, the server's own
  kInherit = 5,    // by exec: numbers (int32), and the descriptors that get them
  // to the parent
  // the server stands; a sub-server sends its own pidfd along, one by exec its ForkGreeting
  kHello = 16,
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

// What both ends must agree on. `layout_id` covers the bytes of mailboxes and specs; the texts are
// for the words of a refusal. Any thread.
struct ForkIdentity {
  uint64_t layout_id = 0;
  std::string version;
  std::string compiler;
};

// The fields up to `compiler` never move, so that any two versions can say why they part.
struct ForkGreeting {
  uint64_t layout_id = 0;
  char version[32] = {};
  char compiler[64] = {};
  uint64_t program_device = 0, program_inode = 0;  // of the executable that says it
  uint64_t ignored_signals = 0;                    // bit s - 1: signal s, in the children
  int32_t owner = 0;                               // pid, for the texts
  uint32_t inherit_fds = 0;                        // that kInherit messages bring
  uint32_t children_max = 0;
  uint32_t flags = 0;
  static constexpr uint32_t kAllowThreads = 1;  // fork although the server has other threads
  static constexpr uint32_t kSubServer = 2;     // hello comes with the pidfd
  static constexpr uint32_t kChild = 4;         // no server: one kSpawn follows, which it becomes
};
static_assert(sizeof(ForkGreeting) == 144);

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

std::vector<std::byte> encode_fork_greeting(const ForkGreeting& greeting);
// `payload` of a kGreeting or kHello; fields that a shorter one lacks are zero. kCorrupt where it
// has not even the fields that never move.
Result<ForkGreeting> decode_fork_greeting(std::span<const std::byte> payload);
void put_identity(const ForkIdentity& identity, ForkGreeting* greeting);
// kAbiMismatch in words where `theirs` is of another layout. `who` is "the child server FILE".
Result<void> check_greeting(const ForkGreeting& theirs, const ForkIdentity& ours,
                            std::string_view who);

}  // namespace strata::os
