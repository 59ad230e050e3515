// What an event of a daemon's epoll is about, as its tag: a kind, and the number of a client or a
// session. Internal to the daemon. Pure; any thread.
#pragma once

#include <cstdint>

namespace strata::runtime {

enum class DaemonEvent : uint64_t { kListener, kStop, kClient, kLink, kProcess };

constexpr uint64_t kDaemonNumberBits = 56;

constexpr uint64_t daemon_tag(DaemonEvent about, uint64_t number = 0) {
  return static_cast<uint64_t>(about) << kDaemonNumberBits | number;
}
constexpr DaemonEvent event_of(uint64_t tag) {
  return static_cast<DaemonEvent>(tag >> kDaemonNumberBits);
}
constexpr uint64_t number_of_tag(uint64_t tag) {
  return tag & ((uint64_t{1} << kDaemonNumberBits) - 1);
}

}  // namespace strata::runtime
