// Epoll: waits for many descriptors, each named by a tag of the caller's. Level-triggered unless
// the caller asks for EPOLLET. Owns no descriptor but its own: remove one before it is closed where
// a duplicate of it lives on. One thread waits; others may add, modify and remove meanwhile.
#pragma once

#include <sys/epoll.h>

#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "base/time.h"
#include "os/fd.h"
#include "strata/result.h"

namespace strata::os {

struct EpollEvent {
  uint64_t tag = 0;
  uint32_t events = 0;  // EPOLLIN, EPOLLOUT, EPOLLHUP, ...
};

class Epoll {
 public:
  // Events that one wait can give, whatever the size of `out`; the rest come with the next.
  static constexpr size_t kEventsMax = 64;

  static Result<Epoll> create();

  Result<void> add(int fd, uint64_t tag, uint32_t events = EPOLLIN);
  Result<void> modify(int fd, uint64_t tag, uint32_t events);
  Result<void> remove(int fd);
  // How many of `out` are filled; 0 at the timeout and after a signal handler ran. No timeout waits
  // until an event; zero or less only looks. Nanoseconds where the kernel has epoll_pwait2 (5.11),
  // else rounded up to milliseconds.
  Result<size_t> wait(std::span<EpollEvent> out, std::optional<base::Duration> timeout);
  int fd() const { return fd_.get(); }

 private:
  explicit Epoll(Fd fd) : fd_(std::move(fd)) {}
  Result<void> control(int operation, int fd, uint64_t tag, uint32_t events, const char* what);
  Fd fd_;
};

}  // namespace strata::os
