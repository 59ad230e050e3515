#include "device/kernel_object.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <atomic>
#include <cerrno>

#include "base/result.h"
#include "os/fd.h"
#include "os/system_error.h"

#ifndef MFD_EXEC
#define MFD_EXEC 0x0010U
#endif

namespace strata::device {
namespace {

Error refused(Code code, std::string text) {
  return Error(code, Scope::kCall, std::move(text));
}

Result<os::Fd> file_of(std::span<const std::byte> blob) {
  // Kernels before 6.3 do not know the flag that they then need not be told.
  const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  os::Fd fd(::memfd_create("strata-kernel", flags | MFD_EXEC));
  if (!fd.valid() && errno == EINVAL) fd.reset(::memfd_create("strata-kernel", flags));
  if (!fd.valid()) return os::system_error("a file in memory for a kernel", errno);
  for (size_t done = 0; done < blob.size();) {
    const ssize_t put = ::write(fd.get(), blob.data() + done, blob.size() - done);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return os::system_error("write a kernel's bytes", put < 0 ? errno : EIO);
    done += static_cast<size_t>(put);
  }
  // What is checked is what runs. F_SEAL_WRITE: the loader maps it privately.
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL;
  if (::fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) return os::system_error("seal a kernel", errno);
  return fd;
}

// Names the descriptor by a path that no other call gives: "./" and "//" spell the count in binary,
// and mean nothing to the kernel. The descriptor's number alone comes again once it is closed.
std::string path_of(const os::Fd& fd) {
  static std::atomic<uint32_t> count{0};
  const uint32_t number = count.fetch_add(1, std::memory_order_relaxed);
  std::string path = "/proc/self/fd/";
  for (int bit = 0; bit < 32; ++bit) path += (number >> bit & 1) != 0 ? "./" : "//";
  return path + std::to_string(fd.get());
}

// The loader names the file in memory, the user knows the kernel.
std::string reason(const std::string& path) {
  const char* const why = ::dlerror();
  std::string text = why != nullptr ? why : "no reason given";
  if (const size_t at = text.find(path); at != std::string::npos) {
    text.replace(at, path.size(), "the object");
  }
  return text;
}

}  // namespace

Result<KernelObject> KernelObject::load(const KernelSource& source) {
  STRATA_ASSIGN(const os::Fd file, file_of(source.blob));
  const std::string path = path_of(file);
  ::dlerror();
  void* const handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return refused(Code::kNotFound, fmt::format("the object of kernel '{}' does not load: {}",
                                                source.name, reason(path)));
  }
  KernelObject object(source.name, handle);
  const auto* const abi = static_cast<const uint32_t*>(::dlsym(handle, "strata_abi"));
  if (abi == nullptr) {
    return refused(Code::kAbiMismatch,
                   fmt::format("the object of kernel '{}' exports no strata_abi: it was not built "
                               "with STRATA_EXPORT of strata/callable.h",
                               source.name));
  }
  if (*abi != STRATA_ABI) {
    return refused(Code::kAbiMismatch,
                   fmt::format("the object of kernel '{}' was built for Strata ABI {}, this is ABI "
                               "{}: rebuild it with this version's headers",
                               source.name, *abi, STRATA_ABI));
  }
  object.entry_ = reinterpret_cast<strata_entry>(::dlsym(handle, source.entry.c_str()));
  if (object.entry_ == nullptr) {
    return refused(Code::kNotFound,
                   fmt::format("the object of kernel '{}' exports no symbol {}: name it in "
                               "STRATA_EXPORT",
                               source.name, source.entry));
  }
  return object;
}

KernelObject::~KernelObject() {
  if (handle_ != nullptr) ::dlclose(handle_);
}

}  // namespace strata::device
