// InnerOrchestrator: what the code of a task in a child Worker submits its own tasks with. Header
// only, over the C table of strata/call.h: objects built with it do not link libstrata.
//
//   static void stage(strata::Call& call) {
//     strata::InnerOrchestrator orch = call.orchestrator();
//     const strata::InnerHandle scale = orch.inner_handle<scale_fn>();
//     orch.submit_sub(scale, strata::TaskArgs().add_tensor(call.ref(0), strata::INOUT));
//   }
//
// The task ends when its function has returned and its inner tasks are done; their root error is
// the task's failure. An inner task may touch what its task was given and with no more rights: the
// bytes of an argument to read (INPUT, INOUT) and to write (OUTPUT, OUTPUT_EXISTING, INOUT), and
// temporaries. Whatever fails throws InnerError, which, uncaught, is the task's failure too.
// Of the thread and the life of the call that it comes from.
#pragma once

#include <deque>
#include <initializer_list>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "strata/callable.h"
#include "strata/error.h"
#include "strata/task_args.h"
#include "strata/task_ref.h"

namespace strata {

class InnerError : public std::runtime_error {
 public:
  InnerError(Code code, const std::string& text) : std::runtime_error(text), code_(code) {}
  Code code() const { return code_; }

 private:
  Code code_;
};

// A callable that a Worker above made known here by register_inner; of one call.
class InnerHandle {
 private:
  friend class InnerOrchestrator;
  explicit InnerHandle(const strata_inner_handle& raw) : raw_(raw) {}
  strata_inner_handle raw_;
};

class InnerOrchestrator {
 public:
  explicit InnerOrchestrator(const strata_orchestrator* table) : table_(table) {}

  // Storage of temporaries lives until its scope has ended and the tasks that name it.
  class Scope {
   public:
    Scope(Scope&& other) noexcept : table_(std::exchange(other.table_, nullptr)), id_(other.id_) {}
    Scope& operator=(Scope&&) = delete;
    ~Scope() {
      if (table_ != nullptr) table_->end_scope(table_->context, id_);
    }

   private:
    friend class InnerOrchestrator;
    Scope(const strata_orchestrator* table, uint64_t id) : table_(table), id_(id) {}
    const strata_orchestrator* table_;
    uint64_t id_;
  };

  // By identity, "sha256:...".
  InnerHandle inner_handle(std::string_view hashid) const {
    strata_inner_handle raw{};
    check(table_->find_hashid(table_->context, hashid.data(), hashid.size(), &raw));
    return InnerHandle(raw);
  }
  InnerHandle inner_handle(const std::string& library, const std::string& symbol) const {
    strata_inner_handle raw{};
    check(table_->find_native(table_->context, library.c_str(), symbol.c_str(), &raw));
    return InnerHandle(raw);
  }
  // Of a plain function of the program, as local_function<fn> is.
  template <void (*fn)(Call&)>
  InnerHandle inner_handle() const {
    strata_inner_handle raw{};
    check(table_->find_function(table_->context, &detail::entry<fn>, &raw));
    return InnerHandle(raw);
  }

  TaskRef submit_sub(const InnerHandle& callable, const TaskArgs& args,
                     const CallConfig& config = {}) const {
    const Packed packed(args);
    const strata_task_config raw = raw_config(config);
    strata_task_ref out{};
    check(table_->submit_sub(table_->context, &callable.raw_, &packed.raw, &raw, &out));
    return {out.run, out.task};
  }
  // `worker`: an id of the inner Worker; -1: any that is free.
  TaskRef submit_next_level(const InnerHandle& callable, const TaskArgs& args,
                            const CallConfig& config = {}, int worker = -1) const {
    const Packed packed(args);
    const strata_task_config raw = raw_config(config);
    strata_task_ref out{};
    check(table_->submit_next_level(table_->context, &callable.raw_, &packed.raw, &raw, worker,
                                    &out));
    return {out.run, out.task};
  }
  // One task of several members, each on a worker of its own, started together.
  TaskRef submit_sub_group(const InnerHandle& callable, std::span<const TaskArgs> members,
                           const CallConfig& config = {}) const {
    const PackedGroup packed(members);
    const strata_task_config raw = raw_config(config);
    strata_task_ref out{};
    check(table_->submit_sub_group(table_->context, &callable.raw_, packed.raw.data(),
                                   static_cast<uint32_t>(packed.raw.size()), &raw, &out));
    return {out.run, out.task};
  }
  TaskRef submit_next_level_group(const InnerHandle& callable, std::span<const TaskArgs> members,
                                  const CallConfig& config = {},
                                  std::span<const int> workers = {}) const {
    const PackedGroup packed(members);
    const strata_task_config raw = raw_config(config);
    strata_task_ref out{};
    check(table_->submit_next_level_group(table_->context, &callable.raw_, packed.raw.data(),
                                          static_cast<uint32_t>(packed.raw.size()), &raw,
                                          workers.data(), static_cast<uint32_t>(workers.size()),
                                          &out));
    return {out.run, out.task};
  }

  // A new innermost scope. Keep it: `auto scope = orch.scope();`
  [[nodiscard]] Scope scope() const {
    uint64_t id = 0;
    check(table_->begin_scope(table_->context, &id));
    return Scope(table_, id);
  }
  // Automatic storage in the innermost scope, contents undefined.
  Tensor temporary(DType dtype, std::span<const uint64_t> shape) const {
    strata_task_tensor raw{};
    check(table_->temporary(table_->context, static_cast<uint8_t>(dtype),
                            static_cast<uint32_t>(shape.size()), shape.data(), &raw));
    Tensor out;
    out.uid = {raw.ref.uid_high, raw.ref.uid_low};
    out.buffer_index = raw.ref.buffer_index;
    out.dtype = static_cast<DType>(raw.dtype);
    out.rank = raw.rank;
    out.offset = raw.ref.offset;
    for (int d = 0; d < raw.rank; ++d) {
      out.shape[d] = raw.shape[d];
      out.stride[d] = raw.stride[d];
    }
    return out;
  }
  template <class T>
  Tensor temporary(std::initializer_list<uint64_t> shape) const {
    return temporary(DTypeOf<T>::value, std::span<const uint64_t>(shape.begin(), shape.size()));
  }

  // Until one earlier task of this call is done; throws its own error where it failed.
  void wait(TaskRef task) const {
    const strata_task_ref raw{task.run, task.task};
    check(table_->wait(table_->context, &raw));
  }

 private:
  // The arguments of one task in their C form.
  struct Packed {
    explicit Packed(const TaskArgs& args) {
      for (const TensorArg& arg : args.tensors()) {
        strata_task_tensor t{};
        t.ref = {arg.tensor.uid.high, arg.tensor.uid.low, arg.tensor.buffer_index, 0,
                 arg.tensor.offset};
        t.dtype = static_cast<uint8_t>(arg.tensor.dtype);
        t.rank = arg.tensor.rank;
        t.tag = static_cast<uint8_t>(arg.tag);
        t.transfer = static_cast<uint8_t>(arg.transfer);
        for (int d = 0; d < Tensor::kRankMax; ++d) {
          t.shape[d] = arg.tensor.shape[d];
          t.stride[d] = arg.tensor.stride[d];
        }
        tensors.push_back(t);
      }
      raw.size = sizeof raw;
      raw.tensor_count = static_cast<uint32_t>(tensors.size());
      raw.scalar_count = static_cast<uint32_t>(args.scalars().size());
      raw.tensors = tensors.data();
      raw.scalars = args.scalars().data();
      raw.inline_bytes = args.inline_bytes().data();
      raw.inline_nbytes = args.inline_bytes().size();
    }
    Packed(const Packed&) = delete;
    Packed& operator=(const Packed&) = delete;
    InlineVector<strata_task_tensor, 4> tensors;
    strata_task_args raw{};
  };
  struct PackedGroup {
    explicit PackedGroup(std::span<const TaskArgs> args) {
      for (const TaskArgs& one : args) raw.push_back(members.emplace_back(one).raw);
    }
    std::deque<Packed> members;
    std::vector<strata_task_args> raw;
  };

  static strata_task_config raw_config(const CallConfig& config) {
    return {config.block_dim, config.flags, config.deadline_ms, 0};
  }
  void check(int32_t code) const {
    if (code != 0) throw InnerError(static_cast<Code>(code), table_->last_error(table_->context));
  }
  const strata_orchestrator* table_;
};

inline InnerOrchestrator Call::orchestrator() const {
  if (raw_->orchestrator == nullptr) {
    throw std::logic_error(
        "orchestrator() is for tasks of a child Worker; this is a SUB or chip task");
  }
  return InnerOrchestrator(raw_->orchestrator);
}

}  // namespace strata
