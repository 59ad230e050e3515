#include "strata/chip.h"

#include "base/result.h"
#include "runtime/worker_core.h"
#include "strata/worker.h"

namespace strata {

Chip::Chip(std::unique_ptr<Worker> worker) : worker_(std::move(worker)) {}
Chip::~Chip() = default;

Result<std::unique_ptr<Chip>> Chip::open(ChipSpec spec, const WorkerSpec& process) {
  WorkerSpec one;
  one.chips = 1;
  one.chip = std::move(spec);
  one.start = process.start;
  one.allow_threads = process.allow_threads;
  one.child_server = process.child_server;
  one.inherit_fds = process.inherit_fds;
  one.output = process.output;
  one.limits = process.limits;
  one.timeouts = process.timeouts;
  WorkerPlace place;
  place.root_path = "chip";
  STRATA_ASSIGN(std::shared_ptr<WorkerCore> core,
                WorkerCore::create(std::move(one), std::move(place)));
  std::unique_ptr<Worker> worker(new Worker(std::move(core)));
  STRATA_TRY(worker->init());
  return std::unique_ptr<Chip>(new Chip(std::move(worker)));
}

Result<CallableHandle> Chip::load(const ChipCallable& kernel) {
  return worker_->register_callable(kernel);
}

Result<void> Chip::unload(const CallableHandle& kernel) {
  return worker_->unregister_callable(kernel);
}

Result<Buffer> Chip::create_buffer(size_t nbytes) {
  return worker_->create_buffer(nbytes);
}

Result<std::vector<std::byte>> Chip::run(const CallableHandle& kernel, const TaskArgs& args,
                                         const CallConfig& config) {
  TaskRef task;
  STRATA_ASSIGN(RunHandle handle, worker_->submit([&](Orchestrator& orch) -> Result<void> {
    STRATA_ASSIGN(task, orch.submit_next_level(kernel, args, config, 0));
    return {};
  }));
  STRATA_TRY(handle.wait());
  return handle.result(task);
}

ChipUsage Chip::usage() const {
  const Result<ChipUsage> known = worker_->chip_usage(0);
  return known ? *known : ChipUsage{};
}

Result<void> Chip::close() {
  return worker_->close();
}

}  // namespace strata
