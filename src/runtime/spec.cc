#include "runtime/spec.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/result.h"
#include "device/chip_backend.h"
#include "os/fork_server.h"
#include "runtime/child_spec.h"

namespace strata::runtime {
namespace {

constexpr uint32_t kRestartsMax = 1'000'000;
// The rest is for a path and the heaps.
constexpr size_t kWorkerSpecBytesMax = os::ForkServer::kSpecBytesMax - 5 * 1024;
constexpr uint32_t kTableMax = 1u << 24;        // entries; a child refuses callables beyond it
constexpr uint64_t kHeapBytesMax = 1ull << 46;  // half of a process's addresses

Error refuse(std::string text) {
  return Error(Code::kInvalidArgument, Scope::kCall, std::move(text));
}

uint32_t clamped(uint64_t ms) {
  return static_cast<uint32_t>(std::min(ms, uint64_t{~uint32_t{0}}));
}

Result<void> check_limits(const Limits& limits) {
  if (limits.slots < 1 || limits.slots > (1u << 24)) {
    return refuse(fmt::format("Limits::slots is 1 to {}, not {}", 1u << 24, limits.slots));
  }
  if (limits.depth < 1 || limits.depth > 62) {
    return refuse(fmt::format("Limits::depth is 1 to 62, not {}", limits.depth));
  }
  const std::pair<const char*, uint32_t> tables[] = {{"buffers", limits.buffers},
                                                     {"callables", limits.callables}};
  for (const auto& [name, entries] : tables) {
    if (entries >= 1 && entries <= kTableMax) continue;
    return refuse(fmt::format("Limits::{} is 1 to {}, not {}", name, kTableMax, entries));
  }
  if (limits.heap_bytes < 4096 || limits.heap_bytes > kHeapBytesMax) {
    return refuse(
        fmt::format("Limits::heap_bytes is 4096 to {}, not {}", kHeapBytesMax, limits.heap_bytes));
  }
  return {};
}

}  // namespace

Result<void> check_spec(const WorkerSpec& spec) {
  if (spec.level < kLowestLevel || spec.level > 6) {
    return refuse(fmt::format("WorkerSpec::level is 3 to 6, not {}", spec.level));
  }
  if (spec.sub_workers < 0 || spec.sub_workers > kChildrenMax) {
    return refuse(
        fmt::format("WorkerSpec::sub_workers is 0 to {}, not {}", kChildrenMax, spec.sub_workers));
  }
  if (spec.chips < 0 || spec.chips > kChildrenMax - spec.sub_workers) {
    return refuse(fmt::format("WorkerSpec::chips is 0 to {} beside {} sub_workers, not {}",
                              kChildrenMax - spec.sub_workers, spec.sub_workers, spec.chips));
  }
  if (spec.chips > 0 && !spec.workers.empty()) {
    return refuse(
        fmt::format("a Worker has chips or Workers below it, not both: WorkerSpec::chips is {} "
                    "and there are {} in WorkerSpec::workers",
                    spec.chips, spec.workers.size()));
  }
  if (spec.chips > 0) {
    STRATA_TRY(device::check_backend({spec.chip.backend, spec.chip.memory_bytes}));
  }
  if (spec.workers.size() + static_cast<size_t>(spec.sub_workers) > size_t{kChildrenMax}) {
    return refuse(
        fmt::format("a Worker has at most {} children, not {} in WorkerSpec::workers and "
                    "{} sub_workers",
                    kChildrenMax, spec.workers.size(), spec.sub_workers));
  }
  if (spec.start != StartMethod::kInline && spec.start != StartMethod::kFork) {
    return refuse("WorkerSpec::start is kInline or kFork");
  }
  if (spec.restart != Restart::kNever && spec.restart != Restart::kOnFailure) {
    return refuse("WorkerSpec::restart is kNever or kOnFailure");
  }
  if (spec.restart_limit > kRestartsMax) {
    return refuse(fmt::format("WorkerSpec::restart_limit is 0 to {}, not {}", kRestartsMax,
                              spec.restart_limit));
  }
  if (spec.output.mode != OutputMode::kForward && spec.output.mode != OutputMode::kInherit &&
      spec.output.mode != OutputMode::kDiscard) {
    return refuse("WorkerSpec::output.mode is kForward, kInherit or kDiscard");
  }
  if (spec.output.on_line && spec.output.mode != OutputMode::kForward) {
    return refuse("WorkerSpec::output.on_line takes lines in the mode kForward alone");
  }
  STRATA_TRY(check_limits(spec.limits));
  for (const int fd : spec.inherit_fds) {
    if (fd >= 0) continue;
    return refuse(fmt::format("WorkerSpec::inherit_fds names descriptor {}", fd));
  }
  for (size_t i = 0; i < spec.workers.size(); ++i) {
    Result<void> child = check_child_spec(spec.workers[i], spec.level);
    if (child) continue;
    return Error(child.error().code(), Scope::kCall,
                 fmt::format("Worker {}: {}", i, child.error().message()));
  }
  return {};
}

Result<void> check_child_spec(const WorkerSpec& child, int parent_level) {
  if (child.level >= parent_level) {
    return refuse(
        fmt::format("a child Worker of level {} below one of level {}: its level must be "
                    "smaller",
                    child.level, parent_level));
  }
  if (!child.timeline.empty()) {
    return refuse(
        "WorkerSpec::timeline is set for a Worker below another: the topmost one writes "
        "the timeline of all");
  }
  if (child.output.on_line) {
    return refuse(
        "WorkerSpec::output.on_line is set for a Worker below another: the topmost one takes the "
        "lines of all");
  }
  STRATA_TRY(check_spec(child));
  ChildSpec whole;
  whole.worker = child;
  const size_t bytes = encode(whole).size();
  if (bytes <= kWorkerSpecBytesMax) return {};
  return Error(Code::kResourceExhausted, Scope::kCall,
               fmt::format("the spec of a child Worker, with all that is below it, has {} bytes, "
                           "more than {}",
                           bytes, kWorkerSpecBytesMax));
}

uint32_t exit_grace_ms(const WorkerSpec& spec) {
  uint32_t below = 0;
  for (const WorkerSpec& worker : spec.workers) below = std::max(below, exit_grace_ms(worker));
  return clamped(uint64_t{spec.timeouts.exit_ms} + below);
}

uint32_t ready_limit_ms(const WorkerSpec& spec) {
  uint32_t below = 0;
  for (const WorkerSpec& worker : spec.workers) below = std::max(below, ready_limit_ms(worker));
  return clamped(uint64_t{spec.timeouts.child_ready_ms} + below);
}

uint32_t control_below_ms(const WorkerSpec& child) {
  uint32_t below = 0;
  for (const WorkerSpec& worker : child.workers) below = std::max(below, control_below_ms(worker));
  return clamped(4 * uint64_t{child.timeouts.control_ms} + 2 * uint64_t{below});
}

}  // namespace strata::runtime
