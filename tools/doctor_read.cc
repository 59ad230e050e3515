// Checks that judge what the kernel says.
#include <fmt/format.h>

#include <algorithm>

#include "tools/doctor_checks.h"
#include "tools/text.h"

namespace strata::tools {
namespace {

constexpr uint64_t kFewChildren = 64;
constexpr uint64_t kFewProcesses = 32;
constexpr uint64_t kLittleMemory = 256 << 20;
constexpr uint64_t kNoMemory = 32 << 20;
constexpr double kFullShare = 0.95;

}  // namespace

Finding check_cores(const Probes& probes) {
  const Facts facts = probes.facts();
  Finding out{.found = fmt::format("{} core{} in the affinity mask", facts.cores,
                                   facts.cores == 1 ? "" : "s"),
              .meaning =
                  "Parent and children take turns on one core; on two or more they wait by "
                  "spinning for some microseconds first."};
  if (facts.cores == 1) {
    out.level = Level::kWarning;
    out.advice =
        "Give the program two cores or more (taskset, cpuset): each hand-over of a task "
        "costs a switch of processes here.";
  }
  return out;
}

Finding check_quota(const Probes& probes) {
  const Facts facts = probes.facts();
  const std::string meaning =
      "Strata counts the cores of the affinity mask; a control group that gives less time than "
      "that stops all its processes for the rest of each period (often 0.1 s).";
  if (!facts.cgroup.cpus.has_value()) return {.found = "no CPU quota", .meaning = meaning};
  Finding out{.found = fmt::format("a quota of {:.2f} cores, {} in the affinity mask",
                                   *facts.cgroup.cpus, facts.cores),
              .meaning = meaning};
  const std::string advice =
      "Raise the quota, or bind the container to as many cores as it may "
      "use (cpuset) instead.";
  if (*facts.cgroup.cpus < 1) {
    out.level = Level::kProblem;
    out.advice = advice;
  } else if (*facts.cgroup.cpus < facts.cores) {
    out.level = Level::kWarning;
    out.advice = advice;
  }
  return out;
}

Finding check_descriptors(const Probes& probes) {
  const Facts facts = probes.facts();
  const uint64_t children = children_by_descriptors(facts.nofile);
  Finding out{.found = fmt::format("ulimit -n is {}: room for {} children",
                                   limit_text(facts.nofile), children),
              .meaning = fmt::format("A Worker takes {} descriptors and {} more for each child.",
                                     kWorkerFds, kChildFds)};
  if (children >= kFewChildren) return out;
  out.level = children == 0 ? Level::kProblem : Level::kWarning;
  out.advice = fmt::format("Raise it: ulimit -n {} (the hard limit is {}).",
                           limit_text(facts.nofile_hard), limit_text(facts.nofile_hard));
  return out;
}

Finding check_processes(const Probes& probes) {
  const Facts facts = probes.facts();
  const auto left = processes_left(facts.nproc, facts.processes.user, facts.kernel.pid_max,
                                   facts.processes.machine, facts.cgroup);
  Finding out{.found = left.has_value() ? fmt::format("{} more processes can be started", *left)
                                        : "no limit of processes",
              .meaning =
                  "Each child is a process, and so is the fork server of a program. Root "
                  "is not bound by ulimit -u."};
  if (left.value_or(kFewProcesses) >= kFewProcesses) return out;
  out.level = *left < 2 ? Level::kProblem : Level::kWarning;
  out.advice =
      "Raise ulimit -u, the control group's pids.max, or kernel.pid_max, whichever is "
      "reached (strata info shows them).";
  return out;
}

Finding check_memory(const Probes& probes) {
  const Facts facts = probes.facts();
  const uint64_t left = memory_left(facts.memory, facts.cgroup);
  const bool bound = facts.cgroup.memory_bytes.has_value() && left < facts.memory.available;
  Finding out{.found = fmt::format("{} can be had{}", bytes_text(left),
                                   bound ? " by the control group's limit" : ""),
              .meaning = fmt::format("Buffers take memory as they are written; each child takes {} "
                                     "for its mailbox, and what its tasks need.",
                                     bytes_text(kMailboxBytes))};
  if (left >= kLittleMemory) return out;
  out.level = left < kNoMemory ? Level::kProblem : Level::kWarning;
  out.advice = bound ? "Raise the control group's memory limit." : "End other programs.";
  return out;
}

Finding check_huge_pages(const Probes& probes) {
  const Facts facts = probes.facts();
  const std::string& mode = facts.kernel.shm_huge_pages;
  Finding out{.found = fmt::format("transparent huge pages of shared memory: {}",
                                   mode.empty() ? "unknown" : mode),
              .meaning =
                  "The heap is sparse: where each first touch takes a huge page, a buffer "
                  "of 4 KiB can take 2 MiB."};
  if (mode == "always" || mode == "force") {
    out.level = Level::kWarning;
    out.advice = "As root: echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled";
  }
  return out;
}

Finding check_shm(const Probes& probes) {
  const Facts facts = probes.facts();
  const std::string meaning = "Strata does not use /dev/shm: its memory files have no name there.";
  if (!facts.shm.has_value() || facts.shm->total == 0) {
    return {.found = "/dev/shm is not there, and not needed", .meaning = meaning};
  }
  const double used =
      1 - static_cast<double>(facts.shm->free) / static_cast<double>(facts.shm->total);
  return {.found = fmt::format("/dev/shm is not needed; {:.0f} % of it is used{}", used * 100,
                               used > kFullShare ? ", which takes memory all the same" : ""),
          .meaning = meaning};
}

Finding check_ptrace(const Probes& probes) {
  const auto scope = probes.facts().kernel.ptrace_scope;
  return {.found = scope.value_or(0) == 0
                       ? "any process of yours may be debugged"
                       : fmt::format("ptrace_scope is {}: no problem for Strata", *scope),
          .meaning =
              "Strata traces no process. A debugger attaches to a running child only where "
              "ptrace_scope is 0, or as root."};
}

}  // namespace strata::tools
