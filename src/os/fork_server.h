// ForkServer: the parent's end of a process that has one thread for ever and forks every local
// child, so that children can come late although the parent has threads by then.
//
// Not a supervisor: it starts, reaps and reports; who restarts what is the caller's. It asks no
// child to end: at its own end it kills the children that are left, so tell them first and wait for
// kExited.
//
// The server sets no parent-death signal (that signal is per thread): it watches its socket and the
// pidfd of the process that owns it, and leaves at the end of either. Its children have one set
// against it. So no end of any of the three leaves a process or a zombie behind. Where the owner is
// itself the reaper of orphans (pid 1, PR_SET_CHILD_SUBREAPER) the children of a *lost* server come
// to it: reap them by PidFd::reap() on the pidfd of kStarted.
//
// One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/time.h"
#include "os/fd.h"
#include "os/pid_fd.h"
#include "os/socket_pair.h"
#include "strata/result.h"

namespace strata::os {

struct ForkGreeting;
struct ForkHeader;
struct ForkIdentity;
struct ForkMessage;

// What a child's main gets. It runs in the child: one thread, a process group of its own, no signal
// blocked, handlers of the parent reset, SIGINT and SIGTERM ignored (the parent decides what they
// mean). Its descriptors are 0 (/dev/null unless inherited), 1, 2, `inherit_fds` by the same
// numbers, and `fds`.
struct ChildStart {
  std::vector<std::byte> spec;
  std::vector<Fd> fds;
};

// Its return value is the child's exit status, by _exit after a flush of stdio: no atexit handler
// and no static destructor runs. An exception that leaves it is std::terminate, a death by SIGABRT.
using ChildMain = int (*)(ChildStart&);

struct ForkServerOptions {
  ChildMain child_main = nullptr;
  std::vector<int> inherit_fds;
  size_t children_max = 1024;  // alive at once, for each server
};

// For a server by exec.
struct ExecServerOptions {
  std::string program;    // a path; "/proc/self/exe" too
  std::string name = {};  // argv[0], what `ps` shows until it serves; empty: `program`
  std::vector<int> inherit_fds = {};
  size_t children_max = 1024;
  bool allow_threads = false;  // it forks its children even where it has other threads
  base::Duration start_max = base::Duration::from_s(30);
};

struct ServerEvent {
  enum Kind {
    kStarted,      // pid, pidfd
    kSpawnFailed,  // text; the only event of its spawn
    kExited,       // pid, status; the last event of its spawn; already reaped
    kStopped,      // pid, status: the signal
    kContinued,    // pid
    kServerGone,   // text; the last event of all: children are dead or dying
  };
  Kind kind = kServerGone;
  uint64_t spawn_id = 0;
  int pid = 0;
  Fd pidfd = {};          // for signals and for an Epoll; it gives no exit status (a grandchild's)
  int status = 0;         // kExited: the exit status, or minus the signal that killed it
  std::string text = {};  // in words: "exit status 3", "killed by signal 9 (Killed)"
};

class ForkServer {
 public:
  static constexpr size_t kSpecBytesMax = 64 * 1024;
  static constexpr size_t kFdsMax = SeqPacket::kFdsMax;
  static constexpr size_t kInheritFdsMax = 64;

  // Forks this process's server. Call while single-threaded: that check is the caller's
  // (fork_hazards). Returns when the server stands.
  static Result<std::unique_ptr<ForkServer>> start(const ForkServerOptions& options);
  // The same by exec, for a process that must not fork plainly: posix_spawn of a program whose main
  // begins with serve_if_asked(). It gets one descriptor, its socket; all others travel through
  // that. kAbiMismatch in words where its identity is another one.
  //
  // Where the server has other threads before its main begins (a library's), it starts its children
  // and further servers by exec of itself as well, unless `allow_threads`.
  static Result<std::unique_ptr<ForkServer>> start_exec(const ExecServerOptions& options,
                                                        const ForkIdentity& identity);
  // In a program that start_exec runs: serves until the end and gives the exit status for main.
  // None where the arguments do not ask for it. First of all in main.
  static std::optional<int> serve_if_asked(int argc, char** argv, ChildMain child_main,
                                           const ForkIdentity& identity);

  // One more server, made by this one, for another Worker of this process. It outlives this one;
  // shut it down first all the same, so that this one reaps it.
  Result<std::unique_ptr<ForkServer>> start_sub_server();

  ~ForkServer();  // shutdown(1 s) where that was not called
  ForkServer(const ForkServer&) = delete;
  ForkServer& operator=(const ForkServer&) = delete;

  // Asks; the answer is an event with this id: kStarted and later kExited, or kSpawnFailed. Ids are
  // the caller's, unique among its living children (else kSpawnFailed). The descriptors are
  // duplicated: the caller's may be closed after. Waits up to 5 s where the server is that far
  // behind. kWrongState after shutdown or kServerGone, kInvalidArgument beyond a limit.
  Result<void> spawn(uint64_t spawn_id, std::span<const std::byte> spec, std::span<const int> fds);

  // Readable while next_event has something; -1 after kServerGone and shutdown.
  int event_fd() const { return channel_.fd(); }
  // Does not block, but for a second at most while a server that closed its socket ends, and as
  // spawn where this process has no room for a pidfd and must have the child killed.
  Result<std::optional<ServerEvent>> next_event();
  int pid() const { return pid_; }
  bool alive() const { return channel_.fd() >= 0; }
  // It is this very program: one by fork always, one by exec where the executable is the same.
  bool same_program() const { return same_program_; }

  // Closes; the server kills and reaps the children that are left, and ends. Waits for it at most
  // `grace`, then kills it. Events not yet taken are lost. Again: does nothing.
  Result<void> shutdown(base::Duration grace);

 private:
  ForkServer(SeqPacket channel, PidFd pidfd, int pid)
      : channel_(std::move(channel)), pidfd_(std::move(pidfd)), pid_(pid) {}

  Result<void> send(const ForkHeader& header, std::span<const std::byte> payload,
                    std::span<const int> fds);
  std::optional<ServerEvent> on_message(const ForkMessage& message, std::vector<Fd> fds);
  ServerEvent gone(std::string why);

  SeqPacket channel_;
  PidFd pidfd_;
  int pid_ = 0;
  bool same_program_ = true;
  std::string last_words_;  // why the server said that it leaves
  std::set<uint64_t>
      unwanted_;  // started, but this process had no room for the pidfd: being killed
};

}  // namespace strata::os
