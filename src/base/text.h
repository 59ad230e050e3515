// Small helpers on text that comes from users or peers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace strata::base {

// The longest prefix of at most `bytes_max` bytes that does not cut a UTF-8 character.
std::string_view cut_text(std::string_view text, size_t bytes_max);

// Lower-case hex, two digits a byte.
std::string hex(std::span<const std::byte> bytes);

}  // namespace strata::base
