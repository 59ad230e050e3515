#include "fork_server_rig.h"

namespace strata::os {
namespace {

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

}  // namespace
}  // namespace strata::os
