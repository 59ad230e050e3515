#include "runtime/remote_executor.h"

#include <fmt/format.h>

#include <cstring>

#include "base/bytes.h"
#include "base/result.h"
#include "base/text.h"
#include "engine/remote_task.h"
#include "os/clock.h"
#include "runtime/worker_core.h"
#include "wire/codec.h"
#include "wire/descriptor.h"

namespace strata::runtime {
namespace {

// A task that took less is over before a look at what it writes would come.
constexpr base::Duration kLookAfter = base::Duration::from_ms(1);

Error at_call(Code code, std::string text) {
  return Error(code, Scope::kCall, std::move(text));
}

}  // namespace

RemoteExecutor::RemoteExecutor(WorkerCore& core, const os::SharedRegion& arena, std::string host)
    : core_(core),
      inner_(core),
      arena_(arena.data(), arena.size()),
      executor_({{arena.data(), arena.size()}}, core.path(), &inner_),
      host_(std::move(host)),
      uid_{~core.uid_high(), 1} {}

// ---------------------------------------------------------------- registrations

wire::ControlReply RemoteExecutor::control(const wire::Control& control) {
  wire::ControlReply reply;
  reply.command = control.command;
  reply.version = control.version;
  const Result<void> done = apply(control);
  if (done) return reply;
  reply.code = static_cast<uint32_t>(done.error().code());
  reply.scope = static_cast<uint32_t>(Scope::kCall);
  reply.message = base::cut_text(done.error().message(), wire::kMessageBytesMax);
  return reply;
}

Result<void> RemoteExecutor::apply(const wire::Control& control) {
  switch (control.command) {
    case wire::ControlCommand::kPrepareRegister: {
      STRATA_ASSIGN(const auto body, wire::decode<wire::PrepareRegister>(control.body));
      return prepare(body);
    }
    case wire::ControlCommand::kCommitRegister: {
      STRATA_ASSIGN(const auto body, wire::decode<wire::EndRegister>(control.body));
      return commit(body);
    }
    case wire::ControlCommand::kAbortRegister: {
      STRATA_ASSIGN(const auto body, wire::decode<wire::EndRegister>(control.body));
      return abort(body);
    }
    case wire::ControlCommand::kUnregister: {
      STRATA_ASSIGN(const auto body, wire::decode<wire::Unregister>(control.body));
      return unregister(body);
    }
    default:
      return at_call(Code::kUnsupported, fmt::format("{} is not for the command lane",
                                                     wire::wire_name(control.command)));
  }
}

Result<void> RemoteExecutor::tell(engine::Command command, registry::EntryRef entry,
                                  std::span<const std::byte> payload) {
  base::ByteWriter request;
  request.put(uint64_t{0});
  request.put(entry.index);
  request.put(entry.generation);
  request.put_bytes(payload);
  std::string text;
  const uint32_t code =
      executor_.control(static_cast<uint32_t>(command), std::move(request).take(), &text);
  if (code == 0) return {};
  return at_call(static_cast<Code>(code), std::move(text));
}

Result<void> RemoteExecutor::prepare(const wire::PrepareRegister& body) {
  const Key key{body.registry, body.digest};
  if (known_.contains(key)) {
    return at_call(Code::kWrongState, fmt::format("{} is registered here, or being registered",
                                                  model::hashid_of(body.digest)));
  }
  if (known_.size() >= core_.spec().limits.callables) {
    return at_call(Code::kResourceExhausted,
                   fmt::format("{} callables are registered here, and Limits::callables is {}",
                               known_.size(), core_.spec().limits.callables));
  }
  STRATA_ASSIGN(const auto callable, wire::decode<wire::CallablePayload>(body.payload));
  STRATA_TRY(wire::check_registration(body, callable));
  STRATA_ASSIGN(model::Descriptor descriptor, model::decode_descriptor(callable.descriptor));
  Known known;
  known.transaction = body.transaction;
  known.name = callable.name;
  registry::PreparePayload payload;
  payload.name = known.name;
  payload.descriptor = std::move(descriptor);
  payload.inner = body.registry == wire::RegistryKind::kInner;
  if (const std::span<const std::byte> blob = callable.blob; !blob.empty()) {
    STRATA_ASSIGN(const engine::NewBuffer made, core_.create_buffer(blob.size()));
    std::memcpy(core_.heap() + made.heap_offset, blob.data(), blob.size());
    known.blob = made.index;
    payload.blob_segment = registry::kSegmentOfTheRegistrar;
    payload.blob_offset = made.heap_offset;
    payload.blob_bytes = blob.size();
  }
  known.entry.index = indices_;
  if (free_.empty()) {
    ++indices_;
  } else {
    known.entry.index = free_.back();
    free_.pop_back();
  }
  known.entry.generation = ++generations_;
  Result<std::vector<std::byte>> encoded = registry::encode_payload(payload);
  const auto at = known_.emplace(key, std::move(known)).first;
  Result<void> done = encoded ? tell(engine::Command::kPrepare, at->second.entry, *encoded)
                              : Result<void>(encoded.error());
  // What a failed one has left behind is undone here: the other side hears that nothing is.
  if (!done) static_cast<void>(forget(at));
  return done;
}

Result<void> RemoteExecutor::commit(const wire::EndRegister& body) {
  const auto at = known_.find({body.registry, body.digest});
  if (at == known_.end() || at->second.transaction != body.transaction) {
    return at_call(Code::kWrongState, "a commit of what was not prepared");
  }
  STRATA_TRY(tell(engine::Command::kCommit, at->second.entry));
  at->second.committed = true;
  return {};
}

// Of what is not known: a PREPARE that failed.
Result<void> RemoteExecutor::abort(const wire::EndRegister& body) {
  const auto at = known_.find({body.registry, body.digest});
  if (at == known_.end() || at->second.transaction != body.transaction) return {};
  return forget(at);
}

Result<void> RemoteExecutor::unregister(const wire::Unregister& body) {
  const auto at = known_.find({body.registry, body.digest});
  if (at == known_.end()) {
    return at_call(Code::kNotFound,
                   fmt::format("{} is not registered here", model::hashid_of(body.digest)));
  }
  return forget(at);
}

Result<void> RemoteExecutor::forget(std::map<Key, Known>::iterator at) {
  const Known known = std::move(at->second);
  known_.erase(at);
  Result<void> done = tell(engine::Command::kUnregister, known.entry);
  free_.push_back(known.entry.index);
  if (known.blob) core_.release_buffer(*known.blob);
  return done;
}

// ---------------------------------------------------------------- tasks

base::Duration RemoteExecutor::last_took(const wire::Task& task) const {
  const auto known = known_.find({wire::RegistryKind::kDispatcher, task.digest});
  return known == known_.end() ? base::Duration{} : known->second.last_took;
}

wire::Completion RemoteExecutor::failed(uint64_t sequence, Code code, std::string text,
                                        const std::string& name) {
  wire::Completion out;
  out.outcome = wire::Outcome::kTaskFailed;
  out.code = static_cast<uint32_t>(code);
  out.scope = static_cast<uint32_t>(Scope::kTask);
  out.message = base::cut_text(text, wire::kMessageBytesMax);
  out.root = {.host = std::string(base::cut_text(host_, wire::kPathBytesMax)),
              .path = std::string(base::cut_text(core_.path(), wire::kPathBytesMax)),
              .callable = std::string(base::cut_text(name, wire::kPathBytesMax)),
              .sequence = sequence};
  return out;
}

wire::Completion RemoteExecutor::run(const wire::Task& task, uint64_t sequence,
                                     Cancelled cancelled) {
  const int64_t started_ns = os::monotonic_now().ns;
  const auto timed = [&](wire::Completion out) {
    out.started_ns = started_ns;
    out.ended_ns = os::monotonic_now().ns;
    return out;
  };
  const auto known = known_.find({wire::RegistryKind::kDispatcher, task.digest});
  if (known == known_.end() || !known->second.committed) {
    return timed(failed(
        sequence, Code::kNotFound,
        fmt::format("{} is not registered with {}", model::hashid_of(task.digest), core_.path()),
        {}));
  }
  const std::string& name = known->second.name;
  mailbox::TaskPost post;
  post.callable = known->second.entry.index;
  if (Result<void> done = engine::unpack_task(task, arena_, &uid_, &post, &args_); !done) {
    return timed(failed(sequence, done.error().code(), done.error().message(), name));
  }
  mailbox::TaskOutcome outcome;
  if (output_ != nullptr && known->second.last_took > kLookAfter) output_->watch();
  executor_.run(post, args_, cancelled, &outcome);
  outcome.started_ns = started_ns;
  outcome.ended_ns = os::monotonic_now().ns;
  known->second.last_took = base::Duration{outcome.ended_ns - started_ns};
  mailbox::judge_deadline(task.config.deadline_ms, &outcome);
  if (output_ != nullptr) output_->after(&outcome);
  if (outcome.outcome == mailbox::Outcome::kOk) {
    wire::Completion out;
    out.started_ns = started_ns;
    out.ended_ns = outcome.ended_ns;
    out.result.assign(outcome.result.begin(), outcome.result.end());
    return out;
  }
  std::string text(reinterpret_cast<const char*>(outcome.text.data()), outcome.text.size());
  if (outcome.outcome == mailbox::Outcome::kDeadline) {
    return timed(failed(sequence, Code::kDeadline, std::move(text), name));
  }
  if (text.empty()) text = fmt::format("it returned {}", outcome.code);
  return timed(failed(sequence, Code::kTaskFailed, std::move(text), name));
}

}  // namespace strata::runtime
