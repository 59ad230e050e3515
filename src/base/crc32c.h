// CRC-32C (Castagnoli, reflected 0x1edc6f41), as iSCSI and many storage formats have it: RFC 3720,
// appendix B.4. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace strata::base {

// Of `bytes`, or of what `before` is the CRC of followed by `bytes`.
uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before = 0);

// The way without the processor's instruction; the other one is compared with it.
uint32_t crc32c_portable(std::span<const std::byte> bytes, uint32_t before = 0);

}  // namespace strata::base
