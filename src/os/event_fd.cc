#include "os/event_fd.h"

#include <sys/eventfd.h>

#include <cerrno>

#include "base/check.h"
#include "os/system_error.h"

namespace strata::os {

Result<EventFd> EventFd::create() {
  Fd fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!fd.valid()) return system_error("eventfd", errno);
  return EventFd(std::move(fd));
}

void EventFd::signal() const {
  const uint64_t one = 1;
  ssize_t n;
  do {
    n = ::write(fd_.get(), &one, sizeof one);
  } while (n < 0 && errno == EINTR);
  // A full counter is readable already, which is all that a signal asks for.
  STRATA_CHECK(n == sizeof one || errno == EAGAIN);
}

bool EventFd::drain() const {
  uint64_t count = 0;
  ssize_t n;
  do {
    n = ::read(fd_.get(), &count, sizeof count);
  } while (n < 0 && errno == EINTR);
  STRATA_CHECK(n == sizeof count || errno == EAGAIN);
  return n == sizeof count;
}

}  // namespace strata::os
