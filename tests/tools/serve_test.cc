// The commands `key`, `serve` and `runner` as a user meets them.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "transport/socket/address.h"
#include "transport/socket/connect.h"

namespace strata {
namespace {

namespace fs = std::filesystem;

class ServeCommand : public testing::Test {
 protected:
  struct Outcome {
    int code;
    std::string out, err;
  };
  // One that runs until it is asked to end.
  struct Running {
    pid_t pid;
    std::string first_line;
  };

  ServeCommand() {
    std::string pattern = (fs::temp_directory_path() / "test_serve_XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
  }
  ~ServeCommand() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string bytes_of(const std::string& name) const {
    std::ifstream in(folder_ / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  Outcome run(const std::string& arguments) const {
    const std::string line = "'" STRATA_PROGRAM "' " + arguments + " >'" + path("out") + "' 2>'" +
                             path("err") + "' </dev/null";
    const int status = std::system(line.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, bytes_of("out"), bytes_of("err")};
  }
  Running start(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"strata", "serve"});
    std::vector<char*> argv;
    for (std::string& each : arguments) argv.push_back(each.data());
    argv.push_back(nullptr);
    int out[2];
    EXPECT_EQ(::pipe2(out, O_CLOEXEC), 0);
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::dup2(out[1], STDOUT_FILENO);
      ::execv(STRATA_PROGRAM, argv.data());
      ::_exit(127);
    }
    ::close(out[1]);
    Running running{pid, {}};
    char c = 0;
    pollfd wait{.fd = out[0], .events = POLLIN, .revents = 0};
    while (c != '\n' && ::poll(&wait, 1, 60'000) > 0 && ::read(out[0], &c, 1) == 1) {
      running.first_line += c;
    }
    ::close(out[0]);
    return running;
  }
  static int end(const Running& running, int signal_number) {
    ::kill(running.pid, signal_number);
    int status = 0;
    ::waitpid(running.pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  // Whether somebody listens where the first line says.
  static bool answers(const Running& running) {
    const std::string mark = "listening at ";
    const size_t at = running.first_line.find(mark) + mark.size();
    const std::string where = running.first_line.substr(at, running.first_line.find(',') - at);
    Result<transport::HostPort> parsed = transport::parse_host_port(where);
    if (!parsed) return false;
    auto channel = transport::connect(transport::resolve(*parsed).value().front(), {}).value();
    for (;;) {
      const auto phase = channel->advance();
      if (!phase) return false;
      if (*phase == env::ByteChannel::Phase::kOpen) return true;
      pollfd wait{.fd = channel->descriptor(), .events = POLLOUT, .revents = 0};
      if (::poll(&wait, 1, 60'000) <= 0) return false;
    }
  }
  static bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  }

  fs::path folder_;
};

TEST_F(ServeCommand, AKeyIsMadeOnceForItsOwnerAloneAndShownByItsId) {
  const Outcome made = run("key new '" + path("key") + "'");
  ASSERT_EQ(made.code, 0) << made.err;
  ASSERT_EQ(made.out.size(), 17u) << made.out;
  struct stat info {};
  ASSERT_EQ(::stat(path("key").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0600u);
  const Outcome shown = run("key show '" + path("key") + "'");
  EXPECT_EQ(shown.code, 0) << shown.err;
  EXPECT_EQ(shown.out, made.out);
  const std::string text = bytes_of("key");
  const std::string secret = text.substr(text.find("secret ") + 7, 64);
  EXPECT_FALSE(has(shown.out + shown.err + made.err, secret.substr(0, 8)));
  const Outcome again = run("key new '" + path("key") + "'");
  EXPECT_EQ(again.code, 1);
  EXPECT_TRUE(has(again.err, "is not overwritten")) << again.err;
  EXPECT_EQ(bytes_of("key"), text);
}

TEST_F(ServeCommand, AKeyThatOthersMayReadIsRefused) {
  ASSERT_EQ(run("key new '" + path("key") + "'").code, 0);
  ASSERT_EQ(::chmod(path("key").c_str(), 0644), 0);
  for (const char* command : {"key show", "serve --listen 127.0.0.1:0 --key"}) {
    const Outcome outcome = run(std::string(command) + " '" + path("key") + "'");
    EXPECT_EQ(outcome.code, 1) << command;
    EXPECT_EQ(outcome.out, "") << command;
    EXPECT_TRUE(has(outcome.err, "its mode is 0644")) << outcome.err;
  }
}

TEST_F(ServeCommand, BadArgumentsAreALineAndNothingIsDone) {
  for (const char* arguments :
       {"key", "key new", "key show", "key eat x", "serve --port 1", "serve extra"}) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, 2) << arguments;
    EXPECT_EQ(outcome.err.find("strata: "), 0u) << outcome.err;
  }
  EXPECT_EQ(run("key show '" + path("none") + "'").code, 1);
}

TEST_F(ServeCommand, BeyondTheLoopbackInterfaceNeedsAKey) {
  const Outcome open = run("serve --listen 0.0.0.0:0");
  EXPECT_EQ(open.code, 1);
  EXPECT_EQ(open.out, "");
  EXPECT_TRUE(has(open.err, "strata key new")) << open.err;
  for (const char* where : {"nowhere", "127.0.0.1:x", "::1:0"}) {
    EXPECT_EQ(run(std::string("serve --listen ") + where).code, 1) << where;
  }
}

TEST_F(ServeCommand, SaysWhereItListensLogsAndEndsBySignal) {
  for (const int signal_number : {SIGTERM, SIGINT}) {
    const Running plain = start({"--listen", "127.0.0.1:0", "--log", path("log")});
    EXPECT_EQ(plain.first_line.find("strata serve: listening at 127.0.0.1:"), 0u);
    EXPECT_TRUE(has(plain.first_line, "no key")) << plain.first_line;
    EXPECT_TRUE(answers(plain));
    EXPECT_EQ(end(plain, signal_number), 0);
    EXPECT_TRUE(has(bytes_of("log"), "Z stops; ")) << bytes_of("log");
  }
}

TEST_F(ServeCommand, TellsTheIdsOfItsKeysAndNothingElseOfThem) {
  const std::string first = run("key new '" + path("a") + "'").out.substr(0, 16);
  const std::string second = run("key new '" + path("b") + "'").out.substr(0, 16);
  const Running keyed = start(
      {"--listen", "127.0.0.1:0", "--key", path("a"), "--key", path("b"), "--log", path("log")});
  EXPECT_TRUE(has(keyed.first_line, "key " + first + " and " + second)) << keyed.first_line;
  EXPECT_TRUE(answers(keyed));
  EXPECT_EQ(end(keyed, SIGTERM), 0);
}

TEST_F(ServeCommand, ARunnerIsNothingToRunByHandAndNothingThatHelpShows) {
  for (const char* arguments : {"runner", "runner --link=3", "runner --help"}) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, 2) << arguments;
    EXPECT_TRUE(has(outcome.err, "nothing to run by hand")) << outcome.err;
  }
  EXPECT_FALSE(has(run("--help").out, "runner "));
}

}  // namespace
}  // namespace strata
