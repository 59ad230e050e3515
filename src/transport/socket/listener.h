// Listener: one listening TCP socket that never blocks. Beyond the loopback interface only where
// who comes must show a key. One thread at a time.
#pragma once

#include <optional>
#include <string>

#include "transport/socket/address.h"
#include "transport/socket/socket_fd.h"

namespace strata::transport {

struct Accepted {
  SocketFd fd;
  Address address;
  std::string peer;  // "host:port"
};

class Listener {
 public:
  struct Options {
    bool keyed = false;  // who comes does TLS in key mode
    int backlog = 256;
  };
  // Port 0: the kernel chooses, address() tells.
  static Result<Listener> listen(const Address& address, const Options& options);

  // None where nobody waits. kResourceExhausted where this process has no descriptor left: who
  // waits still does.
  Result<std::optional<Accepted>> accept();
  const Address& address() const { return address_; }
  int descriptor() const { return fd_.get(); }
  void close() { fd_.reset(); }

 private:
  Listener(SocketFd fd, Address address) : fd_(std::move(fd)), address_(address) {}
  SocketFd fd_;
  Address address_;
};

// Small messages go out at once.
void set_no_delay(int fd);

}  // namespace strata::transport
