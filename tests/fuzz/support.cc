// What all targets share: the end of a find, the count of allocations, and the count of edges.
#include <fcntl.h>
#include <sanitizer/allocator_interface.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "base/check.h"
#include "base/sha256.h"
#include "tests/fuzz/target.h"

extern "C" {
size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t size_max);
// Made by the linker of the sections that -fsanitize-coverage fills: for each edge a counter, and
// its address with a flag that is 1 where a function begins.
struct StrataEdge {
  uintptr_t address;
  uintptr_t is_entry;
};
extern const StrataEdge strata_edges_begin[] __asm__("__start___sancov_pcs");
extern const StrataEdge strata_edges_end[] __asm__("__stop___sancov_pcs");
extern uint8_t strata_counters_begin[] __asm__("__start___sancov_cntrs");
extern uint8_t strata_counters_end[] __asm__("__stop___sancov_cntrs");
extern const char strata_image[] __asm__("__executable_start");
}

// The calls that end an undefined operation: an edge that leads to one alone is the sanitizer's.
#define STRATA_FUZZ_HANDLERS(H)                                                                   \
  H(add_overflow)                                                                                 \
  H(sub_overflow)                                                                                 \
  H(mul_overflow)                                                                                 \
  H(negate_overflow)                                                                              \
  H(divrem_overflow)                                                                              \
  H(shift_out_of_bounds)                                                                          \
  H(out_of_bounds)                                                                                \
  H(load_invalid_value)                                                                           \
  H(type_mismatch_v1) H(pointer_overflow) H(nonnull_arg) H(nonnull_return_v1)                     \
      H(vla_bound_not_positive) H(float_cast_overflow) H(alignment_assumption)                    \
          H(implicit_conversion) H(invalid_builtin) H(dynamic_type_cache_miss) H(nullability_arg) \
              H(nullability_return_v1) H(function_type_mismatch_v1)
#define STRATA_FUZZ_DECLARE(name) \
  extern "C" __attribute__((weak)) void __ubsan_handle_##name##_abort();
STRATA_FUZZ_HANDLERS(STRATA_FUZZ_DECLARE)
extern "C" __attribute__((weak)) void __ubsan_handle_builtin_unreachable();
extern "C" __attribute__((weak)) void __ubsan_handle_missing_return();

// Called by the standard library's own checks; here, so that calls of it can be told.
namespace std {
void __glibcxx_assert_fail(const char*, int, const char*, const char*) noexcept;
void __glibcxx_assert_fail(const char*, int, const char* function, const char* what) noexcept {
  strata::fuzz::found(what, function);
}
}  // namespace std

namespace strata::fuzz {
namespace {

size_t asked_for = 0;
bool counting = false;

void count(const volatile void*, size_t bytes) {
  if (counting) asked_for += bytes;
}
void count_no_free(const volatile void*) {}

// The address of each handler; empty in a build without that sanitizer.
std::vector<uintptr_t> handlers() {
  std::vector<uintptr_t> out;
#define STRATA_FUZZ_ADDRESS(name) \
  out.push_back(reinterpret_cast<uintptr_t>(&__ubsan_handle_##name##_abort));
  STRATA_FUZZ_HANDLERS(STRATA_FUZZ_ADDRESS)
  out.push_back(reinterpret_cast<uintptr_t>(&__ubsan_handle_builtin_unreachable));
  out.push_back(reinterpret_cast<uintptr_t>(&__ubsan_handle_missing_return));
  out.push_back(reinterpret_cast<uintptr_t>(&std::__glibcxx_assert_fail));
  out.push_back(reinterpret_cast<uintptr_t>(&base::check_failed));
  std::erase(out, uintptr_t{0});
  return out;
}

// Whether the code from `begin` to `end` has a call of a handler: byte 0xe8 and the distance.
__attribute__((no_sanitize("address"))) bool calls_handler(uintptr_t begin, uintptr_t end,
                                                           const std::vector<uintptr_t>& them) {
  for (uintptr_t at = begin; at + 5 <= end; ++at) {
    if (*reinterpret_cast<const uint8_t*>(at) != 0xe8) continue;
    int32_t distance;
    std::memcpy(&distance, reinterpret_cast<const void*>(at + 1), sizeof distance);
    const uintptr_t to = at + 5 + static_cast<uintptr_t>(static_cast<intptr_t>(distance));
    if (std::find(them.begin(), them.end(), to) != them.end()) return true;
  }
  return false;
}

Bytes file_of(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  const auto* const begin = reinterpret_cast<const std::byte*>(text.data());
  return {begin, begin + text.size()};
}

}  // namespace

void found(const char* what, const char* text) {
  std::fprintf(stderr, "strata fuzz: found: %s %s\n", what, text);
  std::abort();
}

size_t mutate_bytes(uint8_t* input, size_t size, size_t size_max) {
  return LLVMFuzzerMutate(input, size, size_max);
}

void count_allocations() {
  static const bool ready = [] {
    base::sha256({});  // OpenSSL's own tables come with the first hash of a process
    return __sanitizer_install_malloc_and_free_hooks(count, count_no_free) != 0;
  }();
  if (!ready) found("the allocator takes no hook");
  asked_for = 0;
  counting = true;
}

size_t allocated() {
  counting = false;
  return asked_for;
}

// For each edge a line: where it is in the program, `entry` of a function or `-`, `hit` or `-`, and
// `check` where it leads to the sanitizer's report alone.
void print_edges(const Target& target, const char* folder) {
  const size_t n = static_cast<size_t>(strata_edges_end - strata_edges_begin);
  if (n != static_cast<size_t>(strata_counters_end - strata_counters_begin)) {
    found("edges and counters differ in number");
  }
  std::vector<char> hit(n, 0);
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const Bytes input = file_of(entry.path());
    std::memset(strata_counters_begin, 0, n);
    target.test(input);
    for (size_t i = 0; i < n; ++i) hit[i] |= static_cast<char>(strata_counters_begin[i] != 0);
  }
  std::vector<uintptr_t> addresses;
  for (size_t i = 0; i < n; ++i) addresses.push_back(strata_edges_begin[i].address);
  std::sort(addresses.begin(), addresses.end());
  const std::vector<uintptr_t> them = handlers();
  for (size_t i = 0; i < n; ++i) {
    const StrataEdge& edge = strata_edges_begin[i];
    const auto next = std::upper_bound(addresses.begin(), addresses.end(), edge.address);
    const uintptr_t end =
        std::min(edge.address + 64, next == addresses.end() ? edge.address + 64 : *next);
    const bool entry = (edge.is_entry & 1) != 0;
    const bool check = !entry && hit[i] == 0 && calls_handler(edge.address, end, them);
    std::printf("%zx %s %s %s\n",
                static_cast<size_t>(edge.address - reinterpret_cast<uintptr_t>(strata_image)),
                entry ? "entry" : "-", hit[i] != 0 ? "hit" : "-", check ? "check" : "-");
  }
  std::fflush(stdout);
}

}  // namespace strata::fuzz
