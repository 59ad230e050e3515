// The simulated world of sessions: what it finds, and that it finds nothing where nothing is wrong.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/fault.h"
#include "base/mark.h"
#include "sim/session_seed.h"

namespace strata::sim {
namespace {

TEST(SessionSim, HundredsOfSeedsAreRightAndReachNineInTenMarks) {
  SessionReport report;
  for (uint64_t seed = 1; report.counting() < 250; ++seed) {
    const SessionSeed result = run_session_seed(draw_session_options(seed), false);
    report.add(result);
    ASSERT_EQ(result.verdict, Verdict::kOk) << describe(result);
  }
  EXPECT_GE(report.with_faults(1), 60.0) << report.to_string();
  EXPECT_GE(report.with_faults(3), 20.0) << report.to_string();
#ifdef STRATA_MARKS_ON
  uint64_t marks = 0;
  base::marks([&](const base::Mark& mark) { marks += mark.name().starts_with("session: "); });
  EXPECT_LE(SessionReport::marks_missed().size() * 10, marks) << report.to_string();
#endif
}

TEST(SessionSim, ASeedIsTheSameRunEachTime) {
  for (uint64_t seed = 1000; seed < 1040; ++seed) {
    const SessionSeed result = run_session_seed_twice(draw_session_options(seed));
    ASSERT_EQ(result.verdict, Verdict::kOk) << describe(result);
    const SessionSeed printed = run_session_seed(result.options, true);
    ASSERT_EQ(printed.counts.hash, result.counts.hash) << seed;
    ASSERT_FALSE(printed.last_events.empty());
  }
}

#ifdef STRATA_FAULTS
class SessionSimFinds : public ::testing::TestWithParam<int> {
 protected:
  void TearDown() override { base::set_fault(0); }
};

TEST_P(SessionSimFinds, TheDeliberateFaultWithin2000CountingSeeds) {
  base::set_fault(GetParam());
  uint64_t counting = 0;
  for (uint64_t seed = 1; counting < 2000; ++seed) {
    const SessionSeed result = run_session_seed(draw_session_options(seed), false);
    counting += result.counting();
    if (result.verdict == Verdict::kOk) continue;
    EXPECT_EQ(result.verdict, Verdict::kCorrectness) << describe(result);
    RecordProperty("found_in_seed", std::to_string(seed));
    return;
  }
  FAIL() << "fault " << GetParam() << " was not found";
}

INSTANTIATE_TEST_SUITE_P(Faults, SessionSimFinds, ::testing::Values(5, 6, 16, 17, 18),
                         [](const auto& i) { return fmt::format("Fault{}", i.param); });
#endif

}  // namespace
}  // namespace strata::sim
