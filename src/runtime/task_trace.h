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
    ticket_ = ticket;
    name_ = callable < names_.size() ? names_[callable] : 0;
    since_ = recorder_->now();
    recorder_->begin(0, task(since_, trace::Mark::kOk));
  }
  void end(bool failed) {
    recorder_->end(0, task(recorder_->now(), failed ? trace::Mark::kFailed : trace::Mark::kOk));
  }

 private:
  // Made of single fields each time: a copy of a whole Event that was just written by parts costs
  // more than its stores.
  trace::Event task(uint64_t end, trace::Mark mark) const {
    return {.start = since_,
            .end = end,
            .id = ticket_,
            .name = name_,
            .kind = trace::Kind::kTask,
            .mark = mark};
  }

  std::unique_ptr<trace::Recorder> recorder_;
  std::vector<uint32_t> names_;     // of the ring, by the callable's index
  std::vector<std::string> texts_;  // likewise
  uint64_t ticket_ = 0;             // of the task that runs
  uint64_t since_ = 0;
  uint32_t name_ = 0;
};

}  // namespace strata::runtime
