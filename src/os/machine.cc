#include "os/machine.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>
#include <vector>

#include "os/fd.h"

namespace strata::os {
namespace {

std::optional<uint64_t> number_of(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  return value;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> out;
  while (true) {
    const size_t at = text.find(separator);
    out.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return out;
    text.remove_prefix(at + 1);
  }
}

template <class T>
void keep_smaller(std::optional<T>* kept, std::optional<T> found) {
  if (found.has_value() && (!kept->has_value() || *found < **kept)) *kept = found;
}

// Where a hierarchy of control groups is mounted, and which of its groups the mount shows.
struct CgroupMount {
  std::string point, root;
};

// The mount of `controller` in version 1, of everything in version 2 (controller empty).
std::optional<CgroupMount> find_mount(const std::string& mounts, std::string_view controller) {
  for (const std::string_view line : split(mounts, '\n')) {
    const size_t dash = line.find(" - ");
    if (dash == std::string_view::npos) continue;
    const auto before = split(line.substr(0, dash), ' ');
    const auto after = split(line.substr(dash + 3), ' ');
    if (before.size() < 5 || after.size() < 3) continue;
    bool found = controller.empty() && after[0] == "cgroup2";
    if (!controller.empty() && after[0] == "cgroup") {
      const auto options = split(after[2], ',');
      found = std::find(options.begin(), options.end(), controller) != options.end();
    }
    if (found) return CgroupMount{std::string(before[4]), std::string(before[3])};
  }
  return std::nullopt;
}

// This process's group of `controller`, from lines "number:controllers:path".
std::optional<std::string> find_group(const std::string& groups, std::string_view controller) {
  for (const std::string_view line : split(groups, '\n')) {
    const auto parts = split(line, ':');
    if (parts.size() < 3) continue;
    const auto controllers = split(parts[1], ',');
    const bool found = controller.empty() ? parts[0] == "0" && parts[1].empty()
                                          : std::find(controllers.begin(), controllers.end(),
                                                      controller) != controllers.end();
    if (found) return std::string(line.substr(parts[0].size() + parts[1].size() + 2));
  }
  return std::nullopt;
}

// The folders of the group and of those above it, the group's own first.
std::vector<std::string> folders_of(const CgroupMount& mount, std::string group) {
  constexpr size_t kDepthMax = 64;
  // The mount may show only a part of the tree; a path outside it is seen as the mount's own root.
  if (mount.root != "/" && group.starts_with(mount.root)) group.erase(0, mount.root.size());
  if (group.find("..") != std::string::npos) group.clear();
  while (group.ends_with('/')) group.pop_back();
  std::vector<std::string> out;
  while (out.size() < kDepthMax) {
    out.push_back(mount.point + group);
    if (group.empty()) break;
    group.erase(std::min(group.rfind('/'), group.size()));
  }
  return out;
}

// Version 1 says "no limit" as a number near the largest.
std::optional<uint64_t> real_limit(std::optional<uint64_t> bytes) {
  constexpr uint64_t kNoLimit = uint64_t{1} << 62;
  return bytes.has_value() && *bytes < kNoLimit ? bytes : std::nullopt;
}

std::optional<double> quota_of(std::optional<uint64_t> quota_us,
                               std::optional<uint64_t> period_us) {
  if (!quota_us.has_value() || !period_us.has_value() || *period_us == 0) return std::nullopt;
  return static_cast<double>(*quota_us) / static_cast<double>(*period_us);
}

void read_version_2(const SystemFiles& files, const std::string& mounts, const std::string& groups,
                    CgroupLimits* out) {
  const auto mount = find_mount(mounts, "");
  const auto group = find_group(groups, "");
  if (!mount || !group) return;
  out->version = 2;
  out->path = *group;
  const std::vector<std::string> folders = folders_of(*mount, *group);
  for (const std::string& folder : folders) {
    if (const auto cpu = files.text(folder + "/cpu.max")) {
      const auto words = split(*cpu, ' ');
      if (words.size() >= 2) {
        keep_smaller(&out->cpus, quota_of(number_of(words[0]), number_of(words[1])));
      }
    }
    keep_smaller(&out->memory_bytes, files.number(folder + "/memory.max"));
    keep_smaller(&out->processes, files.number(folder + "/pids.max"));
  }
  out->memory_used = files.number(folders.front() + "/memory.current");
  out->memory_cached = files.field(folders.front() + "/memory.stat", "inactive_file");
  out->processes_used = files.number(folders.front() + "/pids.current");
}

void read_version_1(const SystemFiles& files, const std::string& mounts, const std::string& groups,
                    CgroupLimits* out) {
  const auto each = [&](std::string_view controller, const auto& read) {
    const auto mount = find_mount(mounts, controller);
    const auto group = find_group(groups, controller);
    if (!mount || !group) return;
    if (out->version == 0) {
      out->version = 1;
      out->path = *group;
    }
    for (const std::string& folder : folders_of(*mount, *group)) read(folder);
  };
  each("cpu", [&](const std::string& folder) {
    keep_smaller(&out->cpus, quota_of(files.number(folder + "/cpu.cfs_quota_us"),
                                      files.number(folder + "/cpu.cfs_period_us")));
  });
  each("memory", [&](const std::string& folder) {
    keep_smaller(&out->memory_bytes, real_limit(files.number(folder + "/memory.limit_in_bytes")));
    if (!out->memory_used) {
      out->memory_used = files.number(folder + "/memory.usage_in_bytes");
      out->memory_cached = files.field(folder + "/memory.stat", "total_inactive_file");
    }
  });
  each("pids", [&](const std::string& folder) {
    keep_smaller(&out->processes, files.number(folder + "/pids.max"));
    if (!out->processes_used) out->processes_used = files.number(folder + "/pids.current");
  });
}

std::optional<uint64_t> as_limit(rlim_t value) {
  if (value == RLIM_INFINITY) return std::nullopt;
  return value;
}

}  // namespace

std::optional<std::string> SystemFiles::text(const std::string& path) const {
  const Fd fd(::open((root_ + path).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) return std::nullopt;
  std::string out;
  std::array<char, 4096> piece;
  while (out.size() < kBytesMax) {
    const ssize_t n = ::read(fd.get(), piece.data(), piece.size());
    if (n < 0) return std::nullopt;
    if (n == 0) break;
    out.append(piece.data(), static_cast<size_t>(n));
  }
  while (!out.empty() && (out.back() == '\n' || out.back() == ' ')) out.pop_back();
  return out;
}

std::optional<uint64_t> SystemFiles::number(const std::string& path) const {
  const auto found = text(path);
  return found ? number_of(*found) : std::nullopt;
}

std::optional<std::string> SystemFiles::choice(const std::string& path) const {
  const auto found = text(path);
  if (!found) return std::nullopt;
  const size_t open = found->find('[');
  const size_t close = found->find(']', open);
  if (open == std::string::npos || close == std::string::npos) return std::nullopt;
  return found->substr(open + 1, close - open - 1);
}

std::optional<uint64_t> SystemFiles::field(const std::string& path, const std::string& key) const {
  const auto found = text(path);
  if (!found) return std::nullopt;
  for (std::string_view line : split(*found, '\n')) {
    if (!line.starts_with(key)) continue;
    line.remove_prefix(key.size());
    if (line.starts_with(':')) line.remove_prefix(1);
    if (line.starts_with(' ') || line.starts_with('\t')) return number_of(line);
  }
  return std::nullopt;
}

MemoryState memory_state(const SystemFiles& files) {
  const std::string path = "/proc/meminfo";
  const auto bytes = [&](const char* key) { return files.field(path, key).value_or(0) * 1024; };
  return {.total = bytes("MemTotal"),
          .free = bytes("MemFree"),
          .available = bytes("MemAvailable"),
          .swap_total = bytes("SwapTotal"),
          .swap_free = bytes("SwapFree"),
          .huge_page_bytes = bytes("Hugepagesize"),
          .huge_pages_total = files.field(path, "HugePages_Total").value_or(0),
          .huge_pages_free = files.field(path, "HugePages_Free").value_or(0)};
}

CgroupLimits cgroup_limits(const SystemFiles& files) {
  CgroupLimits out;
  const auto mounts = files.text("/proc/self/mountinfo");
  const auto groups = files.text("/proc/self/cgroup");
  if (!mounts || !groups) return out;
  read_version_2(files, *mounts, *groups, &out);
  // A hybrid machine mounts both, and has its controllers in version 1.
  read_version_1(files, *mounts, *groups, &out);
  return out;
}

uint64_t memory_left(const SystemFiles& files) {
  const std::optional<uint64_t> kib = files.field("/proc/meminfo", "MemAvailable");
  uint64_t left = kib ? *kib * 1024 : UINT64_MAX;
  const CgroupLimits cgroup = cgroup_limits(files);
  if (!cgroup.memory_bytes) return left;
  const uint64_t used = cgroup.memory_used.value_or(0);
  const uint64_t held = used - std::min(used, cgroup.memory_cached.value_or(0));
  return std::min(left, *cgroup.memory_bytes - std::min(*cgroup.memory_bytes, held));
}

OomKills oom_kills(const SystemFiles& files) {
  OomKills out;
  out.host = files.field("/proc/vmstat", "oom_kill");
  const auto mounts = files.text("/proc/self/mountinfo");
  const auto groups = files.text("/proc/self/cgroup");
  if (!mounts || !groups) return out;
  const auto look = [&](const char* controller, const char* name) {
    const auto mount = find_mount(*mounts, controller);
    const auto group = find_group(*groups, controller);
    if (!mount || !group || out.group) return;
    out.group = files.field(folders_of(*mount, *group).front() + name, "oom_kill");
    out.path = *group;
  };
  look("", "/memory.events");
  look("memory", "/memory.oom_control");
  return out;
}

std::string oom_text(const OomKills& before, const OomKills& after, const CgroupLimits& limits) {
  const auto rose = [](std::optional<uint64_t> was, std::optional<uint64_t> is) {
    return is.has_value() && *is > was.value_or(0);
  };
  if (rose(before.group, after.group)) {
    std::string size;
    if (limits.memory_bytes) size = fmt::format(", whose limit is {} bytes,", *limits.memory_bytes);
    return fmt::format(
        "; its control group {}{} ran out of memory, and the kernel ended it: give the group more "
        "memory, or take fewer children or smaller buffers",
        after.path, size);
  }
  if (rose(before.host, after.host)) {
    return "; the host ran out of memory, and the kernel ended processes, this one too as it "
           "seems: take fewer children or smaller buffers, or a host with more memory";
  }
  return {};
}

KernelSettings kernel_settings(const SystemFiles& files) {
  KernelSettings out;
  out.release = files.text("/proc/sys/kernel/osrelease").value_or("");
  out.pid_max = files.number("/proc/sys/kernel/pid_max");
  out.threads_max = files.number("/proc/sys/kernel/threads-max");
  out.max_map_count = files.number("/proc/sys/vm/max_map_count");
  out.overcommit_memory = files.number("/proc/sys/vm/overcommit_memory");
  out.ptrace_scope = files.number("/proc/sys/kernel/yama/ptrace_scope");
  out.seccomp = files.field("/proc/self/status", "Seccomp");
  out.clock_source =
      files.text("/sys/devices/system/clocksource/clocksource0/current_clocksource").value_or("");
  const std::string huge = "/sys/kernel/mm/transparent_hugepage/";
  out.huge_pages = files.choice(huge + "enabled").value_or("");
  out.shm_huge_pages = files.choice(huge + "shmem_enabled").value_or("");
  out.is_virtual =
      files.text("/proc/cpuinfo").value_or("").find(" hypervisor") != std::string::npos;
  // "cpu  user nice system idle iowait irq softirq steal ..."
  const auto stat = files.text("/proc/stat").value_or("");
  std::vector<std::string_view> ticks;
  for (const std::string_view word : split(split(stat, '\n').front(), ' ')) {
    if (!word.empty()) ticks.push_back(word);
  }
  if (ticks.size() > 8 && ticks[0] == "cpu") out.stolen_ticks = number_of(ticks[8]);
  return out;
}

std::optional<uint64_t> soft_limit(__rlimit_resource_t resource) {
  rlimit limit{};
  if (::getrlimit(resource, &limit) != 0) return std::nullopt;
  return as_limit(limit.rlim_cur);
}

std::optional<uint64_t> hard_limit(__rlimit_resource_t resource) {
  rlimit limit{};
  if (::getrlimit(resource, &limit) != 0) return std::nullopt;
  return as_limit(limit.rlim_max);
}

std::optional<FileSystemSpace> file_system_space(const std::string& path) {
  struct statvfs info {};
  if (::statvfs(path.c_str(), &info) != 0) return std::nullopt;
  return FileSystemSpace{.total = info.f_blocks * info.f_frsize,
                         .free = info.f_bavail * info.f_frsize};
}

}  // namespace strata::os
