// JsonWalk: the kind of `io` that brings one step of a JSON text to the field that it belongs to:
// it finds the field by its path, refuses what the field cannot be, and sets it. Not a parser: that
// one hands its steps over, one walk each, so that nothing is kept but the value itself.
//
// Inner part of wire/manifest.h. Pure; each object is one thread's.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "wire/json_writer.h"
#include "wire/names.h"

namespace strata::wire::json {

// What the parser came upon. A key is announced before its value; kEnd is the end of an object.
enum class Step {
  kNull,
  kBoolean,
  kInteger,
  kNegative,
  kFraction,
  kText,
  kObject,
  kArray,
  kKey,
  kEnd
};

struct Event {
  Step step = Step::kNull;
  bool boolean = false;        // of kBoolean
  uint64_t integer = 0;        // of kInteger
  std::string_view text = {};  // of kText
};

// One object on the way to a value: which of its keys leads on, and inside a list which item.
struct Place {
  std::string key;
  int64_t item = -1;    // -1: the key's value itself
  uint32_t fields = 0;  // those of the object that have come, a bit each
};

class JsonWalk {
 public:
  // `places` is not empty.
  JsonWalk(const Event& event, std::span<Place> places) : event_(event), places_(places) {}

  template <class N>
  void number(std::string_view key, N& value, uint64_t min, uint64_t max) {
    if (here(key)) integer(value, min, max);
  }
  void boolean(std::string_view key, bool& value) {
    if (here(key) && is(Step::kBoolean, "true or false")) value = event_.boolean;
  }
  template <class E>
  void choice(std::string_view key, E& value) {
    if (here(key)) name(value);
  }
  void text(std::string_view key, std::string& value, uint32_t bytes_max) {
    if (!here(key) || !is(Step::kText, "a text")) return;
    if (allowed(text_refusal(event_.text, bytes_max))) value = event_.text;
  }
  template <class N>
  void numbers(std::string_view key, std::vector<N>& values, size_t count_max, uint64_t min,
               uint64_t max) {
    if (here(key)) list(values, count_max, [&](N& value) { integer(value, min, max); });
  }
  template <class E>
  void choices(std::string_view key, std::vector<E>& values, size_t count_max) {
    if (here(key)) list(values, count_max, [&](E& value) { name(value); });
  }
  // An object of the user's own keys.
  void names(std::string_view key, std::vector<std::pair<std::string, std::string>>& values,
             size_t count_max, uint32_t name_bytes_max, uint32_t value_bytes_max);
  template <class T>
  void object(std::string_view key, T& of) {
    if (within(key)) return inside(of);
    if (here(key)) is(Step::kObject, "an object");
  }
  template <class T>
  void objects(std::string_view key, std::vector<T>& values, size_t count_max) {
    if (within(key)) return inside(values.back());
    if (here(key)) list(values, count_max, [&](T&) { is(Step::kObject, "an object"); });
  }

  // kEnd: a key that has not come, or nothing.
  std::string_view missing() const { return missing_; }
  // Whether there is such a key.
  bool found() const { return found_; }
  const std::string& error() const { return error_; }

 private:
  bool at_last() const { return depth_ + 1 == places_.size(); }
  // The field at hand is the one that the path leads through, to something inside it.
  bool within(std::string_view key) const {
    return !found_ && !at_last() && places_[depth_].key == key;
  }
  // The field at hand is the one that the path ends at, and its value has come. Each field asks
  // once: so they are counted.
  bool here(std::string_view key);
  bool is(Step wanted, std::string_view called);
  bool allowed(std::string why);
  template <class N>
  void integer(N& value, uint64_t min, uint64_t max) {
    if (event_.step == Step::kNegative) {
      allowed(fmt::format("is negative, {}", range_text(min, max)));
    } else if (is(Step::kInteger, "a whole number")) {
      if (event_.integer < min || event_.integer > max) {
        allowed(fmt::format("is {}, {}", event_.integer, range_text(min, max)));
      } else {
        value = static_cast<N>(event_.integer);
      }
    }
  }
  template <class E>
  void name(E& value) {
    if (!is(Step::kText, "one of its names")) return;
    bool known = false;
    for_each_name<E>([&](E one, std::string_view called) {
      if (called != event_.text) return;
      value = one;
      known = true;
    });
    if (!known) allowed(fmt::format("is \"{}\", none of its names", shown(event_.text)));
  }
  // The list begins, or its next item has come.
  template <class T, class Fn>
  void list(std::vector<T>& values, size_t count_max, Fn&& item) {
    if (places_[depth_].item < 0) {
      is(Step::kArray, "a list");
    } else if (allowed(count_refusal(values.size() + 1, count_max))) {
      item(values.emplace_back());
    }
  }
  template <class T>
  void inside(T& of) {
    ++depth_;
    field_ = 0;
    T::fields(*this, of);
    --depth_;
    left_ = true;
  }

  const Event& event_;
  std::span<Place> places_;
  size_t depth_ = 0;
  uint32_t field_ = 0;  // number of the next one in its object
  bool left_ = false;   // an object has been walked through: the others are not asked any more
  bool found_ = false;
  std::string_view missing_;
  std::string error_;
};

}  // namespace strata::wire::json
