#include "fork_server_rig.h"

namespace strata::os {
namespace {

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

}  // namespace
}  // namespace strata::os
