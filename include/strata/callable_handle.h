// What a task runs: descriptors to register, and the handle that registration gives.
//
//   auto scale = worker->register_callable(strata::local_function<scale_fn>("scale"));
//   auto gemm = worker->register_callable(strata::NativeImport{"libkernels.so", "gemm"});
//   auto chip = worker->register_callable(*strata::ChipCallable::from_file("scale.so", "scale"));
//
// Identity is `hashid`, "sha256:" and the SHA-256 of the descriptor's canonical bytes in hex.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "strata/callable.h"
#include "strata/export.h"
#include "strata/result.h"

namespace strata {

enum class CallableKind : uint32_t {
  kChipCallable = 1,
  kPythonSerialized = 2,
  kPythonImport = 3,
  kNativeImport = 4,
  kLocalFunction = 5,
};

STRATA_PUBLIC std::string_view name_of(CallableKind kind);

// An exported entry (see STRATA_EXPORT) of a shared object that only the children load. `library`
// is a file name without a folder, found in WorkerSpec::library_path.
struct NativeImport {
  std::string library;
  std::string symbol;
};

// A plain function of this program: its module's build id and offset. Local children only.
struct LocalFunction {
  strata_entry entry = nullptr;
  std::string name;  // for texts; not part of the identity
};

// `fn` is a `void fn(strata::Call&)` at namespace scope.
template <void (*fn)(Call&)>
LocalFunction local_function(std::string name) {
  return {&detail::entry<fn>, std::move(name)};
}

// A kernel for chips: a shared object, given as bytes, that exports `entry` (see STRATA_EXPORT).
// Its bytes are its identity, so it needs no file on the hosts that run it.
struct STRATA_PUBLIC ChipCallable {
  static constexpr size_t kBlobBytesMax = 64ull << 20;

  std::vector<std::byte> blob;
  std::string entry;
  std::string signature;  // the author's words on the arguments; part of the identity
  std::string platform = "cpu";

  // The bytes of the file at `path`.
  static Result<ChipCallable> from_file(const std::string& path, std::string entry,
                                        std::string signature = "");
};

using Callable = std::variant<NativeImport, LocalFunction, ChipCallable>;

// A value; valid until the Worker that gave it is closed or the callable is unregistered. Other
// Workers refuse it.
struct CallableHandle {
  std::string hashid;
  CallableKind kind = CallableKind::kNativeImport;
  std::string name;
  uint32_t index = 0;       // into the Worker's registry
  uint32_t generation = 0;  // of that entry
  uint64_t worker = 0;      // names the Worker that gave it
};

// What register_inner gives: the callable is known to the orchestration code of child Workers. No
// handle: this Worker's own submits do not take it.
struct InnerReceipt {
  std::string hashid;
  std::string name;
  CallableKind kind = CallableKind::kNativeImport;
  uint64_t worker = 0;      // names the Worker that gave it
  uint32_t index = 0;       // into that Worker's registry
  uint32_t generation = 0;  // of that entry
};

}  // namespace strata
