// What is asked of every decoder: bytes that decode encode to the same bytes, others are an Error
// in words, and no more memory is taken than the bytes can fill. The sanitizers ask the rest.
#pragma once

#include <span>
#include <string>

#include "tests/fuzz/mutator.h"
#include "tests/fuzz/target.h"
#include "wire/codec.h"

namespace strata::fuzz {

// A decoder may ask malloc for so much in all: a list that grows doubles, and the largest item in
// memory, a tensor, is four times its bytes on the wire; the constant is for texts of errors and
// for lists of a few items.
inline constexpr size_t kAllocationsAByte = 16;
inline constexpr size_t kAllocationsAlways = 16 << 10;

void check_allocations(size_t input_bytes);
void check_error(const Error& error);
void check_same(std::span<const std::byte> input, std::span<const std::byte> again);

template <class T>
void check_payload(std::span<const std::byte> input) {
  count_allocations();
  const Result<T> got = wire::decode<T>(input);
  check_allocations(input.size());
  if (!got.ok()) return check_error(got.error());
  Bytes again;
  if (const Result<void> done = wire::encode(*got, &again); !done.ok()) {
    found("what was decoded does not encode:", done.error().message().c_str());
  }
  check_same(input, again);
}

template <class T>
Bytes encoded(const T& message) {
  Bytes out;
  wire::encode(message, &out).value();
  return out;
}

}  // namespace strata::fuzz
