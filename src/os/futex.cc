#include "os/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>

#include "base/check.h"

namespace strata::os {

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t) &&
                  std::atomic<uint32_t>::is_always_lock_free,
              "the kernel reads the atomic as a plain 32-bit word");

FutexWait futex_wait(const std::atomic<uint32_t>* word, uint32_t expected,
                     std::optional<base::Duration> timeout) {
  timespec limit{};
  if (timeout && timeout->ns > 0) {
    limit = {.tv_sec = timeout->ns / 1'000'000'000, .tv_nsec = timeout->ns % 1'000'000'000};
  }
  const long rc =
      ::syscall(SYS_futex, word, FUTEX_WAIT, expected, timeout ? &limit : nullptr, nullptr, 0);
  if (rc == 0 || errno == EINTR) return FutexWait::kWoken;
  if (errno == EAGAIN) return FutexWait::kChanged;
  STRATA_CHECK(errno == ETIMEDOUT);
  return FutexWait::kTimedOut;
}

int futex_wake(const std::atomic<uint32_t>* word, int waiters_max) {
  const long woken = ::syscall(SYS_futex, word, FUTEX_WAKE, waiters_max, nullptr, nullptr, 0);
  STRATA_CHECK(woken >= 0);
  return static_cast<int>(woken);
}

}  // namespace strata::os
