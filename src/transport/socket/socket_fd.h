// SocketFd: the one owner of a socket's descriptor in this room, and how an errno becomes an Error
// here. Knows no read or write. One thread at a time.
#pragma once

#include <unistd.h>

#include <string_view>
#include <utility>

#include "strata/error.h"

namespace strata::transport {

class SocketFd {
 public:
  SocketFd() = default;
  explicit SocketFd(int fd) : fd_(fd) {}
  SocketFd(SocketFd&& other) noexcept : fd_(other.release()) {}
  SocketFd& operator=(SocketFd&& other) noexcept {
    if (this != &other) reset(other.release());
    return *this;
  }
  SocketFd(const SocketFd&) = delete;
  SocketFd& operator=(const SocketFd&) = delete;
  ~SocketFd() { reset(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }
  // close() is never repeated after EINTR: Linux has freed the number by then.
  void reset(int fd = -1) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = fd;
  }

 private:
  int fd_ = -1;
};

// "connect to [::1]:7000: Connection refused (errno 111)". kResourceExhausted where this host has
// run out, kEndpointFailed where the peer or the way to it is the reason, else kSystem.
Error socket_error(std::string_view what, int error_number);

}  // namespace strata::transport
