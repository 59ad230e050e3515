// futex_wait, futex_wake: sleep on a 32-bit word, also one in memory that processes share (never
// the private form). Not a lock and not an order: the caller's fences decide what is seen.
// Any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "base/time.h"

namespace strata::os {

enum class FutexWait {
  kWoken,    // by a wake, or for no reason: look again
  kChanged,  // the word did not hold `expected`
  kTimedOut,
};

// The timeout is relative, by the monotonic clock; none waits until woken.
FutexWait futex_wait(const std::atomic<uint32_t>* word, uint32_t expected,
                     std::optional<base::Duration> timeout = std::nullopt);

// Wakes at most `waiters_max`; how many it woke.
int futex_wake(const std::atomic<uint32_t>* word, int waiters_max);

}  // namespace strata::os
