// Small floating-point formats: the bits that tensors of bf16, f16, f8 and MX block types hold, as
// values that kernels can read. Header only; no arithmetic and no conversion towards them.
//
//   auto table = call.tensor<strata::MxF4E2M1>(0);     one element is a block of 32 values
//   float v = table(row, column / 32).at(column % 32);
//
// The formats are those of the OCP specifications "8-bit Floating Point" and "Microscaling Formats
// (MX)": E4M3 has no infinity and one NaN, E5M2 is a short f16, E2M1 has neither, and the scale of
// a block is E8M0, a power of two from 2^-127 to 2^127 or NaN. Plain values; any thread.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "strata/types.h"

namespace strata {

namespace detail {

// Sign, `exponent_bits`, `mantissa_bits`, as an IEEE number without special values.
inline float small_float(uint32_t bits, int exponent_bits, int mantissa_bits) {
  const uint32_t mantissa = bits & ((1u << mantissa_bits) - 1);
  const auto exponent = static_cast<int>(bits >> mantissa_bits & ((1u << exponent_bits) - 1));
  const bool negative = (bits >> (exponent_bits + mantissa_bits) & 1) != 0;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const float magnitude = exponent == 0
                              ? std::ldexp(static_cast<float>(mantissa), 1 - bias - mantissa_bits)
                              : std::ldexp(static_cast<float>(mantissa | 1u << mantissa_bits),
                                           exponent - bias - mantissa_bits);
  return negative ? -magnitude : magnitude;
}

// An all-ones exponent: infinity or NaN.
inline float small_special(uint32_t mantissa, bool negative) {
  if (mantissa != 0) return std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  return negative ? -infinity : infinity;
}

}  // namespace detail

struct BF16 {
  uint16_t bits = 0;
  float value() const { return std::bit_cast<float>(uint32_t{bits} << 16); }
};

struct F16 {
  uint16_t bits = 0;
  float value() const {
    if ((bits & 0x7c00) == 0x7c00) return detail::small_special(bits & 0x3ff, bits >> 15 != 0);
    return detail::small_float(bits, 5, 10);
  }
};

struct F8E4M3 {
  uint8_t bits = 0;
  float value() const {
    if ((bits & 0x7f) == 0x7f) return std::numeric_limits<float>::quiet_NaN();
    return detail::small_float(bits, 4, 3);
  }
};

struct F8E5M2 {
  uint8_t bits = 0;
  float value() const {
    if ((bits & 0x7c) == 0x7c) return detail::small_special(bits & 3, bits >> 7 != 0);
    return detail::small_float(bits, 5, 2);
  }
};

// The scale of an MX block, E8M0.
inline float mx_scale(uint8_t scale) {
  if (scale == 0xff) return std::numeric_limits<float>::quiet_NaN();
  return std::ldexp(1.0f, int{scale} - 127);
}

// 32 values of 8 bits behind the scale that they share: 33 bytes, aligned to 1.
template <class Element>
struct MxBlock8 {
  static constexpr int kValues = 32;
  uint8_t scale = 127;  // 1
  Element values[kValues] = {};
  float at(int i) const { return mx_scale(scale) * values[i].value(); }
};
using MxF8E4M3 = MxBlock8<F8E4M3>;
using MxF8E5M2 = MxBlock8<F8E5M2>;
static_assert(sizeof(MxF8E4M3) == size_of(DType::kMxF8E4M3));
static_assert(sizeof(MxF8E5M2) == size_of(DType::kMxF8E5M2));

// 32 values of 4 bits behind their scale: 17 bytes, aligned to 1. Value i is in byte i / 2, the
// even ones in its low half.
struct MxF4E2M1 {
  static constexpr int kValues = 32;
  uint8_t scale = 127;
  uint8_t pairs[kValues / 2] = {};
  float at(int i) const {
    const uint32_t bits = i % 2 == 0 ? pairs[i / 2] & 15u : pairs[i / 2] >> 4;
    return mx_scale(scale) * detail::small_float(bits, 2, 1);
  }
};
static_assert(sizeof(MxF4E2M1) == size_of(DType::kMxF4E2M1));

template <>
struct DTypeOf<BF16> {
  static constexpr DType value = DType::kBF16;
};
template <>
struct DTypeOf<F16> {
  static constexpr DType value = DType::kF16;
};
template <>
struct DTypeOf<F8E4M3> {
  static constexpr DType value = DType::kF8E4M3;
};
template <>
struct DTypeOf<F8E5M2> {
  static constexpr DType value = DType::kF8E5M2;
};
template <>
struct DTypeOf<MxF8E4M3> {
  static constexpr DType value = DType::kMxF8E4M3;
};
template <>
struct DTypeOf<MxF8E5M2> {
  static constexpr DType value = DType::kMxF8E5M2;
};
template <>
struct DTypeOf<MxF4E2M1> {
  static constexpr DType value = DType::kMxF4E2M1;
};

}  // namespace strata
