// OutputFile: a file in memory that stands for the stdout or the stderr of one child, which appends
// to it; the parent reads behind it and gives back what it has read.
//
// Not a pipe: a writer never waits for the reader, and what a killed child wrote is still there.
// Its first page is a header that both sides map. It cannot be cut (sealed), so that no access to a
// mapping of it below its end is SIGBUS. Both processes; one thread each.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>

#include "os/fd.h"
#include "os/shared_region.h"
#include "strata/result.h"

namespace strata::os {

class OutputFile {
 public:
  struct Header {
    std::atomic<uint64_t> task_begin;  // the child: where the output of its current task begins
    std::atomic<uint32_t> told;  // of stdout: the child has signalled since the reader last looked
  };
  static constexpr uint64_t kPageBytes = 4096;
  // Of the first byte that is written. Never at the start of a page: see ChildOutput.
  static constexpr uint64_t kBegin = kPageBytes + 1;

  static Result<OutputFile> create(const std::string& name);
  static Result<OutputFile> adopt(Fd fd);
  OutputFile(OutputFile&& other) noexcept
      : fd_(std::move(other.fd_)), header_(std::exchange(other.header_, nullptr)) {}
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();

  Header& header() const { return *header_; }
  int fd() const { return fd_.get(); }
  // Where the next byte will stand.
  Result<uint64_t> end() const;
  // Of the bytes from `at` on; 0 at the end.
  Result<size_t> read(uint64_t at, std::span<char> out) const;
  // The end of what the current task has written: from tail_begin on. A part of a line is left out,
  // unless it is all there is.
  std::string tail(uint64_t bytes_max) const;
  uint64_t tail_begin(uint64_t bytes_max) const;
  // The pages wholly before `at` take no memory any more. kBegin or later.
  Result<void> forget_before(uint64_t at);

 private:
  OutputFile(Fd fd, Header* header) : fd_(std::move(fd)), header_(header) {}
  static Result<OutputFile> map(Fd fd);
  Fd fd_;
  Header* header_;
};

// False where a limit on the size of files (ulimit -f) would end a child that writes much.
bool output_files_are_possible();

}  // namespace strata::os
