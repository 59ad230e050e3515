#include "tools/doctor_probes.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "base/result.h"
#include "os/clock.h"
#include "os/fd.h"
#include "os/pid_fd.h"
#include "os/system_error.h"
#include "tools/doctor_trials.h"

namespace strata::tools {
namespace {

Facts gather_facts() {
  Facts out;
  out.memory = os::memory_state();
  out.cgroup = os::cgroup_limits();
  out.kernel = os::kernel_settings();
  out.processes = count_processes();
  out.nofile = os::soft_limit(RLIMIT_NOFILE);
  out.nofile_hard = os::hard_limit(RLIMIT_NOFILE);
  out.nproc = os::soft_limit(RLIMIT_NPROC);
  out.address_space = os::soft_limit(RLIMIT_AS);
  out.file_size = os::soft_limit(RLIMIT_FSIZE);
  out.shm = os::file_system_space("/dev/shm");
  out.cores = os::cores_in_affinity_mask();
  return out;
}

void write_all(int fd, const std::string& text) {
  size_t at = 0;
  while (at < text.size()) {
    const ssize_t n = ::write(fd, text.data() + at, text.size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    at += static_cast<size_t>(n);
  }
}

// An answer ends with this byte: without it the process ended before it had said all.
constexpr char kEnd = '\x04';

// Reads until that byte or the end; none at the deadline.
std::optional<std::string> read_until(int fd, base::Instant deadline) {
  std::string out;
  std::array<char, 4096> piece;
  while (out.size() < kAnswerBytesMax) {
    const int64_t left_ns = (deadline - os::monotonic_now()).ns;
    if (left_ns <= 0) return std::nullopt;
    pollfd poll_fd{.fd = fd, .events = POLLIN, .revents = 0};
    const int ready = ::poll(&poll_fd, 1, static_cast<int>(left_ns / 1'000'000 + 1));
    if (ready <= 0) continue;
    const ssize_t n = ::read(fd, piece.data(), piece.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    out.append(piece.data(), static_cast<size_t>(n));
    if (out.back() == kEnd) break;
  }
  return out;
}

// The status of a child that was killed. A process that the kernel does not let die (a dead file
// server) is left to it after `limit`. Without a pidfd, which is what the doctor may be looking
// for.
std::optional<int> reap(pid_t pid, base::Duration limit) {
  const base::Instant end = os::monotonic_now() + limit;
  for (;;) {
    siginfo_t info{};
    const int rc = ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG);
    if (rc == 0 && info.si_pid != 0) return os::status_of(info);
    if ((rc != 0 && errno != EINTR) || os::monotonic_now() >= end) return std::nullopt;
    ::poll(nullptr, 0, 1);
  }
}

}  // namespace

Result<std::string> call_in_process(const std::function<std::string()>& function,
                                    base::Duration deadline) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return os::system_error("pipe", errno);
  const os::Fd reads(ends[0]);
  os::Fd writes(ends[1]);
  std::fflush(nullptr);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return os::system_error("fork", errno);
  if (pid == 0) {
    // A group of its own, so that all of it can be ended.
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
    write_all(writes.get(), function() + kEnd);
    ::_exit(0);
  }
  ::setpgid(pid, pid);
  writes.reset();
  const Result<os::PidFd> process = os::PidFd::open(pid);
  std::optional<std::string> answer = read_until(reads.get(), os::monotonic_now() + deadline);
  const bool whole =
      answer.has_value() && answer->size() < kAnswerBytesMax && answer->ends_with(kEnd);
  // Where it told all, it ends by itself; what it started must not outlive it in any case.
  if (whole && process.ok()) (void)process->wait_ended(base::Duration::from_s(1));
  ::kill(-pid, SIGKILL);
  const std::optional<int> status = reap(pid, base::Duration::from_s(1));
  if (!answer.has_value()) {
    return Error(Code::kDeadline, Scope::kProcess,
                 fmt::format("no answer within {:.3g} s; it was ended", deadline.seconds()));
  }
  if (answer->size() >= kAnswerBytesMax) {
    return Error(Code::kResourceExhausted, Scope::kProcess,
                 fmt::format("its answer is longer than {} bytes", kAnswerBytesMax));
  }
  if (!whole) {
    return Error(Code::kEndpointFailed, Scope::kProcess,
                 "it ended without an answer: " +
                     (status.has_value() ? os::describe_status(*status) : "its status is lost"));
  }
  answer->pop_back();
  return *std::move(answer);
}

Probes real_probes() {
  Probes out;
  out.facts = gather_facts;
  out.sealed_memory = try_sealed_memory;
  out.pidfd = try_pidfd;
  out.system_calls = try_system_calls;
  out.fork_hazards = [] { return os::fork_hazards(); };
  out.fork_server = try_fork_server;
  out.worker = try_worker;
  out.futex = time_futex;
  out.eventfd = time_eventfd;
  out.noise = watch_noise;
  out.clock = time_clock;
  out.map_heap = try_heap;
  out.strata_processes = find_strata_processes;
  out.write_file = try_file;
  out.program_libraries = read_program_libraries;
  out.threads_of = try_loading;
  std::error_code error;
  std::filesystem::path folder = std::filesystem::current_path(error);
  if (const char* const asked = std::getenv("STRATA_TIMELINE"); asked != nullptr && *asked != 0) {
    out.timeline_asked = true;
    folder = std::filesystem::path(asked).parent_path();
  }
  out.timeline_folder = folder.empty() ? "." : folder.string();
  return out;
}

}  // namespace strata::tools
