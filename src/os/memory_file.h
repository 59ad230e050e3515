// memory_file: bytes as a sealed file in memory, for another process to read by its descriptor. Not
// a mapping. Any thread.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "os/fd.h"
#include "strata/result.h"

namespace strata::os {

// No holder of the descriptor can change what it has.
Result<Fd> make_memory_file(const std::string& name, std::span<const std::byte> bytes);
// All of it, from its beginning whatever its offset is. kCorrupt above `bytes_max`.
Result<std::string> read_whole_file(int fd, size_t bytes_max);

}  // namespace strata::os
