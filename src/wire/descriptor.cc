#include "wire/descriptor.h"

#include <fmt/format.h>

#include "base/bytes.h"
#include "base/result.h"
#include "base/text.h"
#include "model/descriptor.h"

namespace strata::wire {
namespace {

Error wrong(std::string_view what, std::string_view why) {
  return Error(Code::kCorrupt, Scope::kSession, fmt::format("{}: {}", what, why));
}

// The two fields that all of them begin with.
template <class T>
Result<void> check_head(const T& descriptor) {
  if (descriptor.schema != kDescriptorSchema) {
    return wrong(T::kName, fmt::format("schema {}", descriptor.schema));
  }
  if (descriptor.kind != T::kKind) return wrong(T::kName, "another kind");
  return {};
}

template <class T>
Result<void> as_model(std::string_view what, const T& descriptor) {
  const Result<void> valid = model::validate(descriptor);
  return valid.ok() ? Result<void>() : wrong(what, valid.error().message());
}

template <class T>
Result<Descriptor> decode_as(std::span<const std::byte> bytes) {
  Result<T> got = decode<T>(bytes);
  if (!got.ok()) return got.error();
  return Descriptor(std::move(got).value());
}

}  // namespace

bool is_dotted(std::string_view name) {
  if (name.empty()) return false;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte <= 0x20 || byte == 0x7f || c == ':' || c == '/') return false;
  }
  return !name.starts_with('.') && !name.ends_with('.') && name.find("..") == name.npos;
}

Result<void> ChipDescriptor::check() const {
  STRATA_TRY(check_head(*this));
  return as_model(kName, model::ChipCallableDescriptor{platform, entry, signature, blob});
}

Result<void> PythonDescriptor::check() const {
  STRATA_TRY(check_head(*this));
  if (!is_dotted(module)) return wrong(kName, "module is no name of a Python module");
  if (!is_dotted(qualname)) return wrong(kName, "qualname is no qualified name of Python");
  return {};
}

Result<void> NativeDescriptor::check() const {
  STRATA_TRY(check_head(*this));
  return as_model(kName, model::NativeImportDescriptor{library, symbol});
}

CallableKind kind_of(const Descriptor& descriptor) {
  return std::visit([](const auto& d) { return d.kKind; }, descriptor);
}

Result<std::vector<std::byte>> encode_descriptor(const Descriptor& descriptor) {
  std::vector<std::byte> out;
  STRATA_TRY(std::visit([&](const auto& d) { return encode(d, &out); }, descriptor));
  return out;
}

Result<Descriptor> decode_descriptor(std::span<const std::byte> bytes) {
  if (bytes.size() > kDescriptorBytesMax) {
    return wrong("descriptor",
                 fmt::format("{} bytes, at most {}", bytes.size(), kDescriptorBytesMax));
  }
  base::ByteReader in(bytes);
  const auto schema = in.get<uint32_t>();
  const auto kind = in.get<uint32_t>();
  if (!in.ok()) return wrong("descriptor", "is cut off");
  const auto unsupported = [](std::string why) {
    return Error(Code::kUnsupported, Scope::kCall, "descriptor: " + std::move(why));
  };
  if (schema != kDescriptorSchema) {
    return unsupported(fmt::format("schema {}, this version knows {}", schema, kDescriptorSchema));
  }
  switch (static_cast<CallableKind>(kind)) {
    case CallableKind::kNativeImport:
      return decode_as<NativeDescriptor>(bytes);
    case CallableKind::kPythonImport:
      return decode_as<PythonDescriptor>(bytes);
    case CallableKind::kChipCallable:
      return decode_as<ChipDescriptor>(bytes);
    default:
      return unsupported(fmt::format("kind {}, which does not travel", kind));
  }
}

Result<void> CallablePayload::check() const {
  Result<Descriptor> got = decode_descriptor(descriptor);
  if (!got.ok()) return wrong(kName, got.error().message());
  const auto* const chip = std::get_if<ChipDescriptor>(&*got);
  if (chip == nullptr) {
    return blob.empty() ? Result<void>() : wrong(kName, "a blob of what is no CHIP_CALLABLE");
  }
  if (blob.empty()) return wrong(kName, "a CHIP_CALLABLE without its blob");
  if (base::sha256(blob) == chip->blob) return {};
  return wrong(kName, "the blob is not the one that the descriptor names");
}

Result<void> check_registration(const PrepareRegister& control, const CallablePayload& payload) {
  STRATA_ASSIGN(const Descriptor descriptor, decode_descriptor(payload.descriptor));
  if (kind_of(descriptor) != control.kind) {
    return wrong(PrepareRegister::kName,
                 fmt::format("a payload of kind {}, where {} was said",
                             wire_name(kind_of(descriptor)), wire_name(control.kind)));
  }
  if (const base::Sha256 digest = base::sha256(payload.descriptor); digest != control.digest) {
    return wrong(PrepareRegister::kName, fmt::format("a payload of digest {}, where {} was said",
                                                     base::hex(digest), base::hex(control.digest)));
  }
  return {};
}

}  // namespace strata::wire
