// AwakeClock: the time that a judge itself ran. A process that was stopped, or a host that slept,
// finds the other side's beats unread when it wakes: the gap is no proof of silence.
//
// The judge's loop steps at least once in a `step`; of a longer gap between two steps only
// 2 * `step` count. Pure; one thread at a time.
#pragma once

#include <algorithm>

#include "base/fault.h"
#include "base/mark.h"
#include "base/time.h"

namespace strata::session {

class AwakeClock {
 public:
  AwakeClock(base::Duration step, base::Instant now) : gap_max_{2 * step.ns}, last_(now) {}

  // Time only goes on; an earlier `now` counts nothing.
  void step(base::Instant now) {
    const base::Duration gap{std::max<int64_t>(0, now.ns - last_.ns)};
    if (gap > gap_max_) STRATA_MARK("session: the judge was asleep");
    // Deliberate fault 17: a verdict while the judge was asleep.
    elapsed_ = elapsed_ + (base::fault() == 17 ? gap : std::min(gap, gap_max_));
    last_ = std::max(last_, now);
  }
  // Since it was made.
  base::Duration elapsed() const { return elapsed_; }
  base::Instant last() const { return last_; }
  // When `at`, as elapsed(), is reached if the judge goes on running.
  base::Instant when(base::Duration at) const { return last_ + (at - elapsed_); }

 private:
  base::Duration gap_max_;
  base::Instant last_;
  base::Duration elapsed_;
};

}  // namespace strata::session
