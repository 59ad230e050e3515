// Mutator: the fourth kind of `io` of a message's fields(): it writes a value as wire::Writer does,
// but the field that it aims at as something else: another number, a length that lies, a text that
// is none, items that come twice. mutate_payload() is the mutation of a target of one message.
#pragma once

#include <array>
#include <concepts>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "tests/fuzz/changes.h"
#include "tests/fuzz/loader.h"

namespace strata::fuzz {

class Mutator {
 public:
  static constexpr size_t kNone = std::numeric_limits<size_t>::max();

  // Aims at field `aim`, counted as they are written; kNone writes the value as it is. Without
  // `out` the fields are only counted.
  Mutator(Changes* changes, size_t aim, Bytes* out) : changes_(changes), aim_(aim), out_(out) {}

  template <class T>
  void number(std::string_view, const T& value) {
    if constexpr (std::is_enum_v<T>) {
      number("", static_cast<std::underlying_type_t<T>>(value));
    } else {
      changes_->remember(static_cast<uint64_t>(value));
      put(hit() ? static_cast<T>(changes_->number(static_cast<uint64_t>(value), 8 * sizeof(T)))
                : value);
    }
  }
  void boolean(std::string_view, bool value) { number("", static_cast<uint8_t>(value)); }
  template <class E>
  void choice(std::string_view, E value) {
    put(hit() ? other<uint32_t>(value) : static_cast<uint32_t>(value));
  }
  template <class E>
  void choice8(std::string_view, E value) {
    put(hit() ? other<uint8_t>(value) : static_cast<uint8_t>(value));
  }
  void text(std::string_view, std::string_view value, uint32_t bytes_max) {
    sized(std::as_bytes(std::span(value)), bytes_max);
  }
  void blob(std::string_view, std::span<const std::byte> value, uint32_t bytes_max) {
    sized(value, bytes_max);
  }
  template <size_t kBytes>
  void raw(std::string_view, const std::array<std::byte, kBytes>& value) {
    std::array<std::byte, kBytes> bytes = value;
    if (hit()) {
      if (changes_->prng().chance(1, 2)) {
        bytes = {};
      } else {
        bytes[changes_->prng().below(kBytes)] ^= std::byte{1};
      }
    }
    put(bytes);
  }
  void uid(std::string_view, const Uid& value) {
    number("", value.high);
    number("", value.low);
  }
  template <class T>
  void zero() {
    put(hit() ? static_cast<T>(changes_->number(0, 8 * sizeof(T))) : T{});
  }
  template <class T, size_t kPlaces>
  void places(std::string_view, const std::array<T, kPlaces>& values, size_t count) {
    for (size_t i = 0; i < std::min(count, kPlaces); ++i) number("", values[i]);
  }
  template <class T>
  void list(std::string_view, const std::vector<T>& values, uint32_t count_max) {
    const bool here = hit();
    std::vector<size_t> which;
    if (here) {
      which = changes_->items(values.size(), count_max);
    } else {
      for (size_t i = 0; i < values.size(); ++i) which.push_back(i);
    }
    auto count = static_cast<uint32_t>(which.size());
    if (here && changes_->prng().chance(1, 3)) count = changes_->length(count, count_max);
    put(count);
    for (const size_t i : which) {
      if constexpr (wire::Message<T>) {
        T::fields(*this, values[i]);
      } else if constexpr (std::integral<T>) {
        number("", values[i]);
      } else {
        text("", values[i], wire::Writer::kItemBytesMax);
      }
    }
  }
  template <class T>
  void nested(std::string_view, const T& value) {
    T::fields(*this, value);
  }
  void rest(std::string_view, std::span<const std::byte> value) {
    if (hit()) {
      append(changes_->bytes(value, 300));
    } else {
      append(value);
    }
  }

  size_t fields() const { return field_; }

 private:
  bool hit() { return field_++ == aim_; }
  template <class N, class E>
  N other(E value) {
    std::vector<N> known;
    wire::for_each_name<E>([&](E one, std::string_view) { known.push_back(static_cast<N>(one)); });
    if (changes_->prng().chance(3, 4)) return known[changes_->prng().below(known.size())];
    return static_cast<N>(changes_->number(static_cast<uint64_t>(value), 8 * sizeof(N)));
  }
  void sized(std::span<const std::byte> value, uint32_t bytes_max) {
    if (!hit()) {
      put(static_cast<uint32_t>(value.size()));
      return append(value);
    }
    const Bytes bytes = changes_->bytes(value, bytes_max);
    auto n = static_cast<uint32_t>(bytes.size());
    if (changes_->prng().chance(1, 4)) n = changes_->length(n, bytes_max);
    put(n);
    append(bytes);
  }
  template <class T>
  void put(const T& value) {
    if (out_ == nullptr) return;
    const size_t at = out_->size();
    out_->resize(at + sizeof value);
    std::memcpy(out_->data() + at, &value, sizeof value);
  }
  void append(std::span<const std::byte> bytes) {
    if (out_ != nullptr) out_->insert(out_->end(), bytes.begin(), bytes.end());
  }

  Changes* changes_;
  size_t aim_;
  Bytes* out_;
  size_t field_ = 0;
};

// One field of it changed.
template <class T>
void change_once(std::span<const std::byte> input, Changes* changes, Bytes* out) {
  T value;
  Loader loader(input);
  T::fields(loader, value);
  Mutator counter(changes, Mutator::kNone, nullptr);
  T::fields(counter, value);
  out->clear();
  out->reserve(input.size() + 64);
  Mutator mutator(changes, changes->prng().below(counter.fields()), out);
  T::fields(mutator, value);
}

// `input` as a T, with one field or more changed.
template <class T>
Bytes changed_payload(std::span<const std::byte> input, Changes* changes) {
  Bytes out;
  change_once<T>(input, changes, &out);
  while (changes->prng().chance(1, 3)) {
    const Bytes before = out;
    change_once<T>(before, changes, &out);
  }
  if (changes->prng().chance(1, 16)) out.resize(changes->prng().below(out.size() + 1));
  if (changes->prng().chance(1, 32)) out.push_back({});
  return out;
}

size_t put_over(uint8_t* input, size_t size_max, const Bytes& bytes);

template <class T>
size_t mutate_payload(uint8_t* input, size_t size, size_t size_max, uint64_t seed) {
  Changes changes(seed);
  if (changes.prng().chance(1, 8)) return mutate_bytes(input, size, size_max);
  return put_over(input, size_max,
                  changed_payload<T>(std::as_bytes(std::span(input, size)), &changes));
}

}  // namespace strata::fuzz
