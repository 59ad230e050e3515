// The machine's clocks. Monotonic stands still while the machine sleeps, boottime does not (the
// deadlines of sessions use it). CycleClock is for measuring short spans cheaply, not for
// deadlines. Any thread.
#pragma once

#include <cstdint>

#include "base/time.h"
#include "env/clock.h"

namespace strata::os {

base::Instant monotonic_now();
base::Instant boottime_now();

class MonotonicClock final : public env::Clock {
 public:
  base::Instant now() override { return monotonic_now(); }
};

class BootClock final : public env::Clock {
 public:
  base::Instant now() override { return boottime_now(); }
};

// Whether the processor's time-stamp counter runs evenly and alike on all cores.
bool cycle_counter_is_sound();
// That counter; only where it is sound.
uint64_t cycle_counter();

// The counter, where it is sound, and the monotonic clock at one moment.
struct CycleReading {
  uint64_t ticks = 0;
  int64_t ns = 0;
};
CycleReading read_cycles_and_clock();

// Ticks of the invariant time-stamp counter, or nanoseconds of the monotonic clock where the
// processor or the kernel does not vouch for that counter.
class CycleClock {
 public:
  // Measures the length of a tick over `span`, spinning; make one for each process.
  static CycleClock measured(base::Duration span = base::Duration::from_ms(2));

  uint64_t now() const;
  double ns_per_tick() const { return ns_per_tick_; }
  int64_t to_ns(uint64_t ticks) const {
    return static_cast<int64_t>(static_cast<double>(ticks) * ns_per_tick_);
  }
  bool uses_counter() const { return uses_counter_; }

 private:
  CycleClock(bool uses_counter, double ns_per_tick)
      : uses_counter_(uses_counter), ns_per_tick_(ns_per_tick) {}
  bool uses_counter_;
  double ns_per_tick_;
};

}  // namespace strata::os
