// Target: one fuzzer, as target_main.cc makes a program of it. Each is given by a function of its
// own, and is no constant, which a sanitizer would keep: so the linker leaves out of a program what
// its target does not reach, and its edges can be counted. Therefore its seeds, which need what
// writes, are another program's: seeds_main.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace strata::fuzz {

using Bytes = std::vector<std::byte>;

struct Target {
  // Ends the process where something is found.
  void (*test)(std::span<const std::byte> input);
  // Writes a changed input over `input`'s first `size` bytes, at most `size_max`; gives its size.
  size_t (*mutate)(uint8_t* input, size_t size, size_t size_max, uint64_t seed);
};

// Target target_NAME(), and std::vector<Bytes> seeds_of_NAME(): valid inputs to begin with.
#define STRATA_FUZZ_TARGET(name, test, mutate, seeds) \
  Target target_##name();                             \
  Target target_##name() {                            \
    return {test, mutate};                            \
  }                                                   \
  std::vector<Bytes> seeds_of_##name();               \
  std::vector<Bytes> seeds_of_##name() {              \
    return seeds();                                   \
  }                                                   \
  static_assert(true)

// Says what was found, and ends the process as a crash.
[[noreturn]] void found(const char* what, const char* text = "");
// libFuzzer's own change of bytes that have no structure.
size_t mutate_bytes(uint8_t* input, size_t size, size_t size_max);

// Bytes that were asked of malloc since the last call of the first.
void count_allocations();
size_t allocated();

// `STRATA_FUZZ_EDGES=FOLDER`: runs the files of the folder and prints what edges they reach.
void print_edges(const Target& target, const char* folder);

}  // namespace strata::fuzz
