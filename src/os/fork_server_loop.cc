#include "os/fork_server_loop.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "base/result.h"
#include "os/clock.h"
#include "os/exec_start.h"
#include "os/pid_fd.h"
#include "os/start_step.h"
#include "os/system_error.h"

namespace strata::os {
namespace {

// A child whose setting-up fails has no words yet: these statuses are its only ones.
constexpr int kStatusServerGone = 125;
constexpr int kStatusSetupFailed = 126;

// Between tries to send where the kernel lacks something that no descriptor tells the return of.
constexpr int kStarvedMs = 10;

constexpr base::Duration kEndChildrenMax = base::Duration::from_s(5);

// Closes all descriptors but those.
Result<void> close_all_but(std::vector<int> keep) {
  std::sort(keep.begin(), keep.end());
  unsigned next = 0;
  const auto close_to = [&next](unsigned end) {
    // By system call: sanitizers and old C libraries have no wrapper.
    return next > end || ::syscall(SYS_close_range, next, end, 0) == 0;
  };
  for (const int fd : keep) {
    if (fd > 0 && !close_to(static_cast<unsigned>(fd) - 1)) {
      return system_error("close_range", errno);
    }
    next = static_cast<unsigned>(fd) + 1;
  }
  if (!close_to(~0u)) return system_error("close_range", errno);
  return {};
}

// So that descriptors that are opened later never become stdin, stdout or stderr.
Result<void> fill_stdio(const std::vector<int>& inherit) {
  for (int fd = 0; fd <= 2; ++fd) {
    const bool kept = std::find(inherit.begin(), inherit.end(), fd) != inherit.end();
    // Stdin is not handed on unasked: reading a terminal from its own process group stops a child.
    if (kept || (fd != 0 && ::fcntl(fd, F_GETFD) >= 0)) continue;
    Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
    if (!null.valid()) return system_error("open /dev/null", errno);
    if (null.get() == fd) {
      ::fcntl(null.release(), F_SETFD, 0);
    } else if (::dup2(null.get(), fd) < 0) {
      return system_error("dup2 of /dev/null", errno);
    }
  }
  return {};
}

// Those that the server's own doing or its kernel sends; all others come from outside.
bool keeps_default(int signal_number) {
  switch (signal_number) {
    case SIGSEGV:
    case SIGBUS:
    case SIGILL:
    case SIGFPE:
    case SIGABRT:
    case SIGTRAP:
    case SIGSYS:
    case SIGCHLD:
    case SIGXCPU:
    case SIGXFSZ:
      return true;
    default:
      return false;
  }
}

void set_disposition(int signal_number, bool ignore) {
  struct sigaction action {};
  action.sa_handler = ignore ? SIG_IGN : SIG_DFL;
  // Refused for SIGKILL, SIGSTOP and the C library's own: those stay as they are.
  ::sigaction(signal_number, &action, nullptr);
}

}  // namespace

IgnoredSignals ignored_signals() {
  IgnoredSignals out{};
  for (int s = 1; s < NSIG; ++s) {
    struct sigaction action {};
    out[s] = ::sigaction(s, nullptr, &action) == 0 && (action.sa_flags & SA_SIGINFO) == 0 &&
             action.sa_handler == SIG_IGN;
  }
  return out;
}

uint64_t mask_of(const IgnoredSignals& ignored) {
  uint64_t mask = 0;
  for (int s = 1; s < NSIG; ++s) mask |= uint64_t{ignored[s]} << (s - 1);
  return mask;
}

IgnoredSignals signals_of(uint64_t mask) {
  IgnoredSignals out{};
  for (int s = 1; s < NSIG; ++s) out[s] = (mask >> (s - 1) & 1) != 0;
  return out;
}

int ForkServerLoop::run(bool hello_with_pidfd) {
  Result<void> ready = settle();
  start_step(hello_with_pidfd ? "sub-settled" : "settled");
  if (ready.ok()) ready = say_hello(hello_with_pidfd);
  if (!ready.ok()) {
    const ForkHeader header{.type = ForkMessageType::kSpawnFailed};
    // Best effort: a parent that cannot hear it sees the end of the socket.
    (void)channel_.send(encode_fork_message(header, ready.error().message()), {});
    return EXIT_FAILURE;
  }
  start_step(hello_with_pidfd ? "sub-hello" : "hello");
  serve();
  end_children();
  return EXIT_SUCCESS;
}

Result<void> ForkServerLoop::settle() {
  ::setpgid(0, 0);
  ::prctl(PR_SET_NAME, "strata-forksrv");
  // The terminal's and the administrator's signals are the parent's to judge; the server ends with
  // it.
  for (int s = 1; s < NSIG; ++s) set_disposition(s, !keeps_default(s));
  // Above stdio, whose numbers may be free in the owner.
  if (channel_.fd() <= 2) {
    const int moved = ::fcntl(channel_.fd(), F_DUPFD_CLOEXEC, 3);
    if (moved < 0) return system_error("fork server: duplicate its socket", errno);
    channel_ = SeqPacket::adopt(Fd(moved));
  }
  if (config_.owner_pidfd <= 2) {
    const int moved = ::fcntl(config_.owner_pidfd, F_DUPFD_CLOEXEC, 3);
    if (moved < 0) return system_error("fork server: duplicate its owner's pidfd", errno);
    config_.owner_pidfd = moved;
  }
  STRATA_TRY(fill_stdio(config_.inherit_fds));
  std::vector<int> keep = config_.inherit_fds;
  keep.insert(keep.end(), {0, 1, 2, channel_.fd(), config_.owner_pidfd});
  STRATA_TRY(close_all_but(std::move(keep)));
  sigset_t mask;
  sigemptyset(&mask);
  sigaddset(&mask, SIGCHLD);
  child_signal_ = Fd(::signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!child_signal_.valid()) return system_error("fork server: signalfd", errno);
  ::sigprocmask(SIG_SETMASK, &mask, nullptr);
  buffer_.resize(sizeof(ForkHeader) + kForkSpecBytesMax);
  return {};
}

Result<void> ForkServerLoop::say_hello(bool with_pidfd) {
  ForkHeader header{.type = ForkMessageType::kHello, .pid = ::getpid()};
  Fd self;
  if (with_pidfd) {
    STRATA_ASSIGN(PidFd pidfd, PidFd::open(::getpid()));
    self = std::move(pidfd).take();
    header.fds = 1;
  }
  backlog_.push_back({encode_fork_message(header, config_.hello), std::move(self)});
  flush();
  return {};
}

void ForkServerLoop::serve() {
  while (!leaving_) {
    wait_for_something();
    if (statuses_due_) collect_statuses();
    flush();
  }
}

void ForkServerLoop::wait_for_something() {
  const bool full = backlog_.size() >= kBacklogMax;
  pollfd fds[3] = {
      {.fd = config_.owner_pidfd, .events = POLLIN, .revents = 0},
      {.fd = child_signal_.get(), .events = POLLIN, .revents = 0},
      {.fd = channel_.fd(), .events = static_cast<short>(full ? 0 : POLLIN), .revents = 0}};
  if (!backlog_.empty() && !starved_) fds[2].events |= POLLOUT;
  if (::poll(fds, 3, starved_ ? kStarvedMs : -1) < 0) {
    if (errno != EINTR) leave(system_error("fork server: poll", errno).message());
    return;
  }
  if (fds[0].revents != 0) return leave({});
  if (fds[1].revents != 0) {
    signalfd_siginfo info;
    while (::read(child_signal_.get(), &info, sizeof info) == sizeof info) statuses_due_ = true;
  }
  // POLLHUP comes unasked: the end is found by reading what was sent before it.
  if ((fds[2].revents & (POLLIN | POLLHUP | POLLERR)) != 0 && !full) take_requests();
  if ((fds[2].revents & (POLLHUP | POLLERR)) != 0 && full) leave({});
}

void ForkServerLoop::take_requests() {
  Result<std::optional<SeqMessage>> got = channel_.receive(buffer_);
  if (!got.ok()) return leave(got.error().message());
  if (!got->has_value()) return;
  SeqMessage& envelope = **got;
  if (envelope.end) return leave({});
  const Result<ForkMessage> message =
      parse_fork_message(ForkReceiver::kServer, std::span(buffer_).first(envelope.bytes),
                         envelope.fds.size(), envelope.fds_lost);
  if (!message.ok()) return leave(message.error().message());
  std::vector<Fd> fds = std::move(envelope.fds);
  switch (message->header.type) {
    case ForkMessageType::kSpawn:
      return on_spawn(*message, envelope.fds_lost, std::move(fds));
    case ForkMessageType::kSubServer:
      return on_sub_server(std::move(fds));
    case ForkMessageType::kKill:
      return on_kill(message->header.spawn_id);
    default:
      return leave("fork server: a message that the parser lets through has no handler");
  }
}

void ForkServerLoop::on_spawn(const ForkMessage& message, bool fds_lost, std::vector<Fd> fds) {
  const uint64_t spawn_id = message.header.spawn_id;
  const auto fail = [&](std::string_view why) {
    queue({.type = ForkMessageType::kSpawnFailed, .spawn_id = spawn_id}, why);
  };
  if (fds_lost) return fail("the fork server has no room for the descriptors (ulimit -n)");
  if (own_children() >= config_.children_max) {
    return fail(fmt::format("{} children of one fork server are alive, the most there may be",
                            config_.children_max));
  }
  for (const auto& [pid, child] : children_) {
    if (!child.is_server && child.spawn_id == spawn_id) {
      return fail(fmt::format("spawn id {} belongs to living process {}", spawn_id, pid));
    }
  }
  start_step("spawn");
  const pid_t server = ::getpid();
  const Result<pid_t> made = make_child(message, fds);
  if (!made.ok()) return fail(made.error().message());
  const pid_t pid = *made;
  if (pid == 0) run_child(server, message, std::move(fds));
  ::setpgid(pid, pid);  // here and in the child: whoever is first, it is done before kStarted
  Result<PidFd> pidfd = PidFd::open(pid);
  if (!pidfd.ok()) {
    ::kill(pid, SIGKILL);
    siginfo_t info{};
    while (::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED) != 0 && errno == EINTR) {
    }
    return fail(pidfd.error().message());
  }
  children_.emplace(pid, Child{.spawn_id = spawn_id});
  queue({.type = ForkMessageType::kStarted, .spawn_id = spawn_id, .pid = pid, .fds = 1}, {},
        std::move(*pidfd).take());
}

Result<pid_t> ForkServerLoop::make_child(const ForkMessage& message, const std::vector<Fd>& fds) {
  std::fflush(nullptr);
  if (config_.exec_children) {
    return exec_child(config_, encode_fork_message(message.header, message.payload), fds);
  }
  const pid_t pid = ::fork();
  if (pid < 0) return system_error("fork", errno);
  return pid;
}

void ForkServerLoop::run_child(pid_t server, const ForkMessage& message,
                               std::vector<Fd> fds) noexcept {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The server may have ended before that call: then no signal comes any more.
  if (::getppid() != server) ::_exit(kStatusServerGone);
  ::setpgid(0, 0);
  ::prctl(PR_SET_NAME, "strata-child");
  for (int s = 1; s < NSIG; ++s) {
    set_disposition(s, s == SIGINT || s == SIGTERM || (config_.ignored[s] && s != SIGCHLD));
  }
  std::vector<int> keep = config_.inherit_fds;
  keep.insert(keep.end(), {0, 1, 2});
  for (const Fd& fd : fds) keep.push_back(fd.get());
  if (!close_all_but(std::move(keep)).ok()) ::_exit(kStatusSetupFailed);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ChildStart start{.spec = {message.payload.begin(), message.payload.end()}, .fds = std::move(fds)};
  const int status = config_.child_main(start);
  std::fflush(nullptr);
  ::_exit(status);
}

Result<pid_t> ForkServerLoop::make_sub_server(const SeqPacket& channel) {
  std::fflush(nullptr);
  if (config_.exec_children) return exec_sub_server(config_, channel);
  sigset_t all, before;
  sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, &before);
  const pid_t pid = ::fork();
  if (pid == 0) return pid;
  const int error = errno;
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  if (pid < 0) return system_error("fork of a further server", error);
  return pid;
}

void ForkServerLoop::on_sub_server(std::vector<Fd> fds) {
  if (fds.empty()) return;  // lost on the way: its parent sees the end of the socket
  start_step("sub-server");
  SeqPacket channel = SeqPacket::adopt(std::move(fds.front()));
  const Result<pid_t> pid = make_sub_server(channel);
  if (pid.ok() && *pid == 0) ::_exit(ForkServerLoop(config_, std::move(channel)).run(true));
  if (!pid.ok()) {
    const std::string& why = pid.error().message();
    (void)channel.send(encode_fork_message({.type = ForkMessageType::kSpawnFailed}, why), {});
    return;
  }
  children_.emplace(*pid, Child{.is_server = true});
}

void ForkServerLoop::on_kill(uint64_t spawn_id) {
  for (const auto& [pid, child] : children_) {
    // Not yet reaped, so the number still is that child's.
    if (!child.is_server && child.spawn_id == spawn_id) ::kill(pid, SIGKILL);
  }
}

void ForkServerLoop::collect_statuses() {
  while (backlog_.size() < kBacklogMax || leaving_) {
    siginfo_t info{};
    const int rc = ::waitid(P_ALL, 0, &info, WEXITED | WSTOPPED | WCONTINUED | WNOHANG);
    if (rc != 0 && errno == EINTR) continue;
    if (rc != 0 || info.si_pid == 0) {
      statuses_due_ = false;
      return;
    }
    on_status(info);
  }
}

void ForkServerLoop::on_status(const siginfo_t& info) {
  const auto found = children_.find(info.si_pid);
  if (found == children_.end()) return;
  const Child child = found->second;
  ForkHeader header{.spawn_id = child.spawn_id, .pid = info.si_pid};
  switch (info.si_code) {
    case CLD_STOPPED:
      header.type = ForkMessageType::kStopped;
      header.status = info.si_status;
      break;
    case CLD_CONTINUED:
      header.type = ForkMessageType::kContinued;
      break;
    default:
      header.type = ForkMessageType::kExited;
      header.status = status_of(info);
      children_.erase(found);
      break;
  }
  if (!child.is_server) queue(header, {});
}

void ForkServerLoop::queue(ForkHeader header, std::string_view text, Fd fd) {
  backlog_.push_back({encode_fork_message(header, text), std::move(fd)});
}

void ForkServerLoop::flush() {
  starved_ = false;
  while (!backlog_.empty()) {
    const Outgoing& next = backlog_.front();
    const int fd = next.fd.get();
    const Result<bool> sent =
        channel_.send(next.bytes, next.fd.valid() ? std::span(&fd, 1) : std::span<const int>());
    if (!sent.ok() && sent.error().code() == Code::kResourceExhausted) {
      // Too many descriptors under way to a parent that does not read, say.
      starved_ = true;
      return;
    }
    if (!sent.ok()) return leave({});
    if (!*sent) return;
    backlog_.pop_front();
  }
}

void ForkServerLoop::leave(std::string why) {
  if (leaving_) return;
  leaving_ = true;
  if (why.empty()) return;
  queue({.type = ForkMessageType::kLeaving}, why);
  flush();
}

void ForkServerLoop::end_children() {
  for (const auto& [pid, child] : children_) {
    if (!child.is_server) ::kill(pid, SIGKILL);
  }
  const base::Instant deadline = monotonic_now() + kEndChildrenMax;
  for (;;) {
    collect_statuses();
    const int64_t left_ms = (deadline - monotonic_now()).ns / 1'000'000;
    if (own_children() == 0 || left_ms <= 0) return;
    pollfd fd{.fd = child_signal_.get(), .events = POLLIN, .revents = 0};
    ::poll(&fd, 1, static_cast<int>(left_ms));
    signalfd_siginfo info;
    while (::read(child_signal_.get(), &info, sizeof info) == sizeof info) {
    }
  }
}

size_t ForkServerLoop::own_children() const {
  return static_cast<size_t>(std::count_if(children_.begin(), children_.end(),
                                           [](const auto& c) { return !c.second.is_server; }));
}

}  // namespace strata::os
