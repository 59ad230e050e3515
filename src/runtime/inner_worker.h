// InnerWorker: the half of a child Worker that its parent drives: runs a parent's task as an
// orchestration function of an inner run, and keeps what the parent makes known to such functions.
//
// Not the inner Worker, whose children and engine are WorkerCore's. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/imports.h"
#include "engine/run_record.h"
#include "model/args.h"
#include "registry/registry.h"
#include "runtime/call_frame.h"
#include "strata/call.h"
#include "strata/task_args.h"

namespace strata {
class WorkerCore;
}

namespace strata::runtime {

class InnerWorker {
 public:
  // `core` is initialised, closed by the caller, and outlives this.
  explicit InnerWorker(WorkerCore& core);
  InnerWorker(const InnerWorker&) = delete;
  InnerWorker& operator=(const InnerWorker&) = delete;

  // Calls `body` with orchestrator and refs of `call` set, and returns when the inner run is done:
  // what `body` returned, else 1 and *error where a task of the run failed.
  int32_t run(strata_call* call, const model::ArgsDecoder& args, Cancelled cancelled,
              const std::function<int32_t()>& body, std::string* error);

  // The folders of this Worker's library_path, behind those of the Workers above.
  void add_library_paths(registry::PreparePayload* payload) const;

  // More children for this Worker or one below it; the worker ids as u32.
  Result<std::string> add_children(std::span<const std::byte> request);

  // The phases of an inner registration, named by the parent's entry: with this Worker's own
  // children, and as an inner one with its child Workers. A prepare that fails is undone by undo,
  // which may be asked for what was never prepared.
  Result<void> prepare(registry::EntryRef entry, const registry::PreparePayload& payload);
  Result<void> commit(registry::EntryRef entry);
  // Of one that was prepared as inactive: with its COMMIT it is usable now, here and below.
  Result<void> activate(registry::EntryRef entry);
  Result<void> undo(registry::EntryRef entry);

 private:
  struct Known {
    uint32_t generation = 0;
    std::string hashid;
    std::optional<registry::EntryRef> own;    // usable by tasks of this Worker
    std::optional<registry::EntryRef> below;  // inner in the Workers below
    bool committed = false;
    bool active = true;
  };
  struct Calls;  // the functions of the table

  Result<void> make_usable(Known& known);
  Result<void> begin(strata_call* call, const model::ArgsDecoder& args, Cancelled cancelled);
  Result<void> open_run();
  int32_t failed(const Error& error);
  Result<strata_inner_handle> find(const std::string& hashid) const;

  WorkerCore& core_;
  strata_orchestrator table_{};
  std::map<uint32_t, Known> known_;                      // by the parent's index
  std::map<std::string, registry::EntryRef> committed_;  // by hashid; what inner_handle finds
  std::map<strata_entry, std::string> functions_;        // hashids that were looked for
  std::shared_ptr<engine::RunRecord> run_;               // of the task that runs, once it has one
  Cancelled cancelled_{};
  std::vector<engine::ImportedArg> imports_;
  std::vector<uint32_t> indices_;
  std::vector<strata_tensor_ref> refs_;
  std::vector<TaskArgs> unpacked_;  // of the submit that is made
  std::string last_error_;
};

}  // namespace strata::runtime
