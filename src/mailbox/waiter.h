// Waiter: how long to spin before the driver sleeps, for one kind of wait of one thread.
//
// Not a sleeper and not a clock: both come with the policy. First 1 us of free spin; then up to
// 20 us with one of the hub's permits, and only while recent waits of this kind ended that soon;
// then it says kSleep. (On two cores two parties that spin 1 us need 0.35 us a round trip, 9 to 26
// without; three that spin freely for longer wait milliseconds for each other.) One thread.
//
// Policy:
//   bool ready();            what is awaited is there; one or two loads
//   void pause();            the spin hint of the machine
//   int64_t now_ns();        monotonic
//   bool acquire_permit();   of the hub, not blocking
//   void release_permit();
#pragma once

#include <algorithm>
#include <cstdint>

namespace strata::mailbox {

struct WaiterOptions {
  int64_t free_spin_ns = 1'000;
  int64_t permit_spin_ns = 20'000;
  // Looks before the first pause, which is long on some processors: an answer that is nearly there
  // is seen at once.
  int polls_without_pause = 0;
};

class Waiter {
 public:
  enum class Verdict { kReady, kSleep };

  explicit Waiter(WaiterOptions options = {}) : options_(options) {}

  // kReady: go on. kSleep: the driver prepares its sleep, sleeps, and tells slept(), also where
  // the preparation found that what is awaited had come.
  template <class Policy>
  Verdict spin(Policy& policy) {
    for (int i = 0; i < options_.polls_without_pause; ++i) {
      if (policy.ready()) return ended(Verdict::kReady);
    }
    // A wait that is over at once asks no clock.
    for (int i = 0; i < kPollsWithoutClock; ++i) {
      if (policy.ready()) return ended(Verdict::kReady);
      policy.pause();
    }
    began_ns_ = policy.now_ns();
    if (spin_until(policy, began_ns_ + options_.free_spin_ns)) return ended(Verdict::kReady);
    if (!spin_pays() || !policy.acquire_permit()) return Verdict::kSleep;
    const bool ready = spin_until(policy, began_ns_ + options_.permit_spin_ns);
    policy.release_permit();
    return ready ? ended(Verdict::kReady) : Verdict::kSleep;
  }

  // At the end of a wait that got kSleep; `now_ns` by the policy's clock.
  void slept(int64_t now_ns) {
    if (now_ns - began_ns_ <= options_.permit_spin_ns) {
      score_ = std::min(score_ + 1, kScoreMax);
    } else {
      score_ = std::max(score_ - 1, 0);
    }
  }

  // Whether the next wait of this kind would ask for a permit.
  bool spin_pays() const { return score_ >= kScorePays; }

 private:
  static constexpr int kPollsWithoutClock = 8;  // of up to 50 ns each
  static constexpr int kPollsForEachClock = 8;
  static constexpr int kScoreMax = 7;
  static constexpr int kScorePays = 4;

  template <class Policy>
  static bool spin_until(Policy& policy, int64_t end_ns) {
    do {
      for (int i = 0; i < kPollsForEachClock; ++i) {
        if (policy.ready()) return true;
        policy.pause();
      }
    } while (policy.now_ns() < end_ns);
    return policy.ready();
  }

  Verdict ended(Verdict verdict) {
    score_ = std::min(score_ + 1, kScoreMax);
    return verdict;
  }

  WaiterOptions options_;
  int64_t began_ns_ = 0;
  int score_ = kScorePays;
};

}  // namespace strata::mailbox
