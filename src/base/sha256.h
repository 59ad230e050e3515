// SHA-256 (FIPS 180-4) by OpenSSL.
#pragma once

#include <array>
#include <cstddef>
#include <span>

namespace strata::base {

using Sha256 = std::array<std::byte, 32>;

Sha256 sha256(std::span<const std::byte> bytes);

}  // namespace strata::base
