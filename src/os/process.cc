#include "os/process.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "base/result.h"
#include "os/system_error.h"

namespace strata::os {
namespace {

#if defined(__SANITIZE_THREAD__)
constexpr int kSanitizerThreads = 1;  // a helper that it starts anew after a fork
#else
constexpr int kSanitizerThreads = 0;
#endif

constexpr int kCoresMax = 1 << 16;

std::string_view base_name(std::string_view path) {
  constexpr std::string_view kDeleted = " (deleted)";
  if (path.ends_with(kDeleted)) path.remove_suffix(kDeleted.size());
  const size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

}  // namespace

namespace {
std::atomic<uint32_t> generation{1};
// From the load of the library on, so before anything that asks.
const bool counts_forks = ::pthread_atfork(nullptr, nullptr, [] {
                            generation.fetch_add(1, std::memory_order_relaxed);
                          }) == 0;
}  // namespace

uint32_t fork_generation() {
  return counts_forks ? generation.load(std::memory_order_relaxed) : 1;
}

Result<int> thread_count() {
  DIR* folder = ::opendir("/proc/self/task");
  if (folder == nullptr) return system_error("count threads: open /proc/self/task", errno);
  int count = 0;
  while (const dirent* entry = ::readdir(folder)) count += is_digit(entry->d_name[0]);
  ::closedir(folder);
  return count;
}

void yield_core() {
  sched_yield();
}

bool fill_closed_stdio() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (::fcntl(fd, F_GETFD) >= 0) continue;
    // The lowest free number is this one, but for another thread that opens something just now.
    const int opened = ::open("/dev/null", O_RDWR);
    if (opened > 2) ::close(opened);
    if (opened < 0) return false;
  }
  return true;
}

int cores_in_affinity_mask() {
  // The kernel refuses a mask that is shorter than its own.
  for (int cores = CPU_SETSIZE; cores <= kCoresMax; cores *= 2) {
    cpu_set_t* set = CPU_ALLOC(cores);
    if (set == nullptr) break;
    const size_t bytes = CPU_ALLOC_SIZE(cores);
    const int rc = ::sched_getaffinity(0, bytes, set);
    const int error = errno;
    const int count = rc == 0 ? CPU_COUNT_S(bytes, set) : 0;
    CPU_FREE(set);
    if (rc == 0) return std::max(count, 1);
    if (error != EINVAL) break;
  }
  return 1;
}

bool is_python_path(std::string_view path) {
  std::string_view name = base_name(path);
  if (name.starts_with("libpython") || name.starts_with("libpypy")) {
    return name.find(".so") != std::string_view::npos;
  }
  if (name.starts_with("python")) {
    name.remove_prefix(6);
  } else if (name.starts_with("pypy")) {
    name.remove_prefix(4);
  } else {
    return false;
  }
  // A version or nothing: python3-config and the like are other programs.
  return std::all_of(name.begin(), name.end(),
                     [](char c) { return is_digit(c) || c == '.' || c == 'd' || c == 't'; });
}

bool is_ucx_module_path(std::string_view path) {
  const std::string_view name = base_name(path);
  return name.starts_with("libuct_") && name.find(".so") != std::string_view::npos;
}

std::string ForkHazards::to_string() const {
  std::string out;
  const auto add = [&out](const std::string& text) { out += (out.empty() ? "" : "; ") + text; };
  if (other_threads > 0) {
    add(fmt::format("{} other thread{}", other_threads, other_threads == 1 ? "" : "s"));
  }
  if (!python.empty()) add("the Python interpreter " + python);
  if (!ucx.empty()) add("an initialised UCX (" + ucx + ")");
  return out;
}

namespace {

// Of each line of /proc/self/maps that has a path: its addresses and the path. False where the
// file cannot be read.
template <class F>
bool for_each_mapped_file(F&& fn) {
  std::FILE* maps = std::fopen("/proc/self/maps", "re");
  if (maps == nullptr) return false;
  char* line = nullptr;
  size_t line_bytes = 0;
  for (ssize_t n; (n = ::getline(&line, &line_bytes, maps)) > 0;) {
    std::string_view text(line, static_cast<size_t>(n));
    if (text.ends_with('\n')) text.remove_suffix(1);
    const size_t slash = text.find('/');
    unsigned long long begin = 0, end = 0;
    if (slash == std::string_view::npos) continue;
    if (std::sscanf(line, "%llx-%llx", &begin, &end) == 2) fn(begin, end, text.substr(slash));
  }
  std::free(line);
  std::fclose(maps);
  return true;
}

}  // namespace

std::string mapped_path(const void* address) {
  std::string out;
  const auto wanted = reinterpret_cast<uintptr_t>(address);
  for_each_mapped_file([&](uint64_t begin, uint64_t end, std::string_view path) {
    if (wanted >= begin && wanted < end) out = path;
  });
  return out;
}

Result<ForkHazards> fork_hazards() {
  ForkHazards out;
  STRATA_ASSIGN(const int threads, thread_count());
  out.other_threads = std::max(threads - 1 - kSanitizerThreads, 0);
  const bool read = for_each_mapped_file([&out](uint64_t, uint64_t, std::string_view path) {
    if (out.python.empty() && is_python_path(path)) out.python = path;
    if (out.ucx.empty() && is_ucx_module_path(path)) out.ucx = path;
  });
  if (!read) return system_error("look for fork hazards: /proc/self/maps", errno);
  return out;
}

}  // namespace strata::os
