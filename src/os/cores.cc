#include "os/cores.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <memory>

#include "os/process.h"
#include "os/system_error.h"

namespace strata::os {
namespace {

class CoreSet {
 public:
  explicit CoreSet(int cores) : bytes_(CPU_ALLOC_SIZE(cores)), set_(CPU_ALLOC(cores)) {
    if (set_ != nullptr) CPU_ZERO_S(bytes_, set_);
  }
  ~CoreSet() { CPU_FREE(set_); }
  CoreSet(const CoreSet&) = delete;
  CoreSet& operator=(const CoreSet&) = delete;
  bool valid() const { return set_ != nullptr; }
  cpu_set_t* get() const { return set_; }
  size_t bytes() const { return bytes_; }

 private:
  size_t bytes_;
  cpu_set_t* set_;
};

}  // namespace

std::vector<int> cores_allowed() {
  // The kernel refuses a mask that is shorter than its own.
  for (int cores = CPU_SETSIZE; cores <= kCoresMax; cores *= 2) {
    const CoreSet set(cores);
    if (!set.valid()) return {};
    if (::sched_getaffinity(0, set.bytes(), set.get()) == 0) {
      std::vector<int> out;
      for (int core = 0; core < cores; ++core) {
        if (CPU_ISSET_S(static_cast<size_t>(core), set.bytes(), set.get())) out.push_back(core);
      }
      return out;
    }
    if (errno != EINVAL) return {};
  }
  return {};
}

Result<void> bind_to_cores(std::span<const int> cores) {
  const int highest = cores.empty() ? -1 : *std::max_element(cores.begin(), cores.end());
  if (highest < 0 || highest >= kCoresMax || *std::min_element(cores.begin(), cores.end()) < 0) {
    return Error(Code::kInvalidArgument, Scope::kCall,
                 fmt::format("cores {} cannot be", cores_text(cores)));
  }
  const CoreSet set(std::max(highest + 1, CPU_SETSIZE));
  if (!set.valid()) return system_error("a set of cores", ENOMEM);
  for (const int core : cores) CPU_SET_S(static_cast<size_t>(core), set.bytes(), set.get());
  if (::sched_setaffinity(0, set.bytes(), set.get()) != 0) {
    return system_error(fmt::format("run on the cores {} alone", cores_text(cores)), errno);
  }
  return {};
}

std::string cores_text(std::span<const int> cores) {
  std::vector<int> sorted(cores.begin(), cores.end());
  std::sort(sorted.begin(), sorted.end());
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  std::string out;
  for (size_t i = 0; i < sorted.size();) {
    size_t last = i;
    while (last + 1 < sorted.size() && sorted[last + 1] == sorted[last] + 1) ++last;
    if (!out.empty()) out += ',';
    out += last == i ? std::to_string(sorted[i]) : fmt::format("{}-{}", sorted[i], sorted[last]);
    i = last + 1;
  }
  return out.empty() ? "none" : out;
}

int usable_cores(int in_mask, std::optional<double> quota) {
  if (!quota.has_value() || !(*quota < in_mask)) return std::max(in_mask, 1);
  return std::max(1, static_cast<int>(std::ceil(*quota)));
}

int usable_cores(const SystemFiles& files) {
  return usable_cores(cores_in_affinity_mask(), cgroup_limits(files).cpus);
}

}  // namespace strata::os
