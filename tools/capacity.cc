#include "tools/capacity.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <string>

namespace strata::tools {

uint64_t children_by_descriptors(std::optional<uint64_t> soft_limit) {
  if (!soft_limit.has_value()) return kChildrenMax;
  constexpr uint64_t kBefore = kStandardFds + kServerFds + kWorkerFds;
  if (*soft_limit <= kBefore) return 0;
  return std::min((*soft_limit - kBefore) / kChildFds, kChildrenMax);
}

std::optional<uint64_t> processes_left(std::optional<uint64_t> user_limit, uint64_t user_has,
                                       std::optional<uint64_t> pid_max, uint64_t machine_has,
                                       const os::CgroupLimits& cgroup) {
  std::optional<uint64_t> left;
  const auto bound = [&left](std::optional<uint64_t> limit, uint64_t used) {
    if (!limit.has_value()) return;
    const uint64_t rest = *limit > used ? *limit - used : 0;
    left = std::min(left.value_or(rest), rest);
  };
  bound(user_limit, user_has);
  bound(pid_max, machine_has);
  bound(cgroup.processes, cgroup.processes_used.value_or(0));
  return left;
}

uint64_t memory_left(const os::MemoryState& memory, const os::CgroupLimits& cgroup) {
  if (!cgroup.memory_bytes.has_value()) return memory.available;
  const uint64_t used = cgroup.memory_used.value_or(0);
  const uint64_t left = *cgroup.memory_bytes > used ? *cgroup.memory_bytes - used : 0;
  return std::min(memory.available, left);
}

ProcessCount count_processes() {
  ProcessCount out;
  DIR* folder = ::opendir("/proc");
  if (folder == nullptr) return out;
  while (const dirent* entry = ::readdir(folder)) {
    if (entry->d_name[0] < '0' || entry->d_name[0] > '9') continue;
    ++out.machine;
    struct stat info {};
    if (::fstatat(::dirfd(folder), entry->d_name, &info, 0) == 0) {
      out.user += info.st_uid == ::geteuid();
    }
  }
  ::closedir(folder);
  return out;
}

}  // namespace strata::tools
