// Info: this machine as Strata sees it: topology, memory, limits and what they mean for it, how
// children can start, what this build has. Looks, judges nothing (that is the doctor's).
// One thread; a value once gathered.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "os/machine.h"
#include "os/process.h"
#include "os/topology.h"
#include "strata/result.h"
#include "tools/build_info.h"
#include "tools/capacity.h"

namespace strata::tools {

struct LimitInfo {
  std::string name;              // "open files (ulimit -n)"
  std::string key;               // "nofile"
  std::optional<uint64_t> soft;  // none: unlimited, or not known
  std::optional<uint64_t> hard;  // of a resource limit
  std::string meaning;           // for Strata
};

struct Info {
  BuildInfo build;
  std::optional<os::TopologySummary> topology;
  std::string topology_error;  // where there is none
  os::MemoryState memory;
  os::CgroupLimits cgroup;
  int usable_cores = 1;  // of the affinity mask, as far as the quota lets them run
  std::optional<os::FileSystemSpace> shm;  // /dev/shm
  os::KernelSettings kernel;
  ProcessCount processes;
  std::vector<LimitInfo> limits;
  os::ForkHazards fork_hazards;
  std::string auto_method;           // what StartMethod::kAuto takes in a program like this one
  std::string auto_reason;           // why
  std::string child_server;          // what kExec would run; empty: none was found
  std::string no_child_server = {};  // then why
};

Info gather_info();
nlohmann::ordered_json to_json(const Info& info);
std::string to_text(const Info& info);

}  // namespace strata::tools
