// What all targets share: the end of a find, the count of allocations, and the count of edges.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "base/sha256.h"
#include "tests/fuzz/target.h"

extern "C" {
size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t size_max);
// Only where a sanitizer has the allocator: a build that counts edges has none.
__attribute__((weak)) int __sanitizer_install_malloc_and_free_hooks(
    void (*malloc_hook)(const volatile void*, size_t), void (*free_hook)(const volatile void*));
// Made by the linker of the sections that -fsanitize-coverage fills: for each edge a counter, and
// its address.
struct StrataEdge {
  uintptr_t address;
  uintptr_t flags;
};
extern const StrataEdge strata_edges_begin[] __asm__("__start___sancov_pcs");
extern const StrataEdge strata_edges_end[] __asm__("__stop___sancov_pcs");
extern uint8_t strata_counters_begin[] __asm__("__start___sancov_cntrs");
extern uint8_t strata_counters_end[] __asm__("__stop___sancov_cntrs");
extern const char strata_image[] __asm__("__executable_start");
}

namespace strata::fuzz {
namespace {

size_t asked_for = 0;
bool counting = false;

void count(const volatile void*, size_t bytes) {
  if (counting) asked_for += bytes;
}
void count_no_free(const volatile void*) {}

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
    return __sanitizer_install_malloc_and_free_hooks == nullptr ||
           __sanitizer_install_malloc_and_free_hooks(count, count_no_free) != 0;
  }();
  if (!ready) found("the allocator takes no hook");
  asked_for = 0;
  counting = true;
}

size_t allocated() {
  counting = false;
  return asked_for;
}

// For each edge a line: where it is in the program, and `hit` or `-`.
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
  for (size_t i = 0; i < n; ++i) {
    const uintptr_t at = strata_edges_begin[i].address - reinterpret_cast<uintptr_t>(strata_image);
    std::printf("%zx %s\n", static_cast<size_t>(at), hit[i] != 0 ? "hit" : "-");
  }
  std::fflush(stdout);
}

}  // namespace strata::fuzz
