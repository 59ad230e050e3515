// Distinct integer types, so that a worker's id is never taken for a buffer's.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>

namespace strata::base {

template <class Tag, class Int>
class StrongId {
 public:
  using value_type = Int;
  constexpr StrongId() = default;
  constexpr explicit StrongId(Int value) : value_(value) {}
  constexpr Int value() const { return value_; }
  friend constexpr auto operator<=>(StrongId, StrongId) = default;

 private:
  Int value_{};
};

}  // namespace strata::base
