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

Executor::Executor(std::span<std::byte> heap, std::string path)
    : heap_(heap), frame_(std::move(path)) {}

uint32_t Executor::control(uint32_t command, std::span<const std::byte> request,
                           std::string* text) {
  base::ByteReader in(request);
  in.get<uint64_t>();  // the transaction: this table needs to know only what is prepared
  const uint32_t index = in.get<uint32_t>();
  const uint32_t generation = in.get<uint32_t>();
  if (!in.ok() || index >= (1u << 24)) {
    *text = "a control that is too short";
    return static_cast<uint32_t>(Code::kCorrupt);
  }
  if (index >= entries_.size()) entries_.resize(index + 1);
  Entry& entry = entries_[index];
  switch (static_cast<engine::Command>(command)) {
    case engine::Command::kPrepare: {
      const Result<registry::PreparePayload> payload =
          registry::decode_payload(request.last(in.left()));
      Result<strata_entry> fn = payload ? resolve(*payload) : Result<strata_entry>(payload.error());
      if (!fn) {
        *text = fn.error().message();
        return static_cast<uint32_t>(fn.error().code());
      }
      entry = {generation, *fn, false, payload->name};
      return 0;
    }
    case engine::Command::kCommit:
      if (entry.generation != generation || entry.fn == nullptr) {
        *text = "a commit of what was not prepared";
        return static_cast<uint32_t>(Code::kWrongState);
      }
      entry.committed = true;
      return 0;
    case engine::Command::kAbort:
    case engine::Command::kUnregister:
      if (entry.generation == generation) entry = {};
      return 0;
    default:
      *text = fmt::format("no control has the number {}", command);
      return static_cast<uint32_t>(Code::kUnsupported);
  }
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
  if (post.callable >= entries_.size() || !entries_[post.callable].committed) {
    frame_.fail(-1,
                fmt::format("callable {} is not registered in {}", post.callable, frame_.path()),
                outcome);
    return;
  }
  const Result<void> decoded = decoder_.decode(args, [this](uint32_t segment) {
    return segment == 0 ? model::MappedSegment{heap_.data(), heap_.size()} : model::MappedSegment{};
  });
  if (!decoded) {
    frame_.fail(-1, decoded.error().message(), outcome);
    return;
  }
  strata_call raw = frame_.open(post, decoder_, cancelled);
  raw.tensors = decoder_.tensors().data();
  raw.tensor_count = static_cast<uint32_t>(decoder_.tensors().size());
  std::string thrown;
  const int32_t code = call(entries_[post.callable], &raw, &thrown);
  if (code == 0) {
    frame_.succeed(outcome);
  } else {
    frame_.fail(code, thrown.empty() ? frame_.text() : thrown, outcome);
  }
}

// A C entry may be written in C++ and throw; STRATA_EXPORT's never does.
int32_t Executor::call(const Entry& entry, strata_call* raw, std::string* thrown) {
  try {
    return entry.fn(raw);
  } catch (const std::exception& e) {
    *thrown = e.what();
  } catch (...) {
    *thrown = "an exception that is no std::exception";
  }
  return 1;
}

}  // namespace strata::runtime
