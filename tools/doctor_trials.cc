#include "tools/doctor_trials.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <strata/strata.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <map>
#include <memory>
#include <sstream>
#include <utility>

#include "base/result.h"
#include "os/clock.h"
#include "os/fork_server.h"
#include "os/pid_fd.h"
#include "os/process.h"
#include "os/shared_region.h"
#include "os/system_error.h"

namespace strata::tools {
namespace {

constexpr base::Duration kEventMax = base::Duration::from_s(3);

Error failed(Code code, std::string text) {
  return Error(code, Scope::kProcess, std::move(text));
}

double ms_since(base::Instant begin) {
  return (os::monotonic_now() - begin).seconds() * 1e3;
}

// A child of the trial's fork server: ends at once, or not at all.
constexpr int kTrialStatus = 49;
int trial_child(os::ChildStart& start) {
  if (!start.spec.empty()) return kTrialStatus;
  for (;;) ::pause();
}

Result<os::ServerEvent> next_event(os::ForkServer& server) {
  const base::Instant end = os::monotonic_now() + kEventMax;
  for (;;) {
    STRATA_ASSIGN(std::optional<os::ServerEvent> event, server.next_event());
    if (event.has_value()) return *std::move(event);
    const int64_t left_ms = (end - os::monotonic_now()).ns / 1'000'000;
    if (left_ms <= 0) return failed(Code::kDeadline, "the fork server tells nothing for 3 s");
    pollfd poll_fd{.fd = server.event_fd(), .events = POLLIN, .revents = 0};
    ::poll(&poll_fd, 1, static_cast<int>(left_ms));
  }
}

// The next event, which must be of that kind.
Result<os::ServerEvent> expect_event(os::ForkServer& server, os::ServerEvent::Kind kind) {
  STRATA_ASSIGN(os::ServerEvent event, next_event(server));
  if (event.kind == kind) return event;
  return failed(Code::kEndpointFailed,
                fmt::format("the fork server tells something else: {}", event.text));
}

void answer(Call& call) {
  call.set_result(call.scalar<double>(0) * 7);
}
void end_this_process(Call&) {
  ::raise(SIGKILL);
}

// One task that is waited for; the run's outcome, and the task's result.
Result<double> run_answer(Worker& worker, const CallableHandle& callable, double factor) {
  TaskRef task;
  const auto build = [&](Orchestrator& orch) -> Result<void> {
    TaskArgs args;
    args.add_scalar(factor);
    STRATA_ASSIGN(task, orch.submit_sub(callable, args));
    return {};
  };
  STRATA_ASSIGN(RunHandle run, worker.submit(build));
  STRATA_TRY(run.wait_for(static_cast<uint32_t>(kEventMax.ns / 1'000'000)));
  return run.result_as<double>(task);
}

Result<double> time_tasks(Worker& worker, const CallableHandle& callable) {
  constexpr int kTasks = 200;
  std::vector<double> us;
  for (int i = 0; i < kTasks; ++i) {
    const base::Instant begin = os::monotonic_now();
    STRATA_ASSIGN(const double result, run_answer(worker, callable, i));
    us.push_back(ms_since(begin) * 1e3);
    if (result != 7.0 * i)
      return failed(Code::kCorrupt, "a task computed 7 times its number wrong");
  }
  std::sort(us.begin(), us.end());
  return us[us.size() / 2];
}

std::optional<std::pair<int, int>> parents_and_state(const std::string& stat, char* state) {
  // "pid (name) S ppid ...": the name may hold blanks and brackets.
  const size_t close = stat.rfind(')');
  if (close == std::string::npos || close + 4 >= stat.size()) return std::nullopt;
  *state = stat[close + 2];
  return std::pair(std::atoi(stat.c_str()), std::atoi(stat.c_str() + close + 4));
}

bool is_init(int pid, const std::string& name) {
  return pid <= 1 || name == "systemd" || name == "init";
}

// A program that owns a fork server maps the server's shared memory, or at least holds its heap.
bool holds_strata_memory(int pid) {
  const auto maps = os::SystemFiles().text(fmt::format("/proc/{}/maps", pid));
  return !maps.has_value() || maps->find("/memfd:strata-") != std::string::npos;
}

}  // namespace

Result<void> try_sealed_memory() {
  STRATA_ASSIGN(const os::SharedRegion region, os::SharedRegion::create("strata-doctor", 4096));
  region.data()[0] = std::byte{49};
  os::Fd copy(::fcntl(region.fd(), F_DUPFD_CLOEXEC, 0));
  STRATA_ASSIGN(const os::SharedRegion other, os::SharedRegion::adopt(std::move(copy), 4096));
  if (other.data()[0] != std::byte{49}) {
    return failed(Code::kCorrupt, "a second mapping does not show what the first one wrote");
  }
  if (::ftruncate(region.fd(), 0) == 0) {
    return failed(Code::kCorrupt, "the seal on the size does not hold");
  }
  return {};
}

Result<void> try_pidfd() {
  STRATA_ASSIGN(const os::PidFd self, os::PidFd::open(::getpid()));
  STRATA_TRY(self.signal(0));
  const pid_t pid = ::fork();
  if (pid < 0) return os::system_error("fork", errno);
  if (pid == 0) {
    for (;;) ::pause();
  }
  const auto reap = [pid] {
    ::kill(pid, SIGKILL);
    while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
    }
  };
  auto child = os::PidFd::open(pid);
  if (!child.ok()) {
    reap();
    return std::move(child).error();
  }
  const Result<void> killed = child->signal(SIGKILL);
  const Result<bool> ended = child->wait_ended(kEventMax);
  const std::optional<int> status = child->reap();
  if (!status.has_value()) reap();
  STRATA_TRY(killed);
  STRATA_TRY(ended);
  if (!*ended || status != -SIGKILL) {
    return failed(Code::kSystem, "the pidfd of a killed child does not tell its end");
  }
  return {};
}

// Each with arguments that a kernel which has the call refuses or takes without harm.
std::vector<SystemCall> try_system_calls() {
  std::vector<SystemCall> out;
  const auto took = [&out](const char* name, long rc, bool is_fd) {
    const int error = rc < 0 ? errno : 0;
    // Refused arguments show that the call is there.
    const bool missing = error == ENOSYS || error == EPERM || error == EACCES;
    out.push_back({name, missing ? error : 0});
    if (is_fd && rc >= 0) ::close(static_cast<int>(rc));
  };
  took("memfd_create", ::syscall(SYS_memfd_create, "strata-doctor", MFD_CLOEXEC), true);
  took("eventfd2", ::eventfd(0, EFD_CLOEXEC), true);
  took("epoll_create1", ::epoll_create1(EPOLL_CLOEXEC), true);
  took("timerfd_create", ::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC), true);
  took("pidfd_open", ::syscall(SYS_pidfd_open, ::getpid(), 0), true);
  took("pidfd_send_signal", ::syscall(SYS_pidfd_send_signal, -1, 0, nullptr, 0), false);
  uint32_t word = 0;
  took("futex", ::syscall(SYS_futex, &word, FUTEX_WAKE, 1, nullptr, nullptr, 0), false);
  took("epoll_pwait2", ::syscall(SYS_epoll_pwait2, -1, nullptr, 1, nullptr, nullptr, 0), false);
  took("prctl", ::prctl(PR_GET_DUMPABLE), false);
  took("close_range", ::syscall(SYS_close_range, ~0U, ~0U, 0), false);
  return out;
}

Result<void> try_heap(uint64_t bytes) {
  STRATA_ASSIGN(const os::SharedRegion heap, os::SharedRegion::create("strata-doctor", bytes));
  heap.data()[0] = std::byte{1};
  heap.data()[heap.size() - 1] = std::byte{1};
  return {};
}

Result<void> try_file(const std::string& folder) {
  const os::Fd unnamed(::open(folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600));
  if (unnamed.valid()) return {};
  if (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL) {
    return os::system_error("write in " + folder, errno);
  }
  std::string pattern = folder + "/strata-doctor-XXXXXX";
  const os::Fd named(::mkostemp(pattern.data(), O_CLOEXEC));
  if (!named.valid()) return os::system_error("write in " + folder, errno);
  ::unlink(pattern.c_str());
  return {};
}

Result<ServerTimes> try_fork_server() {
  ServerTimes out;
  base::Instant begin = os::monotonic_now();
  STRATA_ASSIGN(const std::unique_ptr<os::ForkServer> server,
                os::ForkServer::start({.child_main = trial_child, .inherit_fds = {}}));
  out.start_ms = ms_since(begin);

  begin = os::monotonic_now();
  const std::byte ends[] = {std::byte{1}};
  STRATA_TRY(server->spawn(1, ends, {}));
  STRATA_TRY(expect_event(*server, os::ServerEvent::kStarted));
  STRATA_ASSIGN(const os::ServerEvent ended, expect_event(*server, os::ServerEvent::kExited));
  out.child_ms = ms_since(begin);
  if (ended.status != kTrialStatus) {
    return failed(Code::kEndpointFailed, "a child should end with status 49: " + ended.text);
  }

  STRATA_TRY(server->spawn(2, {}, {}));
  STRATA_ASSIGN(os::ServerEvent started, expect_event(*server, os::ServerEvent::kStarted));
  begin = os::monotonic_now();
  STRATA_TRY(os::PidFd::adopt(std::move(started.pidfd)).signal(SIGKILL));
  STRATA_ASSIGN(const os::ServerEvent killed, expect_event(*server, os::ServerEvent::kExited));
  out.notice_ms = ms_since(begin);
  if (killed.status != -SIGKILL) {
    return failed(Code::kEndpointFailed, "a child that was killed is told as: " + killed.text);
  }
  STRATA_TRY(server->shutdown(base::Duration::from_s(2)));
  return out;
}

Result<WorkerTimes> try_worker() {
  WorkerSpec spec;
  spec.sub_workers = 1;
  spec.timeouts.child_ready_ms = 3'000;
  spec.timeouts.close_ms = 3'000;
  spec.timeouts.exit_ms = 500;
  STRATA_ASSIGN(const std::unique_ptr<Worker> worker, Worker::create(spec));
  STRATA_ASSIGN(const CallableHandle task,
                worker->register_callable(local_function<answer>("answer")));
  STRATA_ASSIGN(const CallableHandle death,
                worker->register_callable(local_function<end_this_process>("end_this_process")));
  WorkerTimes out;
  base::Instant begin = os::monotonic_now();
  STRATA_TRY(worker->init());
  out.init_ms = ms_since(begin);
  STRATA_ASSIGN(out.task_us, time_tasks(*worker, task));

  begin = os::monotonic_now();
  const Result<double> lost = run_answer(*worker, death, 1);
  out.notice_ms = ms_since(begin);
  if (lost.ok()) return failed(Code::kCorrupt, "a task whose child was killed is told as done");
  if (lost.error().code() != Code::kEndpointFailed) {
    return failed(Code::kCorrupt,
                  "a task whose child was killed ends with: " + lost.error().to_string());
  }
  begin = os::monotonic_now();
  STRATA_TRY(worker->close());
  out.close_ms = ms_since(begin);
  return out;
}

Result<std::vector<int>> try_loading(const std::vector<std::string>& paths) {
  const auto load = [&paths] {
    std::string counts;
    int before = os::thread_count().ok() ? *os::thread_count() : 1;
    for (const std::string& path : paths) {
      // A library that cannot be loaded alone starts nothing.
      (void)::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
      const Result<int> threads = os::thread_count();
      const int after = threads.ok() ? *threads : before;
      counts += fmt::format("{} ", after - before);
      before = after;
    }
    return counts;
  };
  STRATA_ASSIGN(const std::string counts, call_in_process(load, base::Duration::from_s(10)));
  std::vector<int> out;
  std::istringstream in(counts);
  for (int count = 0; in >> count;) out.push_back(count);
  if (out.size() != paths.size()) return failed(Code::kCorrupt, "loading told too little");
  return out;
}

std::vector<StrataProcess> find_strata_processes() {
  struct Seen {
    std::string name;
    int parent = 0;
    char state = 'S';
  };
  std::map<int, Seen> all;
  const os::SystemFiles files;
  DIR* const folder = ::opendir("/proc");
  if (folder == nullptr) return {};
  while (const dirent* entry = ::readdir(folder)) {
    if (entry->d_name[0] < '0' || entry->d_name[0] > '9') continue;
    const std::string place = std::string("/proc/") + entry->d_name;
    char state = 'S';
    const auto ids = parents_and_state(files.text(place + "/stat").value_or(""), &state);
    if (!ids.has_value()) continue;
    all[ids->first] = {files.text(place + "/comm").value_or(""), ids->second, state};
  }
  ::closedir(folder);

  std::vector<StrataProcess> out;
  for (const auto& [pid, seen] : all) {
    const bool is_server = seen.name == "strata-forksrv";
    if (!is_server && seen.name != "strata-child") continue;
    const auto parent = all.find(seen.parent);
    const std::string parent_name = parent != all.end() ? parent->second.name : "";
    // A server belongs to a program, a child to a server: neither to the reaper of orphans.
    const bool is_orphan =
        is_server ? is_init(seen.parent, parent_name) && !holds_strata_memory(seen.parent)
                  : parent_name != "strata-forksrv";
    out.push_back({pid, seen.parent, seen.name, parent_name, seen.state, is_orphan});
  }
  return out;
}

}  // namespace strata::tools
