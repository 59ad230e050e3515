// What the tests of the fork server share: a child main whose spec says what it does, and waits
// for events. For tests alone.
#pragma once

#include "os/fork_server.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "os/event_fd.h"
#include "os/fork_message.h"
#include "os/process.h"
#include "os/shared_region.h"
#include "os_test_util.h"

namespace strata::os {

inline constexpr size_t kRegionBytes = 4096;

// What a child writes about itself into its region.
struct Report {
  std::atomic<uint32_t> done;
  int pid, parent, group, threads;
  uint64_t blocked, ignored;
  uint32_t spec_bytes, spec_sum;
  uint32_t fd_count;
  bool stdin_is_null;
  std::array<int, 64> fds;
};
static_assert(sizeof(Report) <= kRegionBytes);

inline uint64_t status_mask(const char* name) {
  std::FILE* file = std::fopen("/proc/self/status", "re");
  char line[256];
  unsigned long long mask = ~0ull;
  while (file != nullptr && std::fgets(line, sizeof line, file)) {
    if (std::strncmp(line, name, std::strlen(name)) == 0) {
      std::sscanf(line + std::strlen(name), ":\t%llx", &mask);
    }
  }
  if (file != nullptr) std::fclose(file);
  return mask;
}

inline int write_report(ChildStart& start) {
  const std::set<int> fds = open_fds();
  SharedRegion region = SharedRegion::adopt(std::move(start.fds.at(0)), kRegionBytes).value();
  auto* report = reinterpret_cast<Report*>(region.data());
  report->pid = ::getpid();
  report->parent = ::getppid();
  report->group = ::getpgrp();
  report->threads = thread_count().value();
  report->blocked = status_mask("SigBlk");
  report->ignored = status_mask("SigIgn");
  report->spec_bytes = static_cast<uint32_t>(start.spec.size());
  for (const std::byte b : start.spec) report->spec_sum += std::to_integer<uint32_t>(b);
  report->fd_count = static_cast<uint32_t>(fds.size());
  std::copy_n(fds.begin(), std::min(fds.size(), report->fds.size()), report->fds.begin());
  char target[64] = {};
  report->stdin_is_null = ::readlink("/proc/self/fd/0", target, sizeof target - 1) > 0 &&
                          std::strcmp(target, "/dev/null") == 0;
  report->done.store(1);
  if (start.fds.size() > 1) EventFd::adopt(std::move(start.fds[1])).signal();
  return 0;
}

[[noreturn]] inline void hold() {
  for (;;) ::pause();
}

// A nested tree: this child owns a server of its own with one child, and tells the test their
// pidfds.
inline int hold_with_server(ChildStart& start);

// The first byte of the spec says what the child does.
inline int child_main(ChildStart& start) {
  switch (start.spec.empty() ? '\0' : std::to_integer<char>(start.spec[0])) {
    case 'r':
      return write_report(start);
    case 'h':
      hold();
    case 'x':
      return std::to_integer<int>(start.spec.at(1));
    case 'a':
      std::abort();
    case 's':
      ::raise(SIGSEGV);
      return 0;
    case 't':
      throw std::runtime_error("out of a child");
    case 'n':
      return hold_with_server(start);
    case 'w': {
      std::FILE* file = ::fdopen(start.fds.at(0).release(), "w");
      std::fputs("buffered", file);
      return 0;
    }
    default:
      return 99;
  }
}

inline std::vector<std::byte> spec_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

inline std::unique_ptr<ForkServer> start_server(std::vector<int> inherit = {},
                                                size_t children_max = 64) {
  auto server = ForkServer::start(
      {.child_main = child_main, .inherit_fds = std::move(inherit), .children_max = children_max});
  if (!server.ok()) ADD_FAILURE() << server.error().to_string();
  return std::move(server).value();
}

// The next event, waited for.
inline ServerEvent next(ForkServer& server) {
  for (;;) {
    Result<std::optional<ServerEvent>> event = server.next_event();
    if (!event.ok()) {
      ADD_FAILURE() << event.error().to_string();
      return {};
    }
    if (event->has_value()) return std::move(**event);
    if (!readable(server.event_fd(), 60'000)) {
      ADD_FAILURE() << "no event within a minute";
      return {};
    }
  }
}

inline ServerEvent next(ForkServer& server, ServerEvent::Kind kind, uint64_t spawn_id) {
  ServerEvent event = next(server);
  EXPECT_EQ(event.kind, kind) << event.text;
  EXPECT_EQ(event.spawn_id, spawn_id);
  return event;
}

// Spawns and takes the kStarted.
inline ServerEvent spawn(ForkServer& server, uint64_t id, std::string_view spec,
                         std::vector<int> fds = {}) {
  const Result<void> asked = server.spawn(id, spec_of(spec), fds);
  EXPECT_TRUE(asked.ok()) << asked.error().to_string();
  ServerEvent event = next(server, ServerEvent::kStarted, id);
  EXPECT_GT(event.pid, 0);
  EXPECT_TRUE(event.pidfd.valid());
  return event;
}

inline bool ended(const Fd& pidfd) {
  return readable(pidfd.get(), 60'000);
}

inline int hold_with_server(ChildStart& start) {
  const SeqPacket test = SeqPacket::adopt(std::move(start.fds.at(0)));
  auto server = ForkServer::start({.child_main = child_main, .inherit_fds = {}});
  if (!server.ok() || !(*server)->spawn(1, spec_of("h"), {}).ok()) return 1;
  readable((*server)->event_fd(), 60'000);
  auto event = (*server)->next_event();
  if (!event.ok() || !event->has_value()) return 2;
  const Fd server_fd = PidFd::open((*server)->pid()).value().take();
  const std::array<int, 2> fds = {server_fd.get(), (*event)->pidfd.get()};
  if (!test.send(spec_of("up"), fds).ok()) return 3;
  hold();
}

}  // namespace strata::os
