// Everything that a Worker takes from the system is refused once: the N-th call that takes
// something fails, for every N. Whatever fails is an Error in words or is done without, and nothing
// is left.
//
// The calls are replaced in this program; they count in its own process alone, not in children.
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/wait.h>

#include <atomic>
#include <cstdarg>

#include "tests/runtime/worker_test_util.h"

namespace {

std::atomic<int> g_left{0};  // calls until one fails; 0: none fails
std::atomic<int> g_pid{0};
std::atomic<const char*> g_failed{nullptr};

bool fails(const char* call) {
  if (g_left.load() <= 0 || ::getpid() != g_pid.load()) return false;
  if (g_left.fetch_sub(1) != 1) return false;
  g_failed = call;
  return true;
}

int refused(int why) {
  errno = why;
  return -1;
}

template <class Fn>
Fn* original(const char* name) {
  return reinterpret_cast<Fn*>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

// libstdc++ is to find them too.
#pragma GCC visibility push(default)
extern "C" {

int memfd_create(const char* name, unsigned flags) noexcept {
  if (fails("memfd_create")) return refused(EMFILE);
  return static_cast<int>(::syscall(SYS_memfd_create, name, flags));
}
int ftruncate(int fd, off_t bytes) noexcept {
  if (fails("ftruncate")) return refused(ENOSPC);
  return static_cast<int>(::syscall(SYS_ftruncate, fd, bytes));
}
int fallocate(int fd, int mode, off_t offset, off_t bytes) {
  if (mode == 0 && fails("fallocate")) return refused(ENOSPC);
  return static_cast<int>(::syscall(SYS_fallocate, fd, mode, offset, bytes));
}
void* mmap(void* at, size_t bytes, int prot, int flags, int fd, off_t offset) noexcept {
  if (fails("mmap")) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  return reinterpret_cast<void*>(::syscall(SYS_mmap, at, bytes, prot, flags, fd, offset));
}
int eventfd(unsigned count, int flags) noexcept {
  if (fails("eventfd")) return refused(EMFILE);
  return static_cast<int>(::syscall(SYS_eventfd2, count, flags));
}
int epoll_create1(int flags) noexcept {
  if (fails("epoll_create1")) return refused(EMFILE);
  return static_cast<int>(::syscall(SYS_epoll_create1, flags));
}
int epoll_ctl(int epoll, int op, int fd, epoll_event* event) noexcept {
  if (op == EPOLL_CTL_ADD && fails("epoll_ctl")) return refused(ENOSPC);
  return static_cast<int>(::syscall(SYS_epoll_ctl, epoll, op, fd, event));
}
int timerfd_create(clockid_t clock, int flags) noexcept {
  if (fails("timerfd_create")) return refused(EMFILE);
  return static_cast<int>(::syscall(SYS_timerfd_create, clock, flags));
}
int socketpair(int domain, int type, int protocol, int* fds) noexcept {
  if (fails("socketpair")) return refused(EMFILE);
  return static_cast<int>(::syscall(SYS_socketpair, domain, type, protocol, fds));
}
pid_t fork() noexcept {
  static auto* const real = original<pid_t()>("fork");
  if (fails("fork")) return refused(EAGAIN);
  return real();
}
int posix_spawn(pid_t* pid, const char* path, const posix_spawn_file_actions_t* actions,
                const posix_spawnattr_t* attributes, char* const argv[], char* const envp[]) {
  static auto* const real =
      original<int(pid_t*, const char*, const posix_spawn_file_actions_t*, const posix_spawnattr_t*,
                   char* const[], char* const[])>("posix_spawn");
  if (fails("posix_spawn")) return EAGAIN;
  return real(pid, path, actions, attributes, argv, envp);
}
int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*main)(void*),
                   void* argument) noexcept {
  static auto* const real =
      original<int(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*)>("pthread_create");
  if (fails("pthread_create")) return EAGAIN;
  return real(thread, attributes, main, argument);
}

}  // extern "C"
#pragma GCC visibility pop

namespace strata {
namespace {

using namespace test;  // NOLINT

class Armed {
 public:
  explicit Armed(int nth) {
    g_failed = nullptr;
    g_pid = ::getpid();
    g_left = nth;
  }
  ~Armed() { g_left = 0; }
  Armed(const Armed&) = delete;
  Armed& operator=(const Armed&) = delete;
};

Result<void> run_nothing(Worker& worker) {
  auto none = worker.register_callable(local_function<nothing>("nothing"));
  if (!none) return none.error();
  return worker.run([&](Orchestrator& orch) -> Result<void> {
    for (int i = 0; i < 4; ++i) {
      if (auto task = orch.submit_sub(*none, TaskArgs()); !task) return task.error();
    }
    return {};
  });
}

// A whole life, with all that takes something: its first Error, if there is one.
Result<void> live(StartMethod method, const std::string& timeline) {
  WorkerSpec spec = spec_of(StartMethod::kFork, 2);
  spec.start = method;
  spec.chips = method == StartMethod::kInline ? 0 : 1;
  spec.timeline = timeline;
  spec.restart = Restart::kOnFailure;
  auto made = Worker::create(spec);
  if (!made) return made.error();
  Worker& worker = **made;
  Result<void> first = worker.init();
  const auto then = [&](Result<void> next) {
    if (first && !next) first = std::move(next);
  };
  if (first) {
    then(run_nothing(worker));
    auto buffer = worker.create_buffer(16 << 20);
    if (!buffer) then(buffer.error());
    if (method != StartMethod::kInline) {
      auto late = worker.add_sub_workers(1);
      if (!late) then(late.error());
      const Worker::Child child = worker.sub_children()[0];
      if (child.alive) ::kill(child.pid, SIGKILL);
      await([&] {
        const Worker::Child now = worker.sub_children()[0];
        return !now.alive || now.incarnation > child.incarnation;
      });
    }
    then(run_nothing(worker));
  }
  const Result<void> closed = worker.close();
  then(closed);
  return first;
}

class Acquire : public ::testing::TestWithParam<StartMethod> {};
const char* name_of(const ::testing::TestParamInfo<StartMethod>& instance) {
  constexpr const char* kNames[] = {"Inline", "Fork", "Exec"};
  return kNames[instance.index];
}
INSTANTIATE_TEST_SUITE_P(All, Acquire,
                         ::testing::Values(StartMethod::kInline, StartMethod::kFork,
                                           StartMethod::kExec),
                         name_of);

// Each call that fails once is either no matter or an Error in words.
void expect_words(const Result<void>& lived, int nth) {
  if (lived) return;
  EXPECT_GT(lived.error().message().size(), 20u) << nth << ": " << g_failed;
}

TEST_P(Acquire, TheNthCallThatFailsIsAnErrorAndLeavesNothing) {
  const std::string timeline =
      testing::TempDir() + "acquire" + std::to_string(::getpid()) + ".trace";
  ASSERT_TRUE(live(GetParam(), timeline).ok());  // the process's own server stays
  const std::set<int> fds = open_fds();
  std::set<int> processes;
  // The process's own server, which stays, and nothing of the life that was.
  const size_t servers = GetParam() == StartMethod::kInline ? 0 : 1;
  ASSERT_TRUE(await([&] { return (processes = descendants()).size() == servers; }, kLossBound));
  std::map<std::string, int> calls;
  for (int nth = 1; nth < 500; ++nth) {
    Result<void> lived;
    {
      const Armed armed(nth);
      lived = live(GetParam(), timeline);
    }
    if (g_failed.load() == nullptr) {
      EXPECT_TRUE(lived.ok());
      ::unlink(timeline.c_str());
      EXPECT_GE(calls.size(), GetParam() == StartMethod::kInline ? 5u : 7u);
      for (const auto& [call, count] : calls) std::printf("%s: %d\n", call.c_str(), count);
      return;
    }
    ++calls[g_failed.load()];
    expect_words(lived, nth);
    EXPECT_EQ(open_fds(), fds) << nth << ": " << g_failed;
    EXPECT_TRUE(await([&] { return descendants() == processes; }, kLossBound))
        << nth << ": " << g_failed;
    if (testing::Test::HasFailure()) {
      FAIL() << g_failed << ": " << (lived ? "ok" : lived.error().to_string());
    }
  }
  FAIL() << "a life takes more than 500 things";
}

TEST_P(Acquire, TheNthCallThatFailsInAFreshProcessIsAnError) {
  const std::string timeline =
      testing::TempDir() + "acquire" + std::to_string(::getpid()) + ".trace";
  for (int nth = 1; nth < 500; ++nth) {
    const pid_t pid = ::fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      {
        const Armed armed(nth);
        expect_words(live(GetParam(), timeline), nth);
      }
      std::fflush(nullptr);
      ::_exit(testing::Test::HasFailure() ? 1 : g_failed.load() == nullptr ? 3 : 0);
    }
    int status = -1;
    ASSERT_EQ(::waitpid(pid, &status, 0), pid);
    ASSERT_TRUE(WIFEXITED(status)) << "call " << nth << ", signal " << WTERMSIG(status);
    ::unlink(timeline.c_str());
    if (WEXITSTATUS(status) == 3) return;
    ASSERT_EQ(WEXITSTATUS(status), 0) << "call " << nth;
  }
  FAIL() << "a life takes more than 500 things";
}

}  // namespace
}  // namespace strata

int main(int argc, char** argv) {
  strata::child_entry(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
