// Worker: one level of the machine. It owns its children, its buffers and its callables, and runs
// graphs on them.
//
//   auto worker = strata::Worker::create({.sub_workers = 2}).value();
//   auto x = worker->create_buffer(64 * sizeof(double)).value();
//   auto scale = worker->register_callable(strata::local_function<scale_fn>("scale")).value();
//   worker->init().value();
//   auto outcome = worker->run([&](strata::Orchestrator& orch) {
//     orch.submit_sub(scale, strata::TaskArgs().add_tensor(x.tensor<double>({64}), strata::INOUT))
//         .value();
//   });
//   worker->close().value();
//
// Every call may come from any thread. Inside an orchestration function, submit, run and close of
// the same Worker are refused.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "strata/buffer.h"
#include "strata/callable_handle.h"
#include "strata/chip_usage.h"
#include "strata/export.h"
#include "strata/orchestrator.h"
#include "strata/remote_worker_spec.h"
#include "strata/result.h"
#include "strata/run.h"
#include "strata/start_report.h"
#include "strata/worker_spec.h"

namespace strata {

// What a child does now.
enum class ChildState : uint8_t {
  kStarting = 1,  // its process is made, or is told what is registered; it takes no task yet
  kReady = 2,     // it has nothing to do
  kRunning = 3,   // it has tasks
  kStopped = 4,   // by SIGSTOP or the like; its tasks wait, and fail only by their deadlines
  kReplaced = 5,  // its process has ended, and the next one is not made yet
  kDead = 6,      // for good
};
STRATA_PUBLIC std::string_view name_of(ChildState state);

// What a child can be given. A bit is 1 << the value of its enumeration.
struct ChildCaps {
  uint32_t kinds = 0;  // CallableKind: what can be registered with it
  uint32_t tags = 0;   // TensorArgType: what the tensors of a task for it may be
  bool shares_memory =
      true;             // it sees this Worker's buffers; else a task takes its arguments along
  bool nested = false;  // a Worker: its tasks are orchestration functions
};

class STRATA_PUBLIC Worker {
 public:
  // Checks the spec; starts nothing.
  static Result<std::unique_ptr<Worker>> create(WorkerSpec spec);
  // Closes, and logs what close would have returned.
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Before or after init. The memory is zero.
  Result<Buffer> create_buffer(size_t nbytes);

  // Before or after init; on all children or on none. The same callable twice gives the same
  // hashid, counted. After init it waits behind the tasks that run. `workers`: the children that
  // get it, by id; none: all that can run its kind.
  Result<CallableHandle> register_callable(const Callable& callable,
                                           const std::vector<int>& workers = {});
  Result<void> unregister_callable(const CallableHandle& handle);

  // Makes the callable usable by the orchestration code of the child Workers (all, or those listed)
  // and of every Worker below them: all or nothing. Before or after init; counted like
  // register_callable. What it gives is no handle: submits of this Worker do not take it.
  Result<InnerReceipt> register_inner(const Callable& callable, std::vector<int> workers = {});
  Result<void> unregister_inner(const InnerReceipt& receipt);

  // A Worker below this one, of a smaller level. Before init it is started by init; after init,
  // also while runs are in flight, at once, and the call returns when it is ready, with all that is
  // registered for it. Gives its worker id: before init 0, 1, ... in order, and the SUB children
  // have the ids after the last; later the next one that was never given. `path`: worker ids from
  // this Worker down to the one that gets it, which its parents ask behind the tasks that they run;
  // empty: this one. Not with StartMethod::kInline once init has run.
  Result<int> add_worker(WorkerSpec child, const std::vector<int>& path = {});
  // `count` more SUB children, likewise, all or none: their worker ids. Before init these hold as
  // long as no Worker is added there.
  Result<std::vector<int>> add_sub_workers(int count, const std::vector<int>& path = {});

  // A Worker on another host, in the same id space and at any time: before init it is started by
  // init, after it at once, and the call returns when it is ready. It runs NativeImport callables,
  // with the arguments that go along: scalars, inline bytes and INPUT tensors, 64 KiB in all; what
  // has others stays with the Workers of this host. Lost, it stays lost; add another one.
  Result<int> add_remote_worker(RemoteWorkerSpec spec);
  // Ends its session once what it was given is done. After init.
  Result<void> remove_remote_worker(int worker);

  // Starts the children and waits until all are READY, each with all that is below it. With
  // StartMethod::kFork the process must have one thread still (or allow_threads).
  Result<void> init();
  // By which method that was, and why.
  StartReport start_report() const;

  // Builds a run: calls `build` with an Orchestrator, in this thread, and returns when it has
  // returned. `build` returns void or Result<void>; its Error, or what it throws, is the run's.
  // Runs execute in the order of their submits; the next is built while one executes.
  template <class Build>
  Result<RunHandle> submit(Build&& build) {
    if constexpr (std::is_function_v<std::remove_reference_t<Build>>) {
      auto* const function = &build;
      return submit_erased(erase(function));
    } else {
      return submit_erased(erase(build));
    }
  }
  // submit, then wait.
  template <class Build>
  Result<void> run(Build&& build) {
    if constexpr (std::is_function_v<std::remove_reference_t<Build>>) {
      auto* const function = &build;
      return run_erased(erase(function));
    } else {
      return run_erased(erase(build));
    }
  }

  // Forgets that the bytes of `buffer` were never written by a failed task.
  Result<void> clear_error(const Buffer& buffer);

  // Waits for all runs (Timeouts::close_ms), then ends the children. Idempotent. The Error tells
  // what had to be cancelled or killed.
  Result<void> close();

  // Of chip `chip`, below WorkerSpec::chips; after init.
  Result<ChipUsage> chip_usage(int chip) const;

  struct Child {
    int pid = 0;  // of the process that there is, or was last; 0 before the first
    bool alive = false;
    uint64_t tasks_done = 0;  // of all incarnations
    int id = 0;               // worker id
    ChildState state = ChildState::kStarting;
    uint32_t incarnation = 1;  // it was replaced one time less
    std::string where = {};    // the endpoint of a remote Worker; empty: this host
    ChildCaps caps = {};
  };
  // By worker id, rising. Those of StartMethod::kInline are no children.
  std::vector<Child> sub_children() const;
  std::vector<Child> next_level_children() const;

 private:
  friend class Chip;
  friend class SignalDrain;
  struct Erased {
    void* build;
    Result<void> (*call)(void* build, Orchestrator& orch);
  };
  template <class Build>
  static Result<void> call(void* build, Orchestrator& orch) {
    if constexpr (std::is_void_v<std::invoke_result_t<Build&, Orchestrator&>>) {
      (*static_cast<Build*>(build))(orch);
      return {};
    } else {
      return (*static_cast<Build*>(build))(orch);
    }
  }
  // Also of a const one: the cast comes back to its own type in call.
  template <class Build>
  static Erased erase(Build& build) {
    return {const_cast<void*>(static_cast<const void*>(std::addressof(build))), &call<Build>};
  }
  Result<RunHandle> submit_erased(Erased build);
  Result<void> run_erased(Erased build);

  explicit Worker(std::shared_ptr<WorkerCore> core);
  // Shared with Buffers and RunHandles, which may outlive the Worker.
  std::shared_ptr<WorkerCore> core_;
};

}  // namespace strata
