#include <openssl/sha.h>

#include <cstdio>
#include <cstdlib>

#include "base/check.h"
#include "base/sha256.h"
#include "base/text.h"

namespace strata::base {

void check_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "strata: broken invariant: %s (%s:%d)\n", condition, file, line);
  std::abort();
}

std::string_view cut_text(std::string_view text, size_t bytes_max) {
  if (text.size() <= bytes_max) return text;
  size_t n = bytes_max;
  while (n > 0 && (static_cast<unsigned char>(text[n]) & 0xc0) == 0x80) --n;
  return text.substr(0, n);
}

std::string hex(std::span<const std::byte> bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  out.reserve(2 * bytes.size());
  for (const std::byte b : bytes) {
    out += kDigits[std::to_integer<unsigned>(b) >> 4];
    out += kDigits[std::to_integer<unsigned>(b) & 15];
  }
  return out;
}

Sha256 sha256(std::span<const std::byte> bytes) {
  Sha256 out;
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
         reinterpret_cast<unsigned char*>(out.data()));
  return out;
}

}  // namespace strata::base
