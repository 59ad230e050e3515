// SharedRegion: a memfd and its read-write mapping, which another process can map by the
// descriptor. Its size is sealed: no holder of the descriptor can cut it and turn an access into
// SIGBUS. Knows no layout and no lock. Any thread may touch the bytes; one thread at a time moves,
// frees.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "os/fd.h"
#include "strata/result.h"

namespace strata::os {

class SharedRegion {
 public:
  // All zero. Pages come with their first touch, and a touch that finds no memory is SIGBUS or the
  // OOM killer: reserve() the parts whose loss must be an Error.
  static Result<SharedRegion> create(const std::string& name, size_t bytes);
  // The same of the host's pool of huge pages; `bytes` is a multiple of one. reserve() each part
  // before it is touched: where the pool is empty a touch is SIGBUS.
  static Result<SharedRegion> create_huge(const std::string& name, size_t bytes);
  // A region that another process made. Refused where it is not exactly `bytes` long or its size
  // is not sealed.
  static Result<SharedRegion> adopt(Fd fd, size_t bytes);

  SharedRegion(SharedRegion&& other) noexcept
      : fd_(std::move(other.fd_)), bytes_(std::exchange(other.bytes_, {})), huge_(other.huge_) {}
  SharedRegion& operator=(SharedRegion&& other) noexcept;
  ~SharedRegion() { unmap(); }

  std::byte* data() const { return bytes_.data(); }
  size_t size() const { return bytes_.size(); }
  std::span<std::byte> bytes() const { return bytes_; }
  int fd() const { return fd_.get(); }

  // Asks for transparent huge pages in this mapping.
  Result<void> ask_for_huge_pages();
  // Whether a process that is forked from this one has the mapping too; it has by default.
  Result<void> set_inherited(bool inherited);
  // Gives the range its pages now; kResourceExhausted where there is no memory for them.
  Result<void> reserve(size_t offset, size_t length);
  // Gives the pages that lie wholly in the range back; what the range holds reads as zero after.
  Result<void> punch_hole(size_t offset, size_t length);

 private:
  SharedRegion(Fd fd, std::span<std::byte> bytes) : fd_(std::move(fd)), bytes_(bytes) {}
  static Result<SharedRegion> make(const std::string& name, size_t bytes, unsigned more_flags);
  static Result<SharedRegion> map(Fd fd, size_t bytes);
  Result<void> allocate(int mode, size_t offset, size_t length, const char* what);
  void unmap();
  Fd fd_;
  std::span<std::byte> bytes_;
  bool huge_ = false;  // of the pool, whose pages /proc/meminfo does not count as available
};

}  // namespace strata::os
