// CodeAddress: a function of this program as a value that another process of the same binaries can
// turn back into an address: the ELF build id of its module and the offset from its load base.
// Not for data, closures or code made at run time. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "strata/result.h"

namespace strata::os {

inline constexpr size_t kBuildIdBytesMax = 64;

struct CodeAddress {
  std::vector<std::byte> build_id;
  uint64_t offset = 0;      // from load_base
  uintptr_t load_base = 0;  // in this process
  std::string module;       // path, empty for the program itself
};

// kNotFound where no loaded module has executable code at the address, kUnsupported where its
// module has no build id (link it with --build-id).
Result<CodeAddress> code_address_of(const void* address);

// kNotFound where no module with that build id is loaded here; kInvalidArgument where the offset is
// not in its executable code.
Result<const void*> code_at(std::span<const std::byte> build_id, uint64_t offset);

}  // namespace strata::os
