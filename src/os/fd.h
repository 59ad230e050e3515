// Fd: the one owner of a descriptor. Not a file: it knows no read or write.
// Every descriptor that os makes is close-on-exec. One thread at a time.
#pragma once

#include <unistd.h>

#include <utility>

#include "strata/result.h"

namespace strata::os {

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(other.release()) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) reset(other.release());
    return *this;
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd() { reset(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }
  // close() is never repeated after EINTR: Linux has freed the number by then.
  void reset(int fd = -1) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = fd;
  }
  Result<Fd> duplicate() const;

 private:
  int fd_ = -1;
};

}  // namespace strata::os
