// How much Strata fits into the limits of a machine: what a Worker and each of its children take
// (docs/limits.md), turned round. Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>

#include "os/machine.h"

namespace strata::tools {

inline constexpr uint64_t kStandardFds = 3;  // 0, 1, 2
inline constexpr uint64_t kServerFds = 2;    // of the process, once
inline constexpr uint64_t kWorkerFds = 10;
inline constexpr uint64_t kChildFds = 4;
inline constexpr uint64_t kChildrenMax = 1024;        // WorkerSpec::sub_workers
inline constexpr uint64_t kMailboxBytes = 540 << 10;  // of a child, shared with its parent

// Children of one Worker by RLIMIT_NOFILE; kChildrenMax where nothing else is the limit.
uint64_t children_by_descriptors(std::optional<uint64_t> soft_limit);
// Processes that can still be started; none: no limit is known. One of them is the fork server.
std::optional<uint64_t> processes_left(std::optional<uint64_t> user_limit, uint64_t user_has,
                                       std::optional<uint64_t> pid_max, uint64_t machine_has,
                                       const os::CgroupLimits& cgroup);
// Bytes that buffers can take now: the smaller of the machine's memory and the control group's.
uint64_t memory_left(const os::MemoryState& memory, const os::CgroupLimits& cgroup);

// Processes of the machine, and of the user of this one, as far as /proc shows them.
struct ProcessCount {
  uint64_t machine = 0, user = 0;
};
ProcessCount count_processes();

}  // namespace strata::tools
