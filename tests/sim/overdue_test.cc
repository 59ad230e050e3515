// The simulator's own notion of deadlines.
#include "sim/overdue.h"

#include <gtest/gtest.h>

namespace strata::sim {
namespace {

constexpr base::Instant kNow{1'000'000'000'000};

TEST(SimOverdue, ATaskIsLateFromItsStartInTheChildThatRanIt) {
  Overdue overdue;
  overdue.add_task(1);
  overdue.on_given(1, {0, 0}, 7, kNow);
  overdue.on_start(1, {0, 0}, kNow.ns);
  overdue.on_end(1, {0, 0}, kNow.ns + 999'999);
  EXPECT_FALSE(overdue.ended_late(0));
  overdue.on_end(1, {0, 0}, kNow.ns + 1'000'000);
  EXPECT_TRUE(overdue.ended_late(0));
}

TEST(SimOverdue, ATaskThatWentFromAChildToAnInlineWorkerIsNotLateForItsClock) {
  Overdue overdue;
  overdue.add_task(1);
  overdue.on_given(1, {0, 0}, 7, kNow);
  overdue.on_end(0, {0, 0}, kNow.ns + 100);
  EXPECT_FALSE(overdue.ended_late(0));
}

TEST(SimOverdue, AWorkerThatDiedAsTheEngineEndedItWasEndedRightly) {
  Overdue overdue;
  overdue.add_task(1);
  overdue.on_given(1, {0, 0}, 7, kNow);
  overdue.on_start(1, {0, 0}, kNow.ns);
  overdue.on_death(1);
  const base::Instant late = kNow + base::Duration::from_ms(1);
  EXPECT_NE(overdue.why_not(1, false, kNow), "");
  EXPECT_EQ(overdue.why_not(1, false, late), "");
  EXPECT_TRUE(overdue.is_overdue(0));
  EXPECT_NE(overdue.why_not(1, true, late), "") << "another one is in its place";
}

}  // namespace
}  // namespace strata::sim
