// Instant and Duration: signed nanoseconds. Who hands an Instant in says by which clock.
#pragma once

#include <compare>
#include <cstdint>
#include <limits>

namespace strata::base {

struct Duration {
  int64_t ns = 0;
  static constexpr Duration from_us(int64_t us) { return {us * 1000}; }
  static constexpr Duration from_ms(int64_t ms) { return {ms * 1'000'000}; }
  static constexpr Duration from_s(int64_t s) { return {s * 1'000'000'000}; }
  constexpr double seconds() const { return static_cast<double>(ns) * 1e-9; }
  friend constexpr auto operator<=>(Duration, Duration) = default;
  friend constexpr Duration operator+(Duration a, Duration b) { return {a.ns + b.ns}; }
  friend constexpr Duration operator-(Duration a, Duration b) { return {a.ns - b.ns}; }
};

struct Instant {
  int64_t ns = 0;
  static constexpr Instant never() { return {std::numeric_limits<int64_t>::max()}; }
  friend constexpr auto operator<=>(Instant, Instant) = default;
  friend constexpr Instant operator+(Instant a, Duration d) { return {a.ns + d.ns}; }
  friend constexpr Duration operator-(Instant a, Instant b) { return {a.ns - b.ns}; }
};

}  // namespace strata::base
