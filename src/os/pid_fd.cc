#include "os/pid_fd.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "os/clock.h"
#include "os/system_error.h"

namespace strata::os {
namespace {
// glibc has wrappers and this constant only from 2.36 on, musl none.
constexpr auto kWaitByPidFd = static_cast<idtype_t>(3);
}  // namespace

int status_of(const siginfo_t& info) {
  return info.si_code == CLD_EXITED ? info.si_status : -info.si_status;
}

std::string describe_status(int status) {
  if (status >= 0) return fmt::format("exit status {}", status);
  const char* name = ::strsignal(-status);
  return fmt::format("killed by signal {} ({})", -status, name != nullptr ? name : "unknown");
}

Result<PidFd> PidFd::open(pid_t pid) {
  Fd fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!fd.valid()) return system_error(fmt::format("pidfd_open of process {}", pid), errno);
  return PidFd(std::move(fd));
}

Result<void> PidFd::signal(int signal_number) const {
  if (::syscall(SYS_pidfd_send_signal, fd_.get(), signal_number, nullptr, 0) == 0) return {};
  if (errno == ESRCH) {
    return Error(Code::kNotFound, Scope::kCall,
                 fmt::format("signal {}: the process is gone", signal_number));
  }
  return system_error(fmt::format("pidfd_send_signal {}", signal_number), errno);
}

Result<bool> PidFd::wait_ended(base::Duration timeout) const {
  const base::Instant deadline = monotonic_now() + timeout;
  for (;;) {
    pollfd poll_fd{.fd = fd_.get(), .events = POLLIN, .revents = 0};
    const int64_t left_ns = (deadline - monotonic_now()).ns;
    const timespec limit{.tv_sec = left_ns > 0 ? left_ns / 1'000'000'000 : 0,
                         .tv_nsec = left_ns > 0 ? left_ns % 1'000'000'000 : 0};
    const int n = ::ppoll(&poll_fd, 1, &limit, nullptr);
    if (n > 0) return true;
    if (n < 0 && errno != EINTR) return system_error("wait for the end of a process", errno);
    if (n == 0 && left_ns <= 0) return false;
  }
}

std::optional<int> PidFd::reap() const {
  siginfo_t info{};
  const int rc = ::waitid(kWaitByPidFd, static_cast<id_t>(fd_.get()), &info, WEXITED | WNOHANG);
  if (rc != 0 || info.si_pid == 0) return std::nullopt;
  return status_of(info);
}

}  // namespace strata::os
