// The enumerations that tensors, tasks and workers share. Numbers are those of the wire protocol.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "strata/export.h"

namespace strata {

// How a task uses a tensor. Dependencies follow from it and from the bytes that the tensor names.
enum class TensorArgType : uint8_t {
  kInput = 1,           // reads
  kOutput = 2,          // writes every byte named, reads none
  kInout = 3,           // reads and writes
  kOutputExisting = 4,  // writes storage that exists already
  kNoDep = 5,           // makes no dependency; keeps the buffer alive
};
inline constexpr TensorArgType INPUT = TensorArgType::kInput;
inline constexpr TensorArgType OUTPUT = TensorArgType::kOutput;
inline constexpr TensorArgType INOUT = TensorArgType::kInout;
inline constexpr TensorArgType OUTPUT_EXISTING = TensorArgType::kOutputExisting;
inline constexpr TensorArgType NO_DEP = TensorArgType::kNoDep;

constexpr bool reads(TensorArgType tag) {
  return tag == TensorArgType::kInput || tag == TensorArgType::kInout;
}
constexpr bool writes(TensorArgType tag) {
  return tag == TensorArgType::kOutput || tag == TensorArgType::kInout ||
         tag == TensorArgType::kOutputExisting;
}

// How a task on a chip gets at the bytes of a tensor. SUB children and child Workers work in place.
enum class Transfer : uint8_t {
  kDefault = 0,  // a copy on chips, in place elsewhere
  kCopy = 1,     // to device memory before the kernel; what it writes comes back after it
  kMap = 2,      // in place over the Worker's own memory; no device memory is used
};

// The elements of kMxF8E4M3, kMxF8E5M2 and kMxF4E2M1 are blocks of 32 values with one scale, as
// strata/formats.h lays them out: shapes, strides and sizes count blocks.
enum class DType : uint8_t {
  kU8 = 1,
  kI8 = 2,
  kU16 = 3,
  kI16 = 4,
  kU32 = 5,
  kI32 = 6,
  kU64 = 7,
  kI64 = 8,
  kF16 = 9,
  kBF16 = 10,
  kF32 = 11,
  kF64 = 12,
  kF8E4M3 = 13,
  kF8E5M2 = 14,
  kBool = 15,
  kMxF8E4M3 = 16,
  kMxF8E5M2 = 17,
  kMxF4E2M1 = 18,
};

// Bytes of one element; 0 for a value outside the enumeration.
constexpr size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::kU8:
    case DType::kI8:
    case DType::kF8E4M3:
    case DType::kF8E5M2:
    case DType::kBool:
      return 1;
    case DType::kU16:
    case DType::kI16:
    case DType::kF16:
    case DType::kBF16:
      return 2;
    case DType::kU32:
    case DType::kI32:
    case DType::kF32:
      return 4;
    case DType::kU64:
    case DType::kI64:
    case DType::kF64:
      return 8;
    case DType::kMxF8E4M3:
    case DType::kMxF8E5M2:
      return 33;  // a scale byte and 32 values
    case DType::kMxF4E2M1:
      return 17;  // a scale byte and 32 values of 4 bits
  }
  return 0;
}

STRATA_PUBLIC std::string_view name_of(TensorArgType tag);
STRATA_PUBLIC std::string_view name_of(DType dtype);
STRATA_PUBLIC std::string_view name_of(Transfer transfer);

template <class T>
struct DTypeOf;
template <>
struct DTypeOf<uint8_t> {
  static constexpr DType value = DType::kU8;
};
template <>
struct DTypeOf<std::byte> {
  static constexpr DType value = DType::kU8;
};
template <>
struct DTypeOf<int8_t> {
  static constexpr DType value = DType::kI8;
};
template <>
struct DTypeOf<uint16_t> {
  static constexpr DType value = DType::kU16;
};
template <>
struct DTypeOf<int16_t> {
  static constexpr DType value = DType::kI16;
};
template <>
struct DTypeOf<uint32_t> {
  static constexpr DType value = DType::kU32;
};
template <>
struct DTypeOf<int32_t> {
  static constexpr DType value = DType::kI32;
};
template <>
struct DTypeOf<uint64_t> {
  static constexpr DType value = DType::kU64;
};
template <>
struct DTypeOf<int64_t> {
  static constexpr DType value = DType::kI64;
};
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::kF32;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::kF64;
};
template <>
struct DTypeOf<bool> {
  static constexpr DType value = DType::kBool;
};

}  // namespace strata
