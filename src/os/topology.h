// Topology: what hwloc knows of a machine: packages, cores, hardware threads (PUs), NUMA nodes,
// caches, and which of them this process may use. Binds nothing. Loading it reads /sys for some
// milliseconds: at starts, not on a hot path. One thread at a time; TopologySummary is a value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "strata/result.h"

struct hwloc_topology;

namespace strata::os {

struct CacheLevel {
  std::string name;  // "L1d", "L2", "L3"
  uint64_t bytes = 0;
  size_t count = 0;       // of them in the machine
  size_t shared_pus = 0;  // PUs that the first of them serves
};

struct NumaNode {
  unsigned number = 0;        // the system's
  uint64_t memory_bytes = 0;  // 0 where hwloc does not know
  std::string pus;            // "0-3,8"
};

struct TopologySummary {
  std::string processor;  // its model, or empty
  size_t packages = 0;
  size_t cores = 0;
  size_t pus = 0;
  size_t allowed_pus = 0;  // that this process's cpuset lets it use
  std::string allowed;     // "0-3,8"
  size_t bound_pus = 0;    // of those, where its affinity mask lets it run
  std::string bound;
  std::vector<NumaNode> numa_nodes;
  std::vector<CacheLevel> caches;  // by level
};

class Topology {
 public:
  // This machine.
  static Result<Topology> load();
  // A machine of a description as lstopo takes it, "package:2 core:4 pu:2".
  static Result<Topology> synthetic(const std::string& description);

  Topology(Topology&& other) noexcept;
  Topology& operator=(Topology&&) = delete;
  ~Topology();

  TopologySummary summary() const;

 private:
  explicit Topology(hwloc_topology* handle) : handle_(handle) {}
  static Result<Topology> open(const char* synthetic_description);
  hwloc_topology* handle_;
};

}  // namespace strata::os
