// How much of a text is valid UTF-8 (RFC 3629: no overlong forms, no surrogates, at most U+10FFFF).
// Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace strata::base {

// Bytes of the valid character that begins at text[0]; 0 where none does.
inline size_t utf8_character(std::string_view text) {
  const auto at = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  if (text.empty()) return 0;
  const uint8_t lead = at(0);
  if (lead < 0x80) return 1;
  const size_t n = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < n) return 0;
  for (size_t i = 1; i < n; ++i) {
    if ((at(i) & 0xc0) != 0x80) return 0;
  }
  if (lead == 0xe0 && at(1) < 0xa0) return 0;  // overlong
  if (lead == 0xed && at(1) > 0x9f) return 0;  // surrogate
  if (lead == 0xf0 && at(1) < 0x90) return 0;  // overlong
  if (lead == 0xf4 && at(1) > 0x8f) return 0;  // beyond U+10FFFF
  return n;
}

inline bool utf8_valid(std::string_view text) {
  while (!text.empty()) {
    const size_t n = utf8_character(text);
    if (n == 0) return false;
    text.remove_prefix(n);
  }
  return true;
}

}  // namespace strata::base
