#include "runtime/executor.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <exception>

#include "base/bytes.h"
#include "base/text.h"
#include "engine/core.h"
#include "os/build_id.h"
#include "os/clock.h"

namespace strata::runtime {
namespace {

Error at_call(Code code, std::string text) {
  return Error(code, Scope::kCall, std::move(text));
}

}  // namespace

Executor::Executor(std::vector<model::MappedSegment> segments, std::string path, InnerWorker* inner)
    : segments_(std::move(segments)), path_(std::move(path)), inner_(inner) {}

uint32_t Executor::control(uint32_t command, std::span<const std::byte> request,
                           std::string* text) {
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
                     fmt::format("{} is no Worker: it has no inner callables", path_));
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
    return at_call(Code::kUnsupported,
                   fmt::format("'{}' is a chip callable, and {} is no chip", payload.name, path_));
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
  result_.clear();
  error_.clear();
  *outcome = {};
  const auto fail = [&](std::string text) {
    error_ = std::move(text);
    outcome->outcome = mailbox::Outcome::kTaskFailed;
    outcome->code = -1;
    outcome->text = std::as_bytes(std::span(error_));
  };
  if (post.callable >= entries_.size() || !entries_[post.callable].committed ||
      entries_[post.callable].inner) {
    fail(fmt::format("callable {} is not registered in {}", post.callable, path_));
    return;
  }
  const Result<void> decoded = decoder_.decode(args, [this](uint32_t segment) {
    return segment < segments_.size() ? segments_[segment] : model::MappedSegment{};
  });
  if (!decoded) {
    fail(decoded.error().message());
    return;
  }
  cancelled_ = cancelled;
  deadline_ = post.deadline_ms == 0
                  ? base::Instant::never()
                  : os::monotonic_now() + base::Duration::from_ms(post.deadline_ms);
  strata_call raw{};
  raw.size = sizeof raw;
  raw.abi = STRATA_ABI;
  raw.tensors = decoder_.tensors().data();
  raw.tensor_count = static_cast<uint32_t>(decoder_.tensors().size());
  raw.scalars = decoder_.scalars().data();
  raw.scalar_count = static_cast<uint32_t>(decoder_.scalars().size());
  raw.inline_bytes = decoder_.inline_bytes().data();
  raw.inline_nbytes = decoder_.inline_bytes().size();
  raw.block_dim = post.block_dim;
  raw.flags = post.flags;
  raw.deadline_ms = post.deadline_ms;
  raw.set_result = &Executor::set_result;
  raw.set_error = &Executor::set_error;
  raw.cancelled = &Executor::is_cancelled;
  raw.log = &Executor::log;
  raw.runtime = this;
  const Entry& entry = entries_[post.callable];
  outcome->code = inner_ == nullptr
                      ? call(entry, &raw)
                      : inner_->run(
                            &raw, decoder_, cancelled, [&] { return call(entry, &raw); }, &error_);
  if (outcome->code != 0) {
    outcome->outcome = mailbox::Outcome::kTaskFailed;
    error_.resize(base::cut_text(error_, mailbox::kTextBytesMax).size());
    outcome->text = std::as_bytes(std::span(error_));
  } else {
    outcome->result = result_;
  }
}

// A C entry may be written in C++ and throw; STRATA_EXPORT's never does.
int32_t Executor::call(const Entry& entry, strata_call* raw) {
  try {
    return entry.fn(raw);
  } catch (const std::exception& e) {
    error_ = e.what();
  } catch (...) {
    error_ = "an exception that is no std::exception";
  }
  return 1;
}

int32_t Executor::set_result(const strata_call* raw, const void* bytes, uint64_t n) {
  if (n > mailbox::kResultBytesMax) return -1;
  const auto* const from = static_cast<const std::byte*>(bytes);
  static_cast<Executor*>(raw->runtime)->result_.assign(from, from + n);
  return 0;
}

void Executor::set_error(const strata_call* raw, const char* text, uint64_t n) {
  static_cast<Executor*>(raw->runtime)
      ->error_.assign(base::cut_text({text, n}, mailbox::kTextBytesMax));
}

int32_t Executor::is_cancelled(const strata_call* raw) {
  const auto& self = *static_cast<const Executor*>(raw->runtime);
  if (os::monotonic_now() >= self.deadline_) return 1;
  return self.cancelled_.ask(self.cancelled_.context) ? 1 : 0;
}

void Executor::log(const strata_call* raw, int32_t level, const char* text, uint64_t n) {
  static constexpr const char* kLevels[] = {"trace", "debug", "info", "warning", "error"};
  const auto* const self = static_cast<const Executor*>(raw->runtime);
  const char* const name = level >= 0 && level <= 4 ? kLevels[level] : "info";
  fmt::print(stderr, "[{} {}] {}\n", self->path_, name, base::cut_text({text, n}, 8192));
}

}  // namespace strata::runtime
