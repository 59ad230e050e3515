// The waiting policy over a clock that stands still until it is told.
#include "mailbox/waiter.h"

#include <gtest/gtest.h>

#include <vector>

namespace strata::mailbox {
namespace {

// Each pause costs 100 ns; what is awaited is there from ready_at on.
struct FakeWait {
  int64_t now = 0;
  int64_t ready_at = 0;
  int yields = 0;
  int64_t yield_ns = 500;
  int clock_reads = 0;

  bool ready() { return now >= ready_at; }
  void pause() { now += 100; }
  int64_t now_ns() {
    ++clock_reads;
    return now;
  }
  void yield() {
    ++yields;
    now += yield_ns;
  }
};

using Verdict = Waiter::Verdict;

// What a driver does: spins, lingers, sleeps.
void wait_for(Waiter& waiter, FakeWait& wait, int64_t ns) {
  wait.ready_at = wait.now + ns;
  if (waiter.spin(wait) == Verdict::kReady) return;
  if (waiter.linger(wait) == Verdict::kReady) return;
  wait.now = std::max(wait.now, wait.ready_at);
  waiter.slept(wait.now);
}

TEST(Waiter, AsksNoClockForWhatIsThere) {
  Waiter waiter;
  FakeWait wait;
  EXPECT_EQ(waiter.spin(wait), Verdict::kReady);
  EXPECT_EQ(wait.clock_reads, 0);
  EXPECT_EQ(wait.now, 0);
}

TEST(Waiter, KeepsTheCoreForAMicrosecondAndNoLonger) {
  Waiter waiter;
  FakeWait wait{.ready_at = 1'700};
  EXPECT_EQ(waiter.spin(wait), Verdict::kReady);
  FakeWait longer{.ready_at = 15'000};
  EXPECT_EQ(waiter.spin(longer), Verdict::kSleep);
  EXPECT_LT(longer.now, 5'000);
  EXPECT_EQ(wait.yields + longer.yields, 0);
}

TEST(Waiter, LingersForAHundredMicrosecondsGivingTheCoreAway) {
  Waiter waiter;
  FakeWait wait;
  wait_for(waiter, wait, 80'000);
  EXPECT_GT(wait.yields, 100);
  EXPECT_LT(wait.now, 82'000);
  FakeWait never{.ready_at = 1'000'000};
  EXPECT_EQ(waiter.spin(never), Verdict::kSleep);
  EXPECT_EQ(waiter.linger(never), Verdict::kSleep);
  EXPECT_LT(never.now, 105'000);
}

TEST(Waiter, StopsLingeringAfterLongWaitsAndBeginsAgainAfterShortOnes) {
  Waiter waiter;
  FakeWait wait;
  for (int i = 0; i < 8; ++i) wait_for(waiter, wait, 1'000'000);
  EXPECT_FALSE(waiter.lingering_pays());
  wait.yields = 0;
  wait_for(waiter, wait, 10'000);
  EXPECT_EQ(wait.yields, 0);
  for (int i = 0; i < 8; ++i) wait_for(waiter, wait, 10'000);
  EXPECT_TRUE(waiter.lingering_pays());
  EXPECT_GT(wait.yields, 0);
}

TEST(Waiter, OneLongWaitAmongShortOnesDoesNotTurnItOff) {
  Waiter waiter;
  FakeWait wait;
  for (int i = 0; i < 20; ++i) {
    wait_for(waiter, wait, i % 4 == 0 ? 1'000'000 : 5'000);
    EXPECT_TRUE(waiter.lingering_pays() || i == 0) << i;
  }
}

TEST(Waiter, RestsWhereTheCoreIsWantedAndTwiceAsLongEachTime) {
  Waiter waiter;
  FakeWait wait{.yield_ns = 50'000};
  std::vector<int> lingered;
  for (int i = 0; i < 20; ++i) {
    wait.yields = 0;
    wait_for(waiter, wait, 90'000);
    if (wait.yields > 0) {
      EXPECT_EQ(wait.yields, 1);
      lingered.push_back(i);
    }
  }
  EXPECT_EQ(lingered, (std::vector<int>{0, 2, 5, 10, 19}));
}

TEST(Waiter, AfterAWaitThatLingeringEndedRestsAreShortAgain) {
  Waiter waiter;
  FakeWait wait{.yield_ns = 50'000};
  for (int i = 0; i < 11; ++i) wait_for(waiter, wait, 90'000);
  wait.yield_ns = 500;
  for (int i = 0; i < 9; ++i) wait_for(waiter, wait, 90'000);
  wait.yield_ns = 50'000;
  wait.yields = 0;
  for (int i = 0; i < 3; ++i) wait_for(waiter, wait, 90'000);
  EXPECT_EQ(wait.yields, 2);
}

TEST(Waiter, WithoutTimeToLingerItSleepsAtOnce) {
  Waiter waiter({.free_spin_ns = 0, .linger_ns = 0});
  FakeWait wait;
  wait_for(waiter, wait, 10'000);
  EXPECT_EQ(wait.yields, 0);
}

// Where a look is a system call each one is worth a look at the clock.
TEST(Waiter, SpinsByCallsForAsLongAsItIsToldAndLooksAtLeastOnce) {
  struct Costly : FakeWait {
    int looks = 0;
    bool ready() {
      ++looks;
      now += 300;
      return FakeWait::ready();
    }
  } wait;
  Waiter waiter;
  wait.ready_at = 1'000'000;
  EXPECT_EQ(waiter.spin_by_calls(wait, 0), Verdict::kSleep);
  EXPECT_EQ(wait.looks, 1);
  EXPECT_EQ(waiter.spin_by_calls(wait, 10'000), Verdict::kSleep);
  EXPECT_EQ(wait.looks, 1 + 34);
  EXPECT_EQ(wait.yields, 0);
  wait.ready_at = wait.now + 1'000;
  EXPECT_EQ(waiter.spin_by_calls(wait, 10'000), Verdict::kReady);
  EXPECT_EQ(wait.looks, 1 + 34 + 4);
  EXPECT_TRUE(waiter.lingering_pays());
}

}  // namespace
}  // namespace strata::mailbox
