// Whole programs over libstrata: what they print, and what is left when they end badly.
#include <fcntl.h>
#include <sys/wait.h>

#include <algorithm>
#include <sstream>

#include "tests/runtime/worker_test_util.h"

namespace strata {
namespace {

using namespace test;  // NOLINT

// A started driver with its output at hand.
class Driver {
 public:
  Driver(const char* what, const char* children) {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    pid_ = ::fork();
    EXPECT_GE(pid_, 0);
    if (pid_ == 0) {
      ::dup2(ends[1], 1);
      if (kThreadSanitizer) ::setenv("STRATA_TEST_ALLOW_THREADS", "1", 1);
      ::execl(STRATA_TEST_DRIVER, STRATA_TEST_DRIVER, what, children, nullptr);
      ::_exit(127);
    }
    ::close(ends[1]);
    out_ = ends[0];
  }
  ~Driver() {
    ::close(out_);
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      wait();
    }
  }
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  // Up to `end`, or all there is.
  std::string read_until(std::string_view end) {
    std::string text;
    const base::Instant deadline = os::monotonic_now() + kTestDeadline;
    while (end.empty() || !text.ends_with(end)) {
      pollfd p{.fd = out_, .events = POLLIN, .revents = 0};
      if (::poll(&p, 1, 100) <= 0) {
        if (os::monotonic_now() < deadline) continue;
        ADD_FAILURE() << "the driver said only: " << text;
        break;
      }
      char buffer[4096];
      const ssize_t n = ::read(out_, buffer, sizeof buffer);
      if (n <= 0) break;
      text.append(buffer, static_cast<size_t>(n));
    }
    return text;
  }
  int pid() const { return pid_; }
  int wait() {
    int status = 0;
    EXPECT_EQ(::waitpid(std::exchange(pid_, 0), &status, 0) > 0, true);
    return status;
  }

 private:
  pid_t pid_ = 0;
  int out_ = -1;
};

size_t count_of(std::string_view text, std::string_view piece) {
  size_t n = 0;
  for (size_t at = text.find(piece); at != std::string_view::npos; at = text.find(piece, at + 1)) {
    ++n;
  }
  return n;
}

TEST(Programs, WhatStandsInAStdioBufferIsPrintedOnce) {
  Driver driver("print", "3");
  const std::string text = driver.read_until("");
  EXPECT_EQ(driver.wait(), 0);
  EXPECT_EQ(count_of(text, "before init;"), 2u) << text;  // with that of the stream
  EXPECT_EQ(count_of(text, "stream before init;"), 1u) << text;
  EXPECT_EQ(count_of(text, "before close;"), 1u) << text;
  EXPECT_EQ(count_of(text, "after close"), 1u) << text;
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(count_of(text, "task " + std::to_string(i) + "\n"), 1u) << text;
    EXPECT_EQ(count_of(text, "stream " + std::to_string(i) + "\n"), 1u) << text;
  }
}

// All that a driver has begun: its children, its fork servers and theirs.
std::vector<std::unique_ptr<Pidfd>> family_of(Driver& driver, size_t children, size_t below = 0) {
  std::istringstream lines(driver.read_until("ready\n"));
  std::vector<int> told;
  for (int pid = 0; lines >> pid;) told.push_back(pid);
  EXPECT_EQ(told.size(), children);
  std::set<int> all = descendants(driver.pid());
  for (const int pid : told) EXPECT_TRUE(all.contains(pid)) << pid;
  EXPECT_EQ(all.size(), children + below + 2);  // the process's server, and the Worker's
  std::vector<std::unique_ptr<Pidfd>> out;
  for (const int pid : all) out.push_back(std::make_unique<Pidfd>(pid));
  return out;
}

TEST(Programs, KilledProgramTakesItsChildrenAndServersWithIt) {
  Driver driver("die", "3");
  const auto family = family_of(driver, 3);
  ASSERT_EQ(::kill(driver.pid(), SIGKILL), 0);
  for (const auto& member : family) EXPECT_TRUE(member->ended(base::Duration::from_s(10)));
}

TEST(Programs, KilledProgramTakesWorkersBelowWorkersWithIt) {
  Driver driver("pod", "2");
  // Below each L4: two servers, an L3, its two servers and its two helpers.
  const auto family = family_of(driver, 2, 2 * 7);
  ASSERT_EQ(::kill(driver.pid(), SIGKILL), 0);
  for (const auto& member : family) EXPECT_TRUE(member->ended(base::Duration::from_s(10)));
}

TEST(Programs, ProgramThatExitsWithoutCloseTakesThemToo) {
  Driver driver("exit", "3");
  const std::string text = driver.read_until("ready\n");
  std::istringstream lines(text);
  std::vector<std::unique_ptr<Pidfd>> family;
  for (int pid = 0; lines >> pid;) family.push_back(std::make_unique<Pidfd>(pid));
  const int status = driver.wait();
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7) << status;
  for (const auto& member : family) EXPECT_TRUE(member->ended(base::Duration::from_s(10)));
}

TEST(Programs, StoppedProgramKeepsItsChildrenUntilItIsKilled) {
  Driver driver("die", "2");
  const auto family = family_of(driver, 2);
  ASSERT_EQ(::kill(driver.pid(), SIGSTOP), 0);
  ASSERT_TRUE(await([&] { return state_and_parent(driver.pid()).first == 'T'; }));
  for (const auto& member : family) EXPECT_FALSE(member->ended(base::Duration::from_ms(20)));
  ASSERT_EQ(::kill(driver.pid(), SIGKILL), 0);
  for (const auto& member : family) EXPECT_TRUE(member->ended(base::Duration::from_s(10)));
}

}  // namespace
}  // namespace strata
