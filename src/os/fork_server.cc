#include "os/fork_server.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "base/result.h"
#include "os/clock.h"
#include "os/fork_hello.h"
#include "os/fork_message.h"
#include "os/fork_server_loop.h"
#include "os/system_error.h"

extern char** environ;

namespace strata::os {
namespace {

constexpr base::Duration kSendMax = base::Duration::from_s(5);
constexpr base::Duration kGoneMax = base::Duration::from_s(1);
constexpr base::Duration kDestructorGrace = base::Duration::from_s(1);
constexpr base::Duration kAfterKillMax = base::Duration::from_s(5);

static_assert(ForkServer::kSpecBytesMax == kForkSpecBytesMax);

Error invalid(std::string what) {
  return Error(Code::kInvalidArgument, Scope::kCall, "fork server: " + what);
}

}  // namespace

Result<std::unique_ptr<ForkServer>> ForkServer::start(const ForkServerOptions& options) {
  if (options.child_main == nullptr) return invalid("no child_main");
  STRATA_TRY(check_inherited(options.inherit_fds));
  STRATA_ASSIGN(PidFd owner, PidFd::open(::getpid()));
  STRATA_ASSIGN(auto ends, SeqPacket::pair());
  ForkServerConfig config{.child_main = options.child_main,
                          .inherit_fds = options.inherit_fds,
                          .children_max = options.children_max,
                          .owner_pidfd = owner.fd(),
                          .ignored = ignored_signals()};
  std::fflush(nullptr);
  // No handler of this process runs in the server.
  sigset_t all, before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(ForkServerLoop(std::move(config), std::move(ends.second)).run(false));
  const int error = errno;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (pid < 0) return system_error("fork of the fork server", error);
  ends.second.close();
  Result<PidFd> pidfd = PidFd::open(pid);
  if (!pidfd.ok()) {
    kill_and_reap(pid);
    return std::move(pidfd).error();
  }
  // From here on the destructor ends and reaps it.
  std::unique_ptr<ForkServer> server(new ForkServer(std::move(ends.first), std::move(*pidfd), pid));
  STRATA_TRY(await_hello(server->channel_, kStartMax));
  return server;
}

Result<std::unique_ptr<ForkServer>> ForkServer::start_sub_server() {
  if (!alive()) return Error(Code::kWrongState, Scope::kCall, "the fork server has ended");
  STRATA_ASSIGN(auto ends, SeqPacket::pair());
  const int end = ends.second.fd();
  STRATA_TRY(send({.type = ForkMessageType::kSubServer, .fds = 1}, {}, {&end, 1}));
  ends.second.close();
  STRATA_ASSIGN(Hello hello, await_hello(ends.first, kStartMax));
  if (!hello.pidfd.valid()) {
    return Error(Code::kCorrupt, Scope::kProcess, "a further fork server came without its pidfd");
  }
  std::unique_ptr<ForkServer> server(
      new ForkServer(std::move(ends.first), PidFd::adopt(std::move(hello.pidfd)), hello.pid));
  server->same_program_ = same_program_;
  return server;
}

ForkServer::~ForkServer() {
  (void)shutdown(kDestructorGrace);
}

Result<void> ForkServer::send(const ForkHeader& header, std::span<const std::byte> payload,
                              std::span<const int> fds) {
  const std::vector<std::byte> bytes = encode_fork_message(header, payload);
  const base::Instant deadline = monotonic_now() + kSendMax;
  for (;;) {
    STRATA_ASSIGN(const bool sent, channel_.send(bytes, fds));
    if (sent) return {};
    const base::Duration left = deadline - monotonic_now();
    bool writable = false;
    if (left.ns > 0) {
      STRATA_ASSIGN(writable, channel_.wait(POLLOUT, left));
    }
    if (!writable) {
      return Error(Code::kDeadline, Scope::kCall,
                   fmt::format("the fork server (pid {}) took no request for {} s: is it stopped, "
                               "or are its events not taken?",
                               pid_, kSendMax.seconds()));
    }
  }
}

Result<void> ForkServer::spawn(uint64_t spawn_id, std::span<const std::byte> spec,
                               std::span<const int> fds) {
  if (!alive()) return Error(Code::kWrongState, Scope::kCall, "the fork server has ended");
  if (spec.size() > kSpecBytesMax) {
    return invalid(fmt::format("a spec of {} bytes, at most {}", spec.size(), kSpecBytesMax));
  }
  if (fds.size() > kFdsMax) {
    return invalid(fmt::format("{} descriptors for a child, at most {}", fds.size(), kFdsMax));
  }
  for (const int fd : fds) {
    if (fd < 0 || ::fcntl(fd, F_GETFD) < 0) return invalid(fmt::format("no descriptor {}", fd));
  }
  const ForkHeader header{.type = ForkMessageType::kSpawn,
                          .spawn_id = spawn_id,
                          .fds = static_cast<uint32_t>(fds.size())};
  return send(header, spec, fds);
}

Result<std::optional<ServerEvent>> ForkServer::next_event() {
  std::array<std::byte, sizeof(ForkHeader) + kForkTextBytesMax> buffer;
  while (alive()) {
    Result<std::optional<SeqMessage>> got = channel_.receive(buffer);
    if (!got.ok()) return std::optional(gone(got.error().message()));
    if (!got->has_value()) break;
    SeqMessage& envelope = **got;
    if (envelope.end) return std::optional(gone(last_words_));
    const Result<ForkMessage> message =
        parse_fork_message(ForkReceiver::kParent, std::span(buffer).first(envelope.bytes),
                           envelope.fds.size(), envelope.fds_lost);
    if (!message.ok()) return std::optional(gone(message.error().message()));
    std::optional<ServerEvent> event = on_message(*message, std::move(envelope.fds));
    if (event) return event;
  }
  return std::optional<ServerEvent>();
}

std::optional<ServerEvent> ForkServer::on_message(const ForkMessage& message, std::vector<Fd> fds) {
  const ForkHeader& header = message.header;
  ServerEvent event{.spawn_id = header.spawn_id, .pid = header.pid, .status = header.status};
  switch (header.type) {
    case ForkMessageType::kStarted:
      event.kind = ServerEvent::kStarted;
      if (fds.empty()) {
        // A child that nobody could signal is not handed out.
        unwanted_.insert(header.spawn_id);
        // Where that cannot be sent the server is stuck or gone, and its end is the child's.
        if (!send({.type = ForkMessageType::kKill, .spawn_id = header.spawn_id}, {}, {}).ok()) {
          channel_.shut_down();
        }
        return std::nullopt;
      }
      event.pidfd = std::move(fds.front());
      return event;
    case ForkMessageType::kSpawnFailed:
      event.kind = ServerEvent::kSpawnFailed;
      event.text = message.text();
      return event;
    case ForkMessageType::kExited:
      event.kind = ServerEvent::kExited;
      event.text = describe_status(header.status);
      if (unwanted_.erase(header.spawn_id) > 0) {
        event = {.kind = ServerEvent::kSpawnFailed, .spawn_id = header.spawn_id};
        event.text = "no room for the child's pidfd in this process (ulimit -n)";
      }
      return event;
    case ForkMessageType::kStopped:
    case ForkMessageType::kContinued:
      if (unwanted_.contains(header.spawn_id)) return std::nullopt;
      event.kind = header.type == ForkMessageType::kStopped ? ServerEvent::kStopped
                                                            : ServerEvent::kContinued;
      return event;
    case ForkMessageType::kLeaving:
      last_words_ = message.text();
      return std::nullopt;
    default:
      return gone("it said hello twice");
  }
}

ServerEvent ForkServer::gone(std::string why) {
  channel_.close();
  unwanted_.clear();
  // It closes its socket by ending, or leaves on its own right after; else it is made to.
  Result<bool> ended = pidfd_.wait_ended(kGoneMax);
  if (!ended.ok() || !*ended) {
    (void)pidfd_.signal(SIGKILL);
    ended = pidfd_.wait_ended(kGoneMax);
  }
  const std::optional<int> status = pidfd_.reap();
  pidfd_ = PidFd();
  ServerEvent event{.kind = ServerEvent::kServerGone, .pid = pid_};
  event.text =
      fmt::format("the fork server (pid {}) is gone{}{}{}{}", pid_, why.empty() ? "" : ": ", why,
                  status ? ": " : "", status ? describe_status(*status) : "");
  return event;
}

Result<void> ForkServer::shutdown(base::Duration grace) {
  if (!pidfd_.valid()) return {};
  if (alive()) channel_.shut_down();
  channel_.close();
  unwanted_.clear();
  Result<bool> ended = pidfd_.wait_ended(grace);
  if (!ended.ok() || !*ended) {
    (void)pidfd_.signal(SIGKILL);
    ended = pidfd_.wait_ended(kAfterKillMax);
  }
  (void)pidfd_.reap();
  pidfd_ = PidFd();
  if (ended.ok() && *ended) return {};
  return Error(Code::kDeadline, Scope::kProcess,
               fmt::format("the fork server (pid {}) outlives SIGKILL by {} s", pid_,
                           kAfterKillMax.seconds()));
}

}  // namespace strata::os
