#include "os/output_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include "base/result.h"
#include "os/system_error.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

namespace strata::os {

static_assert(std::atomic<uint64_t>::is_always_lock_free);
static_assert(sizeof(OutputFile::Header) <= OutputFile::kPageBytes);

bool output_files_are_possible() {
  rlimit limit{};
  return ::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur == RLIM_INFINITY;
}

Result<OutputFile> OutputFile::map(Fd fd) {
  void* const at = ::mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (at == MAP_FAILED) return system_error("map the header of a child's output", errno);
  return OutputFile(std::move(fd), static_cast<Header*>(at));
}

Result<OutputFile> OutputFile::create(const std::string& name) {
  const std::string what = fmt::format("make the file '{}' for a child's output", name);
  const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  Fd fd(::memfd_create(name.c_str(), flags | MFD_NOEXEC_SEAL));
  if (!fd.valid() && errno == EINVAL) fd.reset(::memfd_create(name.c_str(), flags));
  if (!fd.valid()) return system_error(what, errno);
  // It grows by being written alone.
  if (::ftruncate(fd.get(), kBegin) != 0 ||
      ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL) != 0 ||
      ::fcntl(fd.get(), F_SETFL, O_APPEND) != 0) {
    return system_error(what, errno);
  }
  STRATA_ASSIGN(OutputFile file, map(std::move(fd)));
  file.header().task_begin.store(kBegin, std::memory_order_relaxed);
  return file;
}

Result<OutputFile> OutputFile::adopt(Fd fd) {
  struct stat info {};
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || ::fstat(fd.get(), &info) != 0 ||
      info.st_size < static_cast<off_t>(kBegin)) {
    return Error(Code::kCorrupt, Scope::kProcess,
                 "a child's output is not the file that it must be");
  }
  return map(std::move(fd));
}

OutputFile::~OutputFile() {
  if (header_ != nullptr) ::munmap(header_, kPageBytes);
}

Result<uint64_t> OutputFile::end() const {
  struct stat info {};
  if (::fstat(fd_.get(), &info) != 0) return system_error("look at a child's output", errno);
  return static_cast<uint64_t>(info.st_size);
}

Result<size_t> OutputFile::read(uint64_t at, std::span<char> out) const {
  for (;;) {
    const ssize_t got = ::pread(fd_.get(), out.data(), out.size(), static_cast<off_t>(at));
    if (got >= 0) return static_cast<size_t>(got);
    if (errno != EINTR) return system_error("read a child's output", errno);
  }
}

uint64_t OutputFile::tail_begin(uint64_t bytes_max) const {
  const uint64_t begin = header_->task_begin.load(std::memory_order_acquire);
  const Result<uint64_t> end = this->end();
  if (!end || *end <= bytes_max) return begin;
  return std::max(begin, *end - bytes_max);
}

std::string OutputFile::tail(uint64_t bytes_max) const {
  const uint64_t begin = tail_begin(bytes_max);
  std::string text(bytes_max, '\0');
  const Result<size_t> got = read(begin, text);
  text.resize(got ? *got : 0);
  if (begin > header_->task_begin.load(std::memory_order_relaxed)) {
    const size_t newline = text.find('\n');
    if (newline != std::string::npos && newline + 1 < text.size()) text.erase(0, newline + 1);
  }
  return text;
}

Result<void> OutputFile::forget_before(uint64_t at) {
  const uint64_t end = at / kPageBytes * kPageBytes;
  if (end <= kPageBytes) return {};
  if (::fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, kPageBytes,
                  static_cast<off_t>(end - kPageBytes)) != 0 &&
      errno != EINTR) {
    return system_error("give back a child's output", errno);
  }
  return {};
}

}  // namespace strata::os
