#include "os/exec_start.h"

#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>

#include "base/result.h"
#include "os/pid_fd.h"
#include "os/system_error.h"

extern char** environ;

namespace strata::os {
namespace {

constexpr int kChannel = 3;  // its number in the new process; below are stdin, stdout, stderr

// Attributes and file actions of one posix_spawn.
class SpawnPlan {
 public:
  SpawnPlan() {
    error_ = ::posix_spawn_file_actions_init(&actions_);
    if (error_ != 0) return;
    error_ = ::posix_spawnattr_init(&attributes_);
    if (error_ != 0) ::posix_spawn_file_actions_destroy(&actions_);
  }
  ~SpawnPlan() {
    if (!made_) return;
    ::posix_spawnattr_destroy(&attributes_);
    ::posix_spawn_file_actions_destroy(&actions_);
  }
  SpawnPlan(const SpawnPlan&) = delete;
  SpawnPlan& operator=(const SpawnPlan&) = delete;

  // Its own process group, all signals blocked until it judges them, one descriptor above stdio.
  int plan(int channel) {
    if (error_ != 0) return error_;
    made_ = true;
    sigset_t all;
    sigfillset(&all);
    ::posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
    ::posix_spawnattr_setsigmask(&attributes_, &all);
    ::posix_spawnattr_setpgroup(&attributes_, 0);
    // A descriptor duplicated onto itself stays open across the exec too.
    int error = ::posix_spawn_file_actions_adddup2(&actions_, channel, kChannel);
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 34)
    // Also those that the program has left open for its own children. Elsewhere the server closes
    // them, first thing in main.
    if (error == 0) {
      error = ::posix_spawn_file_actions_addclosefrom_np(&actions_, kChannel + 1);
    }
#endif
    return error;
  }
  int spawn(const char* program, char** argv, char** env, pid_t* pid) {
    return ::posix_spawn(pid, program, &actions_, &attributes_, argv, env);
  }

 private:
  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
  int error_ = 0;
  bool made_ = false;
};

// Safe in a process with threads, and tells here why exec failed.
Result<pid_t> spawn_program(const std::string& program, const std::string& name, int channel) {
  std::string argv0 = name.empty() ? program : name;
  std::string argv1(kExecCommand);
  std::string argv2 = fmt::format("{}{}", kExecArgument, kChannel);
  char* argv[] = {argv0.data(), argv1.data(), argv2.data(), nullptr};
  std::string mark = fmt::format("{}=1", kExecVariable);
  std::vector<char*> env;
  for (char** each = environ; each != nullptr && *each != nullptr; ++each) env.push_back(*each);
  env.push_back(mark.data());
  env.push_back(nullptr);
  SpawnPlan plan;
  int error = plan.plan(channel);
  pid_t pid = -1;
  if (error == 0) error = plan.spawn(program.c_str(), argv, env.data(), &pid);
  if (error == 0) return pid;
  return system_error(fmt::format("start the child server by exec of '{}'", program), error);
}

Result<void> put(const SeqPacket& to, std::span<const std::byte> bytes, std::span<const int> fds) {
  STRATA_ASSIGN(const bool sent, to.send(bytes, fds));
  if (sent) return {};
  return Error(Code::kResourceExhausted, Scope::kProcess,
               "no room in a new socket for what a process needs at its start "
               "(net.core.wmem_default)");
}

Result<void> put_inherited(const SeqPacket& to, std::span<const int> fds) {
  for (size_t at = 0; at < fds.size(); at += SeqPacket::kFdsMax) {
    const std::span<const int> piece =
        fds.subspan(at, std::min(SeqPacket::kFdsMax, fds.size() - at));
    const ForkHeader header{.type = ForkMessageType::kInherit,
                            .fds = static_cast<uint32_t>(piece.size())};
    STRATA_TRY(put(to, encode_fork_message(header, std::as_bytes(piece)), piece));
  }
  return {};
}

// argv[0] of this process may be overwritten by its title.
std::string own_path() {
  char path[PATH_MAX];
  const ssize_t n = ::readlink("/proc/self/exe", path, sizeof path);
  return n > 0 ? std::string(path, static_cast<size_t>(n)) : std::string("strata");
}

ExecStart again(const ForkServerConfig& config, uint32_t flags) {
  ExecStart start{.program = "/proc/self/exe",
                  .name = own_path(),
                  .greeting = {},
                  .owner_pidfd = config.owner_pidfd,
                  .inherit_fds = config.inherit_fds};
  put_identity(config.identity, &start.greeting);
  start.greeting.ignored_signals = mask_of(config.ignored);
  start.greeting.children_max = static_cast<uint32_t>(config.children_max);
  start.greeting.owner = (flags & ForkGreeting::kChild) != 0 ? ::getpid() : config.owner;
  start.greeting.flags = flags;
  return start;
}

}  // namespace

void put_program(ForkGreeting* greeting) {
  struct stat own {};
  if (::stat("/proc/self/exe", &own) != 0) return;
  greeting->program_device = own.st_dev;
  greeting->program_inode = own.st_ino;
}

Result<ExecStarted> exec_start(const ExecStart& start) {
  STRATA_ASSIGN(auto ends, SeqPacket::pair());
  ForkGreeting greeting = start.greeting;
  greeting.inherit_fds = static_cast<uint32_t>(start.inherit_fds.size());
  std::vector<int> fds = {start.owner_pidfd};
  if (start.channel >= 0) fds.push_back(start.channel);
  const ForkHeader header{.type = ForkMessageType::kGreeting,
                          .fds = static_cast<uint32_t>(fds.size())};
  STRATA_TRY(put(ends.first, encode_fork_message(header, encode_fork_greeting(greeting)), fds));
  STRATA_TRY(put_inherited(ends.first, start.inherit_fds));
  if (!start.spawn.empty()) STRATA_TRY(put(ends.first, start.spawn, start.spawn_fds));
  STRATA_ASSIGN(const pid_t pid, spawn_program(start.program, start.name, ends.second.fd()));
  return ExecStarted{pid, std::move(ends.first)};
}

Result<pid_t> exec_child(const ForkServerConfig& config, std::span<const std::byte> spawn,
                         const std::vector<Fd>& fds) {
  ExecStart start = again(config, ForkGreeting::kChild);
  std::vector<int> numbers;
  for (const Fd& fd : fds) numbers.push_back(fd.get());
  start.spawn = spawn;
  start.spawn_fds = numbers;
  STRATA_ASSIGN(const ExecStarted started, exec_start(start));
  return started.pid;
}

Result<pid_t> exec_sub_server(const ForkServerConfig& config, const SeqPacket& channel) {
  ExecStart start = again(config, ForkGreeting::kSubServer);
  start.channel = channel.fd();
  STRATA_ASSIGN(const ExecStarted started, exec_start(start));
  return started.pid;
}

}  // namespace strata::os
