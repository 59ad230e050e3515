// ChipNote: one shared page in which a chip's process says what it does, so that its parent can
// tell which kernel and block a signal has ended, and what the device's memory holds.
//
// Written by the chip alone, with relaxed stores. What the parent reads is never trusted: a kernel
// may have scribbled over it. Any thread reads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace strata::device {

struct ChipNote {
  static constexpr size_t kBytes = 4096;  // of the shared region that holds one
  static constexpr size_t kNameBytes = 256;
  enum class Doing : uint32_t { kNothing = 0, kLoading = 1, kRunning = 2 };

  std::atomic<uint32_t> doing;  // a Doing
  std::atomic<int32_t> block;
  std::atomic<int32_t> block_dim;
  std::atomic<uint32_t> name_bytes;
  char name[kNameBytes];  // of the kernel; whole before `doing` is set

  std::atomic<uint64_t> memory_bytes;
  std::atomic<uint64_t> used_bytes;
  std::atomic<uint64_t> peak_bytes;
  std::atomic<uint64_t> mappings;       // of host buffers, standing
  std::atomic<uint64_t> mapped_bytes;   // of those
  std::atomic<uint64_t> mappings_made;  // since the start
  std::atomic<uint64_t> copied_in;      // bytes, since the start
  std::atomic<uint64_t> copied_out;

  void begin(Doing what, std::string_view kernel, int32_t blocks) {
    const size_t n = std::min(kernel.size(), kNameBytes);
    std::memcpy(name, kernel.data(), n);
    name_bytes.store(static_cast<uint32_t>(n), std::memory_order_relaxed);
    block.store(0, std::memory_order_relaxed);
    block_dim.store(blocks, std::memory_order_relaxed);
    doing.store(static_cast<uint32_t>(what), std::memory_order_release);
  }
  void end() { doing.store(static_cast<uint32_t>(Doing::kNothing), std::memory_order_relaxed); }

  // For the chip that takes the place of a lost one, before it starts.
  void reset() {
    end();
    for (std::atomic<uint64_t>* count : {&memory_bytes, &used_bytes, &peak_bytes, &mappings,
                                         &mapped_bytes, &mappings_made, &copied_in, &copied_out}) {
      count->store(0, std::memory_order_relaxed);
    }
  }

  // " in kernel 'scale', block 3 of 8", or " while it loaded kernel 'scale'", or nothing.
  std::string where() const;
};
static_assert(sizeof(ChipNote) <= ChipNote::kBytes);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

inline std::string ChipNote::where() const {
  const auto what = static_cast<Doing>(doing.load(std::memory_order_acquire));
  const size_t n = std::min<size_t>(name_bytes.load(std::memory_order_relaxed), kNameBytes);
  const std::string kernel = "'" + std::string(name, n) + "'";
  if (what == Doing::kLoading) return " while it loaded kernel " + kernel;
  if (what != Doing::kRunning) return {};
  return " in kernel " + kernel + ", block " + std::to_string(block.load()) + " of " +
         std::to_string(block_dim.load());
}

}  // namespace strata::device
