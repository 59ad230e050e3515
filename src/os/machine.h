// What the machine and its kernel allow this process: memory, control group, limits, settings.
// Looks, changes nothing, and knows nothing of what Strata needs. What cannot be read is left out,
// never an Error: a container hides much. Any thread; each answer is the moment's.
#pragma once

#include <sys/resource.h>

#include <cstdint>
#include <optional>
#include <string>

namespace strata::os {

// Files of /proc and /sys below a folder of choice, so that another machine's can be read.
class SystemFiles {
 public:
  static constexpr size_t kBytesMax = 4 << 20;  // of one file; the rest is not read

  explicit SystemFiles(std::string root = {}) : root_(std::move(root)) {}

  // Without blanks at its end; none where it cannot be read. `path` begins with '/'.
  std::optional<std::string> text(const std::string& path) const;
  // None also where it does not begin with a number ("max").
  std::optional<uint64_t> number(const std::string& path) const;
  // The word in brackets of "always [madvise] never".
  std::optional<std::string> choice(const std::string& path) const;
  // The number behind "key" of a file of lines "key: value" or "key value".
  std::optional<uint64_t> field(const std::string& path, const std::string& key) const;

 private:
  std::string root_;
};

struct MemoryState {
  uint64_t total = 0, free = 0, available = 0, swap_total = 0, swap_free = 0;  // bytes
  uint64_t huge_page_bytes = 0, huge_pages_total = 0, huge_pages_free = 0;
};
MemoryState memory_state(const SystemFiles& files = SystemFiles());

// The tightest of the limits of this process's control group and of those above it.
struct CgroupLimits {
  int version = 0;             // 0: none found
  std::string path;            // of the group, as this process sees it
  std::optional<double> cpus;  // quota over period; none: no quota
  std::optional<uint64_t> memory_bytes, memory_used;
  std::optional<uint64_t> memory_cached;  // of what is used: files that go when memory is wanted
  std::optional<uint64_t> processes, processes_used;
};
CgroupLimits cgroup_limits(const SystemFiles& files = SystemFiles());

// Bytes that this process could take now without harm to others: of the machine, and within its
// control group. The largest number where nothing says.
uint64_t memory_left(const SystemFiles& files = SystemFiles());

// Processes that the kernel has ended for lack of memory, since the group and since the host began.
struct OomKills {
  std::optional<uint64_t> group;  // of this process's control group and those below it
  std::string path;               // of that group
  std::optional<uint64_t> host;
};
OomKills oom_kills(const SystemFiles& files = SystemFiles());
// What to say of a process that SIGKILL ended between the two looks; empty where it was not that.
std::string oom_text(const OomKills& before, const OomKills& after, const CgroupLimits& limits);

struct KernelSettings {
  std::string release;  // "6.1.0-18-amd64"
  std::optional<uint64_t> pid_max, threads_max, max_map_count, overcommit_memory, ptrace_scope;
  std::optional<uint64_t> seccomp;         // of this process: 0 off, 1 strict, 2 filter
  std::optional<uint64_t> stolen_ticks;    // since boot, of all cores: time that a host took
  std::string clock_source;                // "tsc"; empty where unknown
  std::string huge_pages, shm_huge_pages;  // "always", "madvise", "never", "advise", ...
  bool is_virtual = false;                 // a hypervisor says that it is there
};
KernelSettings kernel_settings(const SystemFiles& files = SystemFiles());

// The soft limit that is in force now; none: unlimited.
std::optional<uint64_t> soft_limit(__rlimit_resource_t resource);
std::optional<uint64_t> hard_limit(__rlimit_resource_t resource);

// Of the file system that holds `path`.
struct FileSystemSpace {
  uint64_t total = 0, free = 0;  // bytes; free to this user
};
std::optional<FileSystemSpace> file_system_space(const std::string& path);

}  // namespace strata::os
