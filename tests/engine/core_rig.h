// CoreRig: a Core over fake workers, with a clock that the test moves. Steps it as Front does: the
// time is told only where the Core wants it.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/core.h"
#include "fake_endpoint.h"

namespace strata::engine {

inline Tensor tensor_of(const Core::NewBuffer& buffer, uint64_t begin, uint64_t bytes) {
  Tensor tensor;
  tensor.uid = buffer.uid;
  tensor.buffer_index = buffer.index;
  tensor.dtype = DType::kU8;
  tensor.rank = 1;
  tensor.offset = begin;
  tensor.shape[0] = bytes;
  tensor.stride[0] = 1;
  return tensor;
}
inline Tensor tensor_of(const Core::NewBuffer& buffer) {
  return tensor_of(buffer, 0, buffer.bytes);
}

inline registry::PreparePayload native(const std::string& name) {
  return {name, model::NativeImportDescriptor{"libkernels.so", name}, {}};
}

struct CoreRig {
  explicit CoreRig(uint32_t workers = 1, Limits limits = {.slots = 64, .buffers = 64})
      : CoreRig({.path = "L3", .limits = limits, .timeouts = {}, .uid_high = 77}, workers) {}
  CoreRig(CoreOptions options, uint32_t workers) : core(std::move(options)) {
    for (uint32_t i = 0; i < workers; ++i) add_ready_worker();
    if (workers > 0) gemm = register_callable("gemm");
  }

  uint32_t add_worker(WorkerCaps caps = {}) {
    auto endpoint = std::make_unique<FakeEndpoint>();
    fakes.push_back(endpoint.get());
    const uint32_t worker = core.add_worker(std::move(endpoint), caps);
    core.name_worker(worker, "pid " + std::to_string(100 + worker));
    return worker;
  }
  uint32_t add_ready_worker() {
    const uint32_t worker = add_worker();
    core.start_worker(worker, now);
    settle();
    EXPECT_EQ(core.worker_state(worker), Core::WorkerState::kReady);
    return worker;
  }
  registry::EntryRef register_callable(const std::string& name) {
    const Result<void> begun = core.begin_register(native(name), now);
    EXPECT_TRUE(begun.ok()) << begun.error().to_string();
    settle();
    auto outcome = core.take_register_outcome();
    EXPECT_TRUE(outcome.has_value());
    EXPECT_TRUE(outcome->ok());
    return outcome->value();
  }

  void step() { core.step(core.wants_time() ? now : base::Instant{}); }
  // Every worker answers every control with success, until none is left.
  void settle() {
    for (bool any = true; any;) {
      step();
      any = false;
      for (FakeEndpoint* fake : fakes) {
        if (!fake->posted_control || fake->answered()) continue;
        fake->answer();
        any = true;
      }
    }
  }
  // Every worker ends every task with success, until nothing moves.
  void drain() {
    for (bool any = true; any;) {
      step();
      any = false;
      for (FakeEndpoint* fake : fakes) {
        for (; !fake->queue.empty(); any = true) fake->end();
      }
    }
  }

  Core::Submitted try_submit(RunRecord& run, const TaskArgs& args, const CallConfig& config = {}) {
    error.reset();
    return core.submit(run, {gemm, Where{}, config}, args, &ref, &error);
  }
  TaskRef submit(RunRecord& run, std::initializer_list<TensorArg> tensors = {}) {
    TaskArgs args;
    for (const TensorArg& arg : tensors) args.add_tensor(arg.tensor, arg.tag);
    EXPECT_EQ(try_submit(run, args), Core::Submitted::kDone)
        << (error ? error->to_string() : "no room");
    return ref;
  }
  Core::NewBuffer buffer(uint64_t bytes = 64) {
    Result<Core::NewBuffer> made = core.create_buffer(bytes);
    EXPECT_TRUE(made.ok());
    return made.value();
  }
  FakeEndpoint& fake(uint32_t worker = 0) { return *fakes[worker]; }
  std::string kill_reason() {
    const std::vector<Kill> kills = core.take_kills();
    return kills.size() == 1 ? kills.front().reason : std::to_string(kills.size()) + " kills";
  }

  base::Instant now{1'000'000'000'000};  // far from the start of the clock
  std::vector<FakeEndpoint*> fakes;
  Core core;
  registry::EntryRef gemm;
  TaskRef ref;
  std::optional<Error> error;  // why the last submit was refused
};

}  // namespace strata::engine
