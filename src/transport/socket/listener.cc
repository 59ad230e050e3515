#include "transport/socket/listener.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <cerrno>

#include "base/result.h"

namespace strata::transport {

void set_no_delay(int fd) {
  const int on = 1;
  // A socket that has none (a local pair) sends at once anyway.
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

Result<Listener> Listener::listen(const Address& address, const Options& options) {
  if (!options.keyed && !address.is_loopback()) {
    return Error(Code::kInvalidArgument, Scope::kCall,
                 fmt::format("listen at {}: beyond the loopback interface only with a key, since "
                             "whoever connects may run code here: make one with `strata key new "
                             "FILE` and give it with --key, or listen at 127.0.0.1",
                             address.to_string()));
  }
  const std::string what = fmt::format("listen at {}", address.to_string());
  SocketFd fd(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return socket_error(what, errno);
  const int on = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (address.family() == AF_INET6) {
    ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
  }
  if (::bind(fd.get(), address.data(), address.size()) != 0 ||
      ::listen(fd.get(), options.backlog) != 0) {
    return socket_error(what, errno);
  }
  STRATA_ASSIGN(const Address bound, Address::local_of(fd.get()));
  return Listener(std::move(fd), bound);
}

Result<std::optional<Accepted>> Listener::accept() {
  for (;;) {
    sockaddr_storage storage{};
    socklen_t bytes = sizeof storage;
    SocketFd fd(::accept4(fd_.get(), reinterpret_cast<sockaddr*>(&storage), &bytes,
                          SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd.valid()) {
      set_no_delay(fd.get());
      const Address address(reinterpret_cast<const sockaddr*>(&storage), bytes);
      return std::optional<Accepted>(Accepted{std::move(fd), address, address.to_string()});
    }
    switch (errno) {
      case EAGAIN:
        return std::optional<Accepted>();
      // What befell one connection before it was taken says nothing of the listener.
      case EINTR:
      case ECONNABORTED:
      case EPROTO:
      case ENETDOWN:
      case ENOPROTOOPT:
      case EHOSTDOWN:
      case EHOSTUNREACH:
      case EOPNOTSUPP:
      case ENETUNREACH:
      case EPERM:
        continue;
      default:
        return socket_error(fmt::format("accept at {}", address_.to_string()), errno);
    }
  }
}

}  // namespace strata::transport
