// ChipUsage: what one chip's memory holds, and what has been moved so far. A value.
#pragma once

#include <cstdint>

namespace strata {

struct ChipUsage {
  uint64_t memory_bytes = 0;   // of the device
  uint64_t used_bytes = 0;     // of them, by the task that runs
  uint64_t peak_bytes = 0;     // the most that was used at once
  uint64_t mappings = 0;       // of host buffers, that stand
  uint64_t mapped_bytes = 0;   // of those; host memory, not device memory
  uint64_t mappings_made = 0;  // since the start
  uint64_t copied_in = 0;      // bytes from host to device, since the start
  uint64_t copied_out = 0;     // bytes from device to host
};

}  // namespace strata
