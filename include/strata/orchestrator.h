// Orchestrator: what an orchestration function submits its tasks with. Bound to the thread and the
// life of that function; tasks run while it does.
#pragma once

#include <initializer_list>
#include <span>
#include <vector>

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
  // The same for the next level: the chips, or the child Workers. `worker` is the id of the one
  // that must take it; -1: any on which the callable is registered.
  Result<TaskRef> submit_next_level(const CallableHandle& callable, const TaskArgs& args,
                                    const CallConfig& config = {}, int worker = -1);

  // A group: one node of the graph. Its members start together, each on a worker of its own, when
  // all that any of them depends on has ended; what depends on one waits for all. Bytes that two
  // members name both must read, or both pass as NO_DEP. When a member fails those that run go on
  // to their end, the others do not start, and the group has the first failure. Refused: a worker
  // named twice, more members than workers that can take them.
  // `workers`: none, or one id for each member, -1 for any.
  Result<TaskRef> submit_next_level_group(const CallableHandle& callable,
                                          std::span<const TaskArgs> members,
                                          const CallConfig& config = {},
                                          std::span<const int> workers = {});
  Result<TaskRef> submit_sub_group(const CallableHandle& callable,
                                   std::span<const TaskArgs> members,
                                   const CallConfig& config = {});

  // Arguments that are not const may have OUTPUT tensors without storage
  // (Tensor::without_storage): each gets automatic storage in the innermost scope, and `args` names
  // it afterwards, for the tasks that read it.
  Result<TaskRef> submit_sub(const CallableHandle& callable, TaskArgs& args,
                             const CallConfig& config = {});
  Result<TaskRef> submit_next_level(const CallableHandle& callable, TaskArgs& args,
                                    const CallConfig& config = {}, int worker = -1);
  Result<TaskRef> submit_next_level_group(const CallableHandle& callable,
                                          std::vector<TaskArgs>& members,
                                          const CallConfig& config = {},
                                          std::span<const int> workers = {});
  Result<TaskRef> submit_sub_group(const CallableHandle& callable, std::vector<TaskArgs>& members,
                                   const CallConfig& config = {});

  // A new inner scope; at most 64 nest. Keep it: `auto scope = orch.scope().value();`
  Result<Scope> scope();

  // Automatic storage in the innermost scope, contents undefined: write it before you read it.
  // Where the heap is full it waits for what tasks in flight will give back of ended scopes.
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
