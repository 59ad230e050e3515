// The waiting policy over a clock that stands still until it is told.
#include "mailbox/waiter.h"

#include <gtest/gtest.h>

namespace strata::mailbox {
namespace {

// Each pause costs 100 ns; what is awaited is there from ready_at on.
struct FakeWait {
  int64_t now = 0;
  int64_t ready_at = 0;
  int permits = 1;
  int permits_asked = 0;
  int clock_reads = 0;

  bool ready() { return now >= ready_at; }
  void pause() { now += 100; }
  int64_t now_ns() {
    ++clock_reads;
    return now;
  }
  bool acquire_permit() {
    ++permits_asked;
    if (permits == 0) return false;
    --permits;
    return true;
  }
  void release_permit() { ++permits; }
};

using Verdict = Waiter::Verdict;

// A wait that ends in a sleep of that length.
void sleep_for(Waiter& waiter, FakeWait& wait, int64_t ns) {
  wait.ready_at = wait.now + ns;
  if (waiter.spin(wait) == Verdict::kReady) return;
  wait.now = std::max(wait.now, wait.ready_at);
  waiter.slept(wait.now);
}

TEST(Waiter, AsksNeitherClockNorPermitForWhatIsThere) {
  Waiter waiter;
  FakeWait wait;
  EXPECT_EQ(waiter.spin(wait), Verdict::kReady);
  EXPECT_EQ(wait.clock_reads, 0);
  EXPECT_EQ(wait.permits_asked, 0);
  EXPECT_EQ(wait.now, 0);
}

TEST(Waiter, SpinsAMicrosecondWithoutAPermit) {
  Waiter waiter;
  FakeWait wait{.ready_at = 1'700, .permits = 0};
  EXPECT_EQ(waiter.spin(wait), Verdict::kReady);
  EXPECT_EQ(wait.permits_asked, 0);
}

TEST(Waiter, GoesOnWithAPermitAndGivesItBack) {
  Waiter waiter;
  FakeWait wait{.ready_at = 15'000};
  EXPECT_EQ(waiter.spin(wait), Verdict::kReady);
  EXPECT_EQ(wait.permits_asked, 1);
  EXPECT_EQ(wait.permits, 1);
}

TEST(Waiter, SleepsWithoutAPermitAndAfterTheLongSpin) {
  Waiter waiter;
  FakeWait poor{.ready_at = 15'000, .permits = 0};
  EXPECT_EQ(waiter.spin(poor), Verdict::kSleep);
  EXPECT_LT(poor.now, 5'000);
  FakeWait wait{.ready_at = 1'000'000};
  EXPECT_EQ(waiter.spin(wait), Verdict::kSleep);
  EXPECT_LT(wait.now, 25'000);
  EXPECT_EQ(wait.permits, 1);
}

TEST(Waiter, StopsAskingAfterLongWaitsAndAsksAgainAfterShortOnes) {
  Waiter waiter;
  FakeWait wait;
  for (int i = 0; i < 8; ++i) sleep_for(waiter, wait, 1'000'000);
  EXPECT_FALSE(waiter.spin_pays());
  wait.permits_asked = 0;
  sleep_for(waiter, wait, 10'000);
  EXPECT_EQ(wait.permits_asked, 0);
  for (int i = 0; i < 8; ++i) sleep_for(waiter, wait, 10'000);
  EXPECT_TRUE(waiter.spin_pays());
  EXPECT_GT(wait.permits_asked, 0);
}

TEST(Waiter, OneLongWaitAmongShortOnesDoesNotTurnTheSpinOff) {
  Waiter waiter;
  FakeWait wait;
  for (int i = 0; i < 20; ++i) {
    sleep_for(waiter, wait, i % 4 == 0 ? 1'000'000 : 5'000);
    EXPECT_TRUE(waiter.spin_pays() || i == 0) << i;
  }
}

}  // namespace
}  // namespace strata::mailbox
