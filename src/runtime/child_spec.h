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
  bool output = false;  // its stdout and stderr are captured: three more descriptors, behind all
};

// Children for a running Worker: helpers, or one Worker. What Worker::add_worker and
// add_sub_workers ask of the Workers on the way.
struct ChildOrder {
  uint32_t first = 0;          // in a replay: the worker id that the first of them has
  std::vector<uint32_t> path;  // worker ids, from the Worker that has this order
  uint32_t helpers = 0;
  std::optional<WorkerSpec> worker;  // then no helpers
};
std::vector<std::byte> encode(const ChildOrder& order);
Result<ChildOrder> decode_child_order(std::span<const std::byte> bytes);

std::vector<std::byte> encode(const ChildSpec& spec);
Result<ChildSpec> decode_child_spec(std::span<const std::byte> bytes);

}  // namespace strata::runtime
