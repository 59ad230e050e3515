#include "os/spawn.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include "os/memory_file.h"
#include "os_test_util.h"

namespace strata::os {
namespace {

int status_of_child(pid_t pid) {
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

SpawnRequest shell(const std::string& script, int channel, int output = -1) {
  return {.program = "/bin/sh",
          .arguments = {"sh", "-c", script},
          .environment = {},
          .output = output,
          .channel = channel};
}

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

TEST(MemoryFile, HasItsBytesForWhoeverGetsItAndForNobodyToChange) {
  const NothingLeftBehind nothing;
  const Fd file = make_memory_file("strata-test", bytes_of("some bytes")).value();
  EXPECT_EQ(read_whole_file(file.get(), 10).value(), "some bytes");
  EXPECT_EQ(read_whole_file(file.get(), 10).value(), "some bytes");
  EXPECT_EQ(read_whole_file(file.get(), 9).error().code(), Code::kCorrupt);
  EXPECT_LT(::write(file.get(), "x", 1), 0);
  EXPECT_NE(::ftruncate(file.get(), 3), 0);
}

TEST(MemoryFile, OfAMebibyteReadsBack) {
  const std::string text(1 << 20, 'm');
  const Fd file = make_memory_file("strata-test", bytes_of(text)).value();
  EXPECT_EQ(read_whole_file(file.get(), text.size()).value(), text);
}

TEST(Spawn, GivesTheChannelAndTheOutputAndNothingElse) {
  const NothingLeftBehind nothing;
  int in[2];
  ASSERT_EQ(::pipe2(in, O_CLOEXEC), 0);
  const Fd channel(in[0]);
  ASSERT_EQ(::write(in[1], "by the channel\n", 15), 15);
  ::close(in[1]);
  const Fd stray(::open("/dev/null", O_RDONLY));  // without close-on-exec
  int out[2];
  ASSERT_EQ(::pipe2(out, O_CLOEXEC), 0);
  const Fd reader(out[0]);
  Fd writer(out[1]);
  const Result<pid_t> pid = spawn(
      shell("cat <&3; ls /proc/self/fd | wc -l; echo error >&2", channel.get(), writer.get()));
  writer.reset();
  ASSERT_TRUE(pid) << pid.error().to_string();
  std::string text;
  char buffer[256];
  for (ssize_t n; (n = ::read(reader.get(), buffer, sizeof buffer)) > 0;) {
    text.append(buffer, static_cast<size_t>(n));
  }
  EXPECT_EQ(status_of_child(*pid), 0);
  // stdin, stdout, stderr, the channel, and the folder that ls reads.
  EXPECT_EQ(text.find("by the channel\n5\nerror\n"), 0u) << text;
}

TEST(Spawn, IsASessionOfItsOwnWithNoSignalBlockedOrIgnored) {
  const NothingLeftBehind nothing;
  const Fd channel = make_memory_file("strata-test", {}).value();
  sigset_t all, before;
  sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, &before);
  const auto old = ::signal(SIGUSR1, SIG_IGN);
  const Result<pid_t> pid = spawn(shell("read line <&3; exec cat <&3", channel.get()));
  ::signal(SIGUSR1, old);
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  ASSERT_TRUE(pid) << pid.error().to_string();
  EXPECT_EQ(status_of_child(*pid), 0);
  int gate[2];
  ASSERT_EQ(::pipe2(gate, O_CLOEXEC), 0);
  const Fd reader(gate[0]);
  const Fd writer(gate[1]);
  ::signal(SIGUSR1, SIG_IGN);
  const pid_t waiting = spawn(shell("read line <&3", reader.get())).value();
  ::signal(SIGUSR1, old);
  EXPECT_EQ(::getsid(waiting), waiting);
  EXPECT_EQ(::getpgid(waiting), waiting);
  ::kill(-waiting, SIGUSR1);
  int status = 0;
  ::waitpid(waiting, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status));
}

TEST(Spawn, SetsNamesOfTheEnvironmentAndKeepsTheOthers) {
  const NothingLeftBehind nothing;
  const Fd channel = make_memory_file("strata-test", {}).value();
  ::setenv("STRATA_TEST_A", "old", 1);
  ::setenv("STRATA_TEST_B", "kept", 1);
  SpawnRequest request =
      shell("test \"$STRATA_TEST_A$STRATA_TEST_B$STRATA_TEST_C\" = newkeptalso", channel.get());
  request.environment = {{"STRATA_TEST_A", "new"}, {"STRATA_TEST_C", "also"}};
  const pid_t pid = spawn(request).value();
  ::unsetenv("STRATA_TEST_A");
  ::unsetenv("STRATA_TEST_B");
  EXPECT_EQ(status_of_child(pid), 0);
}

TEST(Spawn, OfAProgramThatIsNoneIsAnErrorThatNamesIt) {
  const NothingLeftBehind nothing;
  const Fd channel = make_memory_file("strata-test", {}).value();
  SpawnRequest request = shell("", channel.get());
  request.program = "/no/such/program";
  const Result<pid_t> pid = spawn(request);
  ASSERT_FALSE(pid);
  EXPECT_NE(pid.error().message().find("/no/such/program"), std::string::npos);
}

}  // namespace
}  // namespace strata::os
