#include "device/chip_backend.h"

#include <fmt/format.h>

#include "base/result.h"
#include "device/cpu_backend.h"

namespace strata::device {

Result<void> check_backend(const BackendOptions& options) {
  if (options.backend != "cpu") {
    return Error(Code::kUnsupported, Scope::kCall,
                 fmt::format("ChipSpec::backend '{}': this build has the backend 'cpu' only",
                             options.backend));
  }
  if (options.memory_bytes < 4096 || options.memory_bytes > CpuBackend::kMemoryBytesMax) {
    return Error(Code::kInvalidArgument, Scope::kCall,
                 fmt::format("ChipSpec::memory_bytes is 4096 to {}, not {}",
                             CpuBackend::kMemoryBytesMax, options.memory_bytes));
  }
  return {};
}

Result<std::unique_ptr<ChipBackend>> make_backend(const BackendOptions& options,
                                                  std::vector<HostSegment> host, ChipNote& note) {
  STRATA_TRY(check_backend(options));
  STRATA_ASSIGN(std::unique_ptr<CpuBackend> cpu,
                CpuBackend::create(options.memory_bytes, std::move(host), note));
  return std::unique_ptr<ChipBackend>(std::move(cpu));
}

}  // namespace strata::device
