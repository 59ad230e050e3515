#include "os/fork_hello.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

#include <array>
#include <cerrno>

#include "base/result.h"
#include "os/fork_server.h"

namespace strata::os {

Result<void> check_inherited(const std::vector<int>& fds) {
  const auto invalid = [](std::string what) {
    return Error(Code::kInvalidArgument, Scope::kCall, "fork server: " + what);
  };
  if (fds.size() > ForkServer::kInheritFdsMax) {
    return invalid(fmt::format("{} descriptors to inherit, at most {}", fds.size(),
                               ForkServer::kInheritFdsMax));
  }
  for (const int fd : fds) {
    if (fd < 0 || ::fcntl(fd, F_GETFD) < 0) return invalid(fmt::format("no descriptor {}", fd));
  }
  return {};
}

void kill_and_reap(pid_t pid) {
  ::kill(pid, SIGKILL);
  siginfo_t info{};
  while (::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED) != 0 && errno == EINTR) {
  }
}

Result<Hello> await_hello(const SeqPacket& channel, base::Duration start_max) {
  STRATA_ASSIGN(const bool readable, channel.wait(POLLIN, start_max));
  if (!readable) {
    return Error(Code::kDeadline, Scope::kProcess,
                 fmt::format("the fork server does not stand after {} s", start_max.seconds()));
  }
  std::array<std::byte, sizeof(ForkHeader) + kForkTextBytesMax> buffer;
  STRATA_ASSIGN(std::optional<SeqMessage> got, channel.receive(buffer));
  if (!got.has_value() || got->end) {
    return Error(Code::kSystem, Scope::kProcess,
                 "the fork server ended before it stood, or had no descriptor left");
  }
  STRATA_ASSIGN(const ForkMessage message,
                parse_fork_message(ForkReceiver::kParent, std::span(buffer).first(got->bytes),
                                   got->fds.size(), got->fds_lost));
  if (message.header.type == ForkMessageType::kSpawnFailed) {
    const bool other_layout = message.header.status == static_cast<int32_t>(Code::kAbiMismatch);
    return Error(other_layout ? Code::kAbiMismatch : Code::kSystem, Scope::kProcess,
                 fmt::format("the fork server cannot start: {}", message.text()));
  }
  if (got->fds_lost) {
    return Error(Code::kResourceExhausted, Scope::kProcess,
                 "no room for the fork server's pidfd in this process (ulimit -n)");
  }
  if (message.header.type != ForkMessageType::kHello) {
    return Error(Code::kCorrupt, Scope::kProcess, "the fork server does not begin with its hello");
  }
  Hello out{.pid = message.header.pid};
  if (!got->fds.empty()) out.pidfd = std::move(got->fds.front());
  if (!message.payload.empty()) {
    STRATA_ASSIGN(out.greeting, decode_fork_greeting(message.payload));
  }
  return out;
}

}  // namespace strata::os
