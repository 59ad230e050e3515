// Orchestrator: what an orchestration function submits its tasks with. Bound to the thread and the
// life of that function; tasks run while it does.
#pragma once

#include <initializer_list>
#include <span>

#include "strata/callable_handle.h"
#include "strata/export.h"
#include "strata/result.h"
#include "strata/run.h"
#include "strata/task_args.h"

namespace strata {

class WorkerCore;

class STRATA_PUBLIC Orchestrator {
 public:
  // Storage of temporaries lives until its scope has ended and the last task that names it is
  // terminal. Scopes nest and end by destruction, with all scopes inside them, at the latest when
  // the orchestration function returns. Must not outlive the Worker.
  class STRATA_PUBLIC Scope {
   public:
    Scope(Scope&& other) noexcept : core_(other.core_), id_(other.id_) { other.core_ = nullptr; }
    Scope& operator=(Scope&&) = delete;
    ~Scope();

   private:
    friend class Orchestrator;
    Scope(WorkerCore* core, uint64_t id) : core_(core), id_(id) {}
    WorkerCore* core_;
    uint64_t id_;
  };

  // Queues one task for the SUB children. It starts when all earlier tasks whose bytes conflict
  // with its own have ended well. Waits for a free slot where all are taken. Nothing changes where
  // it is refused.
  Result<TaskRef> submit_sub(const CallableHandle& callable, const TaskArgs& args,
                             const CallConfig& config = {});

  // A new inner scope; at most 64 nest. Keep it: `auto scope = orch.scope().value();`
  Result<Scope> scope();

  // Automatic storage in the innermost scope, contents undefined: write it before you read it.
  Result<Tensor> temporary(DType dtype, std::span<const uint64_t> shape);
  template <class T>
  Result<Tensor> temporary(std::initializer_list<uint64_t> shape) {
    return temporary(DTypeOf<T>::value, std::span<const uint64_t>(shape.begin(), shape.size()));
  }

  // Until one earlier task of this run is terminal; its own error where it failed.
  Result<void> wait(TaskRef task);

  Orchestrator(const Orchestrator&) = delete;
  Orchestrator& operator=(const Orchestrator&) = delete;

 private:
  friend class WorkerCore;
  explicit Orchestrator(WorkerCore& core) : core_(core) {}
  WorkerCore& core_;
};

}  // namespace strata
