#include <gtest/gtest.h>

#include "base/bytes.h"
#include "base/prng.h"
#include "base/result.h"
#include "base/sha256.h"
#include "base/text.h"

namespace strata::base {
namespace {

TEST(Text, IsCutOnACharacterBorder) {
  const std::string text = "ab\xc3\xa4";  // "ab" and a two-byte character
  EXPECT_EQ(cut_text(text, 4), text);
  EXPECT_EQ(cut_text(text, 3), "ab");
  EXPECT_EQ(cut_text(text, 2), "ab");
  EXPECT_EQ(cut_text(text, 0), "");
}

TEST(Error, CutsLongTextAndKeepsTheFirstPlace) {
  const Error error(Code::kTaskFailed, Scope::kTask, std::string(9000, 'x'));
  EXPECT_EQ(error.message().size(), Error::kMessageBytesMax);
  Error placed = Error(Code::kDeadline, Scope::kCall, "late").at("L3/1");
  EXPECT_EQ(placed.to_string(), "DEADLINE [call] at L3/1: late");
  EXPECT_EQ(Error(std::move(placed)).at("L4").where(), "L3/1");
}

Result<int> half(int n) {
  if (n % 2 != 0) return Error(Code::kInvalidArgument, Scope::kCall, "odd");
  return n / 2;
}

Result<int> quarter(int n) {
  STRATA_ASSIGN(const int h, half(n));
  STRATA_TRY(half(h));
  return h / 2;
}

TEST(Result, PassesTheFirstErrorOn) {
  EXPECT_EQ(quarter(8).value(), 2);
  EXPECT_EQ(quarter(6).error().message(), "odd");
  EXPECT_FALSE(quarter(3).ok());
}

TEST(ByteReader, GivesZerosAfterTheEnd) {
  ByteWriter out;
  out.put<uint16_t>(7);
  out.put_string("hi");
  ByteReader in(out.bytes());
  EXPECT_EQ(in.get<uint16_t>(), 7);
  EXPECT_EQ(in.get_string(8), "hi");
  EXPECT_TRUE(in.ok());
  EXPECT_EQ(in.get<uint32_t>(), 0u);
  EXPECT_FALSE(in.ok());
}

TEST(ByteReader, RefusesAStringOverItsLimitOrBeyondTheEnd) {
  ByteWriter out;
  out.put_string("hello");
  EXPECT_FALSE([&] {
    ByteReader in(out.bytes());
    in.get_string(4);
    return in.ok();
  }());
  EXPECT_FALSE([&] {
    ByteReader in(out.bytes().first(6));
    in.get_string(64);
    return in.ok();
  }());
}

TEST(Sha256, MatchesTheStandardsVector) {
  EXPECT_EQ(hex(sha256(std::as_bytes(std::span("abc", 3)))),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Prng, GivesTheSameNumbersForTheSameSeed) {
  Prng a(42), b(42), c(43);
  const uint64_t first = a.next();
  EXPECT_EQ(first, b.next());
  EXPECT_NE(first, c.next());
  for (int i = 0; i < 1000; ++i) EXPECT_LT(a.below(7), 7u);
}

}  // namespace
}  // namespace strata::base
