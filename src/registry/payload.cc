#include "registry/payload.h"

#include <fmt/format.h>

#include "base/bytes.h"
#include "base/result.h"
#include "base/utf8.h"

namespace strata::registry {
namespace {

inline constexpr uint32_t kDescriptorBytesMax = 64 * 1024;

Error invalid(std::string text) {
  return Error(Code::kInvalidArgument, Scope::kCall, std::move(text));
}

Error corrupt(std::string_view text) {
  return Error(Code::kCorrupt, Scope::kCall, fmt::format("the payload of a PREPARE: {}", text));
}

Result<void> check(const PreparePayload& payload) {
  STRATA_TRY(model::validate(payload.descriptor));
  if (payload.name.size() > model::kNameBytesMax) {
    return invalid(fmt::format("a callable's name has {} bytes, more than {}", payload.name.size(),
                               model::kNameBytesMax));
  }
  if (!base::utf8_valid(payload.name)) return invalid("a callable's name is not valid UTF-8");
  if (payload.library_paths.size() > kLibraryPathsMax) {
    return invalid(fmt::format("{} folders in WorkerSpec::library_path, more than {}",
                               payload.library_paths.size(), kLibraryPathsMax));
  }
  for (const std::string& path : payload.library_paths) {
    if (path.empty() || path.size() > kPathBytesMax || path.find('\0') != std::string::npos) {
      return invalid(fmt::format("a library's path of {} bytes: it has 1 to {} and no zero byte",
                                 path.size(), kPathBytesMax));
    }
  }
  const bool chip = std::holds_alternative<model::ChipCallableDescriptor>(payload.descriptor);
  if (chip != (payload.blob_bytes > 0) || payload.blob_bytes > ChipCallable::kBlobBytesMax) {
    return invalid(fmt::format("a blob of {} bytes: a chip callable has 1 to {}, others have none",
                               payload.blob_bytes, ChipCallable::kBlobBytesMax));
  }
  return {};
}

}  // namespace

Result<std::vector<std::byte>> encode_payload(const PreparePayload& payload) {
  STRATA_TRY(check(payload));
  base::ByteWriter out;
  out.put_string(payload.name);
  const std::vector<std::byte> descriptor = model::descriptor_bytes(payload.descriptor);
  out.put(static_cast<uint32_t>(descriptor.size()));
  out.put_bytes(descriptor);
  out.put(static_cast<uint32_t>(payload.library_paths.size()));
  for (const std::string& path : payload.library_paths) out.put_string(path);
  out.put(payload.blob_segment);
  out.put(payload.blob_offset);
  out.put(payload.blob_bytes);
  out.put(static_cast<uint8_t>(payload.inner ? (payload.inactive ? 2 : 1) : 0));
  return std::move(out).take();
}

std::vector<std::byte> activated(std::span<const std::byte> bytes) {
  std::vector<std::byte> out(bytes.begin(), bytes.end());
  if (!out.empty() && out.back() == std::byte{2}) out.back() = std::byte{1};
  return out;
}

Result<PreparePayload> decode_payload(std::span<const std::byte> bytes) {
  base::ByteReader in(bytes);
  PreparePayload out;
  out.name = in.get_string(model::kNameBytesMax);
  const uint32_t descriptor_bytes = in.get<uint32_t>();
  if (!in.ok() || descriptor_bytes > kDescriptorBytesMax || descriptor_bytes > in.left()) {
    return corrupt("name or descriptor are cut off or too long");
  }
  STRATA_ASSIGN(out.descriptor, model::decode_descriptor(in.get_bytes(descriptor_bytes)));
  const uint32_t paths = in.get<uint32_t>();
  if (!in.ok() || paths > kLibraryPathsMax) return corrupt("too many paths, or none of them there");
  for (uint32_t i = 0; i < paths; ++i) out.library_paths.emplace_back(in.get_string(kPathBytesMax));
  out.blob_segment = in.get<uint32_t>();
  out.blob_offset = in.get<uint64_t>();
  out.blob_bytes = in.get<uint64_t>();
  const uint8_t inner = in.get<uint8_t>();
  if (!in.ok() || inner > 2) return corrupt("a path is cut off or too long, or what it is for");
  out.inner = inner != 0;
  out.inactive = inner == 2;
  if (in.left() != 0) return corrupt("bytes behind its end");
  if (const Result<void> valid = check(out); !valid.ok()) return corrupt(valid.error().message());
  return out;
}

}  // namespace strata::registry
