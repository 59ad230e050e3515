#include "os/timer_fd.h"

#include <sys/timerfd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>

#include "os/system_error.h"

namespace strata::os {

Result<TimerFd> TimerFd::create(clockid_t clock) {
  Fd fd(::timerfd_create(clock, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!fd.valid()) return system_error("timerfd_create", errno);
  return TimerFd(std::move(fd));
}

Result<void> TimerFd::arm(base::Instant deadline) {
  if (deadline == base::Instant::never()) return disarm();
  // Zero would disarm it; the first nanosecond of the clock has passed as well.
  const int64_t ns = std::max<int64_t>(deadline.ns, 1);
  itimerspec spec{};
  spec.it_value = {.tv_sec = ns / 1'000'000'000, .tv_nsec = ns % 1'000'000'000};
  if (::timerfd_settime(fd_.get(), TFD_TIMER_ABSTIME, &spec, nullptr) != 0) {
    return system_error("timerfd_settime", errno);
  }
  return {};
}

Result<void> TimerFd::disarm() {
  const itimerspec spec{};
  if (::timerfd_settime(fd_.get(), 0, &spec, nullptr) != 0) {
    return system_error("timerfd_settime", errno);
  }
  return {};
}

bool TimerFd::drain() const {
  uint64_t count = 0;
  ssize_t n;
  do {
    n = ::read(fd_.get(), &count, sizeof count);
  } while (n < 0 && errno == EINTR);
  return n == sizeof count;
}

}  // namespace strata::os
