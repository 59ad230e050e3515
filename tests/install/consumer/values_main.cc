// What a user can do with an installed Strata without a Worker: values, errors, and both kinds of
// callables, called through the C entry as a child would call them.
#include <dlfcn.h>
#include <strata/strata.h>

#include <cstdio>
#include <cstring>
#include <string>

namespace {

int failures = 0;

void expect(bool ok, const char* what) {
  if (!ok) {
    std::fprintf(stderr, "failed: %s\n", what);
    ++failures;
  }
}

strata::Result<int> half(int n) {
  if (n % 2 != 0) return strata::Error(strata::Code::kInvalidArgument, strata::Scope::kCall, "odd");
  return n / 2;
}

void check_errors() {
  expect(half(4).value() == 2, "a Result has its value");
  strata::Error error = std::move(half(3).error()).at("here");
  expect(error.to_string() == "INVALID_ARGUMENT [call] at here: odd", "an Error prints itself");
  expect(name_of(strata::Code::kDeadline) == "DEADLINE", "a Code has a name");
  expect(name_of(strata::Scope::kBuffer) == "buffer", "a Scope has a name");
  expect(name_of(strata::DType::kF64) == "f64", "a DType has a name");
  expect(name_of(strata::INOUT) == "INOUT", "a tag has a name");
}

void check_values() {
  strata::TaskArgs args;
  args.add_tensor(strata::Tensor{}, strata::INPUT).add_scalar(2.5);
  expect(args.tensors().size() == 1 && args.scalars().size() == 1, "TaskArgs keep what was added");
  strata::WorkerSpec spec;
  spec.sub_workers = 2;
  expect(spec.timeouts.close_ms > 0, "a WorkerSpec has timeouts");
  expect(std::string(STRATA_VERSION).starts_with("0.1."), "the headers have a version");
}

// Calls `symbol` of `library` on {1, 2, 3} and the scalar 2; expects {2, 4, 6}.
void check_callable(const char* library, const char* symbol) {
  void* handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  expect(handle != nullptr, "a callable's library loads");
  if (handle == nullptr) return;
  const auto* abi = static_cast<const uint32_t*>(dlsym(handle, "strata_abi"));
  const auto entry = reinterpret_cast<strata_entry>(dlsym(handle, symbol));
  expect(abi != nullptr && *abi == STRATA_ABI, "it exports its ABI number");
  expect(entry != nullptr, "it exports its entry");
  double data[3] = {1, 2, 3};
  strata_tensor tensor{};
  tensor.data = data;
  tensor.dtype = static_cast<uint8_t>(strata::DType::kF64);
  tensor.rank = 1;
  tensor.shape[0] = 3;
  tensor.stride[0] = 1;
  const double factor = 2;
  uint64_t scalar = 0;
  std::memcpy(&scalar, &factor, sizeof factor);
  strata_call call{};
  call.size = sizeof call;
  call.abi = STRATA_ABI;
  call.tensors = &tensor;
  call.tensor_count = 1;
  call.scalars = &scalar;
  call.scalar_count = 1;
  if (entry != nullptr) expect(entry(&call) == 0, "the callable succeeds");
  expect(data[0] == 2 && data[1] == 4 && data[2] == 6, "the callable has written its tensor");
  dlclose(handle);
}

}  // namespace

int main() {
  check_errors();
  check_values();
  check_callable(CALLABLE_C, "twice");
  check_callable(CALLABLE_CC, "scale");
  return failures == 0 ? 0 : 1;
}
