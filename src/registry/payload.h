// What a child needs to prepare one callable, as bytes: the payload of a PREPARE.
//
// Identity is the descriptor alone; name and library paths are hints of the parent's host. Little-
// endian: str(255) name, bytes(64 KiB) descriptor, list<str(4096)>(64) library paths, u32
// segment, u64 offset and u64 bytes of a chip callable's blob, u8 inner (2: inactive). Pure.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "model/descriptor.h"

namespace strata::registry {

inline constexpr size_t kLibraryPathsMax = 64;
inline constexpr size_t kPathBytesMax = 4096;

// A blob_segment: the heap of the very Worker that registers it; one more is 0, its own number.
inline constexpr uint32_t kSegmentOfTheRegistrar = ~uint32_t{0};

struct PreparePayload {
  std::string name;  // for texts
  model::Descriptor descriptor;
  std::vector<std::string> library_paths;  // files to try, in this order; NativeImport only
  // Where the blob of a ChipCallable stands, as long as it is registered: it is larger than a
  // control. The segment is the child's number of the heap that holds it. All 0 for other kinds.
  uint32_t blob_segment = 0;
  uint64_t blob_offset = 0;
  uint64_t blob_bytes = 0;
  // For the orchestration code of child Workers, and not for tasks of this one. With the digest it
  // is the registry's key.
  bool inner = false;
  // Of an inner one: its COMMIT does not make it usable yet, for others above may not be prepared.
  bool inactive = false;
};

// kInvalidArgument where a limit or the descriptor is broken.
Result<std::vector<std::byte>> encode_payload(const PreparePayload& payload);
// The same payload without `inactive`.
std::vector<std::byte> activated(std::span<const std::byte> bytes);
// kCorrupt for anything that encode_payload does not give.
Result<PreparePayload> decode_payload(std::span<const std::byte> bytes);

}  // namespace strata::registry
