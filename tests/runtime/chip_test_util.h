// Helpers of the tests of chips: Workers with chips, and the test kernels.
#pragma once

#include <string>

#include "tests/runtime/worker_test_util.h"

namespace strata::test {

inline WorkerSpec chip_spec(StartMethod start, int chips, int subs = 0) {
  WorkerSpec spec = spec_of(start, subs);
  spec.chips = chips;
  spec.chip.memory_bytes = 16 << 20;
  return spec;
}

inline std::string kernel_file(const std::string& object) {
  return std::string(STRATA_TEST_KERNELS) + "/" + object + ".so";
}

inline ChipCallable kernel(std::string entry, const std::string& object = "chip_kernels") {
  return ChipCallable::from_file(kernel_file(object), std::move(entry)).value();
}

inline CallableHandle loaded(Worker& worker, std::string entry) {
  return worker.register_callable(kernel(std::move(entry))).value();
}

// One task on chip `chip` (-1: any), waited for.
inline Result<void> run_on_chip(Worker& worker, const CallableHandle& callable,
                                const TaskArgs& args, const CallConfig& config = {},
                                int chip = -1) {
  return worker.run([&](Orchestrator& orch) -> Result<void> {
    const Result<TaskRef> task = orch.submit_next_level(callable, args, config, chip);
    return task ? Result<void>() : Result<void>(task.error());
  });
}

template <class T>
Result<T> result_on_chip(Worker& worker, const CallableHandle& callable, const TaskArgs& args,
                         const CallConfig& config = {}, int chip = -1) {
  TaskRef task;
  Result<RunHandle> run = worker.submit([&](Orchestrator& orch) -> Result<void> {
    const Result<TaskRef> made = orch.submit_next_level(callable, args, config, chip);
    if (!made) return made.error();
    task = *made;
    return {};
  });
  if (!run) return run.error();
  if (const Result<void> done = run->wait(); !done) return done.error();
  return run->result_as<T>(task);
}

inline ChipUsage usage_of(Worker& worker, int chip = 0) {
  return worker.chip_usage(chip).value();
}

}  // namespace strata::test
