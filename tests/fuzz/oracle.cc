#include "tests/fuzz/oracle.h"

#include <algorithm>

namespace strata::fuzz {

namespace {

// Not base/utf8.h, which is part of what is tested.
bool is_text(std::string_view text) {
  size_t following = 0;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte & 0xc0) == 0x80) {
      if (following-- == 0) return false;
    } else if (following != 0 || byte >= 0xf8) {
      return false;
    } else {
      following = byte >= 0xf0 ? 3 : byte >= 0xe0 ? 2 : byte >= 0xc0 ? 1 : 0;
    }
  }
  return following == 0;
}

}  // namespace

void check_allocations(size_t input_bytes) {
  const size_t bytes = allocated();
  if (bytes <= kAllocationsAlways + kAllocationsAByte * input_bytes) return;
  found("more memory than the bytes can fill:", std::to_string(bytes).c_str());
}

void check_error(const Error& error) {
  if (error.message().empty()) found("an error without words");
  if (!is_text(error.message())) found("an error that is no text");
}

void check_same(std::span<const std::byte> input, std::span<const std::byte> again) {
  if (!std::equal(input.begin(), input.end(), again.begin(), again.end())) {
    found("what was decoded encodes to other bytes");
  }
}

size_t put_over(uint8_t* input, size_t size_max, const Bytes& bytes) {
  const size_t n = std::min(bytes.size(), size_max);
  if (n > 0) std::memcpy(input, bytes.data(), n);
  return n;
}

}  // namespace strata::fuzz
