#include "strata/error.h"

#include <fmt/format.h>

#include "base/text.h"
#include "strata/callable_handle.h"
#include "strata/types.h"

namespace strata {

std::string_view name_of(Code code) {
  switch (code) {
    case Code::kInvalidArgument:
      return "INVALID_ARGUMENT";
    case Code::kNotFound:
      return "NOT_FOUND";
    case Code::kWrongState:
      return "WRONG_STATE";
    case Code::kResourceExhausted:
      return "RESOURCE_EXHAUSTED";
    case Code::kDeadline:
      return "DEADLINE";
    case Code::kCancelled:
      return "CANCELLED";
    case Code::kTaskFailed:
      return "TASK_FAILED";
    case Code::kEndpointFailed:
      return "ENDPOINT_FAILED";
    case Code::kSkipped:
      return "SKIPPED";
    case Code::kPoisoned:
      return "POISONED";
    case Code::kAbiMismatch:
      return "ABI_MISMATCH";
    case Code::kUnsupported:
      return "UNSUPPORTED";
    case Code::kSystem:
      return "SYSTEM";
    case Code::kNoWorker:
      return "NO_WORKER";
    case Code::kCorrupt:
      return "CORRUPT";
    case Code::kUserCode:
      return "USER_CODE";
  }
  return "UNKNOWN";
}

std::string_view name_of(Scope scope) {
  switch (scope) {
    case Scope::kCall:
      return "call";
    case Scope::kTask:
      return "task";
    case Scope::kBuffer:
      return "buffer";
    case Scope::kSession:
      return "session";
    case Scope::kGeneration:
      return "generation";
    case Scope::kProcess:
      return "process";
  }
  return "unknown";
}

std::string_view name_of(TensorArgType tag) {
  switch (tag) {
    case TensorArgType::kInput:
      return "INPUT";
    case TensorArgType::kOutput:
      return "OUTPUT";
    case TensorArgType::kInout:
      return "INOUT";
    case TensorArgType::kOutputExisting:
      return "OUTPUT_EXISTING";
    case TensorArgType::kNoDep:
      return "NO_DEP";
  }
  return "unknown";
}

std::string_view name_of(CallableKind kind) {
  switch (kind) {
    case CallableKind::kChipCallable:
      return "CHIP_CALLABLE";
    case CallableKind::kPythonSerialized:
      return "PYTHON_SERIALIZED";
    case CallableKind::kPythonImport:
      return "PYTHON_IMPORT";
    case CallableKind::kNativeImport:
      return "NATIVE_IMPORT";
    case CallableKind::kLocalFunction:
      return "LOCAL_FUNCTION";
  }
  return "unknown";
}

std::string_view name_of(DType dtype) {
  switch (dtype) {
    case DType::kU8:
      return "u8";
    case DType::kI8:
      return "i8";
    case DType::kU16:
      return "u16";
    case DType::kI16:
      return "i16";
    case DType::kU32:
      return "u32";
    case DType::kI32:
      return "i32";
    case DType::kU64:
      return "u64";
    case DType::kI64:
      return "i64";
    case DType::kF16:
      return "f16";
    case DType::kBF16:
      return "bf16";
    case DType::kF32:
      return "f32";
    case DType::kF64:
      return "f64";
    case DType::kF8E4M3:
      return "f8e4m3";
    case DType::kF8E5M2:
      return "f8e5m2";
    case DType::kBool:
      return "bool";
    case DType::kMxF8E4M3:
      return "mxf8e4m3";
    case DType::kMxF8E5M2:
      return "mxf8e5m2";
    case DType::kMxF4E2M1:
      return "mxf4e2m1";
  }
  return "unknown";
}

std::string_view name_of(Transfer transfer) {
  switch (transfer) {
    case Transfer::kDefault:
      return "default";
    case Transfer::kCopy:
      return "copy";
    case Transfer::kMap:
      return "map";
  }
  return "unknown";
}

Error::Error(Code code, Scope scope, std::string message, std::string where)
    : code_(code), scope_(scope), message_(std::move(message)), where_(std::move(where)) {
  message_.resize(base::cut_text(message_, kMessageBytesMax).size());
}

std::string Error::to_string() const {
  if (where_.empty()) return fmt::format("{} [{}]: {}", name_of(code_), name_of(scope_), message_);
  return fmt::format("{} [{}] at {}: {}", name_of(code_), name_of(scope_), where_, message_);
}

Error Error::at(std::string where) && {
  if (where_.empty()) where_ = std::move(where);
  return std::move(*this);
}

}  // namespace strata
