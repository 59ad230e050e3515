#include "os/epoll.h"

#include <algorithm>
#include <cerrno>
#include <climits>

#include "os/system_error.h"

namespace strata::os {
namespace {

int wait_for_ms(int fd, epoll_event* events, int events_max,
                std::optional<base::Duration> timeout) {
  int timeout_ms = -1;
  if (timeout) {
    const int64_t ms = (timeout->ns + 999'999) / 1'000'000;
    timeout_ms = static_cast<int>(std::clamp<int64_t>(ms, 0, INT_MAX));
  }
  return ::epoll_wait(fd, events, events_max, timeout_ms);
}

}  // namespace

Result<Epoll> Epoll::create() {
  Fd fd(::epoll_create1(EPOLL_CLOEXEC));
  if (!fd.valid()) return system_error("epoll_create1", errno);
  return Epoll(std::move(fd));
}

Result<void> Epoll::control(int operation, int fd, uint64_t tag, uint32_t events,
                            const char* what) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = tag;
  if (::epoll_ctl(fd_.get(), operation, fd, &event) != 0) return system_error(what, errno);
  return {};
}

Result<void> Epoll::add(int fd, uint64_t tag, uint32_t events) {
  return control(EPOLL_CTL_ADD, fd, tag, events, "epoll: add a descriptor");
}

Result<void> Epoll::modify(int fd, uint64_t tag, uint32_t events) {
  return control(EPOLL_CTL_MOD, fd, tag, events, "epoll: modify a descriptor");
}

Result<void> Epoll::remove(int fd) {
  return control(EPOLL_CTL_DEL, fd, 0, 0, "epoll: remove a descriptor");
}

Result<size_t> Epoll::wait(std::span<EpollEvent> out, std::optional<base::Duration> timeout) {
  if (out.empty()) {
    return Error(Code::kInvalidArgument, Scope::kCall, "epoll: a wait with no room for an event");
  }
  epoll_event events[kEventsMax];
  const int events_max = static_cast<int>(std::min(out.size(), kEventsMax));
  timespec limit{};
  if (timeout && timeout->ns > 0) {
    limit = {.tv_sec = timeout->ns / 1'000'000'000, .tv_nsec = timeout->ns % 1'000'000'000};
  }
  int n = ::epoll_pwait2(fd_.get(), events, events_max, timeout ? &limit : nullptr, nullptr);
  // EPERM: older seccomp filters answer so for calls that they do not know.
  if (n < 0 && (errno == ENOSYS || errno == EPERM)) {
    n = wait_for_ms(fd_.get(), events, events_max, timeout);
  }
  if (n < 0 && errno == EINTR) return size_t{0};
  if (n < 0) return system_error("epoll: wait", errno);
  for (int i = 0; i < n; ++i) out[i] = {.tag = events[i].data.u64, .events = events[i].events};
  return static_cast<size_t>(n);
}

}  // namespace strata::os
