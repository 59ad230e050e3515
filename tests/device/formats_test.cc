#include "strata/formats.h"

#include <gtest/gtest.h>

namespace strata {
namespace {

TEST(Formats, SixteenBitValuesAreThoseOfTheirBits) {
  EXPECT_EQ(BF16{0x3f80}.value(), 1.0f);
  EXPECT_EQ(BF16{0xc049}.value(), -3.140625f);
  EXPECT_EQ(F16{0x3c00}.value(), 1.0f);
  EXPECT_EQ(F16{0xc248}.value(), -3.140625f);
  EXPECT_EQ(F16{0x0001}.value(), std::ldexp(1.0f, -24));
  EXPECT_EQ(F16{0x7bff}.value(), 65504.0f);
  EXPECT_EQ(F16{0xfc00}.value(), -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(F16{0x7e00}.value()));
}

TEST(Formats, E4M3EndsAt448AndHasOneNaN) {
  EXPECT_EQ(F8E4M3{0x38}.value(), 1.0f);
  EXPECT_EQ(F8E4M3{0x7e}.value(), 448.0f);
  EXPECT_EQ(F8E4M3{0xfe}.value(), -448.0f);
  EXPECT_EQ(F8E4M3{0x01}.value(), std::ldexp(1.0f, -9));
  EXPECT_EQ(F8E4M3{0x78}.value(), 256.0f);
  EXPECT_TRUE(std::isnan(F8E4M3{0x7f}.value()));
  EXPECT_TRUE(std::isnan(F8E4M3{0xff}.value()));
}

TEST(Formats, E5M2IsAShortF16) {
  for (uint32_t bits = 0; bits < 256; ++bits) {
    const float got = F8E5M2{static_cast<uint8_t>(bits)}.value();
    const float expect = F16{static_cast<uint16_t>(bits << 8)}.value();
    EXPECT_TRUE(got == expect || (std::isnan(got) && std::isnan(expect))) << bits;
  }
  EXPECT_EQ(F8E5M2{0x7b}.value(), 57344.0f);
}

TEST(Formats, BlocksScaleTheir32Values) {
  MxF8E4M3 e4m3;
  e4m3.scale = 130;
  e4m3.values[31] = F8E4M3{0x38};
  EXPECT_EQ(e4m3.at(31), 8.0f);
  EXPECT_EQ(e4m3.at(0), 0.0f);
  MxF8E5M2 e5m2;
  e5m2.scale = 0;
  e5m2.values[0] = F8E5M2{0x3c};
  EXPECT_EQ(e5m2.at(0), std::ldexp(1.0f, -127));
  e5m2.scale = 255;
  EXPECT_TRUE(std::isnan(e5m2.at(0)));
}

TEST(Formats, E2M1HasTheValuesOfItsSixteenCodesLowHalfFirst) {
  const float magnitudes[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  MxF4E2M1 block;
  for (uint32_t i = 0; i < 16; i += 2) {
    block.pairs[i / 2] = static_cast<uint8_t>(i | (i + 1) << 4);
  }
  for (int i = 0; i < 16; ++i) {
    EXPECT_EQ(block.at(i), i < 8 ? magnitudes[i] : -magnitudes[i - 8]) << i;
  }
  block.scale = 128;
  EXPECT_EQ(block.at(7), 12.0f);
}

TEST(Formats, ElementsAreAsLargeAsTheirDTypes) {
  EXPECT_EQ(size_of(DType::kMxF8E4M3), 33u);
  EXPECT_EQ(size_of(DType::kMxF8E5M2), 33u);
  EXPECT_EQ(size_of(DType::kMxF4E2M1), 17u);
  EXPECT_EQ(name_of(DType::kMxF8E4M3), "mxf8e4m3");
  EXPECT_EQ(name_of(DType::kMxF8E5M2), "mxf8e5m2");
  EXPECT_EQ(name_of(DType::kMxF4E2M1), "mxf4e2m1");
  EXPECT_EQ(name_of(Transfer::kMap), "map");
}

}  // namespace
}  // namespace strata
