#include "os/fork_message.h"

#include <fmt/format.h>

#include <cstring>

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
    case kHello:
      out = {ForkReceiver::kParent, 0, 0, 1};
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

}  // namespace strata::os
