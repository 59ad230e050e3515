// Bytes that follow from a task's number: who receives them can tell that they are whole.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/prng.h"

namespace strata::mailbox {

enum class Part : uint64_t { kArgs = 1, kResult = 2, kText = 3, kRequest = 4, kReply = 5 };

// Mostly small, sometimes up to the limit; with a large limit mostly large.
inline size_t content_bytes(uint64_t task, Part part, size_t bytes_max) {
  base::Prng prng(task * 8 + static_cast<uint64_t>(part));
  if (bytes_max >= 40'000 && prng.chance(3, 4)) return prng.between(0, bytes_max);
  switch (prng.below(8)) {
    case 0:
      return 0;
    case 1:
      return prng.between(0, bytes_max);
    default:
      return prng.between(1, 200 < bytes_max ? 200 : bytes_max);
  }
}

inline std::vector<std::byte> content(uint64_t task, Part part, size_t bytes_max) {
  std::vector<std::byte> out(content_bytes(task, part, bytes_max));
  base::Prng prng(~task * 8 + static_cast<uint64_t>(part));
  for (size_t i = 0; i < out.size();) {
    const uint64_t word = prng.next();
    for (int b = 0; b < 8 && i < out.size(); ++b, ++i) out[i] = std::byte(word >> (8 * b));
  }
  return out;
}

inline bool is_content(std::span<const std::byte> found, uint64_t task, Part part,
                       size_t bytes_max) {
  const std::vector<std::byte> expected = content(task, part, bytes_max);
  return std::equal(found.begin(), found.end(), expected.begin(), expected.end());
}

}  // namespace strata::mailbox
