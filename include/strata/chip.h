// Chip: one chip with no Worker around it: load kernels, run them one at a time.
//
//   auto chip = strata::Chip::open({.memory_bytes = 64 << 20}).value();
//   auto scale = chip->load(*strata::ChipCallable::from_file("scale.so", "scale")).value();
//   auto x = chip->create_buffer(1024 * sizeof(float)).value();
//   chip->run(scale, strata::TaskArgs().add_tensor(x.tensor<float>({1024}), strata::INOUT),
//             {.block_dim = 8}).value();
//   chip->close().value();
//
// The chip is a process of its own, as those of a Worker are; errors name it "chip/0". Any thread;
// runs of several threads go one after another.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "strata/buffer.h"
#include "strata/callable_handle.h"
#include "strata/chip_usage.h"
#include "strata/export.h"
#include "strata/result.h"
#include "strata/task_args.h"
#include "strata/worker_spec.h"

namespace strata {

class Worker;

class STRATA_PUBLIC Chip {
 public:
  // Starts the chip's process as Worker::init would; of `process` start, allow_threads,
  // child_server, inherit_fds, output, limits and timeouts count.
  static Result<std::unique_ptr<Chip>> open(ChipSpec spec = {}, const WorkerSpec& process = {});
  // Closes, and logs what close would have returned.
  ~Chip();
  Chip(const Chip&) = delete;
  Chip& operator=(const Chip&) = delete;

  Result<CallableHandle> load(const ChipCallable& kernel);
  Result<void> unload(const CallableHandle& kernel);
  // Host memory that the chip can copy from, or map. Zero.
  Result<Buffer> create_buffer(size_t nbytes);
  // Returns when the kernel has ended: the bytes that it gave by set_result.
  Result<std::vector<std::byte>> run(const CallableHandle& kernel, const TaskArgs& args,
                                     const CallConfig& config = {});
  ChipUsage usage() const;
  Result<void> close();

 private:
  explicit Chip(std::unique_ptr<Worker> worker);
  std::unique_ptr<Worker> worker_;
};

}  // namespace strata
