// ChildHost: the Host of mailbox::ChildLoop in a child process, over what runs its tasks there.
//
//   struct Exec {
//     uint32_t control(uint32_t command, std::span<const std::byte> request, std::string* text);
//     void run(const mailbox::TaskPost&, std::span<const std::byte> args, Cancelled,
//              mailbox::TaskOutcome*);
//   };
//
// One thread: the child's.
#pragma once

#include <atomic>
#include <string>
#include <utility>

#include "mailbox/child_side.h"
#include "mailbox/plain_memory.h"
#include "os/clock.h"
#include "os/event_fd.h"
#include "os/futex.h"
#include "os/process.h"
#include "runtime/call_frame.h"
#include "runtime/child_output.h"
#include "runtime/pause.h"
#include "runtime/task_trace.h"

namespace strata::runtime {

using ChildMailbox = mailbox::ChildSide<mailbox::PlainMemory>;

template <class Exec>
class ChildHost {
 public:
  // All outlive this. `parent` wakes the parent; `trace` and `output` may be null.
  ChildHost(ChildMailbox& side, Exec& executor, os::EventFd parent, TaskTrace* trace,
            ChildOutput* output)
      : side_(side),
        executor_(executor),
        parent_(std::move(parent)),
        trace_(trace),
        output_(output) {
    if (output != nullptr) executor.omit_path_in_logs();
  }

  uint32_t control(uint32_t command, std::span<const std::byte> request, std::string* text) {
    const uint64_t since = trace_ != nullptr ? trace_->now() : 0;
    const uint32_t code = executor_.control(command, request, text);
    if (trace_ != nullptr) trace_->control(since, command, request, code);
    if (output_ != nullptr) output_->after_control();
    return code;
  }
  void run(const mailbox::TaskView& task, mailbox::TaskOutcome* outcome) {
    const Asked asked{&side_, &task};
    const mailbox::TaskPost post{task.task, task.callable, task.flags, task.block_dim,
                                 task.deadline_ms};
    if (trace_ != nullptr) [[unlikely]]
      trace_->begin(task.ticket, task.callable);
    executor_.run(post, task.args, {&ChildHost::cancelled, &asked}, outcome);
    if (trace_ != nullptr) [[unlikely]]
      trace_->end(outcome->outcome != mailbox::Outcome::kOk);
    if (output_ != nullptr) output_->after(outcome);
  }
  void signal_parent() { parent_.signal(); }
  // Without a timeout: the fork server's end is this process's, and it ends with the parent.
  void sleep(const uint32_t* word) {
    os::futex_wait(reinterpret_cast<const std::atomic<uint32_t>*>(word), 1);
  }
  int64_t now_ns() { return os::monotonic_now().ns; }
  void pause() { cpu_pause(); }
  void yield() { os::yield_core(); }

 private:
  struct Asked {
    const ChildMailbox* side;
    const mailbox::TaskView* task;
  };
  static bool cancelled(const void* context) {
    const auto* const asked = static_cast<const Asked*>(context);
    return asked->side->cancelled(*asked->task);
  }

  ChildMailbox& side_;
  Exec& executor_;
  os::EventFd parent_;
  TaskTrace* trace_;
  ChildOutput* output_;
};

}  // namespace strata::runtime
