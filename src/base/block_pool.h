// BlockPool: blocks of 256 bytes to 128 KiB in power-of-two classes, with a bound on the total.
// A freed block goes to its class's list and is never given back to the system before the pool
// itself goes: steady state makes no allocation. Not for objects with destructors. The caller locks.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/check.h"

namespace strata::base {

class BlockPool {
 public:
  static constexpr uint32_t kLeastShift = 8;
  static constexpr uint32_t kMostShift = 17;
  static constexpr size_t kBlockBytesMax = size_t{1} << kMostShift;

  struct Block {
    std::byte* data = nullptr;
    uint32_t shift = 0;
  };

  explicit BlockPool(size_t bytes_max) : bytes_max_(bytes_max) {}

  // Whether allocate(bytes) would succeed now.
  bool can_allocate(size_t bytes) const {
    const uint32_t shift = shift_of(bytes);
    return free_[shift - kLeastShift] != nullptr || chunk_bytes(shift) + total_ <= bytes_max_;
  }

  // At least `bytes` bytes, aligned to 64; data is null where the bound is reached.
  Block allocate(size_t bytes) {
    const uint32_t shift = shift_of(bytes);
    Free*& head = free_[shift - kLeastShift];
    if (head == nullptr && !grow(shift)) return {};
    Free* block = head;
    head = block->next;
    if (head != nullptr) __builtin_prefetch(head, 1);
    return {reinterpret_cast<std::byte*>(block), shift};
  }

  void free(Block block) {
    Free*& head = free_[block.shift - kLeastShift];
    head = new (block.data) Free{head};
  }

  size_t total_bytes() const { return total_; }

 private:
  struct Free {
    Free* next;
  };
  struct Unaligned {
    void operator()(std::byte* chunk) const { ::operator delete(chunk, std::align_val_t{64}); }
  };

  static uint32_t shift_of(size_t bytes) {
    STRATA_CHECK(bytes <= kBlockBytesMax);
    const uint32_t width = bytes <= 1 ? 0 : static_cast<uint32_t>(std::bit_width(bytes - 1));
    return width < kLeastShift ? kLeastShift : width;
  }
  // Blocks come in chunks of 64 KiB or of one block, whichever is more.
  static size_t chunk_bytes(uint32_t shift) { return size_t{1} << (shift < 16 ? 16 : shift); }

  bool grow(uint32_t shift) {
    const size_t bytes = chunk_bytes(shift);
    if (total_ + bytes > bytes_max_) return false;
    chunks_.emplace_back(static_cast<std::byte*>(::operator new(bytes, std::align_val_t{64})));
    total_ += bytes;
    for (size_t at = bytes; at >= size_t{1} << shift; at -= size_t{1} << shift) {
      free({chunks_.back().get() + at - (size_t{1} << shift), shift});
    }
    return true;
  }

  size_t bytes_max_;
  size_t total_ = 0;
  std::array<Free*, kMostShift - kLeastShift + 1> free_{};
  std::vector<std::unique_ptr<std::byte, Unaligned>> chunks_;
};

}  // namespace strata::base
