// The small tables of Core: causes, the heap's space, what is remembered of a run.
#include <gtest/gtest.h>

#include <vector>

#include "base/prng.h"
#include "engine/cause_table.h"
#include "engine/run_record.h"
#include "engine/segment_space.h"

namespace strata::engine {
namespace {

Error failure(uint32_t number) {
  return Error(Code::kTaskFailed, Scope::kTask, "failure " + std::to_string(number));
}
std::string text(uint32_t number) {
  return "failure " + std::to_string(number);
}

// ---------------------------------------------------------------- CauseTable

struct CausesInUse {
  std::vector<uint32_t> causes;
  template <class Visit>
  void operator()(Visit&& visit) const {
    for (const uint32_t cause : causes) visit(cause);
  }
};

TEST(CauseTable, ACauseKeepsItsErrorWhileItIsUsed) {
  CauseTable table;
  CausesInUse used;
  const uint32_t kept = table.add(failure(0), used);
  used.causes.push_back(kept);
  for (uint32_t i = 1; i < 3 * CauseTable::kCausesMax; ++i) table.add(failure(i), used);
  EXPECT_EQ(table.at(kept).message(), text(0));
}

TEST(CauseTable, TheNewestCauseIsAlwaysReadable) {
  CauseTable table;
  const CausesInUse none;
  for (uint32_t i = 0; i < 3 * CauseTable::kCausesMax; ++i) {
    ASSERT_EQ(table.at(table.add(failure(i), none)).message(), text(i));
  }
}

TEST(CauseTable, APinnedCauseStaysUntilItIsUnpinned) {
  CauseTable table;
  const CausesInUse none;
  const uint32_t pinned = table.add(failure(0), none);
  table.pin(pinned);
  for (uint32_t i = 1; i < 2 * CauseTable::kCausesMax; ++i) table.add(failure(i), none);
  EXPECT_EQ(table.at(pinned).message(), text(0));
  table.unpin(pinned);
  bool given_again = false;
  for (uint32_t i = 0; i < 2 * CauseTable::kCausesMax; ++i) {
    given_again = given_again || table.add(failure(i), none) == pinned;
  }
  EXPECT_TRUE(given_again);
}

TEST(CauseTable, AFullTableTellsANewCauseInGeneralWords) {
  CauseTable table;
  CausesInUse used;
  for (uint32_t i = 0; i < CauseTable::kCausesMax; ++i) {
    used.causes.push_back(table.add(failure(i), used));
    ASSERT_EQ(table.at(used.causes.back()).message(), text(i));
  }
  const uint32_t general = table.add(failure(9), used);
  EXPECT_EQ(general, 0u);
  EXPECT_NE(table.at(general).message().find("too many causes"), std::string::npos);
  EXPECT_EQ(table.at(used.causes[7]).message(), text(7));
  used.causes.resize(10);
  EXPECT_EQ(table.at(table.add(failure(10), used)).message(), text(10));
  EXPECT_EQ(table.at(used.causes[7]).message(), text(7));
}

// ---------------------------------------------------------------- SegmentSpace

TEST(SegmentSpace, TheFirstFitIsTaken) {
  SegmentSpace space(100);
  EXPECT_EQ(space.take(30), 0u);
  EXPECT_EQ(space.take(30), 30u);
  EXPECT_EQ(space.take(41), std::nullopt);
  space.give(0, 30);
  EXPECT_EQ(space.take(40), 60u);
  EXPECT_EQ(space.take(20), 0u);
  EXPECT_EQ(space.take(10), 20u);
  EXPECT_EQ(space.take(1), std::nullopt);
}

TEST(SegmentSpace, NeighboursAreMergedWhicheverComesLast) {
  for (const std::vector<uint64_t>& order :
       {std::vector<uint64_t>{0, 10, 20}, {20, 10, 0}, {0, 20, 10}, {10, 0, 20}}) {
    SegmentSpace space(30);
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(space.take(10));
    for (const uint64_t offset : order) space.give(offset, 10);
    EXPECT_EQ(space.take(30), 0u);
  }
}

TEST(SegmentSpace, RandomTakesAndGivesAgreeWithAMapOfEveryUnit) {
  constexpr uint64_t kUnits = 200;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    base::Prng prng(seed);
    SegmentSpace space(kUnits);
    std::vector<bool> taken(kUnits, false);
    std::vector<std::pair<uint64_t, uint64_t>> held;
    const auto first_fit = [&](uint64_t units) -> std::optional<uint64_t> {
      uint64_t free = 0;
      for (uint64_t i = 0; i < kUnits; ++i) {
        free = taken[i] ? 0 : free + 1;
        if (free == units) return i + 1 - units;
      }
      return std::nullopt;
    };
    for (int i = 0; i < 3000; ++i) {
      if (prng.chance(1, 2) || held.empty()) {
        const uint64_t units = prng.between(1, 40);
        const auto offset = space.take(units);
        ASSERT_EQ(offset, first_fit(units)) << "seed " << seed << " step " << i;
        if (!offset) continue;
        for (uint64_t unit = 0; unit < units; ++unit) taken[*offset + unit] = true;
        held.emplace_back(*offset, units);
      } else {
        const size_t which = prng.below(held.size());
        const auto [offset, units] = held[which];
        held.erase(held.begin() + static_cast<std::ptrdiff_t>(which));
        for (uint64_t unit = 0; unit < units; ++unit) taken[offset + unit] = false;
        space.give(offset, units);
      }
    }
  }
}

TEST(SegmentSpaceDeathTest, ARangeThatIsFreeCannotBeGivenBack) {
  SegmentSpace space(100);
  ASSERT_TRUE(space.take(50));
  EXPECT_DEATH(space.give(40, 20), "");
}

// ---------------------------------------------------------------- RunRecord

TEST(RunRecord, ARunWithoutAFailureHasNoError) {
  EXPECT_FALSE(RunRecord{}.outcome());
}

TEST(RunRecord, TheFailureThatWasSubmittedFirstIsTheRootWhicheverCameFirst) {
  RunRecord run;
  run.note_failure(5, 15, false, failure(5));
  run.note_failure(3, 13, false, failure(3));
  run.note_failure(4, 14, false, failure(4));
  EXPECT_EQ(run.outcome()->message(), text(3));
  EXPECT_EQ(run.failures, 3u);
}

TEST(RunRecord, AFailureOutranksEveryOlderSkip) {
  RunRecord run;
  run.note_failure(1, 11, true, failure(1));
  run.note_failure(9, 19, false, failure(9));
  run.note_failure(2, 12, true, failure(2));
  EXPECT_EQ(run.outcome()->message(), text(9));
}

TEST(RunRecord, WhereAllWereSkippedTheOldestSkipIsTheRoot) {
  RunRecord run;
  run.note_failure(8, 18, true, failure(8));
  run.note_failure(6, 16, true, failure(6));
  run.note_failure(7, 17, true, failure(7));
  EXPECT_EQ(run.outcome()->message(), text(6));
}

TEST(RunRecord, TheErrorOfTheFunctionOutranksAllTasks) {
  RunRecord run;
  run.note_failure(0, 10, false, failure(0));
  run.build_error = failure(99);
  EXPECT_EQ(run.outcome()->message(), text(99));
}

TEST(RunRecord, AtMostABoundOfErrorsIsKeptButTheRootAlways) {
  RunRecord run;
  for (uint32_t i = 1000; i > 0; --i) run.note_failure(i, i, false, failure(i));
  EXPECT_EQ(run.errors.size(), RunRecord::kErrorsMax);
  EXPECT_EQ(run.failures, 1000u);
  EXPECT_EQ(run.outcome()->message(), text(1));
}

}  // namespace
}  // namespace strata::engine
