#include "os/clock.h"

#include <time.h>

#include <cstdio>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#endif

namespace strata::os {
namespace {

base::Instant read_clock(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return {static_cast<int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec};
}

#if defined(__x86_64__)
// The processor says that the counter runs evenly, and the kernel has not found it wanting: it
// strikes the name off this list where cores disagree.
bool look_for_sound_counter() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(0x80000007, &a, &b, &c, &d) == 0 || (d & (1u << 8)) == 0) return false;
  std::FILE* file =
      std::fopen("/sys/devices/system/clocksource/clocksource0/available_clocksource", "re");
  if (file == nullptr) return false;
  char list[256] = {};
  const bool read = std::fgets(list, sizeof list, file) != nullptr;
  std::fclose(file);
  if (!read) return false;
  char* rest = nullptr;
  for (char* word = ::strtok_r(list, " \n", &rest); word != nullptr;
       word = ::strtok_r(nullptr, " \n", &rest)) {
    if (std::strcmp(word, "tsc") == 0) return true;
  }
  return false;
}
#else
bool look_for_sound_counter() {
  return false;
}
#endif

}  // namespace

uint64_t cycle_counter() {
#if defined(__x86_64__)
  return __rdtsc();
#else
  return 0;
#endif
}

bool cycle_counter_is_sound() {
  static const bool sound = look_for_sound_counter();
  return sound;
}

// The counter at the middle of the tightest of some readings of the clock, so that an interrupt
// between the two does not count.
CycleReading read_cycles_and_clock() {
  CycleReading best{};
  uint64_t best_width = UINT64_MAX;
  for (int i = 0; i < 8; ++i) {
    const uint64_t before = cycle_counter();
    const int64_t ns = read_clock(CLOCK_MONOTONIC).ns;
    const uint64_t width = cycle_counter() - before;
    if (width < best_width) {
      best_width = width;
      best = {before + width / 2, ns};
    }
  }
  return best;
}

base::Instant monotonic_now() {
  return read_clock(CLOCK_MONOTONIC);
}
base::Instant boottime_now() {
  return read_clock(CLOCK_BOOTTIME);
}

CycleClock CycleClock::measured(base::Duration span) {
  if (!cycle_counter_is_sound()) return {false, 1.0};
  const CycleReading first = read_cycles_and_clock();
  CycleReading last = first;
  while (last.ns - first.ns < span.ns || last.ns == first.ns) last = read_cycles_and_clock();
  if (last.ticks <= first.ticks) return {false, 1.0};
  return {true,
          static_cast<double>(last.ns - first.ns) / static_cast<double>(last.ticks - first.ticks)};
}

uint64_t CycleClock::now() const {
  return uses_counter_ ? cycle_counter() : static_cast<uint64_t>(monotonic_now().ns);
}

}  // namespace strata::os
