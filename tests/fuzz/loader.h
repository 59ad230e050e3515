// Loader: the kind of `io` that takes a value out of bytes as far as they go, and never refuses.
// Not wire::Reader, which is what is tested: mutations begin at what a loader could read.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "strata/tensor.h"
#include "wire/codec.h"

namespace strata::fuzz {

class Loader {
 public:
  explicit Loader(std::span<const std::byte> bytes) : rest_(bytes) {}

  template <class T>
  void number(std::string_view, T& value) {
    get(&value, sizeof value);
  }
  void boolean(std::string_view, bool& value) {
    uint8_t byte = value ? 1 : 0;
    get(&byte, 1);
    value = byte != 0;
  }
  template <class E>
  void choice(std::string_view, E& value) {
    auto n = static_cast<uint32_t>(value);
    get(&n, sizeof n);
    value = static_cast<E>(n);
  }
  template <class E>
  void choice8(std::string_view, E& value) {
    auto n = static_cast<uint8_t>(value);
    get(&n, sizeof n);
    value = static_cast<E>(n);
  }
  void text(std::string_view, std::string& value, uint32_t bytes_max) {
    const std::span<const std::byte> bytes = sized(bytes_max);
    value.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  void blob(std::string_view, std::vector<std::byte>& value, uint32_t bytes_max) {
    const std::span<const std::byte> bytes = sized(bytes_max);
    value.assign(bytes.begin(), bytes.end());
  }
  template <size_t kBytes>
  void raw(std::string_view, std::array<std::byte, kBytes>& value) {
    get(value.data(), kBytes);
  }
  void uid(std::string_view, Uid& value) {
    get(&value.high, 8);
    get(&value.low, 8);
  }
  template <class T>
  void zero() {
    T value{};
    get(&value, sizeof value);
  }
  template <class T, size_t kPlaces>
  void places(std::string_view, std::array<T, kPlaces>& values, size_t count) {
    for (size_t i = 0; i < std::min(count, kPlaces); ++i) get(&values[i], sizeof(T));
  }
  template <class T>
  void list(std::string_view name, std::vector<T>& values, uint32_t count_max) {
    uint32_t count = 0;
    get(&count, sizeof count);
    count = std::min(count, count_max);
    values.clear();
    while (values.size() < count && !rest_.empty()) {
      T& value = values.emplace_back();
      if constexpr (wire::Message<T>) {
        T::fields(*this, value);
      } else if constexpr (std::integral<T>) {
        number(name, value);
      } else {
        text(name, value, wire::Writer::kItemBytesMax);
      }
    }
  }
  template <class T>
  void nested(std::string_view, T& value) {
    T::fields(*this, value);
  }
  void rest(std::string_view, std::span<const std::byte>& value) { value = rest_; }

 private:
  void get(void* to, size_t n) {
    if (n > rest_.size()) {
      rest_ = {};
      return;
    }
    std::memcpy(to, rest_.data(), n);
    rest_ = rest_.subspan(n);
  }
  std::span<const std::byte> sized(uint32_t bytes_max) {
    uint32_t n = 0;
    get(&n, sizeof n);
    const size_t take = std::min({size_t{n}, rest_.size(), size_t{bytes_max}});
    const std::span<const std::byte> out = rest_.first(take);
    rest_ = rest_.subspan(take);
    return out;
  }

  std::span<const std::byte> rest_;
};

}  // namespace strata::fuzz
