// The identity of callables: canonical descriptor bytes, their SHA-256 and the hashid.
//
// Bytes are little-endian: u32 schema (1), u32 kind, then the kind's fields; a new field is a new
// schema. They say what a callable is, never where a host finds it. Pure values; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/sha256.h"
#include "strata/callable_handle.h"
#include "strata/result.h"

namespace strata::model {

inline constexpr uint32_t kDescriptorSchema = 1;
inline constexpr size_t kNameBytesMax = 255;  // of a library, a symbol, a callable's name
inline constexpr size_t kBuildIdBytesMax = 32;
inline constexpr size_t kSignatureBytesMax = 4096;

using Digest = base::Sha256;

// kind 1: u32 length and bytes of the platform, likewise of entry and signature, then 32 bytes: the
// SHA-256 of the blob.
struct ChipCallableDescriptor {
  std::string platform;   // "cpu"
  std::string entry;      // a C identifier
  std::string signature;  // UTF-8, may be empty
  Digest blob{};
  friend bool operator==(const ChipCallableDescriptor&, const ChipCallableDescriptor&) = default;
};

// kind 4: u32 length and bytes of the library's base name, likewise of the symbol.
struct NativeImportDescriptor {
  std::string library;  // base name, no folder
  std::string symbol;   // a C identifier
  friend bool operator==(const NativeImportDescriptor&, const NativeImportDescriptor&) = default;
};

// kind 5: u32 length and bytes of the ELF build id, u64 offset in that module.
struct LocalFunctionDescriptor {
  std::vector<std::byte> build_id;  // 1 to 32 bytes
  uint64_t offset = 0;
  friend bool operator==(const LocalFunctionDescriptor&, const LocalFunctionDescriptor&) = default;
};

using Descriptor =
    std::variant<NativeImportDescriptor, LocalFunctionDescriptor, ChipCallableDescriptor>;

// kInvalidArgument with the offending text, or nothing.
Result<void> validate(const NativeImportDescriptor& descriptor);
Result<void> validate(const LocalFunctionDescriptor& descriptor);
Result<void> validate(const ChipCallableDescriptor& descriptor);
Result<void> validate(const Descriptor& descriptor);

// Of a valid descriptor.
std::vector<std::byte> descriptor_bytes(const NativeImportDescriptor& descriptor);
std::vector<std::byte> descriptor_bytes(const LocalFunctionDescriptor& descriptor);
std::vector<std::byte> descriptor_bytes(const ChipCallableDescriptor& descriptor);
std::vector<std::byte> descriptor_bytes(const Descriptor& descriptor);

// The way back; kCorrupt for bytes that are no valid descriptor of schema 1. Consumes all bytes.
Result<Descriptor> decode_descriptor(std::span<const std::byte> bytes);

CallableKind kind_of(const Descriptor& descriptor);
Digest digest_of(std::span<const std::byte> descriptor);
// "sha256:" and 64 hex digits.
std::string hashid_of(const Digest& digest);

}  // namespace strata::model
