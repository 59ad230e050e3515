#include "os/shared_region.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdint>

#include "base/result.h"
#include "os/machine.h"
#include "os/system_error.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

namespace strata::os {
namespace {

constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW;

}  // namespace

Result<SharedRegion> SharedRegion::map(Fd fd, size_t bytes) {
  // Huge pages would be set aside for the whole mapping otherwise.
  constexpr int kFlags = MAP_SHARED | MAP_NORESERVE;
  void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, kFlags, fd.get(), 0);
  if (at == MAP_FAILED) {
    return system_error(fmt::format("map a shared region of {} bytes", bytes), errno);
  }
  return SharedRegion(std::move(fd), {static_cast<std::byte*>(at), bytes});
}

Result<SharedRegion> SharedRegion::create(const std::string& name, size_t bytes) {
  return make(name, bytes, 0);
}

Result<SharedRegion> SharedRegion::create_huge(const std::string& name, size_t bytes) {
  STRATA_ASSIGN(SharedRegion region, make(name, bytes, MFD_HUGETLB));
  region.huge_ = true;
  return region;
}

Result<SharedRegion> SharedRegion::make(const std::string& name, size_t bytes,
                                        unsigned more_flags) {
  const std::string what = fmt::format("make the shared region '{}' of {} bytes", name, bytes);
  if (bytes == 0 || bytes > static_cast<size_t>(INT64_MAX)) {
    return Error(Code::kInvalidArgument, Scope::kCall, what + ": no such size");
  }
  // Beyond this limit ftruncate does not only fail, it sends SIGXFSZ.
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && bytes > limit.rlim_cur) {
    return Error(Code::kResourceExhausted, Scope::kCall,
                 fmt::format("{}: the file size limit is {} (ulimit -f)", what, limit.rlim_cur));
  }
  // Kernels before 6.3 do not know the flag that makes the memory not executable.
  const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING | more_flags;
  Fd fd(::memfd_create(name.c_str(), flags | MFD_NOEXEC_SEAL));
  if (!fd.valid() && errno == EINVAL) fd.reset(::memfd_create(name.c_str(), flags));
  if (!fd.valid()) return system_error(what, errno);
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) return system_error(what, errno);
  if (::fcntl(fd.get(), F_ADD_SEALS, kSizeSeals | F_SEAL_SEAL) != 0) {
    return system_error(what + ": seal", errno);
  }
  return map(std::move(fd), bytes);
}

Result<SharedRegion> SharedRegion::adopt(Fd fd, size_t bytes) {
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return system_error("adopt a shared region", errno);
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSizeSeals) != kSizeSeals) {
    return Error(Code::kCorrupt, Scope::kCall,
                 "adopt a shared region: its size is not sealed, so that its other holders could "
                 "cut it under this process");
  }
  if (bytes == 0 || info.st_size < 0 || static_cast<size_t>(info.st_size) != bytes) {
    return Error(Code::kCorrupt, Scope::kCall,
                 fmt::format("adopt a shared region: it has {} bytes, {} were announced",
                             info.st_size, bytes));
  }
  return map(std::move(fd), bytes);
}

SharedRegion& SharedRegion::operator=(SharedRegion&& other) noexcept {
  if (this != &other) {
    unmap();
    fd_ = std::move(other.fd_);
    bytes_ = std::exchange(other.bytes_, {});
    huge_ = other.huge_;
  }
  return *this;
}

void SharedRegion::unmap() {
  if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
  bytes_ = {};
}

Result<void> SharedRegion::allocate(int mode, size_t offset, size_t length, const char* what) {
  if (offset > bytes_.size() || length > bytes_.size() - offset) {
    return Error(Code::kInvalidArgument, Scope::kCall,
                 fmt::format("{}: [{}, +{}) is not in the region's {} bytes", what, offset, length,
                             bytes_.size()));
  }
  if (length == 0) return {};
  if ((mode & FALLOC_FL_PUNCH_HOLE) == 0 && !huge_) {
    // The kernel has no limit of its own here: it would call the OOM killer.
    if (const uint64_t available = memory_left(); length > available) {
      return Error(
          Code::kResourceExhausted, Scope::kCall,
          fmt::format("{}: {} bytes, and {} are available on this host and in its control group",
                      what, length, available));
    }
  }
  int rc;
  do {
    rc = ::fallocate(fd_.get(), mode, static_cast<off_t>(offset), static_cast<off_t>(length));
  } while (rc != 0 && errno == EINTR);
  if (rc != 0) return system_error(what, errno);
  return {};
}

Result<void> SharedRegion::ask_for_huge_pages() {
  if (::madvise(bytes_.data(), bytes_.size(), MADV_HUGEPAGE) != 0) {
    return system_error("ask for transparent huge pages", errno);
  }
  return {};
}

Result<void> SharedRegion::set_inherited(bool inherited) {
  if (::madvise(bytes_.data(), bytes_.size(), inherited ? MADV_DOFORK : MADV_DONTFORK) != 0) {
    return system_error("madvise of a shared region", errno);
  }
  return {};
}

Result<void> SharedRegion::reserve(size_t offset, size_t length) {
  return allocate(FALLOC_FL_KEEP_SIZE, offset, length, "reserve shared memory");
}

Result<void> SharedRegion::punch_hole(size_t offset, size_t length) {
  return allocate(FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, length,
                  "give shared memory back");
}

}  // namespace strata::os
