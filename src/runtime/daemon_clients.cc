// What a client of the daemon may say, from its first byte until it has a session or is gone.
#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/result.h"
#include "base/text.h"
#include "mailbox/layout.h"
#include "runtime/daemon.h"
#include "runtime/daemon_tags.h"
#include "strata/version.h"
#include "transport/socket/connect.h"

namespace strata::runtime {
namespace {

constexpr std::byte kTlsHandshake{0x16};
constexpr size_t kWasteReads = 4;  // of one event: what is thrown away may be any amount
constexpr std::string_view kProduct = "strata " STRATA_VERSION;

// Where the version of a preamble and of a frame header stands.
uint16_t version_in(std::span<const std::byte> bytes) {
  uint16_t version;
  std::memcpy(&version, bytes.data() + 4, sizeof version);
  return version;
}
uint16_t lane_in(std::span<const std::byte> bytes) {
  uint16_t lane;
  std::memcpy(&lane, bytes.data() + 6, sizeof lane);
  return lane;
}

std::vector<std::byte> build_id() {
  const uint64_t id = mailbox::layout_id();
  std::vector<std::byte> out(sizeof id);
  std::memcpy(out.data(), &id, sizeof id);
  return out;
}

wire::BootstrapReply reply_of(uint32_t code, std::string_view text) {
  wire::BootstrapReply out;
  out.code = code;
  out.text = base::cut_text(text, wire::kTextBytesMax);
  out.product = kProduct;
  out.build_id = build_id();
  return out;
}

// As long as the tokens are, whatever they are.
bool same_token(const wire::Token& a, const wire::Token& b) {
  std::byte differs{0};
  for (size_t i = 0; i < a.size(); ++i) differs |= a[i] ^ b[i];
  return differs == std::byte{0};
}

}  // namespace

void Daemon::on_client(Client& client, base::Instant now) {
  switch (client.state) {
    case ClientState::kPreamble:
      return read_preamble(client, now);
    case ClientState::kFirstByte:
      return look_at_first_byte(client, now);
    case ClientState::kBootstrap:
      return drive_bootstrap(client, now);
    case ClientState::kWaiting:
      return watch_waiting(client, now);
    case ClientState::kClosing:
      return drive_closing(client, now);
  }
}

void Daemon::read_preamble(Client& client, base::Instant now) {
  // Exactly that many: what follows belongs to whoever gets the connection.
  const size_t missing = client.preamble.size() - client.preamble_bytes;
  const ssize_t n = ::recv(client.fd.get(), client.preamble.data() + client.preamble_bytes, missing,
                           MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n <= 0) {
    log_refusal(
        fmt::format("{}: gone after {} bytes of its preamble", client.peer, client.preamble_bytes),
        now);
    return drop(client);
  }
  client.preamble_bytes += static_cast<size_t>(n);
  if (client.preamble_bytes < client.preamble.size()) return;
  Result<wire::Preamble> preamble = wire::decode_preamble(client.preamble);
  const bool foreign = !preamble && preamble.error().code() == Code::kAbiMismatch;
  if (!preamble &&
      !(foreign && lane_in(client.preamble) == static_cast<uint16_t>(wire::Lane::kBootstrap))) {
    log_refusal(fmt::format("{}: {}", client.peer, preamble.error().message()), now);
    return drop(client);
  }
  if (foreign) client.foreign_version = version_in(client.preamble);
  if (!foreign && preamble->lane != wire::Lane::kBootstrap) {
    return route_lane(client, *preamble, now);
  }
  client.state = ClientState::kFirstByte;
  client.deadline = now + options_.limits.handshake;
}

void Daemon::route_lane(Client& client, const wire::Preamble& preamble, base::Instant now) {
  Session* const session = find_session(preamble.session_id);
  const size_t index =
      static_cast<size_t>(preamble.lane) - static_cast<size_t>(wire::Lane::kCommand);
  std::string_view why = "no such session";
  if (session != nullptr) {
    why = "a token that is not its";
    if (index < kLanes && same_token(session->tokens[index], preamble.token)) {
      why = session->used[index] ? "a token that was used" : "";
    }
  }
  if (why.empty()) {
    session->used[index] = true;
    const Result<bool> sent = send_lane(session->link, preamble.lane, client.peer, client.fd.get());
    if (sent && *sent) return drop(client);
    why = sent ? "its runner does not take it" : "its runner has ended";
  }
  log_refusal(fmt::format("{}: lane {} of session {:016x}: {}", client.peer,
                          wire::wire_name(preamble.lane), preamble.session_id, why),
              now);
  drop(client);
}

void Daemon::look_at_first_byte(Client& client, base::Instant now) {
  std::byte first;
  const ssize_t n = ::recv(client.fd.get(), &first, 1, MSG_PEEK | MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n <= 0) {
    log_refusal(fmt::format("{}: gone after its preamble", client.peer), now);
    return drop(client);
  }
  const bool speaks_tls = first == kTlsHandshake;
  // A refusal for want of TLS, or for its presence, goes in clear: it is all that the other side
  // would understand, and says nothing that is secret.
  const bool fits = speaks_tls == (tls_ != nullptr);
  auto channel = transport::adopt(std::move(client.fd), client.peer, fits ? tls_.get() : nullptr);
  if (!channel) {
    log_refusal(fmt::format("{}: {}", client.peer, channel.error().message()), now);
    return drop(client);
  }
  client.channel = std::move(channel).value();
  client.state = ClientState::kBootstrap;
  if (fits) return drive_bootstrap(client, now);
  client.open_seen = true;
  refuse(client,
         Error(Code::kInvalidArgument, Scope::kSession,
               speaks_tls ? "this daemon has no key and speaks no TLS: start it with --key, or "
                            "connect without a key"
                          : "this daemon takes only connections with a key: give the remote Worker "
                            "the daemon's key file"),
         now);
}

void Daemon::drive_bootstrap(Client& client, base::Instant now) {
  // Until nothing is left: TLS may hold bytes that the descriptor no longer tells of. One frame of
  // a bounded size is all that can come of it.
  for (;;) {
    const Result<size_t> n = client.channel->read(client.splitter.space());
    if (!n) {
      log_refusal(fmt::format("{}: {}", client.peer, n.error().message()), now);
      return drop(client);
    }
    if (!client.open_seen && client.channel->phase() >= env::ByteChannel::Phase::kOpen) {
      client.open_seen = true;
      client.deadline = now + options_.limits.bootstrap;
      if (client.foreign_version != 0) {
        const uint32_t theirs = client.foreign_version;
        return refuse(client, version_error(theirs, theirs, ""), now);
      }
    }
    if (*n == 0) return watch(client);
    client.splitter.came(*n);
    Result<std::optional<wire::Frame>> frame = client.splitter.next();
    if (!frame) return refuse(client, frame.error(), now);
    if (*frame) return on_bootstrap_frame(client, **frame, now);
  }
}

Error Daemon::version_error(uint32_t theirs_min, uint32_t theirs_max,
                            std::string_view product) const {
  const bool old = theirs_max < wire::kVersion;
  const std::string theirs = theirs_min == theirs_max
                                 ? fmt::format("{}", theirs_min)
                                 : fmt::format("{} to {}", theirs_min, theirs_max);
  return Error(
      Code::kAbiMismatch, Scope::kSession,
      fmt::format("the parent{}{}{} speaks protocol version {}, the daemon at {} ({}) "
                  "version {}: upgrade the {}",
                  product.empty() ? "" : " (", product, product.empty() ? "" : ")", theirs,
                  options_.advertise, kProduct, wire::kVersion, old ? "parent" : "daemon"));
}

void Daemon::on_bootstrap_frame(Client& client, const wire::Frame& frame, base::Instant now) {
  if (frame.header.type != wire::FrameType::kBootstrap || frame.header.session_id != 0) {
    return refuse(
        client,
        Error(Code::kCorrupt, Scope::kSession,
              fmt::format("{} where BOOTSTRAP must be", wire::wire_name(frame.header.type))),
        now);
  }
  Result<wire::Bootstrap> bootstrap = wire::decode<wire::Bootstrap>(frame.payload);
  if (!bootstrap) return refuse(client, bootstrap.error(), now);
  if (client.splitter.pending() > 0) {
    return refuse(client, Error(Code::kCorrupt, Scope::kSession, "more than one BOOTSTRAP"), now);
  }
  if (bootstrap->protocol_min > wire::kVersion || bootstrap->protocol_max < wire::kVersion) {
    return refuse(
        client, version_error(bootstrap->protocol_min, bootstrap->protocol_max, bootstrap->product),
        now);
  }
  const Result<wire::Manifest> manifest = wire::decode_manifest(bootstrap->manifest);
  if (!manifest) return refuse(client, manifest.error(), now);
  Result<Session*> session = start_session(client, *manifest, std::move(bootstrap->manifest), now);
  if (!session) return refuse(client, session.error(), now);
  wire::BootstrapReply answer = reply_of(0, "");
  answer.command = (*session)->tokens[0];
  answer.data = (*session)->tokens[1];
  answer.health = (*session)->tokens[2];
  answer.pid = static_cast<uint32_t>((*session)->pid);
  client.state = ClientState::kWaiting;
  client.session = (*session)->tag;
  client.deadline = base::Instant::never();
  reply(client, answer, now);
}

void Daemon::reply(Client& client, const wire::BootstrapReply& message, base::Instant now) {
  const wire::FrameHeader header{.type = wire::FrameType::kBootstrapReply, .session_id = 0};
  if (const Result<void> put = wire::append_frame(header, message, &client.output); !put) {
    log(fmt::format("{}: {}", client.peer, put.error().message()));
    return drop(client);
  }
  on_client(client, now);
}

void Daemon::refuse(Client& client, const Error& why, base::Instant now) {
  log_refusal(fmt::format("{}: refused: {}", client.peer, why.message()), now);
  begin_closing(client, now);
  reply(client, reply_of(static_cast<uint32_t>(why.code()), why.message()), now);
}

void Daemon::begin_closing(Client& client, base::Instant now) {
  client.state = ClientState::kClosing;
  client.session = 0;
  client.deadline = now + options_.limits.linger;
}

// The connection stays open until READY. Whatever the parent says meanwhile, and its end most of
// all, means that it does not wait any more.
void Daemon::watch_waiting(Client& client, base::Instant now) {
  Result<size_t> n = size_t{0};
  if (!client.output.empty()) {
    n = client.channel->write(client.output);
    if (n)
      client.output.erase(client.output.begin(),
                          client.output.begin() + static_cast<ptrdiff_t>(*n));
  }
  std::array<std::byte, 64> unexpected;
  if (n) n = client.channel->read(unexpected);
  if (n && *n == 0) return watch(client);
  const auto session = sessions_.find(client.session);
  drop(client);
  if (session != sessions_.end()) parent_left(*session->second, now);
}

void Daemon::drive_closing(Client& client, base::Instant) {
  if (!client.output.empty()) {
    const Result<size_t> n = client.channel->write(client.output);
    if (!n) return drop(client);
    client.output.erase(client.output.begin(), client.output.begin() + static_cast<ptrdiff_t>(*n));
    if (client.output.empty()) client.channel->end_writes();
  }
  // A connection that is closed with bytes unread is reset, and the peer may lose the reply.
  std::array<std::byte, 4096> waste;
  for (size_t reads = 0; reads < kWasteReads; ++reads) {
    const Result<size_t> n = client.channel->read(waste);
    if (!n) return drop(client);
    if (*n == 0) break;
  }
  watch(client);
}

void Daemon::client_timed_out(Client& client, base::Instant now) {
  const base::Duration preamble = options_.limits.preamble;
  switch (client.state) {
    case ClientState::kPreamble:
      log_refusal(fmt::format("{}: {} of 48 bytes of a preamble in {:.3g} s", client.peer,
                              client.preamble_bytes, preamble.seconds()),
                  now);
      break;
    case ClientState::kFirstByte:
    case ClientState::kBootstrap:
      if (client.open_seen) {
        return refuse(client,
                      Error(Code::kDeadline, Scope::kSession,
                            fmt::format("no whole BOOTSTRAP in {:.3g} s",
                                        options_.limits.bootstrap.seconds())),
                      now);
      }
      log_refusal(fmt::format("{}: no handshake in {:.3g} s", client.peer,
                              options_.limits.handshake.seconds()),
                  now);
      break;
    case ClientState::kWaiting:
    case ClientState::kClosing:
      break;
  }
  drop(client);
}

void Daemon::watch(Client& client) {
  uint32_t events = EPOLLIN;
  if (client.channel->wants_write() || !client.output.empty()) events |= EPOLLOUT;
  if (events == client.watched) return;
  client.watched = events;
  (void)epoll_.modify(client.descriptor(), daemon_tag(DaemonEvent::kClient, client.tag), events);
}

void Daemon::drop(Client& client) {
  if (client.descriptor() < 0) return;
  // The runner may hold the same connection by now: its close alone would not take it out.
  (void)epoll_.remove(client.descriptor());
  if (client.channel) {
    client.channel->close();
  } else {
    client.fd.reset();
  }
  // Its object is still in use further up.
  dropped_.push_back(client.tag);
}

}  // namespace strata::runtime
