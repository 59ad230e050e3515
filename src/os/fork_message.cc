#include "os/fork_message.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "base/text.h"
#include "os/socket_pair.h"

namespace strata::os {
namespace {

struct Shape {
  ForkReceiver receiver;
  size_t payload_bytes_max;
  uint32_t fds_min;
  uint32_t fds_max;
};

// False for a type that does not exist.
bool shape_of(ForkMessageType type, Shape& out) {
  using enum ForkMessageType;
  constexpr uint32_t kFds = SeqPacket::kFdsMax;
  switch (type) {
    case kSpawn:
      out = {ForkReceiver::kServer, kForkSpecBytesMax, 0, kFds};
      return true;
    case kSubServer:
      out = {ForkReceiver::kServer, 0, 1, 1};
      return true;
    case kKill:
      out = {ForkReceiver::kServer, 0, 0, 0};
      return true;
    case kGreeting:
      out = {ForkReceiver::kServer, kForkTextBytesMax, 1, 2};
      return true;
    case kInherit:
      out = {ForkReceiver::kServer, kFds * sizeof(int32_t), 1, kFds};
      return true;
    case kHello:
      out = {ForkReceiver::kParent, kForkTextBytesMax, 0, 1};
      return true;
    case kStarted:
      out = {ForkReceiver::kParent, 0, 1, 1};
      return true;
    case kSpawnFailed:
      out = {ForkReceiver::kParent, kForkTextBytesMax, 0, 0};
      return true;
    case kExited:
    case kStopped:
    case kContinued:
      out = {ForkReceiver::kParent, 0, 0, 0};
      return true;
    case kLeaving:
      out = {ForkReceiver::kParent, kForkTextBytesMax, 0, 0};
      return true;
  }
  return false;
}

Error corrupt(std::string what) {
  return Error(Code::kCorrupt, Scope::kProcess, "fork server protocol: " + what);
}

template <size_t N>
void put_text(char (&out)[N], std::string_view text) {
  std::memcpy(out, text.data(), std::min(text.size(), N - 1));
}

// Bytes of another process: bounded, and only what prints.
template <size_t N>
std::string printable(const char (&text)[N]) {
  std::string out;
  for (size_t i = 0; i < N && text[i] != '\0'; ++i) {
    out += text[i] >= 0x20 && text[i] < 0x7f ? text[i] : '?';
  }
  return out;
}

}  // namespace

std::vector<std::byte> encode_fork_message(ForkHeader header, std::span<const std::byte> payload) {
  header.payload_bytes = static_cast<uint32_t>(payload.size());
  std::vector<std::byte> out(sizeof header + payload.size());
  std::memcpy(out.data(), &header, sizeof header);
  if (!payload.empty()) std::memcpy(out.data() + sizeof header, payload.data(), payload.size());
  return out;
}

std::vector<std::byte> encode_fork_message(ForkHeader header, std::string_view text) {
  return encode_fork_message(header,
                             std::as_bytes(std::span(base::cut_text(text, kForkTextBytesMax))));
}

Result<ForkMessage> parse_fork_message(ForkReceiver receiver, std::span<const std::byte> bytes,
                                       size_t fds_received, bool fds_lost) {
  ForkMessage out;
  if (bytes.size() < sizeof out.header) {
    return corrupt(fmt::format("a message of {} bytes has no header", bytes.size()));
  }
  std::memcpy(&out.header, bytes.data(), sizeof out.header);
  out.payload = bytes.subspan(sizeof out.header);
  const ForkHeader& header = out.header;
  if (header.magic != ForkHeader::kMagic) {
    return corrupt(fmt::format("a message begins with {:#x}", header.magic));
  }
  Shape shape{};
  if (!shape_of(header.type, shape) || shape.receiver != receiver) {
    return corrupt(fmt::format("type {} does not come here", static_cast<uint32_t>(header.type)));
  }
  if (header.payload_bytes != out.payload.size() || out.payload.size() > shape.payload_bytes_max) {
    return corrupt(fmt::format("type {}: {} bytes follow, {} were announced, at most {} may",
                               static_cast<uint32_t>(header.type), out.payload.size(),
                               header.payload_bytes, shape.payload_bytes_max));
  }
  const bool fds_whole = fds_received == header.fds || (fds_lost && fds_received == 0);
  if (!fds_whole || header.fds < shape.fds_min || header.fds > shape.fds_max) {
    return corrupt(fmt::format("type {}: {} descriptors came, {} were announced",
                               static_cast<uint32_t>(header.type), fds_received, header.fds));
  }
  return out;
}

std::vector<std::byte> encode_fork_greeting(const ForkGreeting& greeting) {
  std::vector<std::byte> out(sizeof greeting);
  std::memcpy(out.data(), &greeting, sizeof greeting);
  return out;
}

Result<ForkGreeting> decode_fork_greeting(std::span<const std::byte> payload) {
  constexpr size_t kNeverMoves = offsetof(ForkGreeting, program_device);
  if (payload.size() < kNeverMoves) {
    return corrupt(fmt::format("a greeting of {} bytes, at least {}", payload.size(), kNeverMoves));
  }
  ForkGreeting out;
  std::memcpy(&out, payload.data(), std::min(payload.size(), sizeof out));
  return out;
}

void put_identity(const ForkIdentity& identity, ForkGreeting* greeting) {
  greeting->layout_id = identity.layout_id;
  put_text(greeting->version, identity.version);
  put_text(greeting->compiler, identity.compiler);
}

Result<void> check_greeting(const ForkGreeting& theirs, const ForkIdentity& ours,
                            std::string_view who) {
  if (theirs.layout_id == ours.layout_id) return {};
  return Error(Code::kAbiMismatch, Scope::kProcess,
               fmt::format("{} is of Strata {} ({}), layout id {:#018x}; this process is of Strata "
                           "{} ({}), layout id {:#018x}: run both from one installation",
                           who, printable(theirs.version), printable(theirs.compiler),
                           theirs.layout_id, ours.version, ours.compiler, ours.layout_id));
}

}  // namespace strata::os
