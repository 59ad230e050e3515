// STRATA_CHECK: an invariant of our own code; stays on in release builds and stops the process.
// What a peer or a user sends is never a CHECK, always a Result.
// STRATA_DCHECK: the same in hot loops, only without NDEBUG.
#pragma once

namespace strata::base {
[[noreturn]] void check_failed(const char* condition, const char* file, int line);
}  // namespace strata::base

#define STRATA_CHECK(condition)                      \
  (__builtin_expect(static_cast<bool>(condition), 1) \
       ? static_cast<void>(0)                        \
       : ::strata::base::check_failed(#condition, __FILE__, __LINE__))

#ifdef NDEBUG
#define STRATA_DCHECK(condition) static_cast<void>(sizeof(!(condition)))
#else
#define STRATA_DCHECK(condition) STRATA_CHECK(condition)
#endif
