#include "runtime/inner_worker.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/result.h"
#include "model/descriptor.h"
#include "runtime/child_spec.h"
#include "runtime/spec.h"
#include "runtime/worker_core.h"

namespace strata::runtime {
namespace {

engine::ImportedArg imported(const strata_tensor& tensor, const model::DecodedRef& ref) {
  engine::ImportedArg out;
  out.tensor.uid = ref.uid;
  out.tensor.dtype = static_cast<DType>(tensor.dtype);
  out.tensor.rank = tensor.rank;
  out.tensor.offset = ref.offset;
  for (int d = 0; d < tensor.rank; ++d) {
    out.tensor.shape[d] = tensor.shape[d];
    out.tensor.stride[d] = tensor.stride[d];
  }
  out.tag = static_cast<TensorArgType>(tensor.tag);
  // The heap of this Worker comes first for its children, those of the Workers above after it.
  out.segment = ref.segment + 1;
  out.buffer_offset = ref.buffer_offset;
  out.buffer_bytes = ref.buffer_bytes;
  return out;
}

}  // namespace

// ---------------------------------------------------------------- tasks

// A task without tensors opens its run with its first call of the orchestrator: most ask for none.
Result<void> InnerWorker::begin(strata_call* call, const model::ArgsDecoder& args,
                                Cancelled cancelled) {
  if (args.refs().size() != args.tensors().size()) {
    return Error(Code::kCorrupt, Scope::kTask,
                 "the arguments of a task for a child Worker do not say which memory they are");
  }
  cancelled_ = cancelled;
  imports_.clear();
  for (size_t i = 0; i < args.tensors().size(); ++i) {
    imports_.push_back(imported(args.tensors()[i], args.refs()[i]));
  }
  if (!imports_.empty()) STRATA_TRY(open_run());
  refs_.clear();
  for (size_t i = 0; i < imports_.size(); ++i) {
    const Uid& uid = imports_[i].tensor.uid;
    refs_.push_back({uid.high, uid.low, indices_[i], 0, imports_[i].tensor.offset});
  }
  call->orchestrator = &table_;
  call->refs = refs_.data();
  return {};
}

Result<void> InnerWorker::open_run() {
  if (run_) return {};
  STRATA_ASSIGN(run_, core_.begin_inner_run(imports_, &indices_, cancelled_));
  return {};
}

int32_t InnerWorker::run(strata_call* call, const model::ArgsDecoder& args, Cancelled cancelled,
                         const std::function<int32_t()>& body, std::string* error) {
  if (const Result<void> begun = begin(call, args, cancelled); !begun) {
    *error = begun.error().to_string();
    return 1;
  }
  const int32_t code = body();
  if (!run_) return code;
  const Result<void> ended = core_.end_inner_run(*run_);
  run_.reset();
  if (code != 0) return code;
  if (ended) return 0;
  *error = ended.error().to_string();
  return 1;
}

Result<std::string> InnerWorker::add_children(std::span<const std::byte> request) {
  STRATA_ASSIGN(ChildOrder order, decode_child_order(request));
  STRATA_ASSIGN(const std::vector<int> ids, core_.add_children(std::move(order)));
  std::string out;
  for (const int id : ids) out.append(reinterpret_cast<const char*>(&id), sizeof id);
  return out;
}

// ---------------------------------------------------------------- inner registrations

void InnerWorker::add_library_paths(registry::PreparePayload* payload) const {
  const auto* const import = std::get_if<model::NativeImportDescriptor>(&payload->descriptor);
  if (import == nullptr) return;
  std::vector<std::string>& paths = payload->library_paths;
  for (const std::string& folder : core_.spec().library_path) {
    std::string file = folder + "/" + import->library;
    if (std::find(paths.begin(), paths.end(), file) == paths.end())
      paths.push_back(std::move(file));
  }
}

Result<void> InnerWorker::prepare(registry::EntryRef entry,
                                  const registry::PreparePayload& payload) {
  Known& known = known_[entry.index];
  known = {};
  known.generation = entry.generation;
  known.active = !payload.inactive;
  known.hashid = model::hashid_of(model::digest_of(model::descriptor_bytes(payload.descriptor)));
  registry::PreparePayload own = payload;
  own.inner = own.inactive = false;
  // Nothing here submits it before it is usable; but code below would find what is committed there.
  STRATA_ASSIGN(known.own, core_.register_payload(own));
  if (core_.spec().level <= kLowestLevel) return {};
  registry::PreparePayload below = payload;
  below.inactive = true;
  STRATA_ASSIGN(known.below, core_.register_payload(below));
  return {};
}

Result<void> InnerWorker::commit(registry::EntryRef entry) {
  const auto found = known_.find(entry.index);
  if (found == known_.end() || found->second.generation != entry.generation || !found->second.own) {
    return Error(Code::kWrongState, Scope::kCall, "a commit of what was not prepared");
  }
  found->second.committed = true;
  return found->second.active ? make_usable(found->second) : Result<void>();
}

Result<void> InnerWorker::activate(registry::EntryRef entry) {
  const auto found = known_.find(entry.index);
  if (found == known_.end() || found->second.generation != entry.generation) {
    return Error(Code::kWrongState, Scope::kCall, "an activation of what was not prepared");
  }
  found->second.active = true;
  return found->second.committed ? make_usable(found->second) : Result<void>();
}

// All have prepared it, wherever the registration began.
Result<void> InnerWorker::make_usable(Known& known) {
  if (known.below) STRATA_TRY(core_.activate_and_wait(*known.below));
  committed_.insert_or_assign(known.hashid, *known.own);
  return {};
}

Result<void> InnerWorker::undo(registry::EntryRef entry) {
  const auto found = known_.find(entry.index);
  if (found == known_.end() || found->second.generation != entry.generation) return {};
  const Known known = std::move(found->second);
  known_.erase(found);
  if (known.committed) committed_.erase(known.hashid);
  Result<void> first;
  for (const auto& made : {known.below, known.own}) {
    if (!made) continue;
    Result<void> gone = core_.unregister_and_wait(*made);
    if (first && !gone) first = std::move(gone);
  }
  return first;
}

Result<strata_inner_handle> InnerWorker::find(const std::string& hashid) const {
  const auto found = committed_.find(hashid);
  if (found == committed_.end()) {
    return Error(Code::kNotFound, Scope::kCall,
                 fmt::format("{} is not registered with the Worker {}: register_inner of a Worker "
                             "above makes it known",
                             hashid, core_.path()));
  }
  return strata_inner_handle{core_.uid_high(), found->second.index, found->second.generation};
}

}  // namespace strata::runtime
