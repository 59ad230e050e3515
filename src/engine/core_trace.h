// CoreTrace: what a Core tells the timeline. Off, it costs its caller the branch on on().
//
// The clock comes with the recorder. Every call with the step token, and only while on().
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "registry/registry.h"
#include "sched/types.h"
#include "trace/ring.h"

namespace strata::engine {

class CoreTrace {
 public:
  // What a slot says of its task.
  struct Task {
    uint32_t run = 0;  // the scheduler's number
    uint32_t task = 0;
    registry::EntryRef callable;
  };
  struct Place {
    uint32_t worker = 0;
    uint64_t ticket = 0;
  };

  // Null: off. `registry` and the recorder outlive this.
  CoreTrace(trace::Recorder* recorder, const registry::Registry& registry)
      : recorder_(recorder), registry_(registry) {}

  bool on() const { return recorder_ != nullptr; }
  // For the beginning of a span; 0 while off.
  uint64_t now() const { return on() ? recorder_->now() : 0; }

  void run_opened(uint32_t run);
  void run_built(uint32_t run);
  void run_done(uint32_t run, bool failed, bool cancelled);
  void run_cancelled(uint32_t run);

  void submitted(const Task& task);
  void dispatched(uint64_t since, const Task& task, Place place);
  void taken_back(const Task& task, Place place);
  // Of a task that was given to a worker.
  void completed(const Task& task, Place place, sched::Outcome outcome);
  void skipped(const Task& task, bool cancelled);
  // `asked`: it was told to end.
  void worker_gone(uint32_t worker, std::string_view reason, bool asked);
  void slept(uint64_t since);

 private:
  trace::Event event_of(trace::Kind kind, const Task& task);
  uint32_t name_of(registry::EntryRef callable);

  struct Name {
    uint32_t generation = 0;
    uint32_t name = 0;
  };
  trace::Recorder* recorder_;
  const registry::Registry& registry_;
  std::vector<Name> names_;           // by the callable's index
  std::array<uint64_t, 2> opened_{};  // of the runs in flight, by their number
};

}  // namespace strata::engine
