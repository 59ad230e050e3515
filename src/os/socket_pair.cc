#include "os/socket_pair.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "os/clock.h"
#include "os/system_error.h"

namespace strata::os {
namespace {

// Room for a message's descriptors, aligned as the CMSG macros need it.
union Control {
  cmsghdr align;
  char bytes[CMSG_SPACE(SeqPacket::kFdsMax * sizeof(int))];
};

std::vector<Fd> take_fds(msghdr& message) {
  std::vector<Fd> fds;
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
      fds.emplace_back(fd);
    }
  }
  return fds;
}

}  // namespace

Result<std::pair<SeqPacket, SeqPacket>> SeqPacket::pair() {
  int fds[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) != 0) {
    return system_error("socketpair", errno);
  }
  return std::pair(SeqPacket(Fd(fds[0])), SeqPacket(Fd(fds[1])));
}

Result<bool> SeqPacket::send(std::span<const std::byte> bytes, std::span<const int> fds) const {
  if (bytes.empty() || fds.size() > kFdsMax) {
    return Error(Code::kInvalidArgument, Scope::kCall,
                 fmt::format("send {} bytes and {} descriptors: at least one byte, at most {} "
                             "descriptors",
                             bytes.size(), fds.size(), kFdsMax));
  }
  iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  Control control{};
  if (!fds.empty()) {
    message.msg_control = control.bytes;
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(c), fds.data(), fds.size_bytes());
  }
  ssize_t n;
  do {
    n = ::sendmsg(fd_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (n < 0 && errno == EINTR);
  if (n >= 0) return true;
  switch (errno) {
    case EAGAIN:
      return false;
    case EPIPE:
    case ECONNRESET:
      return Error(Code::kEndpointFailed, Scope::kCall, "send: the other end is closed");
    case EMSGSIZE:
      return Error(Code::kInvalidArgument, Scope::kCall,
                   fmt::format("send: {} bytes are more than the socket's buffer", bytes.size()));
    default:
      return system_error("send on a local socket", errno);
  }
}

Result<std::optional<SeqMessage>> SeqPacket::receive(std::span<std::byte> buffer) const {
  STRATA_CHECK(!buffer.empty());
  iovec part{buffer.data(), buffer.size()};
  Control control{};
  msghdr message{};
  ssize_t n;
  // An end that closed with messages unread gives one ECONNRESET before what it had sent: the
  // second try reads on.
  bool reset_seen = false;
  for (;;) {
    message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.bytes;
    message.msg_controllen = sizeof control.bytes;
    n = ::recvmsg(fd_.get(), &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (n >= 0) break;
    if (errno == EINTR) continue;
    if (errno == ECONNRESET && !std::exchange(reset_seen, true)) continue;
    if (errno == EAGAIN) return std::optional<SeqMessage>();
    return system_error("receive on a local socket", errno);
  }
  SeqMessage out;
  out.bytes = static_cast<size_t>(n);
  out.fds = take_fds(message);
  if (n == 0) out.end = true;
  if (message.msg_flags & MSG_CTRUNC) {
    out.fds_lost = true;
    out.fds.clear();
  }
  if (message.msg_flags & MSG_TRUNC) {
    return Error(Code::kCorrupt, Scope::kCall,
                 fmt::format("receive: a message is longer than {} bytes", buffer.size()));
  }
  return std::optional<SeqMessage>(std::move(out));
}

Result<bool> SeqPacket::wait(short events, base::Duration timeout) const {
  const base::Instant deadline = monotonic_now() + timeout;
  for (;;) {
    pollfd poll_fd{.fd = fd_.get(), .events = events, .revents = 0};
    const int64_t left_ns = (deadline - monotonic_now()).ns;
    const timespec limit{.tv_sec = left_ns > 0 ? left_ns / 1'000'000'000 : 0,
                         .tv_nsec = left_ns > 0 ? left_ns % 1'000'000'000 : 0};
    const int n = ::ppoll(&poll_fd, 1, &limit, nullptr);
    if (n > 0) return true;
    if (n < 0 && errno != EINTR) return system_error("wait on a local socket", errno);
    if (n == 0 && left_ns <= 0) return false;
  }
}

void SeqPacket::shut_down() const {
  // Fails only where the other end is gone already.
  ::shutdown(fd_.get(), SHUT_RDWR);
}

}  // namespace strata::os
