#include "tools/info.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "engine/core_types.h"
#include "os/cores.h"
#include "runtime/child_server.h"
#include "runtime/context.h"
#include "strata/worker_spec.h"
#include "tools/text.h"

namespace strata::tools {
namespace {

using Json = nlohmann::ordered_json;

std::string children_text(uint64_t children) {
  return fmt::format("room for {}{} children of one Worker", children,
                     children == kChildrenMax ? " (the most)" : "");
}

std::string address_space_text(std::optional<uint64_t> limit) {
  const uint64_t heap = engine::heap_address_bytes(Limits());
  const std::string needs = fmt::format("the default heap reserves {} of it", bytes_text(heap));
  if (!limit.has_value() || *limit > heap) return needs + ", only touched pages take memory";
  return needs + fmt::format(": set Limits::heap_bytes below {}", bytes_text(*limit / 2));
}

std::string overcommit_text(std::optional<uint64_t> mode) {
  if (mode == 2) return "strict: each touched page of a buffer counts against CommitLimit";
  return "the heap's address space costs nothing until it is touched";
}

void add_limits(Info* info) {
  const auto resource = [info](const char* name, const char* key, __rlimit_resource_t which,
                               std::string meaning) {
    info->limits.push_back(
        {name, key, os::soft_limit(which), os::hard_limit(which), std::move(meaning)});
  };
  const auto setting = [info](const char* name, const char* key, std::optional<uint64_t> value,
                              std::string meaning) {
    info->limits.push_back({name, key, value, std::nullopt, std::move(meaning)});
  };
  const os::KernelSettings& kernel = info->kernel;
  resource("open files (ulimit -n)", "nofile", RLIMIT_NOFILE,
           children_text(children_by_descriptors(os::soft_limit(RLIMIT_NOFILE))));
  const auto left = processes_left(os::soft_limit(RLIMIT_NPROC), info->processes.user,
                                   kernel.pid_max, info->processes.machine, info->cgroup);
  resource("processes (ulimit -u)", "nproc", RLIMIT_NPROC,
           fmt::format("{} run as this user; {} more by all limits", info->processes.user,
                       left.has_value() ? std::to_string(*left) : "any number"));
  resource("locked memory (ulimit -l)", "memlock", RLIMIT_MEMLOCK,
           "no meaning yet: this version locks no memory");
  resource("address space (ulimit -v)", "as", RLIMIT_AS,
           address_space_text(os::soft_limit(RLIMIT_AS)));
  resource("file size (ulimit -f)", "fsize", RLIMIT_FSIZE,
           "shared memory counts as a file: it must hold the heap's address space");
  setting("pid_max", "pid_max", kernel.pid_max,
          fmt::format("{} processes run on the machine", info->processes.machine));
  setting("threads-max", "threads_max", kernel.threads_max,
          "of the machine; a child has one thread");
  setting("vm.max_map_count", "max_map_count", kernel.max_map_count,
          "mappings of a process; each child takes one in its parent");
  setting("vm.overcommit_memory", "overcommit_memory", kernel.overcommit_memory,
          overcommit_text(kernel.overcommit_memory));
}

Json topology_json(const os::TopologySummary& machine) {
  Json numa = Json::array();
  for (const os::NumaNode& node : machine.numa_nodes) {
    numa.push_back(
        {{"number", node.number}, {"memory_bytes", node.memory_bytes}, {"pus", node.pus}});
  }
  Json caches = Json::array();
  for (const os::CacheLevel& cache : machine.caches) {
    caches.push_back({{"name", cache.name},
                      {"bytes", cache.bytes},
                      {"count", cache.count},
                      {"shared_pus", cache.shared_pus}});
  }
  return {{"processor", machine.processor},
          {"packages", machine.packages},
          {"cores", machine.cores},
          {"pus", machine.pus},
          {"allowed_pus", machine.allowed},
          {"affinity_pus", machine.bound},
          {"numa_nodes", numa},
          {"caches", caches}};
}

Json start_methods_json(const Info& info) {
  const os::ForkHazards& hazards = info.fork_hazards;
  Json fork = {{"possible", !hazards.any()}, {"hazards", hazards.to_string()}};
  Json exec = {{"possible", !info.child_server.empty()}, {"program", nullptr}};
  if (!info.child_server.empty()) exec["program"] = info.child_server;
  if (!info.no_child_server.empty()) exec["why_not"] = info.no_child_server;
  return {{"auto", {{"method", info.auto_method}, {"reason", info.auto_reason}}},
          {"fork", std::move(fork)},
          {"exec", std::move(exec)},
          {"inline", {{"possible", true}}}};
}

// Lines "  name   value" below a heading.
class Page {
 public:
  void heading(std::string_view text) { out_ += fmt::format("\n{}\n", text); }
  void line(std::string_view name, std::string_view value) {
    out_ += fmt::format("  {:<26} {}\n", name, wrapped(value, 80, 29));
  }
  std::string take() && { return std::move(out_); }

 private:
  std::string out_;
};

std::string plural(size_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

void add_machine(const Info& info, Page* page) {
  page->heading("machine");
  if (!info.topology.has_value()) {
    page->line("topology", "not known: " + info.topology_error);
  } else {
    const os::TopologySummary& machine = *info.topology;
    if (!machine.processor.empty()) page->line("processor", machine.processor);
    page->line("processors",
               fmt::format("{}, {}, {}", plural(machine.packages, "package"),
                           plural(machine.cores, "core"), plural(machine.pus, "hardware thread")));
    for (const os::NumaNode& node : machine.numa_nodes) {
      page->line(fmt::format("NUMA node {}", node.number),
                 fmt::format("hardware threads {}, {}", node.pus, bytes_text(node.memory_bytes)));
    }
    for (const os::CacheLevel& cache : machine.caches) {
      page->line(fmt::format("cache {}", cache.name),
                 fmt::format("{} of {}, each for {}", cache.count, bytes_text(cache.bytes),
                             plural(cache.shared_pus, "hardware thread")));
    }
    page->line("this process may use",
               fmt::format("hardware threads {} (affinity mask), of {} (cpuset)", machine.bound,
                           machine.allowed));
  }
  page->line("CPU quota", info.cgroup.cpus.has_value()
                              ? fmt::format("{:.2f} cores (control group)", *info.cgroup.cpus)
                              : "none");
  page->line("cores that count",
             info.usable_cores == 1
                 ? "1: a Worker waits without spinning"
                 : fmt::format("{}: of the affinity mask, as far as the quota lets them run",
                               info.usable_cores));
  page->line("virtual machine", info.kernel.is_virtual ? "yes" : "no hypervisor says so");
  page->line("kernel", info.kernel.release);
}

void add_memory(const Info& info, Page* page) {
  const os::MemoryState& memory = info.memory;
  page->heading("memory");
  page->line("total", bytes_text(memory.total));
  page->line("available", bytes_text(memory.available));
  if (info.cgroup.memory_bytes.has_value()) {
    page->line("control group",
               fmt::format("{} of {} used", bytes_text(info.cgroup.memory_used.value_or(0)),
                           bytes_text(*info.cgroup.memory_bytes)));
  } else {
    page->line("control group", "no limit");
  }
  page->line("swap", fmt::format("{} free of {}", bytes_text(memory.swap_free),
                                 bytes_text(memory.swap_total)));
  if (info.shm.has_value()) {
    page->line("/dev/shm", fmt::format("{} free of {}; Strata does not use it (its shared memory "
                                       "has no name)",
                                       bytes_text(info.shm->free), bytes_text(info.shm->total)));
  } else {
    page->line("/dev/shm", "not there; Strata does not use it");
  }
  page->line("huge pages",
             fmt::format("{} free of {}, of {}", memory.huge_pages_free, memory.huge_pages_total,
                         bytes_text(memory.huge_page_bytes)));
  page->line(
      "Limits::huge_pages",
      fmt::format("kExplicit: {}; kTransparent: {}",
                  memory.huge_pages_total > 0 ? "possible" : "no pool (vm.nr_hugepages)",
                  info.kernel.shm_huge_pages.empty() || info.kernel.shm_huge_pages == "never" ||
                          info.kernel.shm_huge_pages == "deny"
                      ? "the kernel gives shared memory none"
                      : "possible"));
  page->line(
      "transparent huge pages",
      fmt::format("{}; shared memory: {}",
                  info.kernel.huge_pages.empty() ? "unknown" : info.kernel.huge_pages,
                  info.kernel.shm_huge_pages.empty() ? "unknown" : info.kernel.shm_huge_pages));
}

void add_build(const Info& info, Page* page) {
  const os::ForkHazards& hazards = info.fork_hazards;
  page->heading("start methods, for a program like this one");
  page->line("auto", fmt::format("takes {}: {}", info.auto_method, info.auto_reason));
  page->line("fork", hazards.any()
                         ? "refused here: " + hazards.to_string()
                         : "possible: one thread, no Python interpreter, no initialised UCX");
  page->line("exec", info.child_server.empty() ? "not possible: " + info.no_child_server
                                               : "possible, by " + info.child_server);
  page->line("inline", "possible: tasks are calls in the program itself, for debugging");
  page->line("your program", "strata doctor --program FILE says whether fork is possible there");
  page->heading("this build");
  page->line("chip backends", info.build.chips ? "cpu; cuda: not in this build"
                                               : "none; cpu, cuda: not in this build");
  page->line("transports", "none: local children by shared memory only");
  page->line("remote protocol", "not in this build");
  page->line("local protocol",
             fmt::format("layout version {}, id {}; callable ABI {}", info.build.layout_version,
                         layout_id_text(info.build), info.build.abi));
  page->line("version", fmt::format("{}{}{}", info.build.version,
                                    info.build.git.empty() ? "" : ", git ", info.build.git));
  page->line("compiler", info.build.compiler);
}

void add_start(Info* info) {
  if (const auto decision = runtime::decide_start(StartMethod::kAuto, false); decision.ok()) {
    info->auto_method = decision->method == StartMethod::kFork ? "fork" : "exec";
    info->auto_reason = decision->reason;
  } else {
    info->auto_method = "none";
    info->auto_reason = decision.error().message();
  }
  if (const auto server = runtime::find_child_server({}); server.ok()) {
    info->child_server = server->name;
  } else {
    info->no_child_server = server.error().message();
  }
}

}  // namespace

Info gather_info() {
  Info out;
  out.build = build_info();
  // First: what hwloc reads and loads below must not be taken for the program's own.
  if (auto hazards = os::fork_hazards(); hazards.ok()) out.fork_hazards = *std::move(hazards);
  add_start(&out);
  if (auto topology = os::Topology::load(); topology.ok()) {
    out.topology = topology->summary();
  } else {
    out.topology_error = topology.error().to_string();
  }
  out.memory = os::memory_state();
  out.cgroup = os::cgroup_limits();
  out.usable_cores = os::usable_cores(os::cores_in_affinity_mask(), out.cgroup.cpus);
  out.shm = os::file_system_space("/dev/shm");
  out.kernel = os::kernel_settings();
  out.processes = count_processes();
  add_limits(&out);
  return out;
}

Json to_json(const Info& info) {
  Json limits = Json::object();
  for (const LimitInfo& limit : info.limits) {
    limits[limit.key] = {{"value", json_of(limit.soft)}, {"meaning", limit.meaning}};
    if (limit.hard.has_value()) limits[limit.key]["hard"] = *limit.hard;
  }
  const os::MemoryState& memory = info.memory;
  Json out;
  out["version"] = to_json(info.build);
  out["machine"] = info.topology ? topology_json(*info.topology) : Json(nullptr);
  if (!info.topology) out["machine_error"] = info.topology_error;
  out["kernel"] = {{"release", info.kernel.release},
                   {"virtual", info.kernel.is_virtual},
                   {"clock_source", info.kernel.clock_source},
                   {"transparent_huge_pages", info.kernel.huge_pages},
                   {"shared_memory_huge_pages", info.kernel.shm_huge_pages}};
  out["cgroup"] = {{"version", info.cgroup.version},
                   {"path", info.cgroup.path},
                   {"cpus", info.cgroup.cpus ? Json(*info.cgroup.cpus) : Json(nullptr)},
                   {"usable_cores", info.usable_cores},
                   {"memory_bytes", json_of(info.cgroup.memory_bytes)},
                   {"memory_used_bytes", json_of(info.cgroup.memory_used)},
                   {"processes", json_of(info.cgroup.processes)}};
  out["memory"] = {{"total_bytes", memory.total},
                   {"free_bytes", memory.free},
                   {"available_bytes", memory.available},
                   {"swap_total_bytes", memory.swap_total},
                   {"swap_free_bytes", memory.swap_free},
                   {"huge_page_bytes", memory.huge_page_bytes},
                   {"huge_pages_total", memory.huge_pages_total},
                   {"huge_pages_free", memory.huge_pages_free}};
  out["dev_shm"] = info.shm ? Json{{"total_bytes", info.shm->total}, {"free_bytes", info.shm->free}}
                            : Json(nullptr);
  out["limits"] = std::move(limits);
  out["start_methods"] = start_methods_json(info);
  out["chip_backends"] = {{"cpu", info.build.chips}, {"cuda", false}};
  out["transports"] = Json::array();
  out["remote_protocol"] = nullptr;
  return out;
}

std::string to_text(const Info& info) {
  Page page;
  add_machine(info, &page);
  add_memory(info, &page);
  page.heading("limits in force, and what they mean for Strata");
  for (const LimitInfo& limit : info.limits) {
    page.line(limit.name, fmt::format("{}: {}", limit_text(limit.soft), limit.meaning));
  }
  add_build(info, &page);
  return std::move(page).take().substr(1);
}

}  // namespace strata::tools
