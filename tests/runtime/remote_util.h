// A daemon of a test, and what its Workers are made from.
#pragma once

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <cstdlib>

#include "tests/runtime/worker_test_util.h"

namespace strata::test {

// A `strata serve` of this test, on a port that the kernel chose.
class Daemon {
 public:
  explicit Daemon(std::vector<std::string> more = {}, const std::string& listen = "127.0.0.1:0") {
    int out[2];
    EXPECT_EQ(::pipe2(out, O_CLOEXEC), 0);
    std::vector<std::string> words = {
        STRATA_TEST_COMMAND, "serve", "--listen", listen, "--allow-library", STRATA_TEST_LIBRARIES};
    words.insert(words.end(), more.begin(), more.end());
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::dup2(out[1], STDOUT_FILENO);
      std::vector<char*> argv;
      for (std::string& word : words) argv.push_back(word.data());
      argv.push_back(nullptr);
      ::execv(argv[0], argv.data());
      ::_exit(127);
    }
    ::close(out[1]);
    // "listening on 127.0.0.1:4711", one line.
    std::string line;
    char c;
    while (::read(out[0], &c, 1) == 1 && c != '\n') line += c;
    ::close(out[0]);
    const size_t at = line.rfind("127.0.0.1:");
    EXPECT_NE(at, std::string::npos) << line;
    if (at != std::string::npos) {
      endpoint_ = line.substr(at, line.find_first_not_of("0123456789.:", at) - at);
    }
  }
  ~Daemon() { stop(); }
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  void stop(int number = SIGTERM) {
    if (pid_ <= 0) return;
    ::kill(pid_, number);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  int pid() const { return pid_; }
  const std::string& endpoint() const { return endpoint_; }
  RemoteWorkerSpec spec(int subs = 1) const {
    RemoteWorkerSpec out;
    out.endpoint = endpoint_;
    out.num_sub_workers = subs;
    out.limits.heap_bytes = 64 << 20;
    out.limits.slots = 256;
    return out;
  }

 private:
  int pid_ = -1;
  std::string endpoint_;
};

}  // namespace strata::test
