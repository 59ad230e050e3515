// ChildOutput: the child's end of its captured stdout and stderr: they are OutputFiles from its
// start on, and each task's part of them is known.
//
// A task that writes nothing costs two loads: the byte behind the end of each file is mapped, and
// turns from zero when anything is written, by whatever function and process. One thread.
#pragma once

#include <stdio_ext.h>

#include <cstdio>
#include <ios>
#include <memory>
#include <string>

#include "mailbox/child_side.h"
#include "os/event_fd.h"
#include "os/output_file.h"
#include "runtime/last_lines.h"
#include "strata/result.h"

namespace strata::runtime {

class ChildOutput {
 public:
  // From here on 1 and 2 are those files; `reader` wakes who reads them.
  static Result<std::unique_ptr<ChildOutput>> adopt(os::Fd out, os::Fd err, os::EventFd reader);
  ChildOutput(const ChildOutput&) = delete;
  ChildOutput& operator=(const ChildOutput&) = delete;

  // A task has ended: what it wrote is handed on. Where it failed, its last lines are the end of
  // its text, which then stands here until the next call.
  void after(mailbox::TaskOutcome* outcome) {
    flush_streams();
    if (out_.written() || err_.written()) [[unlikely]]
      hand_on(outcome);
  }
  // Wakes who reads this.
  int reader_fd() const { return reader_.fd(); }
  // The same for what is no task.
  void after_control() {
    flush_streams();
    if (out_.written() || err_.written()) hand_on(nullptr);
  }

 private:
  class Stream {
   public:
    explicit Stream(os::OutputFile file) : file_(std::move(file)) {}
    ~Stream();
    // Anything since settle().
    bool written() const { return *next_ != 0; }
    // What is there now belongs to what has ended.
    void settle();
    // The end of what was written since settle().
    std::string tail() const { return file_.tail(kLastLinesLookBytes); }
    os::OutputFile::Header& header() const { return file_.header(); }
    int fd() const { return file_.fd(); }

   private:
    static constexpr uint64_t kWindowBytes = 1 << 20;
    bool map_window(uint64_t at);
    os::OutputFile file_;
    // A byte that is always "written": where nothing can be mapped each task looks at the file.
    static constexpr char kAlways = 1;
    const volatile char* next_ = &kAlways;
    char* window_ = nullptr;
    uint64_t window_at_ = 0;
  };

  ChildOutput(os::OutputFile out, os::OutputFile err, os::EventFd reader)
      : out_(std::move(out)), err_(std::move(err)), reader_(std::move(reader)) {}
  void flush_streams() {
    if (::__fpending(stdout) > 0) [[unlikely]]
      std::fflush(stdout);
    // It only asks: a program that has let go of C's streams never gets them back.
    if (!std::ios_base::sync_with_stdio(true)) [[unlikely]]
      flush_cxx();
  }
  static void flush_cxx();
  void hand_on(mailbox::TaskOutcome* outcome);

  Stream out_;
  Stream err_;
  os::EventFd reader_;
  std::string text_;
};

}  // namespace strata::runtime
