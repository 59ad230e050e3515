// A daemon in a process of its own. Every wait has a deadline, which only ends a test that has
// failed already. One thread.
#pragma once

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "os/clock.h"
#include "runtime/daemon.h"
#include "transport/socket/connect.h"

namespace strata::runtime {

inline constexpr base::Duration kTestDeadline = base::Duration::from_s(60);

inline transport::Address loopback() {
  return transport::resolve({"127.0.0.1", 0}).value().front();
}

inline transport::KeyRing test_ring(unsigned char fill = 0x5a) {
  transport::ClusterKey key;
  key.id = fmt::format("{:016x}", fill);
  for (std::byte& byte : key.secret.bytes()) byte = std::byte{fill};
  std::vector<transport::ClusterKey> keys;
  keys.push_back(std::move(key));
  return transport::KeyRing::of(std::move(keys)).value();
}

// The daemon's end of the process: SIGTERM asks it to stop.
inline const Daemon* g_rig_daemon = nullptr;

class DaemonProcess {
 public:
  explicit DaemonProcess(DaemonOptions options, rlim_t descriptors = 0) {
    int log[2];
    if (::pipe(log) != 0) std::abort();
    options.listen = loopback();
    // It listens here, so that the address is known; the process that serves is the child.
    options.log = [fd = log[1]](std::string_view line) {
      const std::string text = std::string(line) + "\n";
      [[maybe_unused]] const ssize_t n = ::write(fd, text.data(), text.size());
    };
    std::unique_ptr<Daemon> daemon = Daemon::create(std::move(options)).value();
    address_ = daemon->address();
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::close(log[0]);
      const rlimit limit{descriptors, descriptors};
      if (descriptors > 0) ::setrlimit(RLIMIT_NOFILE, &limit);
      g_rig_daemon = daemon.get();
      ::signal(SIGTERM, [](int) { g_rig_daemon->stop(); });
      const Result<void> outcome = daemon->run();
      ::_exit(outcome ? 0 : 1);
    }
    ::close(log[1]);
    log_.reset(log[0]);
  }
  ~DaemonProcess() {
    if (pid_ > 0) end(SIGKILL);
  }
  DaemonProcess(const DaemonProcess&) = delete;
  DaemonProcess& operator=(const DaemonProcess&) = delete;

  const transport::Address& address() const { return address_; }
  pid_t pid() const { return pid_; }
  // The exit status, or minus the signal.
  int end(int signal_number) {
    ::kill(pid_, signal_number);
    int status = 0;
    ::waitpid(std::exchange(pid_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  // Reads the log until a line has `part`; empty where none comes. What was read stays in log().
  std::string line_with(std::string_view part) {
    const base::Instant deadline = os::monotonic_now() + kTestDeadline;
    for (;;) {
      for (size_t end; (end = text_.find('\n', at_)) != std::string::npos;) {
        const std::string line = text_.substr(at_, end - at_);
        at_ = end + 1;
        if (line.find(part) != std::string::npos) return line;
      }
      pollfd wait{.fd = log_.get(), .events = POLLIN, .revents = 0};
      const int64_t ms = (deadline - os::monotonic_now()).ns / 1'000'000;
      if (ms <= 0 || ::poll(&wait, 1, static_cast<int>(ms)) <= 0 || !read_some()) return {};
    }
  }
  // All of the log so far.
  const std::string& log_now() {
    pollfd look{.fd = log_.get(), .events = POLLIN, .revents = 0};
    while (::poll(&look, 1, 0) > 0 && read_some()) {
    }
    return text_;
  }
  const std::string& log() const { return text_; }

 private:
  bool read_some() {
    char buffer[4096];
    const ssize_t n = ::read(log_.get(), buffer, sizeof buffer);
    if (n > 0) text_.append(buffer, static_cast<size_t>(n));
    return n > 0;
  }

  transport::Address address_;
  pid_t pid_ = -1;
  os::Fd log_;
  std::string text_;
  size_t at_ = 0;
};

}  // namespace strata::runtime
