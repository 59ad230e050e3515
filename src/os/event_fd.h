// EventFd: a wake-up that can stand in an Epoll and travel to another process. Never blocks.
// Not a counter: several signals before a drain are one. Any thread may signal; one drains.
#pragma once

#include <utility>

#include "os/fd.h"
#include "strata/result.h"

namespace strata::os {

class EventFd {
 public:
  static Result<EventFd> create();
  // An eventfd that came from another process.
  static EventFd adopt(Fd fd) { return EventFd(std::move(fd)); }

  void signal() const;
  // True where it was signalled since the last drain.
  bool drain() const;
  int fd() const { return fd_.get(); }

 private:
  explicit EventFd(Fd fd) : fd_(std::move(fd)) {}
  Fd fd_;
};

}  // namespace strata::os
