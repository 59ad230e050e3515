#include "transport/socket/connect.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>

#include "base/result.h"
#include "transport/socket/listener.h"
#include "transport/socket/socket_channel.h"
#include "transport/socket/tls_channel.h"

namespace strata::transport {
namespace {

Result<std::unique_ptr<env::ByteChannel>> with_tls(std::unique_ptr<env::ByteChannel> channel,
                                                   const TlsContext* tls) {
  if (tls == nullptr) return channel;
  STRATA_ASSIGN(auto over, TlsChannel::create(std::move(channel), *tls));
  return std::unique_ptr<env::ByteChannel>(std::move(over));
}

}  // namespace

Result<std::unique_ptr<env::ByteChannel>> connect(const Address& address, ConnectOptions options) {
  if (options.peer.empty()) options.peer = address.to_string();
  const std::string what = fmt::format("connect to {}", options.peer);
  SocketFd fd(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return socket_error(what, errno);
  set_no_delay(fd.get());
  // An interrupted connect goes on by itself, as one under way.
  const bool connected = ::connect(fd.get(), address.data(), address.size()) == 0;
  if (!connected && errno != EINPROGRESS && errno != EINTR) return socket_error(what, errno);
  return with_tls(std::make_unique<SocketChannel>(std::move(fd), std::move(options.peer), connected,
                                                  std::move(options.preface)),
                  options.tls);
}

Result<std::unique_ptr<env::ByteChannel>> adopt(SocketFd fd, std::string peer,
                                                const TlsContext* tls) {
  const int flags = ::fcntl(fd.get(), F_GETFL);
  if (flags < 0 || ::fcntl(fd.get(), F_SETFL, flags | O_NONBLOCK) != 0) {
    return socket_error(fmt::format("take over the connection of {}", peer), errno);
  }
  set_no_delay(fd.get());
  return with_tls(std::make_unique<SocketChannel>(std::move(fd), std::move(peer), true), tls);
}

}  // namespace strata::transport
