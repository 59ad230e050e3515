// Servers by exec: this program is its own, and others that are none or of another layout.
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "fork_server_rig.h"
#include "os/exec_start.h"

namespace strata::os {
namespace {

const ForkIdentity kIdentity{.layout_id = 0x1234, .version = "1.2.3", .compiler = "a compiler"};

ExecServerOptions self(std::vector<int> inherit = {}) {
  return {.program = "/proc/self/exe", .name = "os_test", .inherit_fds = std::move(inherit)};
}

std::unique_ptr<ForkServer> started(const ExecServerOptions& options = self()) {
  auto server = ForkServer::start_exec(options, kIdentity);
  if (!server.ok()) ADD_FAILURE() << server.error().to_string();
  return server.ok() ? std::move(server).value() : nullptr;
}

class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
  ~Variable() { ::unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

std::string command_line(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/cmdline");
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// A child's report of itself.
struct Reported {
  SharedRegion region = SharedRegion::create("exec", kRegionBytes).value();
  const Report& get() const { return *reinterpret_cast<const Report*>(region.data()); }
  std::set<int> fds() const { return {get().fds.begin(), get().fds.begin() + get().fd_count}; }
};

void expect_like_a_forked_child(ForkServer& server, int inherited) {
  Reported child;
  const ServerEvent begun = spawn(server, 1, "r", {child.region.fd()});
  EXPECT_EQ(next(server, ServerEvent::kExited, 1).status, 0);
  // Stdio, the inherited one and the region.
  EXPECT_EQ(child.fds().size(), 5u);
  EXPECT_TRUE(child.fds().contains(inherited));
  EXPECT_EQ(child.get().pid, begun.pid);
  EXPECT_EQ(child.get().group, begun.pid);
  EXPECT_EQ(child.get().parent, server.pid());
  EXPECT_EQ(child.get().blocked, 0u);
  EXPECT_TRUE(child.get().stdin_is_null);
  EXPECT_EQ(child.get().spec_bytes, 1u);
}

TEST(ExecServer, ServesLikeOneByForkAlsoWithThreads) {
  NothingLeftBehind check;
  const Fd inherited(::open("/dev/zero", O_RDONLY | O_CLOEXEC));
  std::atomic<bool> stop{false};
  std::thread other([&stop] { stop.wait(false); });
  {
    auto server = started(self({inherited.get()}));
    ASSERT_NE(server, nullptr);
    EXPECT_TRUE(server->same_program());
    expect_like_a_forked_child(*server, inherited.get());
    auto sub = server->start_sub_server();
    ASSERT_TRUE(sub.ok()) << sub.error().to_string();
    EXPECT_TRUE((*sub)->same_program());
    expect_like_a_forked_child(**sub, inherited.get());
    spawn(**sub, 2, "h");
    EXPECT_TRUE((*sub)->shutdown(kTestDeadline).ok());
    EXPECT_TRUE(server->shutdown(kTestDeadline).ok());
  }
  stop.store(true);
  stop.notify_all();
  other.join();
}

// The program starts a thread before main where this is set (at the end of this file).
TEST(ExecServer, OneWithThreadsOfItsOwnMakesAllByExec) {
  NothingLeftBehind check;
  const Variable threads("STRATA_TEST_EARLY_THREAD", "1");
  const Fd inherited(::open("/dev/zero", O_RDONLY | O_CLOEXEC));
  auto server = started(self({inherited.get()}));
  ASSERT_NE(server, nullptr);
  Reported child;
  spawn(*server, 1, "r", {child.region.fd()});
  EXPECT_EQ(next(*server, ServerEvent::kExited, 1).status, 0);
  // A forked child would have one.
  EXPECT_EQ(child.get().threads, 2 + kThreadSanitizer);
  expect_like_a_forked_child(*server, inherited.get());
  auto sub = server->start_sub_server();
  ASSERT_TRUE(sub.ok()) << sub.error().to_string();
  expect_like_a_forked_child(**sub, inherited.get());
  const ServerEvent held = spawn(**sub, 2, "h");
  // Its server's death is a child's, as by fork.
  EXPECT_EQ(::kill((*sub)->pid(), SIGKILL), 0);
  EXPECT_TRUE(ended(held.pidfd));
  EXPECT_EQ(next(**sub).kind, ServerEvent::kServerGone);
}

TEST(ExecServer, OneWithThreadsOfItsOwnForksWhereThatIsAllowed) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer starts no threads after a threaded fork";
#endif
  NothingLeftBehind check;
  const Variable threads("STRATA_TEST_EARLY_THREAD", "1");
  ExecServerOptions options = self();
  options.allow_threads = true;
  auto server = started(options);
  ASSERT_NE(server, nullptr);
  Reported child;
  spawn(*server, 1, "r", {child.region.fd()});
  EXPECT_EQ(next(*server, ServerEvent::kExited, 1).status, 0);
  EXPECT_EQ(child.get().threads, 1 + kThreadSanitizer);
}

TEST(ExecServer, InheritedDescriptorsKeepTheirNumbersWhateverTheyAre) {
  NothingLeftBehind check;
  std::vector<Fd> open;
  std::vector<int> numbers;
  // More than one message of them, those that the start itself would take among them.
  for (int i = 0; i < 40; ++i) {
    open.emplace_back(::open("/dev/zero", O_RDONLY | O_CLOEXEC));
    numbers.push_back(open.back().get());
  }
  std::reverse(numbers.begin(), numbers.end());
  auto server = started(self(numbers));
  ASSERT_NE(server, nullptr);
  Reported child;
  spawn(*server, 1, "r", {child.region.fd()});
  EXPECT_EQ(next(*server, ServerEvent::kExited, 1).status, 0);
  EXPECT_EQ(child.get().fd_count, 3 + 40 + 1u);
  for (const int number : numbers) EXPECT_TRUE(child.fds().contains(number)) << number;
}

TEST(ExecServer, NothingOfTheProgramLeaks) {
  // Without close-on-exec, as other people's code leaves them.
  const Fd leaky(::open("/dev/zero", O_RDONLY));
  NothingLeftBehind check;
  sigset_t mask, before;
  sigemptyset(&mask);
  sigaddset(&mask, SIGUSR1);
  ::pthread_sigmask(SIG_BLOCK, &mask, &before);
  struct sigaction ignore {
  }, old{};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGUSR2, &ignore, &old);
  {
    auto server = started();
    ASSERT_NE(server, nullptr);
    Reported child;
    spawn(*server, 1, "r", {child.region.fd()});
    EXPECT_EQ(next(*server, ServerEvent::kExited, 1).status, 0);
    EXPECT_EQ(child.get().fd_count, 4u);
    EXPECT_EQ(child.get().blocked, 0u);
    // As by fork: what the program ignores the child ignores, and SIGINT and SIGTERM.
    const auto bit = [](int s) { return uint64_t{1} << (s - 1); };
    EXPECT_EQ(child.get().ignored & (bit(SIGUSR1) | bit(SIGUSR2) | bit(SIGINT) | bit(SIGTERM)),
              bit(SIGUSR2) | bit(SIGINT) | bit(SIGTERM));
  }
  ::sigaction(SIGUSR2, &old, nullptr);
  sigset_t after;
  ::pthread_sigmask(SIG_SETMASK, &before, &after);
  EXPECT_TRUE(sigismember(&after, SIGUSR1));
}

// In a process of its own, whose descriptors it may close.
int whole_life_without_stdio() {
  for (int fd = 0; fd <= 2; ++fd) ::close(fd);
  auto server = ForkServer::start_exec(self(), kIdentity);
  if (!server.ok()) return 1;
  SharedRegion region = SharedRegion::create("exec", kRegionBytes).value();
  const int fds[] = {region.fd()};
  if (!(*server)->spawn(1, spec_of("r"), fds).ok()) return 2;
  for (int events = 0; events < 2;) {
    if (!readable((*server)->event_fd(), 60'000)) return 3;
    auto event = (*server)->next_event();
    if (!event.ok()) return 4;
    events += event->has_value();
  }
  const auto* report = reinterpret_cast<const Report*>(region.data());
  if (report->fd_count != 4 || report->fds[0] != 0 || report->fds[2] != 2) return 5;
  return (*server)->shutdown(kTestDeadline).ok() ? 0 : 6;
}

TEST(ExecServer, WorksWhereStdioIsClosed) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(whole_life_without_stdio());
  int status = -1;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0) << WEXITSTATUS(status);
}

TEST(ExecServer, AnotherLayoutIsRefusedInWordsOnBothSides) {
  NothingLeftBehind check;
  testing::internal::CaptureStderr();
  ForkIdentity other = kIdentity;
  other.layout_id = 0x9999;
  other.version = "9.9.9";
  const auto server = ForkServer::start_exec(self(), other);
  const std::string said = testing::internal::GetCapturedStderr();
  ASSERT_FALSE(server.ok());
  EXPECT_EQ(server.error().code(), Code::kAbiMismatch);
  for (const std::string& text : {server.error().message(), said}) {
    for (const char* piece : {"9.9.9", "1.2.3", "0x0000000000009999", "0x0000000000001234",
                              "run both from one installation"}) {
      EXPECT_NE(text.find(piece), std::string::npos) << piece << " in: " << text;
    }
  }
}

// The other side looks too: a server that did not would be found out by its hello.
TEST(ExecServer, AServerOfAnotherLayoutIsFoundOutByItsHello) {
  NothingLeftBehind check;
  const Variable lie("STRATA_TEST_OTHER_HELLO", "1");
  const auto server = ForkServer::start_exec(self(), kIdentity);
  ASSERT_FALSE(server.ok());
  EXPECT_EQ(server.error().code(), Code::kAbiMismatch);
  EXPECT_NE(server.error().message().find("the child server 'os_test'"), std::string::npos)
      << server.error().message();
}

TEST(ExecServer, ProgramThatIsNoServerIsAnError) {
  NothingLeftBehind check;
  EXPECT_FALSE(ForkServer::start_exec({}, kIdentity).ok());
  const auto missing = ForkServer::start_exec({.program = "/nonexistent/program"}, kIdentity);
  ASSERT_FALSE(missing.ok());
  EXPECT_NE(missing.error().message().find("/nonexistent/program"), std::string::npos);
  const auto other = ForkServer::start_exec({.program = "/bin/true"}, kIdentity);
  ASSERT_FALSE(other.ok());
  EXPECT_NE(other.error().message().find("ended before it stood"), std::string::npos);
  EXPECT_NE(other.error().message().find("exit status 0"), std::string::npos);
}

TEST(ExecServer, ProgramThatSaysNothingEndsAtTheDeadline) {
  NothingLeftBehind check;
  // `sh child-server ...` would end; this one reads a pipe that nobody writes.
  const std::string script = testing::TempDir() + "/test_silent_" + std::to_string(::getpid());
  {
    std::ofstream file(script);
    file << "#!/bin/sh\nexec sleep 600\n";
  }
  ::chmod(script.c_str(), 0700);
  ExecServerOptions options{.program = script};
  options.start_max = base::Duration::from_ms(50);
  const auto server = ForkServer::start_exec(options, kIdentity);
  ::unlink(script.c_str());
  ASSERT_FALSE(server.ok());
  EXPECT_EQ(server.error().code(), Code::kDeadline);
}

TEST(ExecServer, ProgramServesOnlyWhereItIsAsked) {
  char program[] = "program", other[] = "--other", command[] = "child-server";
  char* none[] = {program, command, other, nullptr};
  EXPECT_FALSE(ForkServer::serve_if_asked(1, none, child_main, kIdentity).has_value());
  EXPECT_FALSE(ForkServer::serve_if_asked(2, none, child_main, kIdentity).has_value());
  EXPECT_FALSE(ForkServer::serve_if_asked(3, none, child_main, kIdentity).has_value());
  sigset_t before;
  ::sigprocmask(SIG_SETMASK, nullptr, &before);
  for (const char* text : {"", "x", "-1", "3,4", "0x3", "999"}) {
    std::string argument = std::string("--strata-channel=") + text;
    char* argv[] = {program, command, argument.data(), nullptr};
    testing::internal::CaptureStderr();
    EXPECT_EQ(ForkServer::serve_if_asked(3, argv, child_main, kIdentity), EXIT_FAILURE) << text;
    EXPECT_NE(testing::internal::GetCapturedStderr().find("nothing to run by hand"),
              std::string::npos);
    ::sigprocmask(SIG_SETMASK, &before, nullptr);
  }
}

TEST(ExecServer, TitleSaysWhatItIsAndArgumentsHoldNothing) {
  auto server = started();
  ASSERT_NE(server, nullptr);
  const std::string line = command_line(server->pid());
  EXPECT_TRUE(line.starts_with("strata: server of " + std::to_string(::getpid()))) << line;
}

#ifdef STRATA_FAULTS
class ExecServerKilledAt : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Step, ExecServerKilledAt,
                         ::testing::Values("entered", "greeted", "settled"));

TEST_P(ExecServerKilledAt, IsAnErrorThatNamesTheSignalAndLeavesNothing) {
  NothingLeftBehind check;
  const Variable at("STRATA_TEST_KILL_AT", GetParam());
  const auto server = ForkServer::start_exec(self(), kIdentity);
  ASSERT_FALSE(server.ok());
  EXPECT_NE(server.error().message().find("killed by signal 9"), std::string::npos)
      << server.error().message();
}

class ExecServerLostAt : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Step, ExecServerLostAt,
                         ::testing::Values("hello", "sub-server", "sub-settled", "spawn"));

TEST_P(ExecServerLostAt, IsAnErrorOfWhatWasAskedForOrItsEnd) {
  NothingLeftBehind check;
  const Variable at("STRATA_TEST_KILL_AT", GetParam());
  const auto server = ForkServer::start_exec(self(), kIdentity);
  ASSERT_TRUE(server.ok()) << server.error().to_string();
  const auto sub = (*server)->start_sub_server();
  const bool spawned = std::string_view(GetParam()) == "spawn";
  ASSERT_EQ(sub.ok(), spawned);
  if (!spawned) return;
  static_cast<void>((*sub)->spawn(1, spec_of("h"), {}));
  const ServerEvent gone = next(**sub);
  EXPECT_EQ(gone.kind, ServerEvent::kServerGone);
}
#endif

// Every descriptor that a whole life by exec takes, missing in turn.
TEST(ExecServer, EachDescriptorThatCannotBeHadIsAnErrorAndLeavesNothing) {
  const Fd inherited(::open("/dev/zero", O_RDONLY | O_CLOEXEC));
  const auto life = [&] {
    auto server = ForkServer::start_exec(self({inherited.get()}), kIdentity);
    if (!server.ok()) return false;
    auto sub = (*server)->start_sub_server();
    if (!sub.ok()) return false;
    if (!(*sub)->spawn(1, spec_of("x\5"), {}).ok()) return false;
    for (;;) {
      if (!readable((*sub)->event_fd(), 60'000)) return false;
      auto event = (*sub)->next_event();
      if (!event.ok()) return false;
      if (!event->has_value()) continue;
      if ((*event)->kind == ServerEvent::kExited) return (*event)->status == 5;
      if ((*event)->kind != ServerEvent::kStarted) return false;
    }
  };
  const rlim_t first = full_fd_limit();
  int failures = 0;
  bool done = false;
  for (rlim_t limit = first; !done && limit < first + 64; ++limit) {
    NothingLeftBehind check;
    FdLimit low(limit);
    done = life();
    failures += !done;
    if (testing::Test::HasFailure()) {
      ADD_FAILURE() << "with " << limit - first << " descriptors more";
      return;
    }
  }
  EXPECT_TRUE(done);
  EXPECT_GE(failures, 3);
}

// Takes no greeting and says that it is of another layout.
int say_another_hello() {
  const SeqPacket owner = SeqPacket::adopt(Fd(3));
  ForkGreeting hello;
  put_identity({.layout_id = 1, .version = "0.0.1", .compiler = "another"}, &hello);
  static_cast<void>(owner.send(
      encode_fork_message({.type = ForkMessageType::kHello}, encode_fork_greeting(hello)), {}));
  for (;;) {
    if (!readable(owner.fd(), 60'000)) return 1;
    std::array<std::byte, sizeof(ForkHeader) + kForkTextBytesMax> bytes;
    auto got = owner.receive(bytes);
    if (!got.ok() || (got->has_value() && (*got)->end)) return 0;
  }
}

std::atomic<bool> never{false};
// Before main, as a library's constructor would. Never joined: the process ends by _exit.
const bool early = [] {
  if (::getenv("STRATA_TEST_EARLY_THREAD") == nullptr) return false;
  std::thread([] { never.wait(false); }).detach();
  return true;
}();

}  // namespace
}  // namespace strata::os

// The program is its own server by exec.
int main(int argc, char** argv) {
  if (argc > 1 && std::getenv("STRATA_TEST_OTHER_HELLO") != nullptr) {
    return strata::os::say_another_hello();
  }
  strata::os::ForkIdentity identity = strata::os::kIdentity;
  if (const auto status =
          strata::os::ForkServer::serve_if_asked(argc, argv, strata::os::child_main, identity)) {
    return *status;
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
