// TaskCode: what every simulated task does: reads the bytes of its inputs, takes its time, looks
// whether they are still the same, and writes to each byte of its outputs what follows from them.
//
// Its orders stand in its scalars. It runs in a child's fiber, or in the parent's where the worker
// is inline. One object for each place that runs tasks.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mailbox/child_side.h"
#include "model/args.h"
#include "sim/checks.h"

namespace strata::sim {

struct Shared;

// The scalars of a task.
struct TaskOrders {
  static constexpr size_t kScalars = 4;
  uint32_t task = 0;  // the oracle's number
  uint32_t part = 0;  // of a group
  bool fails = false;
  bool heeds_cancel = false;
  uint64_t ns = 0;
  uint32_t result_bytes = 0;
  std::array<uint64_t, kScalars> encode() const {
    return {task | uint64_t{part} << 32, uint64_t{fails} | uint64_t{heeds_cancel} << 1, ns,
            result_bytes};
  }
  static TaskOrders decode(std::span<const uint64_t> scalars) {
    return {static_cast<uint32_t>(scalars[0]),
            static_cast<uint32_t>(scalars[0] >> 32),
            (scalars[1] & 1) != 0,
            (scalars[1] & 2) != 0,
            scalars[2],
            static_cast<uint32_t>(scalars[3])};
  }
  Checks::Name name() const { return {task, part}; }
};

// The result that it gives: `bytes` bytes that its name decides.
std::vector<std::byte> result_of(Checks::Name name, uint32_t bytes);
// The text of one that fails.
std::string failure_of(Checks::Name name);

class TaskCode {
 public:
  struct End {
    mailbox::Outcome outcome = mailbox::Outcome::kOk;
    int32_t code = 0;
    std::vector<std::byte> result;
    std::string text;
  };

  // `delay(ns)` lets virtual time pass. `name` outlives the simulation.
  TaskCode(Shared* shared, uint32_t worker, std::string_view name,
           std::function<void(uint64_t ns)> delay)
      : shared_(shared), worker_(worker), name_(name), delay_(std::move(delay)) {}
  TaskCode(const TaskCode&) = delete;
  TaskCode& operator=(const TaskCode&) = delete;

  End run(std::span<const std::byte> args, const std::function<bool()>& cancelled);
  // In a child, which says when the task began.
  End run(const mailbox::TaskView& view, const std::function<bool()>& cancelled);

 private:
  Checks::Ranges ranges(bool reads, bool writes) const;
  uint64_t read_inputs(Checks::Name name);
  void write_outputs(uint64_t hash, bool garbage);
  bool outputs_stand(uint64_t hash);

  Shared* shared_;
  uint32_t worker_;
  std::string_view name_;
  std::function<void(uint64_t ns)> delay_;
  model::ArgsDecoder decoder_;
  int64_t began_ns_ = 0;  // of the task that runs, where it is timed
};

}  // namespace strata::sim
