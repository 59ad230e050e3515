// PidFd: a process that cannot be mistaken for a later one with the same number. Readable in an
// Epoll once the process has ended. Does not own the process: dropping it ends nothing.
// Any thread.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>

#include "base/time.h"
#include "os/fd.h"
#include "strata/result.h"

namespace strata::os {

// How a process ended, from what waitid() gave: its exit status, or minus the signal that killed
// it.
int status_of(const siginfo_t& info);
// "exit status 3", "killed by signal 9 (Killed)".
std::string describe_status(int status);

class PidFd {
 public:
  // Certain only for this process itself and for its children that are not yet reaped.
  static Result<PidFd> open(pid_t pid);
  PidFd() = default;
  static PidFd adopt(Fd fd) { return PidFd(std::move(fd)); }

  // kNotFound where the process is gone.
  Result<void> signal(int signal_number) const;
  // Whether it ended within the timeout; zero only looks.
  Result<bool> wait_ended(base::Duration timeout) const;
  // Takes the exit status (as status_of) of an ended child of this process; none where it
  // still runs, or is no child of this process, or someone else took it.
  std::optional<int> reap() const;
  int fd() const { return fd_.get(); }
  bool valid() const { return fd_.valid(); }
  Fd take() && { return std::move(fd_); }

 private:
  explicit PidFd(Fd fd) : fd_(std::move(fd)) {}
  Fd fd_;
};

}  // namespace strata::os
