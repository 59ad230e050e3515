// Lines out of bytes, their budget, and the last lines of a task: what is pure about output.
#include "runtime/output_lines.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "runtime/last_lines.h"

namespace strata::runtime {
namespace {

struct Got {
  bool relayed;
  std::string path;
  int pid;
  std::string text;
  bool operator==(const Got&) const = default;
};

class Lines : public ::testing::Test {
 private:
  auto emit() {
    return [this](const ReadLine& line) {
      got_.push_back({line.relayed, std::string(line.path), line.pid, std::string(line.text)});
    };
  }

 protected:
  void feed(std::string_view bytes) { lines_.feed(bytes, emit()); }
  void end() { lines_.end(emit()); }
  std::vector<std::string> texts() const {
    std::vector<std::string> out;
    for (const Got& got : got_) out.push_back(got.text);
    return out;
  }
  std::vector<Got> got_;

 private:
  OutputLines lines_;
};

using Texts = std::vector<std::string>;

TEST_F(Lines, ComeWholeHoweverTheBytesAreCut) {
  const std::string all = "first\n\nthird is longer\n" + relayed_line("L4/1/0", 42, "of a child") +
                          "own again\nlast without an end";
  for (size_t step = 1; step <= all.size(); ++step) {
    OutputLines lines;
    std::vector<Got> got;
    const auto emit = [&](const ReadLine& line) {
      got.push_back({line.relayed, std::string(line.path), line.pid, std::string(line.text)});
    };
    for (size_t at = 0; at < all.size(); at += step) {
      lines.feed(std::string_view(all).substr(at, step), emit);
    }
    EXPECT_EQ(got.size(), 5u);
    lines.end(emit);
    const std::vector<Got> expected = {
        {false, "", 0, "first"},           {false, "", 0, ""},
        {false, "", 0, "third is longer"}, {true, "L4/1/0", 42, "of a child"},
        {false, "", 0, "own again"},       {false, "", 0, "last without an end"}};
    EXPECT_EQ(got, expected) << "in pieces of " << step;
  }
}

TEST_F(Lines, ARelayedLineBehindAPartOfAnotherBeginsAnew) {
  feed("half" + relayed_line("L3/0", 7, "whole") + "other half\n");
  EXPECT_EQ(got_,
            (std::vector<Got>{
                {false, "", 0, "half"}, {true, "L3/0", 7, "whole"}, {false, "", 0, "other half"}}));
}

TEST_F(Lines, ThatOnlyLookRelayedAreShownAsTheyAre) {
  feed("\x1eno second mark\n\x1eL3 x\x1ewithout a pid\n\x1eL3\x1ewithout a space\n");
  EXPECT_EQ(texts(), (Texts{"no second mark", "without a pid", "without a space"}));
  for (const Got& got : got_) EXPECT_FALSE(got.relayed);
}

TEST_F(Lines, NulsAreLeftOutAndLongLinesComeInPieces) {
  feed(std::string("a\0b\0\n", 5));
  EXPECT_EQ(texts(), Texts{"ab"});
  got_.clear();
  feed(std::string(50'000, 'x') + "\n");
  size_t bytes = 0;
  EXPECT_GT(got_.size(), 4u);
  for (const Got& got : got_) {
    EXPECT_LE(got.text.size(), OutputLines::kLineBytesMax + 512);
    bytes += got.text.size();
  }
  EXPECT_EQ(bytes, 50'000u);
  end();
}

TEST(LineBudget, GivesSoManyASecondAndCountsTheRest) {
  constexpr auto at = [](int64_t ms) {
    return base::Instant{} + base::Duration::from_ms(5000 + ms);
  };
  LineBudget budget(10);
  int passed = 0;
  for (int i = 0; i < 25; ++i) passed += budget.take(at(0)) ? 1 : 0;
  EXPECT_EQ(passed, 10);
  EXPECT_EQ(budget.take_dropped(at(50), false), 0u) << "told while none passes";
  EXPECT_EQ(budget.take_dropped(at(100), false), 15u);
  EXPECT_EQ(budget.take_dropped(at(100), false), 0u);
  passed = 0;
  for (int i = 0; i < 25; ++i) passed += budget.take(at(400)) ? 1 : 0;
  EXPECT_EQ(passed, 4) << "one for each tenth of a second";
  passed = 0;
  for (int i = 0; i < 25; ++i) passed += budget.take(at(60'000)) ? 1 : 0;
  EXPECT_EQ(passed, 10) << "a long pause gives no more than a second's";
  EXPECT_EQ(budget.take_dropped(at(60'000), true), 21u + 15u);
}

TEST(LineBudget, OfZeroIsNone) {
  LineBudget budget(0);
  for (int i = 0; i < 100'000; ++i) ASSERT_TRUE(budget.take({}));
  EXPECT_EQ(budget.take_dropped({}, true), 0u);
}

// ---------------------------------------------------------------- last lines

TEST(LastLines, OfNothingAreNothing) {
  EXPECT_EQ(last_lines("", ""), "");
  EXPECT_EQ(last_lines("\n\n", "\n"), "");
}

TEST(LastLines, AreTheLastTenOfBothStreams) {
  std::string many;
  for (int i = 0; i < 30; ++i) many += "line " + std::to_string(i) + "\n";
  const std::string of_one = last_lines(many, "");
  EXPECT_TRUE(of_one.starts_with("\nlast lines of its stdout:\n  line 20\n")) << of_one;
  EXPECT_TRUE(of_one.ends_with("\n  line 29")) << of_one;
  const std::string of_both = last_lines(many, many);
  EXPECT_EQ(of_both.find("line 24"), std::string::npos) << of_both;
  EXPECT_NE(of_both.find("stdout:\n  line 25"), std::string::npos) << of_both;
  EXPECT_NE(of_both.find("stderr:\n  line 25"), std::string::npos) << of_both;
  const std::string few_in_out = last_lines("one\n", many);
  EXPECT_NE(few_in_out.find("stderr:\n  line 21"), std::string::npos) << few_in_out;
}

TEST(LastLines, OfChildrenAreNotTheTasks) {
  const std::string text = "own\n" + relayed_line("L4/0/1", 9, "of another") + "own too";
  EXPECT_EQ(last_lines("", text), "\nlast lines of its stderr:\n  own\n  own too");
}

TEST(LastLines, AreBoundedAndValidText) {
  const std::string wide = [] {
    std::string out;
    for (int i = 0; i < 4000; ++i) out += "\xc3\xa9";
    return out;
  }();
  const std::string cut = last_lines(wide, wide);
  EXPECT_LE(cut.size(), kLastLinesBytesMax + 256);
  EXPECT_NE(cut.find("...\xc3\xa9"), std::string::npos);
  EXPECT_EQ(cut.find('?'), std::string::npos);
  EXPECT_EQ(last_lines("a\xff\xc3(\n", ""),
            "\nlast lines of its stdout:\n  a?"
            "?(");
}

}  // namespace
}  // namespace strata::runtime
