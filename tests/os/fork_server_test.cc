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
namespace {

constexpr size_t kRegionBytes = 4096;

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

uint64_t status_mask(const char* name) {
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

int write_report(ChildStart& start) {
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

[[noreturn]] void hold() {
  for (;;) ::pause();
}

// A nested tree: this child owns a server of its own with one child, and tells the test their
// pidfds.
int hold_with_server(ChildStart& start);

// The first byte of the spec says what the child does.
int child_main(ChildStart& start) {
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

std::vector<std::byte> spec_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

std::unique_ptr<ForkServer> start_server(std::vector<int> inherit = {}, size_t children_max = 64) {
  auto server = ForkServer::start(
      {.child_main = child_main, .inherit_fds = std::move(inherit), .children_max = children_max});
  if (!server.ok()) ADD_FAILURE() << server.error().to_string();
  return std::move(server).value();
}

// The next event, waited for.
ServerEvent next(ForkServer& server) {
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

ServerEvent next(ForkServer& server, ServerEvent::Kind kind, uint64_t spawn_id) {
  ServerEvent event = next(server);
  EXPECT_EQ(event.kind, kind) << event.text;
  EXPECT_EQ(event.spawn_id, spawn_id);
  return event;
}

// Spawns and takes the kStarted.
ServerEvent spawn(ForkServer& server, uint64_t id, std::string_view spec,
                  std::vector<int> fds = {}) {
  const Result<void> asked = server.spawn(id, spec_of(spec), fds);
  EXPECT_TRUE(asked.ok()) << asked.error().to_string();
  ServerEvent event = next(server, ServerEvent::kStarted, id);
  EXPECT_GT(event.pid, 0);
  EXPECT_TRUE(event.pidfd.valid());
  return event;
}

bool ended(const Fd& pidfd) {
  return readable(pidfd.get(), 60'000);
}

int hold_with_server(ChildStart& start) {
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

TEST(ForkServer, ChildGetsItsSpecAndDescriptorsMadeAfterTheStartBesideAThread) {
  NothingLeftBehind check;
  auto server = start_server();
  std::atomic<bool> stop{false};
  std::thread other([&stop] { stop.wait(false); });
  SharedRegion region = SharedRegion::create("late", kRegionBytes).value();
  EventFd event = EventFd::create().value();
  const ServerEvent started = spawn(*server, 7, "r12", {region.fd(), event.fd()});
  ASSERT_TRUE(readable(event.fd(), 60'000));
  const auto* report = reinterpret_cast<const Report*>(region.data());
  EXPECT_EQ(report->done.load(), 1u);
  EXPECT_EQ(report->pid, started.pid);
  EXPECT_EQ(report->parent, server->pid());
  EXPECT_EQ(report->spec_bytes, 3u);
  EXPECT_EQ(report->spec_sum, static_cast<uint32_t>('r' + '1' + '2'));
  const ServerEvent exited = next(*server, ServerEvent::kExited, 7);
  EXPECT_EQ(exited.pid, started.pid);
  EXPECT_EQ(exited.status, 0);
  EXPECT_EQ(exited.text, "exit status 0");
  EXPECT_TRUE(ended(started.pidfd));
  stop.store(true);
  stop.notify_all();
  other.join();
  EXPECT_TRUE(server->shutdown(kTestDeadline).ok());
}

TEST(ForkServer, ChildSeesOnlyTheExpectedDescriptors) {
  NothingLeftBehind check;
  const Fd stray(::open("/dev/null", O_RDONLY));
  const Fd inherited(::open("/dev/zero", O_RDONLY));
  const Fd stdin_before(::dup(0));
  ASSERT_EQ(::dup2(inherited.get(), 0), 0);
  auto server = start_server({inherited.get()});
  auto with_stdin = start_server({0});
  ASSERT_EQ(::dup2(stdin_before.get(), 0), 0);
  SharedRegion region = SharedRegion::create("hygiene", kRegionBytes).value();
  EventFd event = EventFd::create().value();
  // Others live meanwhile: nothing of them may reach a later child.
  const ServerEvent elder = spawn(*server, 1, "h", {event.fd()});
  spawn(*server, 2, "r", {region.fd(), event.fd()});
  next(*server, ServerEvent::kExited, 2);
  const auto* report = reinterpret_cast<const Report*>(region.data());
  ASSERT_EQ(report->done.load(), 1u);
  const std::set<int> fds(report->fds.begin(), report->fds.begin() + report->fd_count);
  EXPECT_EQ(fds.size(), 6u);
  for (const int fd : {0, 1, 2, inherited.get()}) EXPECT_TRUE(fds.contains(fd)) << fd;
  EXPECT_TRUE(report->stdin_is_null);
  spawn(*with_stdin, 1, "r", {region.fd()});
  next(*with_stdin, ServerEvent::kExited, 1);
  EXPECT_FALSE(report->stdin_is_null);
}

TEST(ForkServer, ChildHasOneThreadItsOwnGroupAndSignalsReset) {
  NothingLeftBehind check;
  // Handled, blocked and ignored in this process when the server starts.
  struct sigaction before {};
  struct sigaction handler {};
  handler.sa_handler = [](int) {};
  ::sigaction(SIGUSR1, &handler, &before);
  const auto hup_before = ::signal(SIGHUP, SIG_IGN);
  sigset_t blocked, mask_before;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGUSR2);
  ::sigprocmask(SIG_BLOCK, &blocked, &mask_before);
  auto server = start_server();
  ::sigprocmask(SIG_SETMASK, &mask_before, nullptr);
  ::signal(SIGHUP, hup_before);
  ::sigaction(SIGUSR1, &before, nullptr);
  SharedRegion region = SharedRegion::create("signals", kRegionBytes).value();
  spawn(*server, 1, "r", {region.fd()});
  next(*server, ServerEvent::kExited, 1);
  const auto* report = reinterpret_cast<const Report*>(region.data());
  ASSERT_EQ(report->done.load(), 1u);
  EXPECT_EQ(report->group, report->pid);
  // That sanitizer has a thread of its own.
  EXPECT_EQ(report->threads, kThreadSanitizer ? 2 : 1);
  EXPECT_EQ(report->blocked, 0u);
  const auto bit = [](int s) { return uint64_t{1} << (s - 1); };
  const uint64_t expected = bit(SIGINT) | bit(SIGTERM) | bit(SIGHUP);
  EXPECT_EQ(report->ignored & (expected | bit(SIGUSR1) | bit(SIGUSR2) | bit(SIGCHLD) |
                               bit(SIGQUIT) | bit(SIGALRM)),
            expected);
}

TEST(ForkServer, ExitStatusComesHome) {
  NothingLeftBehind check;
  auto server = start_server();
  for (const int status : {0, 1, 42, 127, 255}) {
    const auto id = static_cast<uint64_t>(status) + 1000;
    spawn(*server, id, std::string{'x', static_cast<char>(status)});
    const ServerEvent event = next(*server, ServerEvent::kExited, id);
    EXPECT_EQ(event.status, status);
    EXPECT_EQ(event.text, "exit status " + std::to_string(status));
  }
}

TEST(ForkServer, DeathBySignalIsToldWithTheSignal) {
  NothingLeftBehind check;
  auto server = start_server();
  const ServerEvent held = spawn(*server, 1, "h");
  ASSERT_EQ(::kill(held.pid, SIGKILL), 0);
  ServerEvent event = next(*server, ServerEvent::kExited, 1);
  EXPECT_EQ(event.status, -SIGKILL);
  EXPECT_EQ(event.text, "killed by signal 9 (Killed)");
  spawn(*server, 2, "a");
  EXPECT_EQ(next(*server, ServerEvent::kExited, 2).status, -SIGABRT);
  spawn(*server, 3, "s");
  EXPECT_EQ(next(*server, ServerEvent::kExited, 3).status, -SIGSEGV);
  spawn(*server, 4, "t");
  EXPECT_EQ(next(*server, ServerEvent::kExited, 4).status, -SIGABRT);
}

TEST(ForkServer, TerminalAndAdministratorSignalsEndNeitherServerNorChildren) {
  NothingLeftBehind check;
  auto server = start_server();
  const ServerEvent held = spawn(*server, 1, "h");
  for (const int s : {SIGINT, SIGTERM}) {
    ASSERT_EQ(::kill(held.pid, s), 0);
    ASSERT_EQ(::kill(server->pid(), s), 0);
  }
  for (const int s : {SIGHUP, SIGQUIT, SIGUSR1, SIGPIPE}) ASSERT_EQ(::kill(server->pid(), s), 0);
  // The server still answers, and the first it tells is this child, not the end of the other.
  spawn(*server, 2, std::string{'x', 5});
  EXPECT_EQ(next(*server, ServerEvent::kExited, 2).status, 5);
  EXPECT_FALSE(readable(held.pidfd.get()));
}

TEST(ForkServer, StoppedAndContinuedChildIsTold) {
  NothingLeftBehind check;
  auto server = start_server();
  const ServerEvent held = spawn(*server, 1, "h");
  ASSERT_EQ(::kill(held.pid, SIGSTOP), 0);
  EXPECT_EQ(next(*server, ServerEvent::kStopped, 1).status, SIGSTOP);
  ASSERT_EQ(::kill(held.pid, SIGCONT), 0);
  next(*server, ServerEvent::kContinued, 1);
  ASSERT_EQ(::kill(held.pid, SIGSTOP), 0);
  next(*server, ServerEvent::kStopped, 1);
  ASSERT_EQ(::kill(held.pid, SIGKILL), 0);
  EXPECT_EQ(next(*server, ServerEvent::kExited, 1).status, -SIGKILL);
}

TEST(ForkServer, StdioOfAChildIsFlushedAtItsEnd) {
  NothingLeftBehind check;
  auto server = start_server();
  SharedRegion region = SharedRegion::create("stdio", kRegionBytes).value();
  spawn(*server, 1, "w", {region.fd()});
  EXPECT_EQ(next(*server, ServerEvent::kExited, 1).status, 0);
  EXPECT_EQ(std::memcmp(region.data(), "buffered", 8), 0);
}

TEST(ForkServer, LossOfTheServerIsToldAndItsChildrenGoWithIt) {
  NothingLeftBehind check;
  auto server = start_server();
  const ServerEvent a = spawn(*server, 1, "h");
  const ServerEvent b = spawn(*server, 2, "h");
  ASSERT_EQ(::kill(b.pid, SIGSTOP), 0);
  next(*server, ServerEvent::kStopped, 2);
  ASSERT_EQ(::kill(server->pid(), SIGKILL), 0);
  const ServerEvent gone = next(*server, ServerEvent::kServerGone, 0);
  EXPECT_NE(gone.text.find("killed by signal 9"), std::string::npos) << gone.text;
  EXPECT_NE(gone.text.find(std::to_string(server->pid())), std::string::npos) << gone.text;
  EXPECT_TRUE(ended(a.pidfd));
  EXPECT_TRUE(ended(b.pidfd));
  EXPECT_FALSE(server->alive());
  EXPECT_EQ(server->event_fd(), -1);
  EXPECT_FALSE(server->next_event().value().has_value());
  EXPECT_EQ(server->spawn(3, {}, {}).error().code(), Code::kWrongState);
  EXPECT_FALSE(server->start_sub_server().ok());
  EXPECT_TRUE(server->shutdown(kTestDeadline).ok());
}

TEST(ForkServer, EventsBeforeTheLossAreToldFirst) {
  NothingLeftBehind check;
  auto server = start_server();
  ASSERT_TRUE(server->spawn(1, spec_of("h"), {}).ok());
  ASSERT_TRUE(readable(server->event_fd(), 60'000));
  // Stopped, so that requests are left unread: their end must not hide what was sent before.
  ASSERT_EQ(::kill(server->pid(), SIGSTOP), 0);
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(server->pid()), &info, WSTOPPED), 0);
  ASSERT_TRUE(server->spawn(2, spec_of("h"), {}).ok());
  ASSERT_EQ(::kill(server->pid(), SIGKILL), 0);
  const ServerEvent started = next(*server, ServerEvent::kStarted, 1);
  next(*server, ServerEvent::kServerGone, 0);
  EXPECT_TRUE(ended(started.pidfd));
}

TEST(ForkServer, ShutdownEndsChildrenAndIsFinal) {
  NothingLeftBehind check;
  auto server = start_server();
  const ServerEvent a = spawn(*server, 1, "h");
  const ServerEvent b = spawn(*server, 2, "h");
  ASSERT_EQ(::kill(b.pid, SIGSTOP), 0);
  EXPECT_TRUE(server->shutdown(kTestDeadline).ok());
  // The server reaps before it leaves: at once, not soon.
  EXPECT_TRUE(readable(a.pidfd.get()));
  EXPECT_TRUE(readable(b.pidfd.get()));
  EXPECT_EQ(::kill(a.pid, 0), -1);
  EXPECT_TRUE(server->shutdown(kTestDeadline).ok());
  EXPECT_EQ(server->spawn(3, spec_of("h"), {}).error().code(), Code::kWrongState);
  EXPECT_EQ(server->start_sub_server().error().code(), Code::kWrongState);
  EXPECT_FALSE(server->next_event().value().has_value());
}

TEST(ForkServer, StoppedServerIsKilledAtTheEndOfTheGrace) {
  NothingLeftBehind check;
  auto server = start_server();
  const ServerEvent child = spawn(*server, 1, "h");
  ASSERT_EQ(::kill(server->pid(), SIGSTOP), 0);
  EXPECT_TRUE(server->shutdown(base::Duration{0}).ok());
  EXPECT_TRUE(ended(child.pidfd));
}

TEST(ForkServer, SpawnToAStoppedServerEndsWithADeadline) {
  NothingLeftBehind check;
  auto server = start_server();
  ASSERT_EQ(::kill(server->pid(), SIGSTOP), 0);
  const std::vector<std::byte> spec(ForkServer::kSpecBytesMax, std::byte{'h'});
  Result<void> asked;
  for (uint64_t id = 0; asked.ok() && id < 1000; ++id) asked = server->spawn(id, spec, {});
  ASSERT_FALSE(asked.ok());
  EXPECT_EQ(asked.error().code(), Code::kDeadline);
  EXPECT_TRUE(server->shutdown(base::Duration{0}).ok());
}

TEST(ForkServer, TwoSubServersServeAndEndOnTheirOwn) {
  NothingLeftBehind check;
  auto root = start_server();
  std::atomic<bool> stop{false};
  std::thread other([&stop] { stop.wait(false); });
  auto one = root->start_sub_server().value();
  auto two = root->start_sub_server().value();
  EXPECT_NE(one->pid(), two->pid());
  const ServerEvent a = spawn(*one, 1, "h");
  const ServerEvent b = spawn(*two, 1, "h");
  const ServerEvent c = spawn(*root, 1, "h");
  ASSERT_EQ(::kill(one->pid(), SIGKILL), 0);
  next(*one, ServerEvent::kServerGone, 0);
  EXPECT_TRUE(ended(a.pidfd));
  EXPECT_FALSE(readable(b.pidfd.get()));
  EXPECT_TRUE(two->shutdown(kTestDeadline).ok());
  EXPECT_TRUE(ended(b.pidfd));
  EXPECT_FALSE(readable(c.pidfd.get()));
  // A sub-server outlives the server that forked it.
  auto three = root->start_sub_server().value();
  const ServerEvent d = spawn(*three, 1, "h");
  ASSERT_EQ(::kill(root->pid(), SIGKILL), 0);
  next(*root, ServerEvent::kServerGone, 0);
  EXPECT_TRUE(ended(c.pidfd));
  spawn(*three, 2, std::string{'x', 3});
  EXPECT_EQ(next(*three, ServerEvent::kExited, 2).status, 3);
  EXPECT_TRUE(three->shutdown(kTestDeadline).ok());
  EXPECT_TRUE(ended(d.pidfd));
  stop.store(true);
  stop.notify_all();
  other.join();
}

TEST(ForkServer, SubServersLeaveNoZombieWithTheRoot) {
  NothingLeftBehind check;
  auto root = start_server();
  const auto zombies_of_root = [&root] {
    const std::string folder = "/proc/" + std::to_string(root->pid()) + "/task/" +
                               std::to_string(root->pid()) + "/children";
    std::FILE* file = std::fopen(folder.c_str(), "re");
    if (file == nullptr) return -1;
    int pid, count = 0;
    while (std::fscanf(file, "%d", &pid) == 1) ++count;
    std::fclose(file);
    return count;
  };
  auto sub = root->start_sub_server().value();
  EXPECT_EQ(zombies_of_root(), 1);
  EXPECT_TRUE(sub->shutdown(kTestDeadline).ok());
  // The root answers requests in order with what it reaps: after this child's end it has reaped.
  while (zombies_of_root() != 0) {
    spawn(*root, 1, std::string{'x', 0});
    next(*root, ServerEvent::kExited, 1);
  }
}

TEST(ForkServer, NestedServerGoesWithTheChildThatOwnsIt) {
  NothingLeftBehind check;
  auto server = start_server();
  auto [here, there] = SeqPacket::pair().value();
  const ServerEvent child = spawn(*server, 1, "n", {there.fd()});
  there.close();
  std::array<std::byte, 16> buffer;
  ASSERT_TRUE(readable(here.fd(), 60'000));
  const SeqMessage up = here.receive(buffer).value().value();
  ASSERT_EQ(up.fds.size(), 2u);
  EXPECT_FALSE(readable(up.fds[0].get()));
  ASSERT_EQ(::kill(child.pid, SIGKILL), 0);
  next(*server, ServerEvent::kExited, 1);
  EXPECT_TRUE(ended(up.fds[0]));
  EXPECT_TRUE(ended(up.fds[1]));
}

// What a process does whose death the next tests look at: servers, children, and word of them all.
[[noreturn]] void be_a_parent(const SeqPacket& test, bool keep_socket_alive) {
  auto server = ForkServer::start({.child_main = child_main, .inherit_fds = {}});
  if (!server.ok()) ::_exit(1);
  auto sub = (*server)->start_sub_server();
  if (!sub.ok()) ::_exit(2);
  std::vector<Fd> pidfds;
  for (ForkServer* s : {server->get(), sub->get()}) {
    pidfds.push_back(PidFd::open(s->pid()).value().take());
    if (!s->spawn(1, spec_of("h"), {}).ok() || !readable(s->event_fd(), 60'000)) ::_exit(3);
    auto event = s->next_event();
    if (!event.ok() || !event->has_value()) ::_exit(4);
    pidfds.push_back(std::move((*event)->pidfd));
  }
  std::vector<int> fds;
  for (const Fd& fd : pidfds) fds.push_back(fd.get());
  if (keep_socket_alive) {
    // The test holds the parent's ends from now on: no server sees an end of its socket.
    fds.push_back((*server)->event_fd());
    fds.push_back((*sub)->event_fd());
  }
  if (!test.send(spec_of("up"), fds).ok()) ::_exit(5);
  hold();
}

void kill_parent_and_check(bool keep_socket_alive) {
  NothingLeftBehind check;
  // Orphans come here, so that the test sees that none is left.
  ASSERT_EQ(::prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
  {
    auto [here, there] = SeqPacket::pair().value();
    const pid_t parent = ::fork();
    if (parent == 0) be_a_parent(there, keep_socket_alive);
    there.close();
    std::array<std::byte, 16> buffer;
    ASSERT_TRUE(readable(here.fd(), 60'000));
    const SeqMessage up = here.receive(buffer).value().value();
    ASSERT_EQ(up.fds.size(), keep_socket_alive ? 6u : 4u);
    for (size_t i = 0; i < 4; ++i) EXPECT_FALSE(readable(up.fds[i].get()));
    ASSERT_EQ(::kill(parent, SIGKILL), 0);
    for (size_t i = 0; i < 4; ++i) EXPECT_TRUE(ended(up.fds[i])) << i;
    // The parent and its servers; children were reaped by them, and the second server by the first
    // where that lived a moment longer.
    int reaped = 0;
    siginfo_t info{};
    while (::waitid(P_ALL, 0, &info, WEXITED) == 0) ++reaped;
    EXPECT_GE(reaped, 2);
    EXPECT_LE(reaped, 3);
  }
  ASSERT_EQ(::prctl(PR_SET_CHILD_SUBREAPER, 0), 0);
}

TEST(ForkServer, DeathOfTheParentEndsServersAndChildren) {
  kill_parent_and_check(false);
}

TEST(ForkServer, DeathOfTheParentIsSeenAlsoWhereItsSocketLivesOn) {
  kill_parent_and_check(true);
}

TEST(ForkServer, GarbageEndsTheServerInWords) {
  const std::vector<std::byte> long_spawn = encode_fork_message(
      {.type = ForkMessageType::kSpawn, .spawn_id = 9}, std::vector<std::byte>(70'000));
  const std::vector<std::byte> wrong_way =
      encode_fork_message({.type = ForkMessageType::kExited}, std::string_view());
  const std::vector<std::byte> claimed_fds =
      encode_fork_message({.type = ForkMessageType::kSpawn, .fds = 2}, std::string_view());
  for (const auto& garbage :
       {spec_of("x"), spec_of(std::string(32, 'g')), long_spawn, wrong_way, claimed_fds}) {
    NothingLeftBehind check;
    auto server = start_server();
    const ServerEvent child = spawn(*server, 1, "h");
    ASSERT_EQ(::send(server->event_fd(), garbage.data(), garbage.size(), 0),
              static_cast<ssize_t>(garbage.size()));
    ServerEvent event = next(*server);
    while (event.kind == ServerEvent::kExited) event = next(*server);
    EXPECT_EQ(event.kind, ServerEvent::kServerGone);
    EXPECT_NE(event.text.find(garbage == long_spawn ? "longer than" : "protocol"),
              std::string::npos)
        << event.text;
    EXPECT_TRUE(ended(child.pidfd));
  }
}

TEST(ForkServer, GarbageFromTheServerEndsIt) {
  NothingLeftBehind check;
  auto server = start_server();
  const ServerEvent child = spawn(*server, 1, "h");
  const PidFd pidfd = PidFd::open(server->pid()).value();
  // The server's end of the socket, by its only descriptor that is one.
  Fd socket;
  for (int number = 3; number < 64 && !socket.valid(); ++number) {
    Fd fd(static_cast<int>(::syscall(SYS_pidfd_getfd, pidfd.fd(), number, 0)));
    if (!fd.valid() && errno == EPERM) GTEST_SKIP() << "this host forbids pidfd_getfd";
    int type = 0;
    socklen_t bytes = sizeof type;
    if (fd.valid() && ::getsockopt(fd.get(), SOL_SOCKET, SO_TYPE, &type, &bytes) == 0) {
      socket = std::move(fd);
    }
  }
  ASSERT_TRUE(socket.valid());
  ASSERT_EQ(::send(socket.get(), "nonsense", 8, 0), 8);
  const ServerEvent gone = next(*server, ServerEvent::kServerGone, 0);
  EXPECT_NE(gone.text.find("protocol"), std::string::npos) << gone.text;
  EXPECT_TRUE(ended(child.pidfd));
}

TEST(ForkServer, LimitsAreErrorsAndTheServerGoesOn) {
  NothingLeftBehind check;
  auto server = start_server({}, 2);
  std::vector<std::byte> spec(ForkServer::kSpecBytesMax, std::byte{'r'});
  const std::vector<int> fds(ForkServer::kFdsMax + 1, 0);
  const int bad = -1, closed = 1'000'000;
  EXPECT_EQ(server->spawn(1, std::vector<std::byte>(spec.size() + 1), {}).error().code(),
            Code::kInvalidArgument);
  EXPECT_EQ(server->spawn(1, {}, fds).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(server->spawn(1, {}, {&bad, 1}).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(server->spawn(1, {}, {&closed, 1}).error().code(), Code::kInvalidArgument);
  SharedRegion region = SharedRegion::create("limits", kRegionBytes).value();
  std::vector<int> most(ForkServer::kFdsMax, region.fd());
  EventFd event = EventFd::create().value();
  most[1] = event.fd();
  ASSERT_TRUE(server->spawn(2, spec, most).ok());
  next(*server, ServerEvent::kStarted, 2);
  next(*server, ServerEvent::kExited, 2);
  const auto* report = reinterpret_cast<const Report*>(region.data());
  EXPECT_EQ(report->spec_bytes, ForkServer::kSpecBytesMax);
  EXPECT_EQ(report->fd_count, 3 + ForkServer::kFdsMax);
  spawn(*server, 3, "h");
  spawn(*server, 4, "h");
  ASSERT_TRUE(server->spawn(5, spec_of("h"), {}).ok());
  const ServerEvent full = next(*server, ServerEvent::kSpawnFailed, 5);
  EXPECT_NE(full.text.find("2 children"), std::string::npos) << full.text;
}

TEST(ForkServer, SpawnIdOfALivingChildIsRefusedAndFreeAfterItsEnd) {
  NothingLeftBehind check;
  auto server = start_server();
  const ServerEvent child = spawn(*server, 1, "h");
  ASSERT_TRUE(server->spawn(1, spec_of("h"), {}).ok());
  next(*server, ServerEvent::kSpawnFailed, 1);
  ASSERT_EQ(::kill(child.pid, SIGKILL), 0);
  next(*server, ServerEvent::kExited, 1);
  spawn(*server, 1, std::string{'x', 0});
  next(*server, ServerEvent::kExited, 1);
}

TEST(ForkServer, StartRefusesNonsense) {
  NothingLeftBehind check;
  EXPECT_EQ(ForkServer::start({}).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(ForkServer::start({.child_main = child_main, .inherit_fds = {-1}}).error().code(),
            Code::kInvalidArgument);
  EXPECT_EQ(ForkServer::start({.child_main = child_main,
                               .inherit_fds = std::vector<int>(ForkServer::kInheritFdsMax + 1, 0)})
                .error()
                .code(),
            Code::kInvalidArgument);
}

TEST(ForkServer, EventsOfAParentThatDoesNotReadWaitInOrder) {
  NothingLeftBehind check;
  auto server = start_server({}, 1000);
  constexpr uint64_t kChildren = 200;
  for (uint64_t id = 0; id < kChildren; ++id) {
    ASSERT_TRUE(server->spawn(id, spec_of(std::string{'x', 1}), {}).ok());
  }
  std::set<uint64_t> started, exited;
  while (exited.size() < kChildren) {
    const ServerEvent event = next(*server);
    if (event.kind == ServerEvent::kStarted) {
      EXPECT_TRUE(started.insert(event.spawn_id).second);
    } else {
      ASSERT_EQ(event.kind, ServerEvent::kExited) << event.text;
      EXPECT_TRUE(started.contains(event.spawn_id));
      EXPECT_TRUE(exited.insert(event.spawn_id).second);
    }
  }
}

// The kernel counts a user's descriptors that are sent and not yet received against the sender's
// limit, but for the administrator.
TEST(ForkServer, TooManyPidfdsUnderWayDelayEventsAndLoseNone) {
  NothingLeftBehind check;
  const pid_t pid = ::fork();
  if (pid == 0) {
    constexpr uint64_t kChildren = 60;
    if (::geteuid() == 0 && ::setresuid(65534, 65534, 65534) != 0) ::_exit(1);
    auto server = start_server({}, 1000);
    const rlimit low{20, 20};
    if (::prlimit(server->pid(), RLIMIT_NOFILE, &low, nullptr) != 0) ::_exit(2);
    auto [here, there] = SeqPacket::pair().value();
    const int held = there.fd();
    for (uint64_t id = 0; id < kChildren; ++id) {
      if (!server->spawn(id, spec_of(std::string{'x', 1}), {&held, 1}).ok()) ::_exit(3);
    }
    there.close();
    // Its end: all requests are taken and all children have ended, with no event read.
    if (!readable(here.fd(), 60'000)) ::_exit(8);
    uint64_t started = 0, exited = 0, failed = 0;
    while (exited + failed < kChildren) {
      const ServerEvent event = next(*server);
      started += event.kind == ServerEvent::kStarted;
      exited += event.kind == ServerEvent::kExited;
      failed += event.kind == ServerEvent::kSpawnFailed;
      if (event.kind == ServerEvent::kServerGone) ::_exit(4);
    }
    if (started != exited || started < 10) ::_exit(5);
    // With all of them taken, the server is as good as new.
    if (!server->spawn(1, spec_of(std::string{'x', 1}), {}).ok()) ::_exit(6);
    ::_exit(next(*server).kind == ServerEvent::kStarted ? 0 : 7);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(ForkServer, ServerWithoutDescriptorsFailsSpawnsAndRecovers) {
  NothingLeftBehind check;
  auto server = start_server();
  rlimit before{};
  const rlimit none{3, 1024};
  ASSERT_EQ(::prlimit(server->pid(), RLIMIT_NOFILE, &none, &before), 0);
  SharedRegion region = SharedRegion::create("lost", kRegionBytes).value();
  const int fd = region.fd();
  ASSERT_TRUE(server->spawn(1, spec_of("r"), {&fd, 1}).ok());
  EXPECT_NE(next(*server, ServerEvent::kSpawnFailed, 1).text.find("ulimit"), std::string::npos);
  ASSERT_TRUE(server->spawn(2, spec_of("h"), {}).ok());
  EXPECT_NE(next(*server, ServerEvent::kSpawnFailed, 2).text.find("pidfd_open"), std::string::npos);
  EXPECT_FALSE(server->start_sub_server().ok());
  const rlimit enough{512, 1024};
  ASSERT_EQ(::prlimit(server->pid(), RLIMIT_NOFILE, &enough, nullptr), 0);
  spawn(*server, 3, "r", {fd});
  EXPECT_EQ(next(*server, ServerEvent::kExited, 3).status, 0);
}

TEST(ForkServer, ParentWithoutRoomForAPidfdGetsAFailureAndNoChildIsLeft) {
  NothingLeftBehind check;
  auto server = start_server({}, 1);
  ASSERT_TRUE(server->spawn(1, spec_of("h"), {}).ok());
  {
    FdLimit limit(full_fd_limit());
    const ServerEvent failed = next(*server, ServerEvent::kSpawnFailed, 1);
    EXPECT_NE(failed.text.find("ulimit"), std::string::npos) << failed.text;
  }
  // The limit is one child: the first has gone.
  spawn(*server, 2, std::string{'x', 0});
  next(*server, ServerEvent::kExited, 2);
}

TEST(ForkServer, ChildrenOfTheParentThatIgnoresSigchldAreReapedAllTheSame) {
  NothingLeftBehind check;
  const auto before = ::signal(SIGCHLD, SIG_IGN);
  {
    auto server = start_server();
    spawn(*server, 1, std::string{'x', 6});
    EXPECT_EQ(next(*server, ServerEvent::kExited, 1).status, 6);
    EXPECT_TRUE(server->shutdown(kTestDeadline).ok());
    auto lost = start_server();
    ASSERT_EQ(::kill(lost->pid(), SIGKILL), 0);
    next(*lost, ServerEvent::kServerGone, 0);
  }
  ::signal(SIGCHLD, before);
}

// One whole life; false where any step failed, which is an Error or an event, never a hang.
bool whole_life() {
  auto server = ForkServer::start({.child_main = child_main, .inherit_fds = {}});
  if (!server.ok()) return false;
  auto sub = (*server)->start_sub_server();
  if (!sub.ok()) return false;
  Result<SharedRegion> region = SharedRegion::create("sweep", kRegionBytes);
  if (!region.ok()) return false;
  for (ForkServer* s : {server->get(), sub->get()}) {
    const int fd = region->fd();
    if (!s->spawn(1, spec_of("r"), {&fd, 1}).ok()) return false;
    for (;;) {
      const ServerEvent event = next(*s);
      if (event.kind == ServerEvent::kExited && event.status == 0) break;
      if (event.kind != ServerEvent::kStarted) return false;
    }
  }
  return (*sub)->shutdown(kTestDeadline).ok() && (*server)->shutdown(kTestDeadline).ok();
}

TEST(ForkServer, EveryDescriptorThatCannotBeHadLeavesNothingBehind) {
  int failures = 0;
  bool done = false;
  const rlim_t first = full_fd_limit();
  for (rlim_t limit = first; !done && limit < first + 64; ++limit) {
    NothingLeftBehind check;
    FdLimit low(limit);
    done = whole_life();
    failures += !done;
    if (testing::Test::HasFailure()) {
      ADD_FAILURE() << "with " << limit - first << " descriptors more";
      return;
    }
  }
  EXPECT_TRUE(done);
  EXPECT_GE(failures, 5);
}

TEST(ForkServer, ServerByExecServesLikeOneByFork) {
  NothingLeftBehind check;
  const Fd inherited(::open("/dev/zero", O_RDONLY | O_CLOEXEC));
  std::atomic<bool> stop{false};
  std::thread other([&stop] { stop.wait(false); });
  auto server = ForkServer::start_exec({"/proc/self/exe"}, {inherited.get()});
  ASSERT_TRUE(server.ok()) << server.error().to_string();
  SharedRegion region = SharedRegion::create("exec", kRegionBytes).value();
  spawn(**server, 1, "r", {region.fd()});
  EXPECT_EQ(next(**server, ServerEvent::kExited, 1).status, 0);
  const auto* report = reinterpret_cast<const Report*>(region.data());
  const std::set<int> fds(report->fds.begin(), report->fds.begin() + report->fd_count);
  EXPECT_EQ(fds.size(), 5u);
  EXPECT_TRUE(fds.contains(inherited.get()));
  auto sub = (*server)->start_sub_server();
  ASSERT_TRUE(sub.ok());
  spawn(**sub, 1, "h");
  EXPECT_TRUE((*sub)->shutdown(kTestDeadline).ok());
  EXPECT_TRUE((*server)->shutdown(kTestDeadline).ok());
  stop.store(true);
  stop.notify_all();
  other.join();
}

TEST(ForkServer, ProgramThatIsNoServerIsAnError) {
  NothingLeftBehind check;
  EXPECT_FALSE(ForkServer::start_exec({}, {}).ok());
  EXPECT_FALSE(ForkServer::start_exec({"/nonexistent/program"}, {}).ok());
  const auto other = ForkServer::start_exec({"/bin/true"}, {});
  ASSERT_FALSE(other.ok());
  EXPECT_NE(other.error().message().find("ended before it stood"), std::string::npos);
}

TEST(ForkServer, ProgramServesOnlyWhereItIsAsked) {
  char program[] = "program";
  char other[] = "--other";
  char* none[] = {program, other, nullptr};
  EXPECT_FALSE(ForkServer::serve_if_asked(1, none, child_main).has_value());
  EXPECT_FALSE(ForkServer::serve_if_asked(2, none, child_main).has_value());
  for (const char* text : {"", "3", "3,", "a,b", "-1,4", "3,4,x", "3;4"}) {
    std::string argument = std::string("--strata-fork-server=") + text;
    char* argv[] = {program, argument.data(), nullptr};
    EXPECT_EQ(ForkServer::serve_if_asked(2, argv, child_main), EXIT_FAILURE) << text;
  }
}

}  // namespace
}  // namespace strata::os

// The program is its own fork server by exec.
int main(int argc, char** argv) {
  if (const auto status =
          strata::os::ForkServer::serve_if_asked(argc, argv, strata::os::child_main)) {
    return *status;
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
