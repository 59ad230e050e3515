// child_main: main of a local child that the fork server has forked.
#pragma once

#include "mailbox/waiter.h"
#include "os/fork_server.h"
#include "strata/worker_spec.h"

namespace strata::runtime {

enum class ChildKind : uint8_t { kSub = 0, kChip = 1 };

// What a child is told at its start, beside its descriptors in this order: mailbox, hub, heap, and
// the eventfd that wakes the parent.
struct ChildSpec {
  static constexpr size_t kFds = 4;
  ChildKind kind = ChildKind::kSub;
  std::string path = {};  // of the worker, "L3/1"
  uint64_t heap_bytes = 0;
  mailbox::WaiterOptions spin = {};
  ChipSpec chip = {};  // of a chip
};
std::vector<std::byte> encode(const ChildSpec& spec);
Result<ChildSpec> decode_child_spec(std::span<const std::byte> bytes);

// Exit statuses beside those of mailbox::ChildLoop.
inline constexpr int kExitBadStart = 4;  // the text is on stderr

int child_main(os::ChildStart& start);

}  // namespace strata::runtime
