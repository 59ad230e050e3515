// Helpers of the tests of os. A deadline here only ends a test that has failed already.
#pragma once

#include <dirent.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <set>
#include <string>

#include "base/time.h"

namespace strata::os {

inline constexpr base::Duration kTestDeadline = base::Duration::from_s(60);

#if defined(__SANITIZE_THREAD__)
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif

// The numbers of this process's open descriptors.
inline std::set<int> open_fds() {
  std::set<int> out;
  DIR* folder = ::opendir("/proc/self/fd");
  if (folder == nullptr) return out;
  while (const dirent* entry = ::readdir(folder)) {
    if (entry->d_name[0] != '.') out.insert(std::atoi(entry->d_name));
  }
  out.erase(::dirfd(folder));
  ::closedir(folder);
  return out;
}

inline bool has_children() {
  siginfo_t info{};
  return ::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

// No descriptor and no child of this process may be left at the end of the scope.
class NothingLeftBehind {
 public:
  NothingLeftBehind() : before_(open_fds()) {}
  ~NothingLeftBehind() {
    EXPECT_EQ(open_fds(), before_);
    EXPECT_FALSE(has_children());
  }

 private:
  std::set<int> before_;
};

// Lowers this process's limit of descriptors for a scope.
class FdLimit {
 public:
  explicit FdLimit(rlim_t soft) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit low{soft, before_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &low);
  }
  ~FdLimit() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

// A limit under which the next descriptor of this process fails.
inline rlim_t full_fd_limit() {
  const int next = ::dup(0);
  ::close(next);
  return static_cast<rlim_t>(next);
}

inline bool readable(int fd, int timeout_ms = 0) {
  pollfd p{.fd = fd, .events = POLLIN, .revents = 0};
  int n;
  do {
    n = ::poll(&p, 1, timeout_ms);
  } while (n < 0 && errno == EINTR);
  return n > 0;
}

}  // namespace strata::os
