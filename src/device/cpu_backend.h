// CpuBackend: a chip whose kernels are shared objects and whose memory is a private mapping of this
// process: nobody else sees it, and it ends with the process.
//
// Host memory is reached by read and write of its descriptor, and by mappings of the buffers that a
// task maps; it is never mapped as a whole, so a kernel that goes astray finds only what it was
// given. One thread.
#pragma once

#include <map>
#include <memory>

#include "device/chip_backend.h"
#include "device/device_memory.h"
#include "device/kernel_object.h"

namespace strata::device {

class CpuBackend final : public ChipBackend {
 public:
  static constexpr uint64_t kMemoryBytesMax = 1ull << 44;

  static Result<std::unique_ptr<CpuBackend>> create(uint64_t memory_bytes,
                                                    std::vector<HostSegment> host, ChipNote& note);
  ~CpuBackend() override;
  CpuBackend(const CpuBackend&) = delete;
  CpuBackend& operator=(const CpuBackend&) = delete;

  Result<Kernel> load(const KernelSource& source) override;
  void unload(Kernel kernel) override;
  KernelOutcome run(Kernel kernel, strata_call* call, int32_t blocks) override;
  Result<std::byte*> allocate(uint64_t bytes) override;
  void free(std::byte* at) override;
  Result<void> read_host(const HostRange& from, std::byte* to) override;
  Result<void> copy_in(const HostRange& from, std::byte* to) override;
  Result<void> copy_out(const std::byte* from, const HostRange& to) override;
  Result<std::byte*> map(const HostRange& range, bool writable) override;
  void unmap(const HostRange& range, std::byte* at) override;

 private:
  CpuBackend(std::span<std::byte> memory, std::vector<HostSegment> host, ChipNote& note);
  Result<int> fd_of(const HostRange& range) const;

  std::span<std::byte> memory_;
  DeviceMemory ranges_;
  std::vector<HostSegment> host_;
  ChipNote& note_;
  std::map<Kernel, KernelObject> kernels_;
  Kernel last_kernel_ = 0;
};

}  // namespace strata::device
