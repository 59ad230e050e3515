// JsonWriter: the kind of `io` that appends a manifest as JSON; and what the texts of a manifest
// must be, which writer and reader share. Not for other JSON: it knows the kinds of fields that a
// manifest has.
//
// Inner part of wire/manifest.h. Pure; each object is one thread's.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "wire/names.h"

namespace strata::wire::json {

inline constexpr size_t kShownBytesMax = 64;  // of a peer's text in an Error

// A peer's text as an Error may show it: one line, and short.
std::string shown(std::string_view text);
// Each says why it is refused, or nothing.
std::string text_refusal(std::string_view text, uint32_t bytes_max);
std::string variable_refusal(std::string_view name, uint32_t bytes_max);  // of the environment
std::string count_refusal(size_t count, size_t count_max);
std::string range_text(uint64_t min, uint64_t max);

// Appends JSON without blanks. After the first value that is refused error() says where and why.
class JsonWriter {
 public:
  explicit JsonWriter(std::string* out) : out_(out) {}

  template <class T>
  void value(const T& of) {
    *out_ += '{';
    first_ = true;
    T::fields(*this, of);
    *out_ += '}';
    first_ = false;
  }
  template <class N>
  void number(std::string_view key, N value, uint64_t min, uint64_t max) {
    begin(key);
    integer(key, value, min, max);
  }
  void boolean(std::string_view key, bool value);
  template <class E>
  void choice(std::string_view key, E value) {
    begin(key);
    name(key, value);
  }
  void text(std::string_view key, const std::string& value, uint32_t bytes_max);
  template <class N>
  void numbers(std::string_view key, const std::vector<N>& values, size_t count_max, uint64_t min,
               uint64_t max) {
    list(key, values, count_max, [&](std::string_view at, N n) { integer(at, n, min, max); });
  }
  template <class E>
  void choices(std::string_view key, const std::vector<E>& values, size_t count_max) {
    list(key, values, count_max, [&](std::string_view at, E e) { name(at, e); });
  }
  void names(std::string_view key, const std::vector<std::pair<std::string, std::string>>& values,
             size_t count_max, uint32_t name_bytes_max, uint32_t value_bytes_max);
  template <class T>
  void object(std::string_view key, const T& of) {
    begin(key);
    inside(key, of);
  }
  template <class T>
  void objects(std::string_view key, const std::vector<T>& values, size_t count_max) {
    list(key, values, count_max, [&](std::string_view at, const T& of) { inside(at, of); });
  }

  // "path of the key: why".
  const std::string& error() const { return error_; }

 private:
  void begin(std::string_view key);
  void quoted(std::string_view text);
  void refuse(std::string_view key, std::string_view why);
  template <class N>
  void integer(std::string_view key, N value, uint64_t min, uint64_t max) {
    if (std::cmp_less(value, min) || std::cmp_greater(value, max)) {
      refuse(key, fmt::format("is {}, {}", value, range_text(min, max)));
    }
    *out_ += fmt::format("{}", value);
  }
  template <class E>
  void name(std::string_view key, E value) {
    if (!is_known(value)) refuse(key, "is none of its names");
    quoted(wire_name(value));
  }
  template <class T, class Fn>
  void list(std::string_view key, const std::vector<T>& values, size_t count_max, Fn&& item) {
    begin(key);
    if (const std::string why = count_refusal(values.size(), count_max); !why.empty()) {
      return refuse(key, why);
    }
    *out_ += '[';
    for (size_t i = 0; i < values.size(); ++i) {
      if (i > 0) *out_ += ',';
      item(fmt::format("{}[{}]", key, i), values[i]);
    }
    *out_ += ']';
  }
  template <class T>
  void inside(std::string_view key, const T& of) {
    const std::string outer = std::exchange(path_, fmt::format("{}{}.", path_, key));
    value(of);
    path_ = outer;
  }

  std::string* out_;
  bool first_ = true;
  std::string path_;  // of the object that is being written, with a point behind it
  std::string error_;
};

}  // namespace strata::wire::json
