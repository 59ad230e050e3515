// child_main: main of a local child that the fork server has forked.
#pragma once

#include "mailbox/waiter.h"
#include "os/fork_server.h"

namespace strata::runtime {

// What a child is told at its start, beside its descriptors in this order: mailbox, hub, heap, and
// the eventfd that wakes the parent; then, where there is a timeline, its memory.
struct ChildSpec {
  static constexpr size_t kFds = 4;
  std::string path;  // of the worker, "L3/1"
  uint64_t heap_bytes = 0;
  mailbox::WaiterOptions spin;
  uint64_t timeline_bytes = 0;  // 0: no timeline
};
std::vector<std::byte> encode(const ChildSpec& spec);
Result<ChildSpec> decode_child_spec(std::span<const std::byte> bytes);

// Exit statuses beside those of mailbox::ChildLoop.
inline constexpr int kExitBadStart = 4;  // the text is on stderr

int child_main(os::ChildStart& start);

}  // namespace strata::runtime
