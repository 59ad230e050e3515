// The oracle on graphs made by hand: what it demands, and that it sees what is wrong.
#include "sim/oracle.h"

#include <gtest/gtest.h>

#include <numeric>
#include <optional>

#include "sim/strided.h"

namespace strata::sim {
namespace {

constexpr auto kOk = Outcome::kOk;
constexpr auto kFailed = Outcome::kTaskFailed;
constexpr auto kLost = Outcome::kEndpointFailed;
constexpr auto kSkipped = Outcome::kSkipped;

Oracle::Access range(uint32_t buffer, uint64_t begin, uint64_t end, bool reads, bool writes) {
  return {buffer, begin, 1, {end - begin}, {1}, reads, writes};
}
Oracle::Access in(uint32_t buffer, uint64_t begin, uint64_t end) {
  return range(buffer, begin, end, true, false);
}
Oracle::Access out(uint32_t buffer, uint64_t begin, uint64_t end) {
  return range(buffer, begin, end, false, true);
}

// Buffers, tasks as a right engine would run them, and what the oracle says of it.
class OracleTest : public testing::Test {
 protected:
  OracleTest() : a(add_buffer(16)), b(add_buffer(16)) {}

  uint32_t add_buffer(size_t bytes) {
    memory.emplace_back(bytes);
    return oracle.add_buffer(bytes, true);
  }
  // Adds a task and runs it if `outcome` says so.
  uint32_t task(Outcome outcome, std::vector<Oracle::Access> accesses, bool will_fail = false) {
    return add({0, {{will_fail, false, 0, std::move(accesses)}}, false}, outcome);
  }
  // Adds a group, likewise.
  uint32_t group(Outcome outcome, std::vector<std::vector<Oracle::Access>> members,
                 std::optional<size_t> fails = {}) {
    Oracle::Task one{0, {}, true};
    for (size_t i = 0; i < members.size(); ++i) {
      one.parts.push_back({fails == i, false, 0, std::move(members[i])});
    }
    return add(std::move(one), outcome);
  }
  uint32_t add(Oracle::Task task, Outcome outcome) {
    const uint32_t id = oracle.add_task(std::move(task));
    Oracle::Seen& one = seen.emplace_back();
    one.outcome = outcome;
    one.may_be_lost = true;
    for (uint32_t p = 0; p < oracle.task(id).parts.size(); ++p) {
      one.parts.push_back(run(id, p, outcome == kOk || outcome == kFailed));
    }
    return id;
  }
  Oracle::SeenPart run(uint32_t id, uint32_t number, bool runs) {
    Oracle::SeenPart seen_part;
    if (!runs) return seen_part;
    const Oracle::Part& part = oracle.task(id).parts[number];
    seen_part.starts = 1;
    seen_part.ended = true;
    seen_part.failed = part.will_fail;
    seen_part.input_hash = Oracle::input_start(id, number);
    for (const Oracle::Access& access : part.accesses) {
      if (!access.reads) continue;
      visit(access, [&](uint8_t& byte, uint64_t) {
        seen_part.input_hash = mix(seen_part.input_hash, byte);
      });
    }
    for (size_t i = 0; i < part.accesses.size() && !part.will_fail; ++i) {
      if (!part.accesses[i].writes) continue;
      visit(part.accesses[i], [&](uint8_t& byte, uint64_t ordinal) {
        byte = written_byte(seen_part.input_hash, i, ordinal);
      });
    }
    return seen_part;
  }
  std::string judge() { return oracle.judge(seen).value_or(""); }
  std::string content(uint32_t buffer) {
    return oracle.check_content(buffer, memory[buffer].data()).value_or("");
  }

  Oracle oracle;
  std::vector<std::vector<uint8_t>> memory;
  std::vector<Oracle::Seen> seen;
  uint32_t a;
  uint32_t b;

 private:
  template <class Fn>
  void visit(const Oracle::Access& access, Fn&& fn) {
    uint64_t ordinal = 0;
    for_each_byte(access.shape, access.stride, access.element_bytes, [&](int64_t at) {
      fn(memory[access.buffer][access.offset + static_cast<uint64_t>(at)], ordinal++);
    });
  }
};

TEST_F(OracleTest, AcceptsAChainThatRanInOrder) {
  task(kOk, {out(a, 0, 16)});
  task(kOk, {in(a, 4, 8), out(b, 0, 16)});
  task(kOk, {range(b, 0, 8, true, true)});
  EXPECT_EQ(judge(), "");
  EXPECT_EQ(content(a), "");
  EXPECT_EQ(content(b), "");
}

TEST_F(OracleTest, SeesATaskThatReadOtherBytes) {
  task(kOk, {out(a, 0, 16)});
  task(kOk, {in(a, 0, 16), out(b, 0, 16)});
  seen[1].parts[0].input_hash ^= 1;
  EXPECT_NE(judge().find("other bytes"), std::string::npos) << judge();
}

TEST_F(OracleTest, SeesAByteThatIsWrongInTheEnd) {
  task(kOk, {out(a, 0, 16)});
  EXPECT_EQ(judge(), "");
  memory[a][5] ^= 1;
  EXPECT_NE(content(a).find("byte 5"), std::string::npos) << content(a);
}

TEST_F(OracleTest, AReaderOfWhatAFailedTaskShouldHaveWrittenMustBeSkipped) {
  task(kFailed, {out(a, 0, 8)}, true);
  task(kOk, {in(a, 8, 16)});  // beside it
  task(kSkipped, {in(a, 7, 9), out(b, 0, 4)});
  task(kSkipped, {in(b, 3, 5)});  // what a skipped task should have written
  task(kOk, {in(b, 4, 16)});
  EXPECT_EQ(judge(), "");
  seen[2].outcome = kOk;
  EXPECT_NE(judge().find("must be skipped"), std::string::npos) << judge();
}

TEST_F(OracleTest, ASkipNeedsAReason) {
  task(kSkipped, {out(a, 0, 8)});
  EXPECT_NE(judge().find("there was a worker"), std::string::npos) << judge();
  seen[0].may_cancel = true;
  EXPECT_EQ(judge(), "");
  seen[0].parts = {{1, true, false, false, 0}};
  EXPECT_NE(judge().find("its code was started"), std::string::npos) << judge();
}

TEST_F(OracleTest, AWriterHealsExactlyItsBytes) {
  task(kLost, {out(a, 0, 16)});
  task(kOk, {out(a, 4, 8)});
  task(kOk, {in(a, 4, 8)});
  task(kSkipped, {in(a, 3, 8)});
  EXPECT_EQ(judge(), "");
  EXPECT_TRUE(oracle.poisoned(a, 3));
  EXPECT_FALSE(oracle.poisoned(a, 4));
}

TEST_F(OracleTest, AShapeWithGapsPoisonsItsRangeAndHealsNothing) {
  const Oracle::Access gaps{a, 0, 1, {2, 2, 2}, {9, 4, 1}, false, true};
  task(kFailed, {gaps}, true);
  task(kSkipped, {in(a, 2, 3)});  // in a gap
  task(kOk, {gaps});
  task(kSkipped, {in(a, 0, 1)});
  task(kOk, {out(a, 0, 16)});
  task(kOk, {in(a, 0, 16)});
  EXPECT_EQ(judge(), "");
}

TEST_F(OracleTest, AClearedErrorIsGoneForWhatHadNotEnded) {
  task(kFailed, {out(a, 0, 16)}, true);
  task(kSkipped, {in(a, 0, 4), out(b, 0, 16)});
  oracle.clear_error(a, {true, true});
  task(kOk, {in(a, 0, 16)});
  task(kSkipped, {in(b, 0, 16)});
  EXPECT_EQ(judge(), "");
  seen[2].outcome = kSkipped;
  EXPECT_NE(judge(), "");
}

TEST_F(OracleTest, PoisonThatComesAfterAClearStays) {
  task(kFailed, {out(a, 0, 16)}, true);
  oracle.clear_error(a, {false});
  task(kSkipped, {in(a, 0, 16)});
  EXPECT_EQ(judge(), "");
}

TEST_F(OracleTest, ATaskMayNotStartTwiceNorFailWithoutReason) {
  task(kOk, {out(a, 0, 16)});
  Oracle::SeenPart& part = seen[0].parts[0];
  part.starts = 2;
  EXPECT_NE(judge().find("more than once"), std::string::npos);
  part.starts = 1;
  part.failed = true;
  EXPECT_NE(judge().find("does not fail"), std::string::npos);
  part.failed = false;
  seen[0].outcome = kFailed;
  EXPECT_NE(judge().find("did not fail"), std::string::npos);
  seen[0].outcome = kLost;
  seen[0].may_be_lost = false;
  EXPECT_NE(judge().find("no worker was lost"), std::string::npos);
  seen[0].outcome = Outcome::kLive;
  EXPECT_NE(judge().find("no outcome"), std::string::npos);
  seen[0].outcome = kOk;
  part.ended = false;
  EXPECT_NE(judge().find("left behind"), std::string::npos);
  part.died = true;
  EXPECT_NE(judge().find("lost with its worker"), std::string::npos);
}

TEST_F(OracleTest, AGroupIsOneTaskOfWhichEachMemberReadsAndWritesItsOwn) {
  task(kOk, {out(a, 0, 16)});
  group(kOk, {{in(a, 0, 16), out(b, 0, 8)}, {in(a, 0, 16), out(b, 8, 16)}});
  task(kOk, {in(b, 0, 16), out(a, 0, 4)});
  EXPECT_EQ(judge(), "");
  EXPECT_EQ(content(a) + content(b), "");
  seen[1].parts[1].input_hash ^= 1;
  EXPECT_NE(judge().find("part 1 has read other bytes"), std::string::npos) << judge();
  seen[1].parts[1] = {};
  EXPECT_NE(judge().find("part 1 was never started"), std::string::npos) << judge();
}

TEST_F(OracleTest, AFailedMemberLeavesUnwrittenWhatAllOfThemWrite) {
  group(kFailed, {{out(a, 0, 8)}, {out(a, 8, 16)}}, 0);
  task(kSkipped, {in(a, 8, 9)});
  EXPECT_EQ(judge(), "");
  seen[0].outcome = kSkipped;
  EXPECT_NE(judge().find("its code was started"), std::string::npos) << judge();
  seen[0].outcome = kOk;
  EXPECT_NE(judge().find("the code of part 0 fails"), std::string::npos) << judge();
}

TEST_F(OracleTest, AGroupMaySkipTheMembersThatHaveNotStartedWhenOneFails) {
  group(kFailed, {{out(a, 0, 8)}, {out(a, 8, 16)}}, 1);
  seen[0].parts[0] = {};
  EXPECT_EQ(judge(), "");
  seen[0].parts[0].starts = 1;  // and never came to its end
  EXPECT_NE(judge().find("left behind"), std::string::npos) << judge();
}

TEST_F(OracleTest, ATaskThatWasToldToFailMayNotSucceed) {
  task(kOk, {out(a, 0, 16)}, true);
  EXPECT_NE(judge().find("the code of part 0 fails"), std::string::npos) << judge();
}

TEST(StridedBytes, AreVisitedInTheOrderOfTheElements) {
  const auto bytes = [](std::vector<uint64_t> shape, std::vector<int64_t> stride, uint64_t size) {
    std::vector<int64_t> out;
    for_each_byte(shape, stride, size, [&](int64_t byte) { out.push_back(byte); });
    return out;
  };
  EXPECT_EQ(bytes({}, {}, 2), (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(bytes({2, 2}, {10, 1}, 1), (std::vector<int64_t>{0, 1, 10, 11}));
  EXPECT_EQ(bytes({2, 2}, {1, -3}, 1), (std::vector<int64_t>{0, -3, 1, -2}));
  EXPECT_EQ(bytes({2, 2}, {0, 1}, 1), (std::vector<int64_t>{0, 1, 0, 1}));
  EXPECT_TRUE(bytes({3, 0}, {1, 1}, 1).empty());
}

}  // namespace
}  // namespace strata::sim
