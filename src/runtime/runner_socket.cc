#include "runtime/runner_socket.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "base/bytes.h"
#include "base/result.h"
#include "base/text.h"
#include "os/memory_file.h"
#include "wire/bootstrap.h"

namespace strata::runtime {
namespace {

constexpr uint32_t kMagic = 0x4e555253;
constexpr uint32_t kPeerBytesMax = 512;
constexpr size_t kMessageBytesMax = 16 << 10;
constexpr size_t kSettingsBytesMax = wire::kManifestBytesMax + (512 << 10);

enum class Type : uint32_t {
  kStart = 1,
  kLane = 2,
  kParentGone = 3,
  kReady = 16,
  kFailed = 17,
};

base::ByteWriter begin(Type type) {
  base::ByteWriter out;
  out.put(kMagic);
  out.put(static_cast<uint32_t>(type));
  return out;
}

Error corrupt(std::string_view what) {
  return Error(Code::kCorrupt, Scope::kProcess,
               fmt::format("the local socket of daemon and runner: {}", what));
}

// The type; the rest is in *in. An unknown type comes as it is.
Result<Type> take_type(base::ByteReader* in) {
  const uint32_t magic = in->get<uint32_t>();
  const auto type = static_cast<Type>(in->get<uint32_t>());
  if (!in->ok() || magic != kMagic) return corrupt("a message that is none");
  return type;
}

std::vector<std::byte> encode(const RunnerSettings& settings) {
  base::ByteWriter out;
  out.put(settings.session_id);
  out.put_string(settings.manifest);
  out.put_string(settings.parent);
  out.put_string(settings.advertise);
  out.put(static_cast<uint32_t>(settings.allow_library.size()));
  for (const std::string& folder : settings.allow_library) out.put_string(folder);
  return std::move(out).take();
}

Result<RunnerSettings> decode(std::string_view bytes) {
  base::ByteReader in(std::as_bytes(std::span(bytes)));
  RunnerSettings out;
  out.session_id = in.get<uint64_t>();
  out.manifest = in.get_string(wire::kManifestBytesMax);
  out.parent = in.get_string(kPeerBytesMax);
  out.advertise = in.get_string(kPeerBytesMax);
  const uint32_t folders = in.get<uint32_t>();
  if (folders > kAllowedLibrariesMax) return corrupt("too many folders");
  for (uint32_t i = 0; i < folders; ++i) out.allow_library.emplace_back(in.get_string(4096));
  if (!in.ok() || in.left() != 0) return corrupt("settings that are none");
  return out;
}

// After the daemon's end nobody reads what this process still prints, but for a file of Strata's,
// which this process reads itself.
void leave_output() {
  if (::fcntl(STDOUT_FILENO, F_GET_SEALS) >= 0) return;
  const os::Fd null(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  if (!null.valid()) return;
  std::fflush(nullptr);
  ::dup2(null.get(), STDOUT_FILENO);
  ::dup2(null.get(), STDERR_FILENO);
}

}  // namespace

Result<void> send_runner_start(const os::SeqPacket& link, const RunnerSettings& settings,
                               const transport::KeyRing* keys) {
  STRATA_ASSIGN(const os::Fd file, os::make_memory_file("strata-settings", encode(settings)));
  std::vector<int> fds = {file.get()};
  os::Fd secret;
  if (keys != nullptr) {
    const transport::SecretText text = keys->encode();
    STRATA_ASSIGN(secret,
                  os::make_memory_file("strata-keys", std::as_bytes(std::span(text.view()))));
    fds.push_back(secret.get());
  }
  STRATA_ASSIGN(const bool sent, link.send(begin(Type::kStart).bytes(), fds));
  if (sent) return {};
  return Error(Code::kResourceExhausted, Scope::kProcess,
               "no room in a new socket for what a runner starts with (net.core.wmem_default)");
}

Result<bool> send_lane(const os::SeqPacket& link, wire::Lane lane, std::string_view peer, int fd) {
  base::ByteWriter out = begin(Type::kLane);
  out.put(static_cast<uint32_t>(lane));
  out.put_string(peer.substr(0, kPeerBytesMax));
  return link.send(out.bytes(), std::span(&fd, 1));
}

Result<bool> send_parent_gone(const os::SeqPacket& link) {
  return link.send(begin(Type::kParentGone).bytes(), {});
}

Result<std::optional<RunnerNews>> receive_news(const os::SeqPacket& link, bool* end) {
  std::array<std::byte, kMessageBytesMax> buffer;
  STRATA_ASSIGN(std::optional<os::SeqMessage> message, link.receive(buffer));
  if (!message) return std::optional<RunnerNews>();
  if (message->end) {
    *end = true;
    return std::optional<RunnerNews>();
  }
  base::ByteReader in(std::span<const std::byte>(buffer).first(message->bytes));
  STRATA_ASSIGN(const Type type, take_type(&in));
  RunnerNews news;
  if (type == Type::kReady) {
    news.ready = true;
  } else if (type == Type::kFailed) {
    news.code = static_cast<Code>(in.get<uint32_t>());
    news.text = in.get_string(Error::kMessageBytesMax);
  } else {
    return corrupt("a message that no runner sends");
  }
  if (!in.ok() || in.left() != 0) return corrupt("a message of a wrong length");
  return std::optional<RunnerNews>(std::move(news));
}

Result<RunnerStart> take_runner_start(os::Fd link) {
  struct stat is {};
  if (::fcntl(link.get(), F_SETFD, FD_CLOEXEC) != 0 || ::fstat(link.get(), &is) != 0 ||
      !S_ISSOCK(is.st_mode) || ::fcntl(link.get(), F_SETFL, O_NONBLOCK) != 0) {
    return Error(Code::kInvalidArgument, Scope::kProcess,
                 "a runner is started by `strata serve`, with a socket to it; there is nothing to "
                 "run by hand");
  }
  os::SeqPacket socket = os::SeqPacket::adopt(std::move(link));
  std::array<std::byte, kMessageBytesMax> buffer;
  STRATA_ASSIGN(std::optional<os::SeqMessage> message, socket.receive(buffer));
  if (!message || message->end) return corrupt("the start is not there");
  base::ByteReader in(std::span<const std::byte>(buffer).first(message->bytes));
  STRATA_ASSIGN(const Type type, take_type(&in));
  if (type != Type::kStart || message->fds.empty() || message->fds.size() > 2) {
    return corrupt("the first message is not the start");
  }
  STRATA_ASSIGN(const std::string bytes,
                os::read_whole_file(message->fds[0].get(), kSettingsBytesMax));
  RunnerStart start;
  STRATA_ASSIGN(start.settings, decode(bytes));
  if (message->fds.size() == 2) {
    STRATA_ASSIGN(start.keys, transport::KeyRing::read_descriptor(message->fds[1].get()));
  }
  start.socket = RunnerSocket(std::move(socket));
  return start;
}

Result<std::optional<RunnerEvent>> RunnerSocket::receive() {
  if (link_.fd() < 0) return std::optional<RunnerEvent>(std::in_place);
  std::array<std::byte, kMessageBytesMax> buffer;
  STRATA_ASSIGN(std::optional<os::SeqMessage> message, link_.receive(buffer));
  if (!message) return std::optional<RunnerEvent>();
  if (message->end) {
    link_.close();
    leave_output();
    return std::optional<RunnerEvent>(std::in_place);
  }
  base::ByteReader in(std::span<const std::byte>(buffer).first(message->bytes));
  STRATA_ASSIGN(const Type type, take_type(&in));
  RunnerEvent event;
  if (type == Type::kParentGone) {
    // On its way when this side said that it is ready: the parent does not need that connection.
    if (ready_) return receive();
    event.kind = RunnerEvent::Kind::kParentGone;
  } else if (type == Type::kLane) {
    event.kind = RunnerEvent::Kind::kLane;
    event.lane = static_cast<wire::Lane>(in.get<uint32_t>());
    if (!wire::is_known(event.lane) || event.lane == wire::Lane::kBootstrap) {
      return corrupt("a lane that is none of a runner's");
    }
    event.peer = in.get_string(kPeerBytesMax);
    if (message->fds_lost) {
      return Error(Code::kResourceExhausted, Scope::kProcess,
                   fmt::format("no descriptor left for a lane of {} (ulimit -n)", event.peer));
    }
    if (message->fds.size() != 1) return corrupt("a lane without its descriptor");
    event.fd = std::move(message->fds[0]);
  } else {
    return corrupt("a message that no daemon sends");
  }
  if (!in.ok() || in.left() != 0) return corrupt("a message of a wrong length");
  return std::optional<RunnerEvent>(std::move(event));
}

Result<void> RunnerSocket::send(std::span<const std::byte> message) {
  if (link_.fd() < 0) return {};
  Result<bool> sent = link_.send(message, {});
  if (!sent && sent.error().code() != Code::kEndpointFailed) return std::move(sent).error();
  return {};
}

Result<void> RunnerSocket::ready() {
  ready_ = true;
  return send(begin(Type::kReady).bytes());
}

Result<void> RunnerSocket::failed(const Error& why) {
  base::ByteWriter out = begin(Type::kFailed);
  out.put(static_cast<uint32_t>(why.code()));
  out.put_string(base::cut_text(why.message(), Error::kMessageBytesMax));
  return send(out.bytes());
}

}  // namespace strata::runtime
