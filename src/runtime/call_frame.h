// CallFrame: what one call of a native entry sees of Strata, and what it leaves behind: the fields
// and functions of a strata_call that are the same wherever a task runs.
//
// Not the callable and not its tensors' memory. One for each executor, reused; one thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/time.h"
#include "mailbox/child_side.h"
#include "mailbox/parent_side.h"
#include "model/args.h"
#include "strata/call.h"

namespace strata::runtime {

// Asks whether the task that runs has been cancelled.
struct Cancelled {
  bool (*ask)(const void* context);
  const void* context;
};

class CallFrame {
 public:
  // `path` is the worker's, for logs ("L3/1").
  explicit CallFrame(std::string path) : path_(std::move(path)) {}
  CallFrame(const CallFrame&) = delete;
  CallFrame& operator=(const CallFrame&) = delete;

  const std::string& path() const { return path_; }
  // Whoever reads this process's stderr puts the path before each line.
  void omit_path() { path_in_logs_ = false; }

  // Forgets the task before: no result and no text.
  void clear();
  // A call of that task, all but its tensors. `args` outlives the call.
  strata_call open(const mailbox::TaskPost& post, const model::ArgsDecoder& args,
                   Cancelled cancelled);

  // The same question as the callable's: also whether its deadline has passed.
  Cancelled cancelled() const;

  // How the task ended; the spans hold until clear().
  void succeed(mailbox::TaskOutcome* outcome);
  void fail(int32_t code, std::string_view text, mailbox::TaskOutcome* outcome);
  // What the callable gave as the text of its failure.
  const std::string& text() const { return text_; }

 private:
  static int32_t set_result(const strata_call* raw, const void* bytes, uint64_t n);
  static void set_error(const strata_call* raw, const char* text, uint64_t n);
  static int32_t is_cancelled(const strata_call* raw);
  bool told_to_stop() const;
  static void log(const strata_call* raw, int32_t level, const char* text, uint64_t n);

  std::string path_;
  bool path_in_logs_ = true;
  Cancelled cancelled_{};
  base::Instant deadline_ = base::Instant::never();  // of the task that runs
  std::vector<std::byte> result_;
  std::string text_;
};

}  // namespace strata::runtime
