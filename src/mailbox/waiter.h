// Waiter: how long to look before the driver sleeps, for one kind of wait of one thread.
//
// Not a sleeper and not a clock: both come with the policy. spin() looks for 1 us and keeps the
// core (on two cores two parties need 0.35 us a round trip with it, 9 to 26 without). linger() goes
// on for up to 100 us with looks that give the core away in between, so that it keeps nobody from
// running: three parties on two cores need 7 us for four messages, and 95 where each wait ends in a
// sleep, because an idle core wakes slowly. It does so only while recent waits of this kind ended
// within that time; and a look that comes back late says that the core is wanted: then lingering
// rests for some waits, twice as many each time. One thread.
//
// Policy:
//   bool ready();            what is awaited is there; one or two loads
//   void pause();            the spin hint of the machine
//   void yield();            lets others run on this core
//   int64_t now_ns();        monotonic
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/mark.h"

namespace strata::mailbox {

struct WaiterOptions {
  int64_t free_spin_ns = 1'000;
  int64_t linger_ns = 100'000;
  // Looks before the first pause, which is long on some processors: an answer that is nearly there
  // is seen at once.
  int polls_without_pause = 0;
};

class Waiter {
 public:
  enum class Verdict { kReady, kSleep };

  explicit Waiter(WaiterOptions options = {}) : options_(options) {}

  // kReady: go on. kSleep: the driver lingers, or prepares its sleep, sleeps, and tells slept(),
  // also where the preparation found that what is awaited had come.
  template <class Policy>
  Verdict spin(Policy& policy) {
    for (int i = 0; i < options_.polls_without_pause; ++i) {
      if (policy.ready()) return ended();
    }
    // A wait that is over at once asks no clock.
    for (int i = 0; i < kPollsWithoutClock; ++i) {
      if (policy.ready()) return ended();
      policy.pause();
    }
    began_ns_ = policy.now_ns();
    const int64_t end_ns = began_ns_ + options_.free_spin_ns;
    do {
      for (int i = 0; i < kPollsForEachClock; ++i) {
        if (policy.ready()) return ended();
        policy.pause();
      }
    } while (policy.now_ns() < end_ns);
    return policy.ready() ? ended() : Verdict::kSleep;
  }

  // The same where a look is a system call: one, and more for `ns` without a pause.
  template <class Policy>
  Verdict spin_by_calls(Policy& policy, int64_t ns) {
    began_ns_ = policy.now_ns();
    do {
      if (policy.ready()) return ended();
    } while (policy.now_ns() < began_ns_ + ns);
    return Verdict::kSleep;
  }

  // After a spin that said kSleep, with the same answers. The caller first hands out what others
  // can do meanwhile.
  template <class Policy>
  Verdict linger(Policy& policy) {
    if (!lingering_pays() || options_.linger_ns == 0) return Verdict::kSleep;
    if (rests_ > 0) {
      --rests_;
      return Verdict::kSleep;
    }
    int64_t now = policy.now_ns();
    while (now < began_ns_ + options_.linger_ns) {
      policy.yield();
      if (policy.ready()) {
        rests_next_ = 1;
        return ended();
      }
      const int64_t before = std::exchange(now, policy.now_ns());
      if (now - before > kCrowdedNs) {
        STRATA_MARK("mailbox: a waiter finds its core wanted by others");
        rests_ = rests_next_;
        rests_next_ = std::min(rests_next_ * 2, kRestsMax);
        return Verdict::kSleep;
      }
    }
    return Verdict::kSleep;
  }

  // At the end of a wait that got kSleep; `now_ns` by the policy's clock.
  void slept(int64_t now_ns) {
    const bool soon = now_ns - began_ns_ <= options_.linger_ns;
    score_ = soon ? std::min(score_ + 1, kScoreMax) : std::max(score_ - 1, 0);
  }

  // Whether recent waits ended soon enough for linger() to look at all.
  bool lingering_pays() const { return score_ >= kScorePays; }

 private:
  static constexpr int kPollsWithoutClock = 8;  // of up to 50 ns each
  static constexpr int kPollsForEachClock = 8;
  static constexpr int kScoreMax = 7;
  static constexpr int kScorePays = 4;
  static constexpr int64_t kCrowdedNs = 30'000;
  static constexpr uint32_t kRestsMax = 256;

  Verdict ended() {
    score_ = std::min(score_ + 1, kScoreMax);
    return Verdict::kReady;
  }

  WaiterOptions options_;
  int64_t began_ns_ = 0;
  int score_ = kScorePays;
  uint32_t rests_ = 0;  // waits that do not linger
  uint32_t rests_next_ = 1;
};

}  // namespace strata::mailbox
