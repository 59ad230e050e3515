#include "transport/socket/socket_channel.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>

#include "base/result.h"

namespace strata::transport {

SocketChannel::SocketChannel(SocketFd fd, std::string peer, bool connected,
                             std::vector<std::byte> prefix)
    : fd_(std::move(fd)),
      peer_(std::move(peer)),
      prefix_(std::move(prefix)),
      connected_(connected),
      phase_(connected && prefix_.empty() ? Phase::kOpen : Phase::kConnecting) {}

Error SocketChannel::fail(Error error) {
  phase_ = Phase::kClosed;
  error_ = std::move(error);
  return *error_;
}

Error SocketChannel::fail_errno(std::string_view what, int error_number) {
  return fail(socket_error(fmt::format("{} {}", what, peer_), error_number));
}

Result<env::ByteChannel::Phase> SocketChannel::advance() {
  if (error_) return *error_;
  if (phase_ != Phase::kConnecting) return phase_;
  if (!connected_) {
    // SO_ERROR is 0 also while the connect goes on; only a socket that can be written has ended it.
    pollfd look{.fd = fd_.get(), .events = POLLOUT, .revents = 0};
    if (::poll(&look, 1, 0) <= 0 || look.revents == 0) return phase_;
    int error = 0;
    socklen_t bytes = sizeof error;
    if (::getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &bytes) != 0) error = errno;
    if (error != 0) return fail_errno("connect to", error);
    connected_ = true;
  }
  if (prefix_sent_ < prefix_.size()) {
    STRATA_ASSIGN(const size_t sent, send(std::span(prefix_).subspan(prefix_sent_)));
    prefix_sent_ += sent;
    if (prefix_sent_ < prefix_.size()) return phase_;
  }
  phase_ = Phase::kOpen;
  return phase_;
}

Result<size_t> SocketChannel::read(std::span<std::byte> out) {
  STRATA_ASSIGN(const Phase now, advance());
  if (now == Phase::kConnecting || out.empty()) return size_t{0};
  ssize_t n;
  do {
    n = ::recv(fd_.get(), out.data(), out.size(), MSG_DONTWAIT);
  } while (n < 0 && errno == EINTR);
  if (n > 0) {
    phase_ = Phase::kHeard;
    return static_cast<size_t>(n);
  }
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return size_t{0};
  if (n < 0) return fail_errno("read from", errno);
  return fail(Error(Code::kEndpointFailed, Scope::kSession,
                    fmt::format("{} has closed the connection", peer_)));
}

Result<size_t> SocketChannel::send(std::span<const std::byte> bytes) {
  ssize_t n;
  do {
    n = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  } while (n < 0 && errno == EINTR);
  if (n >= 0) return static_cast<size_t>(n);
  if (errno == EAGAIN || errno == EWOULDBLOCK) return size_t{0};
  return fail_errno("write to", errno);
}

Result<size_t> SocketChannel::write(std::span<const std::byte> bytes) {
  STRATA_ASSIGN(const Phase now, advance());
  if (bytes.empty()) return size_t{0};
  if (now == Phase::kConnecting) {
    blocked_ = true;
    return size_t{0};
  }
  if (ended_) {
    return Error(Code::kWrongState, Scope::kCall, fmt::format("write to {} after its end", peer_));
  }
  STRATA_ASSIGN(const size_t sent, send(bytes));
  blocked_ = sent < bytes.size();
  return sent;
}

void SocketChannel::end_writes() {
  if (!fd_.valid() || ended_) return;
  ended_ = true;
  blocked_ = false;
  // Fails only where the peer is gone already, which the next read tells.
  ::shutdown(fd_.get(), SHUT_WR);
}

void SocketChannel::close() {
  if (!error_) {
    error_ = Error(Code::kWrongState, Scope::kCall,
                   fmt::format("the connection to {} was closed by this side", peer_));
  }
  phase_ = Phase::kClosed;
  fd_.reset();
}

}  // namespace strata::transport
