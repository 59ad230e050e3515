// TimerFd: one alarm that can stand in an Epoll. One-shot: arming again replaces the alarm before.
// One thread at a time.
#pragma once

#include <time.h>

#include <utility>

#include "base/time.h"
#include "os/fd.h"
#include "strata/result.h"

namespace strata::os {

class TimerFd {
 public:
  // CLOCK_MONOTONIC as monotonic_now(), CLOCK_BOOTTIME as boottime_now().
  static Result<TimerFd> create(clockid_t clock = CLOCK_MONOTONIC);

  // Readable from `deadline` on, at once where it has passed. Instant::never() disarms.
  Result<void> arm(base::Instant deadline);
  Result<void> disarm();
  // True where it has fired since it was armed; it is not readable afterwards.
  bool drain() const;
  int fd() const { return fd_.get(); }

 private:
  explicit TimerFd(Fd fd) : fd_(std::move(fd)) {}
  Fd fd_;
};

}  // namespace strata::os
