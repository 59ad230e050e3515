#include "os/memory_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "os/system_error.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

namespace strata::os {

Result<Fd> make_memory_file(const std::string& name, std::span<const std::byte> bytes) {
  const std::string what = fmt::format("make the memory file '{}'", name);
  const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  Fd fd(::memfd_create(name.c_str(), flags | MFD_NOEXEC_SEAL));
  if (!fd.valid() && errno == EINVAL) fd.reset(::memfd_create(name.c_str(), flags));
  if (!fd.valid()) return system_error(what, errno);
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd.get(), bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return system_error(what, errno);
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) !=
      0) {
    return system_error(what, errno);
  }
  return fd;
}

Result<std::string> read_whole_file(int fd, size_t bytes_max) {
  std::string out;
  constexpr size_t kPiece = 64 << 10;
  for (;;) {
    const size_t at = out.size();
    out.resize(at + kPiece);
    const ssize_t n = ::pread(fd, out.data() + at, kPiece, static_cast<off_t>(at));
    out.resize(at + (n > 0 ? static_cast<size_t>(n) : 0));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return system_error("read a memory file", errno);
    if (n == 0) return out;
    if (out.size() > bytes_max) {
      return Error(Code::kCorrupt, Scope::kCall,
                   fmt::format("a memory file is longer than {} bytes", bytes_max));
    }
  }
}

}  // namespace strata::os
