// What a start and a death cost at least: as many processes as the tree of strata_start has, one
// after the other, each of which says one byte; and the end of one, killed, seen by its parent.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "bench/figure.h"

extern char** environ;

namespace {

using namespace strata::bench;

constexpr int kProcesses = 12;  // of strata_start: servers, Workers and leaves
constexpr int kTalk = 3;        // the pipe's number in a process by exec

[[noreturn]] void fail(const char* what) {
  std::perror(what);
  _exit(1);
}

void say(int fd) {
  if (write(fd, "r", 1) != 1) _exit(1);
}

pid_t start_one(bool by_exec, const char* self, int talk) {
  if (!by_exec) {
    const pid_t pid = fork();
    if (pid < 0) fail("fork");
    if (pid == 0) {
      say(talk);
      for (;;) pause();
    }
    return pid;
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, talk, kTalk);
  std::string name = self, role = "child";
  char* argv[] = {name.data(), role.data(), nullptr};
  pid_t pid = -1;
  if (posix_spawn(&pid, self, &actions, nullptr, argv, environ) != 0) fail("posix_spawn");
  posix_spawn_file_actions_destroy(&actions);
  return pid;
}

void end_all(const std::vector<pid_t>& pids) {
  for (const pid_t pid : pids) kill(pid, SIGKILL);
  for (const pid_t pid : pids) waitpid(pid, nullptr, 0);
}

double start_all(bool by_exec, const char* self) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) fail("pipe");
  std::vector<pid_t> pids;
  const double begun = now_us();
  for (int i = 0; i < kProcesses; ++i) pids.push_back(start_one(by_exec, self, ends[1]));
  for (int i = 0; i < kProcesses; ++i) {
    char byte;
    if (read(ends[0], &byte, 1) != 1) fail("read");
  }
  const double took = now_us() - begun;
  end_all(pids);
  close(ends[0]);
  close(ends[1]);
  return took / 1e3;
}

double death() {
  const pid_t pid = fork();
  if (pid == 0) {
    for (;;) pause();
  }
  const int fd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  sleep_us(2'000);  // the child sleeps by then, and so does this process's core
  const double begun = now_us();
  kill(pid, SIGKILL);
  pollfd p{.fd = fd, .events = POLLIN, .revents = 0};
  if (poll(&p, 1, -1) != 1) fail("poll");
  waitpid(pid, nullptr, 0);
  const double took = now_us() - begun;
  close(fd);
  return took / 1e3;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "child") == 0) {
    say(kTalk);
    for (;;) pause();
  }
  constexpr double kLimitMs = 4'000;
  const int starts = scaled(30, 8);
  figure("limit.start.fork", median_of(starts, kLimitMs, [&] { return start_all(false, argv[0]); }),
         "ms");
  figure("limit.start.exec", median_of(starts, kLimitMs, [&] { return start_all(true, argv[0]); }),
         "ms");
  figure("limit.death", median_of(scaled(100, 30), kLimitMs, death), "ms");
  return 0;
}
