// How a process of Strata is started by exec: a server by its owner, and where a server has threads
// of its own, further servers and children by that one. Internal to os. One thread at a time.
#pragma once

#include <sys/types.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "os/fork_message.h"
#include "os/fork_server_loop.h"
#include "os/socket_pair.h"
#include "strata/result.h"

namespace strata::os {

inline constexpr std::string_view kExecCommand = "child-server";
inline constexpr std::string_view kExecArgument = "--strata-channel=";
// Its environment says so until it serves: a program that does not must not start servers in turn.
inline constexpr const char* kExecVariable = "STRATA_STARTED_AS_CHILD_SERVER";

struct ExecStart {
  std::string program;
  std::string name;
  ForkGreeting greeting;
  int owner_pidfd = -1;
  int channel = -1;  // of a further server: its end of it
  std::span<const int> inherit_fds = {};
  // Of a child: its kSpawn message, with the descriptors.
  std::span<const std::byte> spawn = {};
  std::span<const int> spawn_fds = {};
};

struct ExecStarted {
  pid_t pid;
  SeqPacket channel;  // to the new process
};

// All that it needs waits in the socket before it exists, so there is no step between the two in
// which only one of them knows something.
Result<ExecStarted> exec_start(const ExecStart& start);

// For a server whose children must come by exec: a child for that message, and a further server.
Result<pid_t> exec_child(const ForkServerConfig& config, std::span<const std::byte> spawn,
                         const std::vector<Fd>& fds);
Result<pid_t> exec_sub_server(const ForkServerConfig& config, const SeqPacket& channel);

// The executable of this process, as a value: device and inode.
void put_program(ForkGreeting* greeting);

}  // namespace strata::os
