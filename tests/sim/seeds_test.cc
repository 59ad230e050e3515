// Whole simulations: seeds are green, give the same run twice, and find the deliberate faults.
#include <gtest/gtest.h>

#include "base/fault.h"
#include "sim/report.h"
#include "sim/simulation.h"

namespace strata::sim {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr uint64_t kSeeds = 150;
#else
constexpr uint64_t kSeeds = 1000;
#endif

void expect_green(Mode mode, uint64_t from, uint64_t seeds, Report* report) {
  for (uint64_t seed = from; seed < from + seeds; ++seed) {
    const SeedResult result = run_seed_twice(draw_options(seed, mode));
    report->add(record_of(result));
    ASSERT_EQ(result.verdict, Verdict::kOk) << describe(result);
  }
}

TEST(Seeds, AreGreenAndTheSameTwice) {
  Report report;
  expect_green(Mode::kSwarm, 1, kSeeds, &report);
  // What makes them worth counting; the report of many seeds has the exact numbers.
  EXPECT_GE(report.counting(), kSeeds * 8 / 10) << report.to_string();
  EXPECT_GE(report.with_faults(1), 60) << report.to_string();
  EXPECT_GE(report.with_faults(3), 20) << report.to_string();
}

TEST(Seeds, WithCrashesAloneAreGreen) {
  Report report;
  expect_green(Mode::kLite, 1, kSeeds / 4, &report);
}

TEST(Seeds, WithoutFaultsEveryTaskSucceeds) {
  const SeedResult result = run_seed_twice(draw_options(1, Mode::kPerformance));
  ASSERT_EQ(result.verdict, Verdict::kOk) << describe(result);
  EXPECT_EQ(result.failed + result.skipped, 0u);
  EXPECT_EQ(result.succeeded, result.tasks);
  EXPECT_GE(result.tasks, 500u);
}

TEST(Seeds, DifferentOnesGiveDifferentRuns) {
  EXPECT_NE(run_seed(draw_options(1, Mode::kSwarm), false).fingerprint,
            run_seed(draw_options(2, Mode::kSwarm), false).fingerprint);
}

#ifdef STRATA_FAULTS

class DeliberateFault : public testing::TestWithParam<int> {
 protected:
  ~DeliberateFault() override { base::set_fault(0); }
};

TEST_P(DeliberateFault, IsFoundWithinTwoThousandCountingSeeds) {
  base::set_fault(GetParam());
  uint64_t counting = 0;
  for (uint64_t seed = 1'000'000; counting < 2000; ++seed) {
    const SeedResult result = run_seed(draw_options(seed, Mode::kSwarm), false);
    if (result.verdict != Verdict::kOk) {
      RecordProperty("counting_seeds_needed", static_cast<int>(counting));
      return;
    }
    counting += result.counts();
  }
  FAIL() << "fault " << GetParam() << " was not found";
}

INSTANTIATE_TEST_SUITE_P(Seeds, DeliberateFault, testing::Values(1, 3, 7, 10, 11, 12, 13, 19),
                         [](const auto& tested) { return std::to_string(tested.param); });

#endif

}  // namespace
}  // namespace strata::sim
