#include "model/descriptor.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/bytes.h"
#include "base/result.h"
#include "base/text.h"
#include "base/utf8.h"

namespace strata::model {
namespace {

Error invalid(std::string text) {
  return Error(Code::kInvalidArgument, Scope::kCall, std::move(text));
}

Error corrupt(std::string text) {
  return Error(Code::kCorrupt, Scope::kCall, std::move(text));
}

bool is_identifier(std::string_view text) {
  const auto letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  if (text.empty() || !letter(text[0])) return false;
  for (const char c : text) {
    if (!letter(c) && !(c >= '0' && c <= '9')) return false;
  }
  return true;
}

}  // namespace

Result<void> validate(const NativeImportDescriptor& descriptor) {
  const std::string& library = descriptor.library;
  if (library.empty()) return invalid("the library's name is empty");
  if (library.size() > kNameBytesMax) {
    return invalid(fmt::format("the library's name has {} bytes, more than {}", library.size(),
                               kNameBytesMax));
  }
  if (library.find('\0') != std::string::npos) {
    return invalid("the library's name has a zero byte");
  }
  if (!base::utf8_valid(library)) return invalid("the library's name is not valid UTF-8");
  if (library.find('/') != std::string::npos) {
    return invalid(
        fmt::format("library '{}' has a folder: give the file's name alone, and its folder in "
                    "WorkerSpec::library_path",
                    library));
  }
  if (library == "." || library == "..") {
    return invalid(fmt::format("library '{}' is a folder, not a file", library));
  }
  if (descriptor.symbol.size() > kNameBytesMax) {
    return invalid(fmt::format("the symbol's name has {} bytes, more than {}",
                               descriptor.symbol.size(), kNameBytesMax));
  }
  if (!is_identifier(descriptor.symbol)) {
    return invalid(fmt::format("symbol '{}' of library '{}' is not a C identifier",
                               base::utf8_valid(descriptor.symbol) ? descriptor.symbol : "?",
                               library));
  }
  return {};
}

Result<void> validate(const LocalFunctionDescriptor& descriptor) {
  if (descriptor.build_id.empty()) {
    return invalid(
        "the program has no build id, which tells a local function from that of another build: "
        "link it with -Wl,--build-id");
  }
  if (descriptor.build_id.size() > kBuildIdBytesMax) {
    return invalid(fmt::format("the build id has {} bytes, more than {}",
                               descriptor.build_id.size(), kBuildIdBytesMax));
  }
  return {};
}

Result<void> validate(const ChipCallableDescriptor& descriptor) {
  const std::string& platform = descriptor.platform;
  if (platform.size() > kNameBytesMax || !is_identifier(platform)) {
    return invalid(
        fmt::format("a chip callable's platform is a word such as 'cpu', not '{}'",
                    base::utf8_valid(platform) ? base::cut_text(platform, kNameBytesMax) : "?"));
  }
  if (descriptor.entry.size() > kNameBytesMax) {
    return invalid(fmt::format("a chip callable's entry has {} bytes, more than {}",
                               descriptor.entry.size(), kNameBytesMax));
  }
  if (!is_identifier(descriptor.entry)) {
    return invalid(
        fmt::format("entry '{}' of a chip callable is not a C identifier",
                    base::utf8_valid(descriptor.entry) ? descriptor.entry : std::string("?")));
  }
  if (descriptor.signature.size() > kSignatureBytesMax) {
    return invalid(fmt::format("a chip callable's signature has {} bytes, more than {}",
                               descriptor.signature.size(), kSignatureBytesMax));
  }
  if (!base::utf8_valid(descriptor.signature)) {
    return invalid("a chip callable's signature is not valid UTF-8");
  }
  return {};
}

Result<void> validate(const Descriptor& descriptor) {
  return std::visit([](const auto& d) { return validate(d); }, descriptor);
}

std::vector<std::byte> descriptor_bytes(const NativeImportDescriptor& descriptor) {
  base::ByteWriter out;
  out.put(kDescriptorSchema);
  out.put(static_cast<uint32_t>(CallableKind::kNativeImport));
  out.put_string(descriptor.library);
  out.put_string(descriptor.symbol);
  return std::move(out).take();
}

std::vector<std::byte> descriptor_bytes(const LocalFunctionDescriptor& descriptor) {
  base::ByteWriter out;
  out.put(kDescriptorSchema);
  out.put(static_cast<uint32_t>(CallableKind::kLocalFunction));
  out.put(static_cast<uint32_t>(descriptor.build_id.size()));
  out.put_bytes(descriptor.build_id);
  out.put(descriptor.offset);
  return std::move(out).take();
}

std::vector<std::byte> descriptor_bytes(const ChipCallableDescriptor& descriptor) {
  base::ByteWriter out;
  out.put(kDescriptorSchema);
  out.put(static_cast<uint32_t>(CallableKind::kChipCallable));
  out.put_string(descriptor.platform);
  out.put_string(descriptor.entry);
  out.put_string(descriptor.signature);
  out.put_bytes(descriptor.blob);
  return std::move(out).take();
}

std::vector<std::byte> descriptor_bytes(const Descriptor& descriptor) {
  return std::visit([](const auto& d) { return descriptor_bytes(d); }, descriptor);
}

Result<Descriptor> decode_descriptor(std::span<const std::byte> bytes) {
  base::ByteReader in(bytes);
  const uint32_t schema = in.get<uint32_t>();
  const uint32_t kind = in.get<uint32_t>();
  if (!in.ok()) return corrupt("a callable's descriptor ends too early");
  if (schema != kDescriptorSchema) {
    return corrupt(
        fmt::format("a callable's descriptor has schema {}, not {}", schema, kDescriptorSchema));
  }
  Descriptor out;
  if (kind == static_cast<uint32_t>(CallableKind::kNativeImport)) {
    NativeImportDescriptor d;
    d.library = in.get_string(kNameBytesMax);
    d.symbol = in.get_string(kNameBytesMax);
    out = std::move(d);
  } else if (kind == static_cast<uint32_t>(CallableKind::kLocalFunction)) {
    LocalFunctionDescriptor d;
    const std::string_view id = in.get_string(kBuildIdBytesMax);
    const auto raw = std::as_bytes(std::span(id));
    d.build_id.assign(raw.begin(), raw.end());
    d.offset = in.get<uint64_t>();
    out = std::move(d);
  } else if (kind == static_cast<uint32_t>(CallableKind::kChipCallable)) {
    ChipCallableDescriptor d;
    d.platform = in.get_string(kNameBytesMax);
    d.entry = in.get_string(kNameBytesMax);
    d.signature = in.get_string(kSignatureBytesMax);
    const std::span<const std::byte> blob = in.get_bytes(d.blob.size());
    std::copy(blob.begin(), blob.end(), d.blob.begin());
    out = std::move(d);
  } else {
    return corrupt(
        fmt::format("a callable's descriptor has kind {}, which is not taken here", kind));
  }
  if (!in.ok()) return corrupt("a callable's descriptor ends too early or has a name too long");
  if (in.left() != 0) return corrupt("bytes behind the end of a callable's descriptor");
  if (const Result<void> valid = validate(out); !valid.ok()) {
    return corrupt("a callable's descriptor: " + valid.error().message());
  }
  return out;
}

CallableKind kind_of(const Descriptor& descriptor) {
  if (std::holds_alternative<ChipCallableDescriptor>(descriptor)) {
    return CallableKind::kChipCallable;
  }
  return std::holds_alternative<NativeImportDescriptor>(descriptor) ? CallableKind::kNativeImport
                                                                    : CallableKind::kLocalFunction;
}

Digest digest_of(std::span<const std::byte> descriptor) {
  return base::sha256(descriptor);
}

std::string hashid_of(const Digest& digest) {
  return "sha256:" + base::hex(digest);
}

}  // namespace strata::model
