#include "runtime/executor.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <exception>

#include "base/bytes.h"
#include "engine/core.h"
#include "os/build_id.h"

namespace strata::runtime {
namespace {

Error at_call(Code code, std::string text) {
  return Error(code, Scope::kCall, std::move(text));
}

}  // namespace

Executor::Executor(std::vector<model::MappedSegment> segments, std::string path, InnerWorker* inner)
    : segments_(std::move(segments)), frame_(std::move(path)), inner_(inner) {}

uint32_t Executor::control(uint32_t command, std::span<const std::byte> request,
                           std::string* text) {
  if (command == static_cast<uint32_t>(engine::Command::kAddChildren)) {
    return add_children(request, text);
  }
  base::ByteReader in(request);
  in.get<uint64_t>();  // the transaction: this table needs to know only what is prepared
  registry::EntryRef ref;
  ref.index = in.get<uint32_t>();
  ref.generation = in.get<uint32_t>();
  if (!in.ok() || ref.index >= (1u << 24)) {
    *text = "a control that is too short";
    return static_cast<uint32_t>(Code::kCorrupt);
  }
  if (ref.index >= entries_.size()) entries_.resize(ref.index + 1);
  const Result<void> done =
      apply(static_cast<engine::Command>(command), ref, request.last(in.left()));
  if (done) return 0;
  *text = done.error().message();
  return static_cast<uint32_t>(done.error().code());
}

uint32_t Executor::add_children(std::span<const std::byte> request, std::string* text) {
  const Result<std::string> added =
      inner_ != nullptr ? inner_->add_children(request)
                        : Result<std::string>(at_call(
                              Code::kUnsupported, fmt::format("{} is no Worker", frame_.path())));
  *text = added ? *added : added.error().to_string();
  return added ? 0 : static_cast<uint32_t>(added.error().code());
}

Result<void> Executor::apply(engine::Command command, registry::EntryRef ref,
                             std::span<const std::byte> payload) {
  Entry& entry = entries_[ref.index];
  switch (command) {
    case engine::Command::kPrepare:
      return prepare(entry, ref, payload);
    case engine::Command::kCommit:
      if (entry.generation != ref.generation || (entry.fn == nullptr && !entry.inner)) {
        return at_call(Code::kWrongState, "a commit of what was not prepared");
      }
      if (entry.inner) STRATA_TRY(inner_->commit(ref));
      entry.committed = true;
      return {};
    case engine::Command::kActivate:
      if (entry.generation != ref.generation || !entry.inner) {
        return at_call(Code::kWrongState, "an activation of what was not prepared");
      }
      return inner_->activate(ref);
    case engine::Command::kAbort:
    case engine::Command::kUnregister: {
      if (entry.generation != ref.generation) return {};
      const bool inner = entry.inner;
      entry = {};
      return inner ? inner_->undo(ref) : Result<void>();
    }
    default:
      return at_call(Code::kUnsupported,
                     fmt::format("no control has the number {}", static_cast<uint32_t>(command)));
  }
}

Result<void> Executor::prepare(Entry& entry, registry::EntryRef ref,
                               std::span<const std::byte> payload) {
  STRATA_ASSIGN(registry::PreparePayload decoded, registry::decode_payload(payload));
  if (inner_ != nullptr) inner_->add_library_paths(&decoded);
  if (decoded.inner) {
    if (inner_ == nullptr) {
      return at_call(Code::kUnsupported,
                     fmt::format("{} is no Worker: it has no inner callables", frame_.path()));
    }
    // Before the try: an ABORT must find what a failed one has left.
    entry = {ref.generation, nullptr, false, true, decoded.name};
    return inner_->prepare(ref, decoded);
  }
  STRATA_ASSIGN(strata_entry const fn, resolve(decoded));
  entry = {ref.generation, fn, false, false, decoded.name};
  return {};
}

Result<strata_entry> Executor::resolve(const registry::PreparePayload& payload) {
  if (const auto* import = std::get_if<model::NativeImportDescriptor>(&payload.descriptor)) {
    return resolve_native(payload, *import);
  }
  const auto* const local = std::get_if<model::LocalFunctionDescriptor>(&payload.descriptor);
  if (local == nullptr) {
    return at_call(Code::kUnsupported, fmt::format("'{}' is a chip callable, and {} is no chip",
                                                   payload.name, frame_.path()));
  }
  STRATA_ASSIGN(const void* const address, os::code_at(local->build_id, local->offset));
  return reinterpret_cast<strata_entry>(const_cast<void*>(address));
}

Result<void*> Executor::load(const registry::PreparePayload& payload,
                             const model::NativeImportDescriptor& import, std::string* path) {
  for (const std::string& candidate : payload.library_paths) {
    if (const auto known = libraries_.find(candidate); known != libraries_.end()) {
      *path = candidate;
      return known->second;
    }
    if (::access(candidate.c_str(), F_OK) != 0) continue;
    *path = candidate;
    ::dlerror();
    void* const handle = ::dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      const char* const why = ::dlerror();
      return at_call(Code::kNotFound, fmt::format("{} does not load: {}", candidate,
                                                  why != nullptr ? why : "no reason given"));
    }
    libraries_.emplace(candidate, handle);
    return handle;
  }
  return at_call(Code::kNotFound,
                 fmt::format("no library {} in WorkerSpec::library_path ({})", import.library,
                             payload.library_paths.empty()
                                 ? "which is empty"
                                 : fmt::format("{}", fmt::join(payload.library_paths, ", "))));
}

Result<strata_entry> Executor::resolve_native(const registry::PreparePayload& payload,
                                              const model::NativeImportDescriptor& import) {
  std::string path;
  STRATA_ASSIGN(void* const library, load(payload, import, &path));
  const auto* const abi = static_cast<const uint32_t*>(::dlsym(library, "strata_abi"));
  if (abi == nullptr) {
    return at_call(Code::kAbiMismatch,
                   fmt::format("{} exports no strata_abi: it was not built with STRATA_EXPORT of "
                               "strata/callable.h",
                               path));
  }
  if (*abi != STRATA_ABI) {
    return at_call(Code::kAbiMismatch,
                   fmt::format("{} was built for Strata ABI {}, this is ABI {}: rebuild it with "
                               "this version's headers",
                               path, *abi, STRATA_ABI));
  }
  void* const symbol = ::dlsym(library, import.symbol.c_str());
  if (symbol == nullptr) {
    return at_call(Code::kNotFound, fmt::format("{} exports no symbol {}: name it in STRATA_EXPORT",
                                                path, import.symbol));
  }
  return reinterpret_cast<strata_entry>(symbol);
}

void Executor::run(const mailbox::TaskPost& post, std::span<const std::byte> args,
                   Cancelled cancelled, mailbox::TaskOutcome* outcome) {
  frame_.clear();
  *outcome = {};
  if (post.callable >= entries_.size() || !entries_[post.callable].committed ||
      entries_[post.callable].inner) {
    frame_.fail(-1,
                fmt::format("callable {} is not registered in {}", post.callable, frame_.path()),
                outcome);
    return;
  }
  const Result<void> decoded = decoder_.decode(args, [this](uint32_t segment) {
    return segment < segments_.size() ? segments_[segment] : model::MappedSegment{};
  });
  if (!decoded) {
    frame_.fail(-1, decoded.error().message(), outcome);
    return;
  }
  strata_call raw = frame_.open(post, decoder_, cancelled);
  raw.tensors = decoder_.tensors().data();
  raw.tensor_count = static_cast<uint32_t>(decoder_.tensors().size());
  const Entry& entry = entries_[post.callable];
  std::string text;
  const auto body = [&] { return call(entry, &raw, &text); };
  const int32_t code =
      inner_ == nullptr ? body() : inner_->run(&raw, decoder_, frame_.cancelled(), body, &text);
  if (code == 0) {
    frame_.succeed(outcome);
  } else {
    frame_.fail(code, text.empty() ? frame_.text() : text, outcome);
  }
}

// A C entry may be written in C++ and throw; STRATA_EXPORT's never does.
int32_t Executor::call(const Entry& entry, strata_call* raw, std::string* text) {
  try {
    return entry.fn(raw);
  } catch (const std::exception& e) {
    *text = e.what();
  } catch (...) {
    *text = "an exception that is no std::exception";
  }
  return 1;
}

}  // namespace strata::runtime
