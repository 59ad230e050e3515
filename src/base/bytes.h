// ByteWriter and ByteReader: little-endian integers and length-prefixed bytes, bounds checked.
// Formats are built on them; they know none.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

namespace strata::base {

static_assert(std::endian::native == std::endian::little, "Strata runs on little-endian machines");

class ByteWriter {
 public:
  template <class T>
  requires std::is_integral_v<T>
  void put(T value) {
    const size_t at = bytes_.size();
    bytes_.resize(at + sizeof value);
    std::memcpy(bytes_.data() + at, &value, sizeof value);
  }
  void put_bytes(std::span<const std::byte> bytes) {
    if (bytes.empty()) return;
    const size_t at = bytes_.size();
    bytes_.resize(at + bytes.size());
    std::memcpy(bytes_.data() + at, bytes.data(), bytes.size());
  }
  // u32 length, then the bytes.
  void put_string(std::string_view text) {
    put(static_cast<uint32_t>(text.size()));
    put_bytes(std::as_bytes(std::span(text)));
  }
  std::span<const std::byte> bytes() const { return bytes_; }
  std::vector<std::byte> take() && { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

// After the first read beyond the end, `ok` is false and all reads give zeros.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : rest_(bytes) {}

  template <class T>
  requires std::is_integral_v<T> T get() {
    T value{};
    const std::span<const std::byte> raw = get_bytes(sizeof value);
    if (raw.size() == sizeof value) std::memcpy(&value, raw.data(), sizeof value);
    return value;
  }
  // n bytes in place, or none where fewer are left.
  std::span<const std::byte> get_bytes(size_t n) {
    if (n > rest_.size()) {
      ok_ = false;
      rest_ = {};
      return {};
    }
    const std::span<const std::byte> out = rest_.first(n);
    rest_ = rest_.subspan(n);
    return out;
  }
  std::string_view get_string(uint32_t bytes_max) {
    const uint32_t n = get<uint32_t>();
    if (n > bytes_max) ok_ = false;
    if (!ok_) return {};
    const std::span<const std::byte> raw = get_bytes(n);
    return {reinterpret_cast<const char*>(raw.data()), raw.size()};
  }
  bool ok() const { return ok_; }
  size_t left() const { return rest_.size(); }

 private:
  std::span<const std::byte> rest_;
  bool ok_ = true;
};

}  // namespace strata::base
