#include "os/topology.h"

#include <fmt/format.h>
#include <hwloc.h>

#include <cerrno>
#include <cstdlib>
#include <utility>

#include "os/system_error.h"

namespace strata::os {
namespace {

// The library's own count is -1 where a level is split over depths, and 0 where it is unknown.
size_t count_of(hwloc_topology_t topology, hwloc_obj_type_t type) {
  const int count = hwloc_get_nbobjs_by_type(topology, type);
  return count > 0 ? static_cast<size_t>(count) : 0;
}

std::string list_of(hwloc_const_bitmap_t set) {
  char* text = nullptr;
  if (set == nullptr || hwloc_bitmap_list_asprintf(&text, set) < 0) return {};
  std::string out(text);
  std::free(text);
  return out;
}

size_t weight_of(hwloc_const_bitmap_t set) {
  const int weight = set != nullptr ? hwloc_bitmap_weight(set) : 0;
  return weight > 0 ? static_cast<size_t>(weight) : 0;
}

constexpr std::pair<hwloc_obj_type_t, const char*> kCaches[] = {
    {HWLOC_OBJ_L1CACHE, "L1d"}, {HWLOC_OBJ_L1ICACHE, "L1i"}, {HWLOC_OBJ_L2CACHE, "L2"},
    {HWLOC_OBJ_L3CACHE, "L3"},  {HWLOC_OBJ_L4CACHE, "L4"},
};

}  // namespace

Result<Topology> Topology::load() {
  return open(nullptr);
}

Result<Topology> Topology::synthetic(const std::string& description) {
  return open(description.c_str());
}

Result<Topology> Topology::open(const char* synthetic_description) {
  hwloc_topology_t handle = nullptr;
  if (hwloc_topology_init(&handle) != 0) return system_error("hwloc_topology_init", errno);
  Topology topology(handle);
  // Neither devices nor their drivers: a driver may start threads.
  hwloc_topology_set_io_types_filter(handle, HWLOC_TYPE_FILTER_KEEP_NONE);
  hwloc_topology_set_icache_types_filter(handle, HWLOC_TYPE_FILTER_KEEP_ALL);
  // PUs outside the cpuset are counted too; what is allowed is told apart.
  hwloc_topology_set_flags(handle, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
  if (synthetic_description != nullptr &&
      hwloc_topology_set_synthetic(handle, synthetic_description) != 0) {
    return Error(Code::kInvalidArgument, Scope::kCall,
                 fmt::format("hwloc takes no topology '{}'", synthetic_description));
  }
  if (hwloc_topology_load(handle) != 0) return system_error("hwloc_topology_load", errno);
  return topology;
}

Topology::Topology(Topology&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}

Topology::~Topology() {
  if (handle_ != nullptr) hwloc_topology_destroy(handle_);
}

TopologySummary Topology::summary() const {
  TopologySummary out;
  out.packages = count_of(handle_, HWLOC_OBJ_PACKAGE);
  out.cores = count_of(handle_, HWLOC_OBJ_CORE);
  out.pus = count_of(handle_, HWLOC_OBJ_PU);
  const hwloc_const_bitmap_t allowed = hwloc_topology_get_allowed_cpuset(handle_);
  out.allowed_pus = weight_of(allowed);
  out.allowed = list_of(allowed);
  if (hwloc_bitmap_t bound = hwloc_bitmap_alloc(); bound != nullptr) {
    if (hwloc_get_cpubind(handle_, bound, HWLOC_CPUBIND_PROCESS) == 0) {
      out.bound_pus = weight_of(bound);
      out.bound = list_of(bound);
    }
    hwloc_bitmap_free(bound);
  }
  for (hwloc_obj_t object :
       {hwloc_get_obj_by_type(handle_, HWLOC_OBJ_PACKAGE, 0), hwloc_get_root_obj(handle_)}) {
    const char* const model =
        object != nullptr ? hwloc_obj_get_info_by_name(object, "CPUModel") : nullptr;
    if (model != nullptr && out.processor.empty()) out.processor = model;
  }
  hwloc_obj_t node = nullptr;
  while ((node = hwloc_get_next_obj_by_type(handle_, HWLOC_OBJ_NUMANODE, node)) != nullptr) {
    out.numa_nodes.push_back(
        {node->os_index, node->attr->numanode.local_memory, list_of(node->cpuset)});
  }
  for (const auto& [type, name] : kCaches) {
    const hwloc_obj_t first = hwloc_get_obj_by_type(handle_, type, 0);
    if (first == nullptr) continue;
    out.caches.push_back(
        {name, first->attr->cache.size, count_of(handle_, type), weight_of(first->cpuset)});
  }
  return out;
}

}  // namespace strata::os
