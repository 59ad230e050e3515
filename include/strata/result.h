// Result<T>: a value or an Error. The one place that knows the library behind it.
//
//   auto worker = strata::Worker::create({.sub_workers = 2});
//   if (!worker) return fail(worker.error().to_string());
//
// value() on an error ends the process with the error's text: use it where there is no way on.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <tl/expected.hpp>
#include <type_traits>
#include <utility>

#include "strata/error.h"

namespace strata {

template <class T>
class [[nodiscard]] Result {
 public:
  using value_type = T;

  Result() requires std::is_void_v<T> || std::is_default_constructible_v<T>
  = default;
  template <class U = T>
  requires(!std::is_void_v<T> && !std::is_same_v<std::remove_cvref_t<U>, Result> &&
           !std::is_same_v<std::remove_cvref_t<U>, Error> && std::is_constructible_v<T, U&&>)
      Result(U&& value)
      : held_(std::forward<U>(value)) {}
  Result(Error error) : held_(tl::unexpect, std::move(error)) {}

  bool ok() const { return held_.has_value(); }
  explicit operator bool() const { return ok(); }

  const Error& error() const& { return held_.error(); }
  Error&& error() && { return std::move(held_).error(); }

  // Ends the process with the error's text where there is no value.
  decltype(auto) value() & { return need(), *held_; }
  decltype(auto) value() const& { return need(), *held_; }
  decltype(auto) value() && {
    need();
    if constexpr (!std::is_void_v<T>) return std::move(*held_);
  }
  decltype(auto) operator*() & { return *held_; }
  decltype(auto) operator*() const& { return *held_; }
  decltype(auto) operator*() && { return *std::move(held_); }
  auto operator->() { return &*held_; }
  auto operator->() const { return &*held_; }

 private:
  void need() const {
    if (held_) return;
    std::fprintf(stderr, "strata: value() of a failed Result: %s\n",
                 held_.error().to_string().c_str());
    std::abort();
  }
  tl::expected<T, Error> held_;
};

}  // namespace strata
