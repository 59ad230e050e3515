#include "base/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace strata::base {
namespace {

constexpr uint32_t kReversed = 0x82f63b78;
constexpr int kSlices = 8;

// Slicing by 8: table[k][b] is the CRC of byte b followed by k zero bytes.
constexpr std::array<std::array<uint32_t, 256>, kSlices> make_tables() {
  std::array<std::array<uint32_t, 256>, kSlices> tables{};
  for (uint32_t b = 0; b < 256; ++b) {
    uint32_t crc = b;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? kReversed : 0);
    tables[0][b] = crc;
  }
  for (int k = 1; k < kSlices; ++k) {
    for (uint32_t b = 0; b < 256; ++b) {
      tables[k][b] = tables[k - 1][b] >> 8 ^ tables[0][tables[k - 1][b] & 0xff];
    }
  }
  return tables;
}

constexpr auto kTables = make_tables();

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t with_instruction(std::span<const std::byte> bytes,
                                                            uint32_t crc) {
  uint64_t wide = crc;
  while (bytes.size() >= 8) {
    uint64_t word;
    std::memcpy(&word, bytes.data(), 8);
    wide = _mm_crc32_u64(wide, word);
    bytes = bytes.subspan(8);
  }
  crc = static_cast<uint32_t>(wide);
  for (const std::byte b : bytes) crc = _mm_crc32_u8(crc, static_cast<uint8_t>(b));
  return crc;
}
#endif

}  // namespace

uint32_t crc32c_portable(std::span<const std::byte> bytes, uint32_t before) {
  uint32_t crc = ~before;
  while (bytes.size() >= 8) {
    uint64_t word;
    std::memcpy(&word, bytes.data(), 8);
    word ^= crc;
    crc = 0;
    for (int k = 0; k < 8; ++k) crc ^= kTables[7 - k][word >> 8 * k & 0xff];
    bytes = bytes.subspan(8);
  }
  for (const std::byte b : bytes) {
    crc = crc >> 8 ^ kTables[0][(crc ^ static_cast<uint32_t>(b)) & 0xff];
  }
  return ~crc;
}

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before) {
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2") != 0;
  if (has_instruction) return ~with_instruction(bytes, ~before);
#endif
  return crc32c_portable(bytes, before);
}

}  // namespace strata::base
