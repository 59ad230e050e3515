// What a mutation makes of a number, a text or a list. One thread; the same for the same seed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/prng.h"
#include "tests/fuzz/target.h"

namespace strata::fuzz {

class Changes {
 public:
  explicit Changes(uint64_t seed) : prng_(seed) {}

  base::Prng& prng() { return prng_; }
  // Numbers of the same input are tried for one another.
  void remember(uint64_t n) { numbers_.push_back(n); }
  uint64_t number(uint64_t was, unsigned bits);
  std::string text(std::string_view was, size_t bytes_max);
  Bytes bytes(std::span<const std::byte> was, size_t bytes_max);
  // A wrong length or count.
  uint32_t length(uint32_t was, uint32_t most);
  // Which items of a list of `count` are written, in which order; also more than it has.
  std::vector<size_t> items(size_t count, size_t count_max);

 private:
  base::Prng prng_;
  std::vector<uint64_t> numbers_;
};

}  // namespace strata::fuzz
