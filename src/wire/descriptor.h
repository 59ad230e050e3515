// Descriptor bytes, the identity of a callable, as a remote side sends them; and what
// PREPARE_REGISTER carries with them. Of the kinds that may travel, with the wire's own limits:
// what is taken here is byte for byte what model/descriptor.h gives for the same callable, whose
// decoder also knows LOCAL_FUNCTION, which never travels. Values; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "wire/controls.h"

namespace strata::wire {

inline constexpr uint32_t kDescriptorSchema = 1;
inline constexpr uint32_t kPlatformBytesMax = 32;
inline constexpr uint32_t kSymbolBytesMax = 255;
inline constexpr uint32_t kSignatureBytesMax = 4096;
inline constexpr uint32_t kDescriptorBytesMax = 8192;

struct ChipDescriptor {
  static constexpr std::string_view kName = "descriptor of a CHIP_CALLABLE";
  static constexpr CallableKind kKind = CallableKind::kChipCallable;
  uint32_t schema = kDescriptorSchema;
  CallableKind kind = kKind;
  std::string platform;   // a word, "cpu"
  std::string entry;      // a C identifier
  std::string signature;  // the author's words, part of the identity
  base::Sha256 blob{};

  template <class Io, class Self>
  static void fields(Io& io, Self& self) {
    io.number("schema", self.schema);
    io.choice("kind", self.kind);
    io.text("platform", self.platform, kPlatformBytesMax);
    io.text("entry", self.entry, kSymbolBytesMax);
    io.text("signature", self.signature, kSignatureBytesMax);
    io.raw("blob_sha256", self.blob);
  }
  Result<void> check() const;
};

struct PythonDescriptor {
  static constexpr std::string_view kName = "descriptor of a PYTHON_IMPORT";
  static constexpr CallableKind kKind = CallableKind::kPythonImport;
  uint32_t schema = kDescriptorSchema;
  CallableKind kind = kKind;
  std::string module;    // dotted, no blanks
  std::string qualname;  // likewise

  template <class Io, class Self>
  static void fields(Io& io, Self& self) {
    io.number("schema", self.schema);
    io.choice("kind", self.kind);
    io.text("module", self.module, kSymbolBytesMax);
    io.text("qualname", self.qualname, kSymbolBytesMax);
  }
  Result<void> check() const;
};

struct NativeDescriptor {
  static constexpr std::string_view kName = "descriptor of a NATIVE_IMPORT";
  static constexpr CallableKind kKind = CallableKind::kNativeImport;
  uint32_t schema = kDescriptorSchema;
  CallableKind kind = kKind;
  std::string library;  // base name, no folder
  std::string symbol;   // a C identifier

  template <class Io, class Self>
  static void fields(Io& io, Self& self) {
    io.number("schema", self.schema);
    io.choice("kind", self.kind);
    io.text("library", self.library, kSymbolBytesMax);
    io.text("symbol", self.symbol, kSymbolBytesMax);
  }
  Result<void> check() const;
};

using Descriptor = std::variant<NativeDescriptor, PythonDescriptor, ChipDescriptor>;

CallableKind kind_of(const Descriptor& descriptor);
// kInvalidArgument where decode_descriptor would refuse it.
Result<std::vector<std::byte>> encode_descriptor(const Descriptor& descriptor);
// kCorrupt for any other bytes; kUnsupported for another schema and for kinds that do not travel.
Result<Descriptor> decode_descriptor(std::span<const std::byte> bytes);

// What PREPARE_REGISTER has as `payload`, in version 1. The blob stands in what was decoded.
struct CallablePayload {
  static constexpr std::string_view kName = "PREPARE_REGISTER's payload";
  std::vector<std::byte> descriptor;
  std::string name;                 // for texts, no part of the identity
  std::span<const std::byte> blob;  // of a CHIP_CALLABLE

  template <class Io, class Self>
  static void fields(Io& io, Self& self) {
    io.blob("descriptor", self.descriptor, kDescriptorBytesMax);
    io.text("name", self.name, kSymbolBytesMax);
    io.rest("blob", self.blob);
  }
  // The descriptor is one; the blob is there for a CHIP_CALLABLE alone, and is the one it names.
  Result<void> check() const;
};

// Whether the payload is what the control says it is: its kind, and its digest.
Result<void> check_registration(const PrepareRegister& control, const CallablePayload& payload);

// Words with points between them, no blanks, no colon: a module, or a qualified name, of Python.
bool is_dotted(std::string_view name);

}  // namespace strata::wire
