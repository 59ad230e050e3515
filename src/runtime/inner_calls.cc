// The functions of the C table `strata_orchestrator`.
#include <fmt/format.h>

#include <span>

#include "base/result.h"
#include "model/descriptor.h"
#include "os/build_id.h"
#include "runtime/inner_worker.h"
#include "runtime/worker_core.h"

namespace strata::runtime {
namespace {

Error refuse(Code code, std::string text) {
  return Error(code, Scope::kCall, std::move(text));
}

CallConfig config_of(const strata_task_config* raw) {
  return {raw->block_dim, raw->flags, raw->deadline_ms};
}

CallableHandle handle_of(const strata_inner_handle* raw) {
  CallableHandle out;
  out.index = raw->index;
  out.generation = raw->generation;
  out.worker = raw->worker;
  return out;
}

std::string hashid_of(const model::Descriptor& descriptor) {
  return model::hashid_of(model::digest_of(model::descriptor_bytes(descriptor)));
}

// The arguments as the rest of Strata takes them.
Result<void> unpack(const strata_task_args* raw, TaskArgs* out) {
  if (raw->size < sizeof(strata_task_args)) {
    return refuse(Code::kAbiMismatch, fmt::format("arguments of {} bytes, at least {}", raw->size,
                                                  sizeof(strata_task_args)));
  }
  if (raw->tensor_count > TaskArgs::kTensorsMax || raw->scalar_count > TaskArgs::kScalarsMax ||
      raw->inline_nbytes > TaskArgs::kInlineBytesMax) {
    return refuse(
        Code::kInvalidArgument,
        fmt::format("a task has at most {} tensors, {} scalars and {} inline bytes, not "
                    "{}, {} and {}",
                    TaskArgs::kTensorsMax, TaskArgs::kScalarsMax, TaskArgs::kInlineBytesMax,
                    raw->tensor_count, raw->scalar_count, raw->inline_nbytes));
  }
  out->clear();
  for (uint32_t i = 0; i < raw->tensor_count; ++i) {
    const strata_task_tensor& t = raw->tensors[i];
    Tensor tensor;
    tensor.uid = {t.ref.uid_high, t.ref.uid_low};
    tensor.buffer_index = t.ref.buffer_index;
    tensor.dtype = static_cast<DType>(t.dtype);
    tensor.rank = t.rank;
    tensor.offset = t.ref.offset;
    for (int d = 0; d < Tensor::kRankMax; ++d) {
      tensor.shape[d] = t.shape[d];
      tensor.stride[d] = t.stride[d];
    }
    out->add_tensor(tensor, static_cast<TensorArgType>(t.tag), static_cast<Transfer>(t.transfer));
  }
  for (uint32_t i = 0; i < raw->scalar_count; ++i) out->add_scalar(raw->scalars[i]);
  if (raw->inline_nbytes > 0) {
    out->set_inline({static_cast<const std::byte*>(raw->inline_bytes), raw->inline_nbytes});
  }
  return {};
}

}  // namespace

int32_t InnerWorker::failed(const Error& error) {
  last_error_ = error.where().empty() ? error.message()
                                      : fmt::format("at {}: {}", error.where(), error.message());
  return static_cast<int32_t>(error.code());
}

struct InnerWorker::Calls {
  static InnerWorker& self(void* context) { return *static_cast<InnerWorker*>(context); }

  static int32_t told(InnerWorker& inner, const Result<TaskRef>& task, strata_task_ref* out) {
    if (!task) return inner.failed(task.error());
    *out = {task->run, task->task};
    return 0;
  }

  static int32_t submit(void* context, const strata_inner_handle* callable, engine::Where where,
                        const strata_task_args* args, const strata_task_config* config,
                        strata_task_ref* out) {
    InnerWorker& inner = self(context);
    if (const Result<void> open = inner.open_run(); !open) return inner.failed(open.error());
    inner.unpacked_.resize(1);
    if (const Result<void> taken = unpack(args, &inner.unpacked_[0]); !taken) {
      return inner.failed(taken.error());
    }
    return told(
        inner,
        inner.core_.submit(handle_of(callable), where, inner.unpacked_[0], config_of(config)), out);
  }
  static int32_t submit_group(void* context, const strata_inner_handle* callable, engine::Pool pool,
                              std::span<const strata_task_args> members,
                              std::span<const int32_t> workers, const strata_task_config* config,
                              strata_task_ref* out) {
    InnerWorker& inner = self(context);
    if (const Result<void> open = inner.open_run(); !open) return inner.failed(open.error());
    inner.unpacked_.resize(members.size());
    for (size_t i = 0; i < members.size(); ++i) {
      if (const Result<void> taken = unpack(&members[i], &inner.unpacked_[i]); !taken) {
        return inner.failed(taken.error());
      }
    }
    return told(inner,
                inner.core_.submit_group(handle_of(callable), pool, inner.unpacked_, workers,
                                         config_of(config)),
                out);
  }

  static int32_t submit_sub(void* context, const strata_inner_handle* callable,
                            const strata_task_args* args, const strata_task_config* config,
                            strata_task_ref* out) {
    return submit(context, callable, {engine::Pool::kSub, -1}, args, config, out);
  }
  static int32_t submit_next_level(void* context, const strata_inner_handle* callable,
                                   const strata_task_args* args, const strata_task_config* config,
                                   int32_t worker, strata_task_ref* out) {
    return submit(context, callable, {engine::Pool::kNext, worker}, args, config, out);
  }
  static int32_t submit_sub_group(void* context, const strata_inner_handle* callable,
                                  const strata_task_args* members, uint32_t member_count,
                                  const strata_task_config* config, strata_task_ref* out) {
    return submit_group(context, callable, engine::Pool::kSub, {members, member_count}, {}, config,
                        out);
  }
  static int32_t submit_next_level_group(void* context, const strata_inner_handle* callable,
                                         const strata_task_args* members, uint32_t member_count,
                                         const strata_task_config* config, const int32_t* workers,
                                         uint32_t worker_count, strata_task_ref* out) {
    return submit_group(context, callable, engine::Pool::kNext, {members, member_count},
                        {workers, worker_count}, config, out);
  }

  static int32_t begin_scope(void* context, uint64_t* scope) {
    InnerWorker& inner = self(context);
    if (const Result<void> open = inner.open_run(); !open) return inner.failed(open.error());
    const Result<uint64_t> begun = inner.core_.begin_scope();
    if (!begun) return inner.failed(begun.error());
    *scope = *begun;
    return 0;
  }
  static void end_scope(void* context, uint64_t scope) { self(context).core_.end_scope(scope); }

  static int32_t temporary(void* context, uint8_t dtype, uint32_t rank, const uint64_t* shape,
                           strata_task_tensor* out) {
    InnerWorker& inner = self(context);
    if (const Result<void> open = inner.open_run(); !open) return inner.failed(open.error());
    const Result<Tensor> made =
        inner.core_.temporary(static_cast<DType>(dtype), std::span(shape, rank));
    if (!made) return inner.failed(made.error());
    *out = {};
    out->ref = {made->uid.high, made->uid.low, made->buffer_index, 0, made->offset};
    out->dtype = static_cast<uint8_t>(made->dtype);
    out->rank = made->rank;
    for (int d = 0; d < made->rank; ++d) {
      out->shape[d] = made->shape[d];
      out->stride[d] = made->stride[d];
    }
    return 0;
  }

  static int32_t wait(void* context, const strata_task_ref* task) {
    InnerWorker& inner = self(context);
    if (const Result<void> open = inner.open_run(); !open) return inner.failed(open.error());
    const Result<void> ended = inner.core_.wait_task({task->run, task->task});
    return ended ? 0 : inner.failed(ended.error());
  }

  static int32_t found(InnerWorker& inner, const std::string& hashid, strata_inner_handle* out) {
    const Result<strata_inner_handle> handle = inner.find(hashid);
    if (!handle) return inner.failed(handle.error());
    *out = *handle;
    return 0;
  }

  static int32_t find_hashid(void* context, const char* hashid, uint64_t n,
                             strata_inner_handle* out) {
    return found(self(context), std::string(hashid, n), out);
  }

  static int32_t find_native(void* context, const char* library, const char* symbol,
                             strata_inner_handle* out) {
    InnerWorker& inner = self(context);
    const model::Descriptor descriptor = model::NativeImportDescriptor{library, symbol};
    if (const Result<void> valid = model::validate(descriptor); !valid) {
      return inner.failed(valid.error());
    }
    const int32_t code = found(inner, hashid_of(descriptor), out);
    if (code != 0) inner.last_error_ += fmt::format(" ('{}' of {})", symbol, library);
    return code;
  }

  static int32_t find_function(void* context, strata_entry entry, strata_inner_handle* out) {
    InnerWorker& inner = self(context);
    auto known = inner.functions_.find(entry);
    if (known == inner.functions_.end()) {
      Result<os::CodeAddress> address = os::code_address_of(reinterpret_cast<const void*>(entry));
      if (!address) return inner.failed(address.error());
      const model::Descriptor descriptor =
          model::LocalFunctionDescriptor{std::move(address->build_id), address->offset};
      known = inner.functions_.emplace(entry, hashid_of(descriptor)).first;
    }
    return found(inner, known->second, out);
  }

  static const char* last_error(void* context) { return self(context).last_error_.c_str(); }
};

InnerWorker::InnerWorker(WorkerCore& core) : core_(core) {
  table_.size = sizeof table_;
  table_.context = this;
  table_.submit_sub = &Calls::submit_sub;
  table_.submit_next_level = &Calls::submit_next_level;
  table_.submit_sub_group = &Calls::submit_sub_group;
  table_.submit_next_level_group = &Calls::submit_next_level_group;
  table_.begin_scope = &Calls::begin_scope;
  table_.end_scope = &Calls::end_scope;
  table_.temporary = &Calls::temporary;
  table_.wait = &Calls::wait;
  table_.find_hashid = &Calls::find_hashid;
  table_.find_native = &Calls::find_native;
  table_.find_function = &Calls::find_function;
  table_.last_error = &Calls::last_error;
}

}  // namespace strata::runtime
