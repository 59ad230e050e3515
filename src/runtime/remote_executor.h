// RemoteExecutor: what a runner does for its session: keeps what is registered by digest, and runs
// TASKs as orchestration functions of its Worker. The same Executor and InnerWorker as in a child
// Worker of this host, without a mailbox.
//
// Not a protocol: sequence, credits and lanes are session's. One thread, the command lane's.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "os/shared_region.h"
#include "runtime/executor.h"
#include "runtime/inner_worker.h"
#include "runtime/runner_output.h"
#include "wire/controls.h"
#include "wire/task.h"

namespace strata::runtime {

class RemoteExecutor {
 public:
  // `core` is initialised, with `arena` (engine::kRemoteArenaBytes) as the nearest heap of the
  // Workers above it; both outlive this.
  RemoteExecutor(WorkerCore& core, const os::SharedRegion& arena, std::string host);
  // What tasks write here, from the next one on; outlives the last of them.
  void set_output(RunnerOutput* output) { output_ = output; }
  RemoteExecutor(const RemoteExecutor&) = delete;
  RemoteExecutor& operator=(const RemoteExecutor&) = delete;

  // A non-zero code: nothing was applied.
  wire::ControlReply control(const wire::Control& control);
  // Returns when the task and all that it submitted has ended.
  wire::Completion run(const wire::Task& task, uint64_t sequence, Cancelled cancelled);
  // What the task's callable took when it ran last; long where it never did, nothing where it is
  // not known here.
  base::Duration last_took(const wire::Task& task) const;

 private:
  using Key = std::pair<wire::RegistryKind, base::Sha256>;
  struct Known {
    registry::EntryRef entry;
    uint64_t transaction = 0;
    bool committed = false;
    std::string name;
    std::optional<uint32_t> blob;  // the buffer of a kernel
    base::Duration last_took = base::Duration::from_s(1);
  };

  Result<void> apply(const wire::Control& control);
  Result<void> prepare(const wire::PrepareRegister& body);
  Result<void> commit(const wire::EndRegister& body);
  Result<void> abort(const wire::EndRegister& body);
  Result<void> unregister(const wire::Unregister& body);
  Result<void> tell(engine::Command command, registry::EntryRef entry,
                    std::span<const std::byte> payload = {});
  Result<void> forget(std::map<Key, Known>::iterator at);
  wire::Completion failed(uint64_t sequence, Code code, std::string text, const std::string& name);

  WorkerCore& core_;
  InnerWorker inner_;
  std::span<std::byte> arena_;
  Executor executor_;
  RunnerOutput* output_ = nullptr;
  std::string host_;
  std::map<Key, Known> known_;
  std::vector<uint32_t> free_;  // indices of what is forgotten
  uint32_t indices_ = 0;
  uint32_t generations_ = 0;
  Uid uid_;  // of the next tensor that comes with a task
  std::vector<std::byte> args_;
};

}  // namespace strata::runtime
