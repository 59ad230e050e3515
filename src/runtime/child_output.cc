#include "runtime/child_output.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iostream>

#include "base/result.h"
#include "base/text.h"
#include "os/system_error.h"
#include "runtime/last_lines.h"

namespace strata::runtime {

Result<std::unique_ptr<ChildOutput>> ChildOutput::adopt(os::Fd out, os::Fd err,
                                                        os::EventFd reader) {
  STRATA_ASSIGN(os::OutputFile out_file, os::OutputFile::adopt(std::move(out)));
  STRATA_ASSIGN(os::OutputFile err_file, os::OutputFile::adopt(std::move(err)));
  std::unique_ptr<ChildOutput> self(
      new ChildOutput(std::move(out_file), std::move(err_file), std::move(reader)));
  std::fflush(nullptr);
  if (::dup2(self->out_.fd(), STDOUT_FILENO) < 0 || ::dup2(self->err_.fd(), STDERR_FILENO) < 0) {
    return os::system_error("capture a child's stdout and stderr", errno);
  }
  // Only with a buffer of its own does a stream that was used before turn to whole lines at once.
  static char buffer[BUFSIZ];
  std::setvbuf(stdout, buffer, _IOLBF, sizeof buffer);
  self->out_.settle();
  self->err_.settle();
  return self;
}

void ChildOutput::flush_cxx() {
  std::cout.flush();
  std::clog.flush();
}

void ChildOutput::hand_on(mailbox::TaskOutcome* outcome) {
  if (outcome != nullptr && outcome->outcome != mailbox::Outcome::kOk) {
    const std::string lines = last_lines(out_.tail(), err_.tail());
    const std::string_view text(reinterpret_cast<const char*>(outcome->text.data()),
                                outcome->text.size());
    text_ = std::string(base::cut_text(text, mailbox::kTextBytesMax - lines.size())) + lines;
    outcome->text = std::as_bytes(std::span(text_));
  }
  out_.settle();
  err_.settle();
  if (out_.header().told.exchange(1, std::memory_order_seq_cst) == 0) reader_.signal();
}

// ---------------------------------------------------------------- one stream

ChildOutput::Stream::~Stream() {
  if (window_ != nullptr) ::munmap(window_, kWindowBytes);
}

bool ChildOutput::Stream::map_window(uint64_t at) {
  const uint64_t begin = at / kWindowBytes * kWindowBytes;
  if (window_ != nullptr && begin == window_at_) return true;
  if (window_ != nullptr) ::munmap(window_, kWindowBytes);
  void* const mapped =
      ::mmap(nullptr, kWindowBytes, PROT_READ, MAP_SHARED, file_.fd(), static_cast<off_t>(begin));
  window_ = mapped == MAP_FAILED ? nullptr : static_cast<char*>(mapped);
  window_at_ = begin;
  return window_ != nullptr;
}

void ChildOutput::Stream::settle() {
  next_ = &kAlways;
  const Result<uint64_t> end = file_.end();
  if (!end) return;
  header().task_begin.store(*end, std::memory_order_release);
  uint64_t at = *end;
  // The byte behind the end must lie in a page of the file: a touch of the next one is SIGBUS.
  // Readers leave this NUL out.
  if (at % os::OutputFile::kPageBytes == 0) {
    if (::write(file_.fd(), "", 1) != 1) return;
    ++at;
  }
  if (map_window(at)) next_ = window_ + (at - window_at_);
}

}  // namespace strata::runtime
