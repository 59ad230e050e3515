// Describer: the third `io` of a message's fields(): their names and types as a table, for
// docs/protocol.md; and ManifestDescriber, the same for a manifest. Pure; one thread.
#pragma once

#include <fmt/format.h>

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "wire/codec.h"

namespace strata::wire {

class Describer {
 public:
  struct Field {
    std::string name;
    std::string type;
  };

  template <class T>
  void number(std::string_view name, const T&) {
    add(name, std::string(integer<T>()));
  }
  void boolean(std::string_view name, bool) { add(name, "bool"); }
  template <class E>
  void choice(std::string_view name, E) {
    add(name, fmt::format("u32, {}", Names<E>::kType));
  }
  template <class E>
  void choice8(std::string_view name, E) {
    add(name, fmt::format("u8, {}", Names<E>::kType));
  }
  void text(std::string_view name, std::string_view, uint32_t bytes_max) {
    add(name, fmt::format("str({})", bytes_max));
  }
  void blob(std::string_view name, std::span<const std::byte>, uint32_t bytes_max) {
    add(name, fmt::format("bytes({})", bytes_max));
  }
  template <size_t kBytes>
  void raw(std::string_view name, const std::array<std::byte, kBytes>&) {
    add(name, fmt::format("{} bytes", kBytes));
  }
  void uid(std::string_view name, const Uid&) { add(name, "uid: u64 high, u64 low"); }
  template <class T>
  void zero() {
    add("reserved", fmt::format("{}, 0", integer<T>()));
  }
  template <class T, size_t kPlaces>
  void places(std::string_view name, const std::array<T, kPlaces>&, size_t) {
    add(name, fmt::format("{} x rank", integer<T>()));
  }
  template <class T>
  void list(std::string_view name, const std::vector<T>&, uint32_t count_max) {
    add(name, fmt::format("list<{}>({})", item<T>(), count_max));
  }
  template <class T>
  void nested(std::string_view name, const T&) {
    add(name, std::string(T::kName));
  }
  void rest(std::string_view name, std::span<const std::byte>) { add(name, "to the end"); }

  const std::vector<Field>& fields() const { return fields_; }

 private:
  template <class T>
  static constexpr std::string_view integer() {
    constexpr std::array kUnsigned = {"u8", "u16", "u32", "u64"};
    constexpr std::array kSigned = {"i8", "i16", "i32", "i64"};
    constexpr size_t kAt = sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 1 : sizeof(T) == 4 ? 2 : 3;
    return std::is_signed_v<T> ? kSigned[kAt] : kUnsigned[kAt];
  }
  template <class T>
  static std::string item() {
    if constexpr (Message<T>) {
      return std::string(T::kName);
    } else if constexpr (std::integral<T>) {
      return std::string(integer<T>());
    } else {
      return fmt::format("str({})", Writer::kItemBytesMax);
    }
  }
  void add(std::string_view name, std::string type) {
    fields_.push_back({std::string(name), std::move(type)});
  }

  std::vector<Field> fields_;
};

class ManifestDescriber {
 public:
  using Field = Describer::Field;

  template <class N>
  void number(std::string_view key, const N&, uint64_t min, uint64_t max) {
    add(key, fmt::format("integer, {} to {}", min, max));
  }
  void boolean(std::string_view key, bool) { add(key, "true or false"); }
  template <class E>
  void choice(std::string_view key, E) {
    add(key, fmt::format("name, {}", Names<E>::kType));
  }
  void text(std::string_view key, const std::string&, uint32_t bytes_max) {
    add(key, fmt::format("text({})", bytes_max));
  }
  template <class N>
  void numbers(std::string_view key, const std::vector<N>&, size_t count_max, uint64_t min,
               uint64_t max) {
    add(key, fmt::format("list of at most {} integers, {} to {}", count_max, min, max));
  }
  template <class E>
  void choices(std::string_view key, const std::vector<E>&, size_t count_max) {
    add(key, fmt::format("list of at most {} names, {}", count_max, Names<E>::kType));
  }
  template <class T>
  void names(std::string_view key, const T&, size_t count_max, uint32_t name_bytes_max,
             uint32_t value_bytes_max) {
    add(key, fmt::format("object of at most {} variables: name({}), text({})", count_max,
                         name_bytes_max, value_bytes_max));
  }
  template <class T>
  void object(std::string_view key, const T&) {
    add(key, fmt::format("object, {}", T::kName));
  }
  template <class T>
  void objects(std::string_view key, const std::vector<T>&, size_t count_max) {
    add(key, fmt::format("list of at most {} objects, {}", count_max, T::kName));
  }

  const std::vector<Field>& fields() const { return fields_; }

 private:
  void add(std::string_view key, std::string type) {
    fields_.push_back({std::string(key), std::move(type)});
  }

  std::vector<Field> fields_;
};

template <class T, class Io = Describer>
std::vector<Describer::Field> describe() {
  Io describer;
  const T message;
  T::fields(describer, message);
  return describer.fields();
}

}  // namespace strata::wire
