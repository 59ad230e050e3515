// The one description of each payload: a struct has `fields(io, self)`, which names its fields in
// their order, and Writer, Reader and the tables of docs/protocol.md are three kinds of `io`.
//
//   struct Ack {
//     static constexpr std::string_view kName = "ACK";
//     uint32_t code = 0;
//     std::string text;
//     template <class Io, class Self>
//     static void fields(Io& io, Self& self) {
//       io.number("code", self.code);
//       io.text("text", self.text, kAckTextMax);
//     }
//     Result<void> check() const;   // only where a rule goes beyond one field
//   };
//
// All integers are little-endian; nothing is aligned. Pure; each object is one thread's.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/utf8.h"
#include "strata/result.h"
#include "strata/tensor.h"
#include "wire/names.h"

namespace strata::wire {

template <class T>
concept Message = requires {
  std::string_view(T::kName);
};

// Appends to a vector. After the first value over its limit nothing counts and error() says why.
class Writer {
 public:
  static constexpr uint32_t kItemBytesMax = 255;  // of a text in a list

  explicit Writer(std::vector<std::byte>* out) : out_(out) {}

  template <class T>
  void number(std::string_view, const T& value) {
    put(&value, sizeof value);
  }
  void boolean(std::string_view, bool value) { number("", static_cast<uint8_t>(value)); }
  template <class E>
  void choice(std::string_view name, E value) {
    if (!is_known(value)) return unknown(name, static_cast<uint64_t>(value));
    number("", static_cast<uint32_t>(value));
  }
  template <class E>
  void choice8(std::string_view name, E value) {
    if (!is_known(value)) return unknown(name, static_cast<uint64_t>(value));
    number("", static_cast<uint8_t>(value));
  }
  void text(std::string_view name, std::string_view value, uint32_t bytes_max) {
    sized(name, value.data(), value.size(), bytes_max);
  }
  void blob(std::string_view name, std::span<const std::byte> value, uint32_t bytes_max) {
    sized(name, value.data(), value.size(), bytes_max);
  }
  template <size_t kBytes>
  void raw(std::string_view, const std::array<std::byte, kBytes>& value) {
    put(value.data(), kBytes);
  }
  void uid(std::string_view, const Uid& value) {
    number("", value.high);
    number("", value.low);
  }
  template <class T>
  void zero() {
    number("", T{});
  }
  // The first `count` of fixed places.
  template <class T, size_t kPlaces>
  void places(std::string_view, const std::array<T, kPlaces>& values, size_t count) {
    put(values.data(), count * sizeof(T));
  }
  template <class T>
  void list(std::string_view name, const std::vector<T>& values, uint32_t count_max) {
    if (values.size() > count_max) return over(name, values.size(), count_max);
    number("", static_cast<uint32_t>(values.size()));
    for (const T& value : values) {
      if constexpr (Message<T>) {
        T::fields(*this, value);
      } else {
        item(name, value);
      }
    }
  }
  template <class T>
  void nested(std::string_view, const T& value) {
    T::fields(*this, value);
  }
  // Whatever is left of the payload.
  void rest(std::string_view, std::span<const std::byte> value) { put(value.data(), value.size()); }

  const std::string& error() const { return error_; }

 private:
  template <class T>
  requires std::integral<T>
  void item(std::string_view name, T value) { number(name, value); }
  void item(std::string_view name, const std::string& value) { text(name, value, kItemBytesMax); }

  void sized(std::string_view name, const void* from, size_t n, uint32_t bytes_max) {
    if (n > bytes_max) return over(name, n, bytes_max);
    number("", static_cast<uint32_t>(n));
    put(from, n);
  }
  void over(std::string_view name, size_t n, size_t most);
  void unknown(std::string_view name, uint64_t n);
  void put(const void* from, size_t n) {
    if (n == 0) return;
    const auto* const begin = static_cast<const std::byte*>(from);
    out_->insert(out_->end(), begin, begin + n);
  }

  std::vector<std::byte>* out_;
  std::string error_;
};

// Takes values out of bytes that it does not trust. After the first that does not hold all reads
// give zeros and error() says which field, and why. Allocates only what the bytes left can fill.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : in_(bytes) {}

  template <class T>
  void number(std::string_view name, T& value) {
    value = in_.get<T>();
    if (!in_.ok()) ends_early(name);
  }
  void boolean(std::string_view name, bool& value) {
    uint8_t byte = 0;
    number(name, byte);
    if (byte > 1) fail(name, "is neither 0 nor 1");
    value = byte == 1;
  }
  template <class E>
  void choice(std::string_view name, E& value) {
    uint32_t n = 0;
    number(name, n);
    choose(name, n, value);
  }
  template <class E>
  void choice8(std::string_view name, E& value) {
    uint8_t n = 0;
    number(name, n);
    choose(name, n, value);
  }
  void text(std::string_view name, std::string& value, uint32_t bytes_max) {
    const std::span<const std::byte> bytes = sized(name, bytes_max);
    value.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (!base::utf8_valid(value)) {
      value.clear();
      fail(name, "is not UTF-8");
    }
  }
  void blob(std::string_view name, std::vector<std::byte>& value, uint32_t bytes_max) {
    const std::span<const std::byte> bytes = sized(name, bytes_max);
    value.assign(bytes.begin(), bytes.end());
  }
  template <size_t kBytes>
  void raw(std::string_view name, std::array<std::byte, kBytes>& value) {
    const std::span<const std::byte> bytes = in_.get_bytes(kBytes);
    if (bytes.size() != kBytes) return ends_early(name);
    std::copy(bytes.begin(), bytes.end(), value.begin());
  }
  void uid(std::string_view name, Uid& value) {
    number(name, value.high);
    number(name, value.low);
  }
  template <class T>
  void zero() {
    T value{};
    number("a reserved field", value);
    if (value != 0) fail("a reserved field", "is not zero");
  }
  template <class T, size_t kPlaces>
  void places(std::string_view name, std::array<T, kPlaces>& values, size_t count) {
    if (count > kPlaces) return fail(name, "has more places than there are");
    for (size_t i = 0; i < count; ++i) number(name, values[i]);
  }
  template <class T>
  void list(std::string_view name, std::vector<T>& values, uint32_t count_max) {
    uint32_t count = 0;
    number(name, count);
    if (count > count_max) return over(name, count, count_max);
    // Each item takes a byte at least: more than are left cannot come.
    if (count > in_.left()) return ends_early(name);
    values.clear();
    for (uint32_t i = 0; i < count && ok(); ++i) {
      T& value = values.emplace_back();
      if constexpr (Message<T>) {
        T::fields(*this, value);
      } else if constexpr (std::integral<T>) {
        number(name, value);
      } else {
        text(name, value, Writer::kItemBytesMax);
      }
    }
  }
  template <class T>
  void nested(std::string_view, T& value) {
    T::fields(*this, value);
  }
  void rest(std::string_view, std::span<const std::byte>& value) {
    value = in_.get_bytes(in_.left());
  }

  bool ok() const { return error_.empty(); }
  const std::string& error() const { return error_; }
  // Consumed exactly; else an error.
  void finish();

 private:
  template <class N, class E>
  void choose(std::string_view name, N n, E& value) {
    value = static_cast<E>(n);
    if (is_known(value)) return;
    unknown(name, n);
    value = E{};
  }
  std::span<const std::byte> sized(std::string_view name, uint32_t bytes_max);
  void ends_early(std::string_view name);
  void over(std::string_view name, size_t n, size_t most);
  void unknown(std::string_view name, uint64_t n);
  void fail(std::string_view name, std::string_view why);

  base::ByteReader in_;
  std::string error_;
};

// kInvalidArgument where a value is over its limit or check() refuses; `out` is as it was then.
template <class T>
Result<void> encode(const T& message, std::vector<std::byte>* out);
// kCorrupt with message, field and reason for anything that encode does not give.
template <class T>
Result<T> decode(std::span<const std::byte> bytes);

}  // namespace strata::wire
