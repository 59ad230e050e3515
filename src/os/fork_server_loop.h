// ForkServerLoop: what the fork server's process does, from its first moment to its last. Internal
// to os; the parent's end is fork_server.h. One thread, this one, for ever.
#pragma once

#include <signal.h>

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "os/fd.h"
#include "os/fork_message.h"
#include "os/fork_server.h"
#include "os/socket_pair.h"
#include "strata/result.h"

namespace strata::os {

// Which signals this process ignores: a child starts with the same ones ignored, whatever the
// server itself does with them.
using IgnoredSignals = std::array<bool, NSIG>;
IgnoredSignals ignored_signals();
// As a mask, bit s - 1 for signal s, and back.
uint64_t mask_of(const IgnoredSignals& ignored);
IgnoredSignals signals_of(uint64_t mask);

// The part that a server gives its sub-servers unchanged.
struct ForkServerConfig {
  ChildMain child_main = nullptr;
  std::vector<int> inherit_fds;
  size_t children_max = ForkServerOptions().children_max;
  int owner_pidfd = -1;  // of the process whose end is this server's end
  IgnoredSignals ignored{};
  // Of a server by exec.
  std::vector<std::byte> hello = {};  // payload of its hello
  ForkIdentity identity = {};
  int owner = 0;               // pid, for what `ps` shows
  bool exec_children = false;  // it has other threads: what it starts comes by exec too
};

class ForkServerLoop {
 public:
  // Messages that wait for a parent that does not read; beyond it, requests and statuses wait.
  static constexpr size_t kBacklogMax = 4096;

  ForkServerLoop(ForkServerConfig config, SeqPacket channel)
      : config_(std::move(config)), channel_(std::move(channel)) {}

  // Says hello, serves, cleans up; the server's exit status. All signals are blocked when it is
  // called. Never returns in a child.
  int run(bool hello_with_pidfd);
  // In a process that is to be a child of that server: never returns.
  [[noreturn]] void run_child(pid_t server, const ForkMessage& message,
                              std::vector<Fd> fds) noexcept;

 private:
  struct Child {
    uint64_t spawn_id = 0;
    bool is_server = false;  // a sub-server: reaped, never killed nor reported
  };
  struct Outgoing {
    std::vector<std::byte> bytes;
    Fd fd;
  };

  Result<void> settle();
  Result<void> say_hello(bool with_pidfd);
  void serve();
  void wait_for_something();
  void take_requests();
  void on_spawn(const ForkMessage& message, bool fds_lost, std::vector<Fd> fds);
  void on_sub_server(std::vector<Fd> fds);
  void on_kill(uint64_t spawn_id);
  // 0 in the child, where it came by fork.
  Result<pid_t> make_child(const ForkMessage& message, const std::vector<Fd>& fds);
  Result<pid_t> make_sub_server(const SeqPacket& channel);
  void collect_statuses();
  void on_status(const siginfo_t& info);
  void queue(ForkHeader header, std::string_view text, Fd fd = Fd());
  void flush();
  void leave(std::string why);
  void end_children();
  size_t own_children() const;

  ForkServerConfig config_;
  SeqPacket channel_;
  Fd child_signal_;  // signalfd of SIGCHLD
  std::vector<std::byte> buffer_;
  std::map<pid_t, Child> children_;  // in: fork; out: reaped
  std::deque<Outgoing> backlog_;
  bool statuses_due_ = false;  // SIGCHLD came since waitid last said that there is nothing
  bool starved_ = false;       // the kernel had no room to send; tried again soon
  bool leaving_ = false;
};

}  // namespace strata::os
