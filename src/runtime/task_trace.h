// TaskTrace: what a child's side tells the timeline: the tasks that it runs and the controls that
// it answers, with the names of the callables.
//
// Made only where there is a timeline. The thread that runs the tasks.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trace/ring.h"

namespace strata::runtime {

class TaskTrace {
 public:
  explicit TaskTrace(std::unique_ptr<trace::Recorder> recorder) : recorder_(std::move(recorder)) {}

  trace::Recorder& recorder() { return *recorder_; }
  uint64_t now() const { return recorder_->now(); }

  // A control that began at `since` and was answered with `code`; the request as it came.
  void control(uint64_t since, uint32_t command, std::span<const std::byte> request, uint32_t code);

  // Around one task. `ticket` is its name in the mailbox.
  void begin(uint64_t ticket, uint32_t callable) {
    task_ = {};
    task_.kind = trace::Kind::kTask;
    task_.id = ticket;
    task_.name = callable < names_.size() ? names_[callable] : 0;
    task_.start = recorder_->now();
    recorder_->begin(0, task_);
  }
  void end(bool failed) {
    task_.end = recorder_->now();
    if (failed) task_.mark = trace::Mark::kFailed;
    recorder_->end(0, task_);
  }

 private:
  std::unique_ptr<trace::Recorder> recorder_;
  std::vector<uint32_t> names_;     // of the ring, by the callable's index
  std::vector<std::string> texts_;  // likewise
  trace::Event task_;
};

}  // namespace strata::runtime
