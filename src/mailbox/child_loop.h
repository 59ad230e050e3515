// child_loop: the life of a local child behind its mailbox: controls, tasks, spinning, sleep.
//
// No thread, clock or system call of its own: Host brings them. One thread; returns the exit
// status.
//
//   struct Host {
//     // code 0, or a strata::Code and its text
//     uint32_t control(uint32_t command, std::span<const std::byte> request, std::string* text);
//     void run(const TaskView&, TaskOutcome* out);  spans in *out hold until the next run
//     void signal_parent();
//     void sleep(const uint32_t* word);             while *word is 1; may end early
//     // for Waiter: now_ns(), pause()
//   };
#pragma once

#include <span>
#include <string>

#include "mailbox/child_side.h"
#include "mailbox/waiter.h"

namespace strata::mailbox {

// Commands that this loop answers itself; Host sees the others.
inline constexpr uint32_t kCommandExit = 16;
inline constexpr uint32_t kCommandHello = 17;

inline constexpr int kExitAsked = 0;
inline constexpr int kExitCorrupt = 3;  // what the parent wrote does not hold together

template <class Memory, class Host>
class ChildLoop {
 public:
  ChildLoop(ChildSide<Memory>& side, Host& host, WaiterOptions options)
      : side_(side), host_(host), waiter_(options) {}

  int run() {
    for (;;) {
      ControlView control;
      if (side_.control_take(&control)) {
        if (control.command == kCommandExit) return kExitAsked;
        answer(control);
        continue;
      }
      TaskView task;
      if (side_.try_take(&task)) {
        // The completion before this one is told here: taking has fenced already.
        tell_parent(false);
        TaskOutcome outcome;
        if (is_timed(task.deadline_ms, task.flags)) [[unlikely]] {
          run_timed(&task, &outcome);
        } else {
          host_.run(task, &outcome);
        }
        while (!side_.try_complete(task, outcome)) wait();
        continue;
      }
      if (side_.corrupt() != nullptr) return kExitCorrupt;
      wait();
    }
  }

  // The policy of the waiter.
  bool ready() { return side_.have_work(); }
  void pause() { host_.pause(); }
  int64_t now_ns() { return host_.now_ns(); }
  void yield() { host_.yield(); }

 private:
  void run_timed(TaskView* task, TaskOutcome* outcome) {
    side_.note_start(task, host_.now_ns());
    host_.run(*task, outcome);
    outcome->started_ns = task->started_ns;
    outcome->ended_ns = host_.now_ns();
    judge_deadline(task->deadline_ms, outcome);
  }

  void answer(const ControlView& control) {
    std::string text;
    uint32_t code = 0;
    if (control.command != kCommandHello) {
      code = host_.control(control.command, control.request, &text);
    }
    if (text.size() > kControlBytesMax) text.resize(kControlBytesMax);
    side_.control_reply(code, std::as_bytes(std::span(text)));
    tell_parent(false);
  }

  void tell_parent(bool idle) {
    if (side_.parent_asleep_after_publish(idle)) host_.signal_parent();
  }

  void wait() {
    tell_parent(true);
    if (waiter_.spin(*this) == Waiter::Verdict::kReady) return;
    if (waiter_.linger(*this) == Waiter::Verdict::kReady) return;
    if (!side_.prepare_sleep()) return;
    host_.sleep(side_.sleep_word());
    side_.finish_sleep();
    waiter_.slept(host_.now_ns());
  }

  ChildSide<Memory>& side_;
  Host& host_;
  Waiter waiter_;
};

}  // namespace strata::mailbox
