// ChildSpec: what a local child is told at its start, as bytes. A value; no descriptor is in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mailbox/waiter.h"
#include "strata/result.h"
#include "strata/worker_spec.h"

namespace strata::runtime {

// Heaps that a child maps: its Worker's own and those of the Workers above, of levels 3 to 6.
inline constexpr size_t kHeapsMax = 4;

struct ChildSpec {
  // Descriptors, in this order: mailbox, hub, the eventfd that wakes the parent; then the heaps,
  // and the timeline's memory where there is one, and last a chip's note.
  static constexpr size_t kFixedFds = 3;

  std::string path;                  // of the worker, "L3/1"
  std::vector<uint64_t> heap_bytes;  // by segment
  mailbox::WaiterOptions spin;
  std::optional<WorkerSpec> worker;  // it is a Worker itself
  std::optional<ChipSpec> chip;      // it is a chip
  uint64_t timeline_bytes = 0;       // 0: no timeline
  std::vector<int> cpus;             // it runs on these alone; empty: on those of its parent
  bool output = false;  // its stdout and stderr are captured: three more descriptors, behind all
};

std::vector<std::byte> encode(const ChildSpec& spec);
Result<ChildSpec> decode_child_spec(std::span<const std::byte> bytes);

}  // namespace strata::runtime
