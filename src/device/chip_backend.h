// ChipBackend: one chip, as a Worker drives it: device memory, copies from and to host memory, host
// memory mapped in place, kernels.
//
// Knows no task, no registry and no mailbox. Host memory is named by segment and offset: the
// backend holds the descriptors of the segments. One thread: that of the process which is the chip,
// or that which steps an inline Worker.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/chip_note.h"
#include "os/fd.h"
#include "strata/call.h"
#include "strata/result.h"
#include "trace/ring.h"

namespace strata::device {

// A memfd of the host's, of which buffers are ranges.
struct HostSegment {
  os::Fd fd;
  uint64_t bytes = 0;
};

struct HostRange {
  uint32_t segment = 0;
  uint64_t begin = 0;
  uint64_t bytes = 0;
};

struct KernelSource {
  std::string name;   // for texts
  std::string entry;  // the symbol
  std::span<const std::byte> blob;
};

// Nothing failed where `code` is 0.
struct KernelOutcome {
  int32_t code = 0;
  int32_t block = 0;  // that failed
  std::string text;   // of an exception
};

class ChipBackend {
 public:
  using Kernel = uint32_t;  // a name that is never given again

  virtual ~ChipBackend() = default;

  virtual Result<Kernel> load(const KernelSource& source) = 0;
  virtual void unload(Kernel kernel) = 0;
  // Calls the entry once for each block, in rising order, until one fails. `call` is the kernel's,
  // all but block_idx.
  virtual KernelOutcome run(Kernel kernel, strata_call* call, int32_t blocks) = 0;
  // Where run() tells of each block; null: nowhere. It outlives the runs.
  void set_trace(trace::Recorder* trace) { trace_ = trace; }

  // Device memory. Bytes of a new range are whatever stood there before.
  virtual Result<std::byte*> allocate(uint64_t bytes) = 0;
  virtual void free(std::byte* at) = 0;

  // Host bytes for the host's own side of this, such as a kernel's blob.
  virtual Result<void> read_host(const HostRange& from, std::byte* to) = 0;
  virtual Result<void> copy_in(const HostRange& from, std::byte* to) = 0;
  virtual Result<void> copy_out(const std::byte* from, const HostRange& to) = 0;

  // The pages of the range, in place; gives the address of its first byte. What is written through
  // a mapping that is not writable ends the chip.
  virtual Result<std::byte*> map(const HostRange& range, bool writable) = 0;
  virtual void unmap(const HostRange& range, std::byte* at) = 0;

 protected:
  trace::Recorder* trace_ = nullptr;
};

struct BackendOptions {
  std::string backend = "cpu";
  uint64_t memory_bytes = 0;
};

// kUnsupported for a backend that this build lacks, kInvalidArgument for a size it cannot have.
Result<void> check_backend(const BackendOptions& options);
// Of options that check_backend accepts. `note` outlives the backend.
Result<std::unique_ptr<ChipBackend>> make_backend(const BackendOptions& options,
                                                  std::vector<HostSegment> host, ChipNote& note);

}  // namespace strata::device
