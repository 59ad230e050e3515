// BlockPool: blocks of 128 bytes to 8 MiB in power-of-two classes, with a bound on what is handed
// out. A freed block goes to its class's list and is never given back to the system before the pool
// itself goes: steady state makes no allocation. The bound does not count the freed ones, so that
// no class starves because another had its peak; the pool may hold the peak of each class. Not for
// objects with destructors. The caller locks.
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
  static constexpr uint32_t kLeastShift = 7;
  static constexpr uint32_t kMostShift = 23;
  static constexpr size_t kBlockBytesMax = size_t{1} << kMostShift;

  struct Block {
    std::byte* data = nullptr;
    uint32_t shift = 0;
  };

  explicit BlockPool(size_t bytes_max) : bytes_max_(bytes_max) {}

  // Whether allocate(bytes) would succeed now.
  bool can_allocate(size_t bytes) const {
    return used_ + (size_t{1} << shift_of(bytes)) <= bytes_max_;
  }

  // What a block of `bytes` bytes takes of the bound.
  static size_t taken_by(size_t bytes) { return size_t{1} << shift_of(bytes); }
  bool can_take(size_t taken) const { return used_ + taken <= bytes_max_; }

  // At least `bytes` bytes, aligned to 64; data is null where the bound is reached.
  Block allocate(size_t bytes) {
    if (!can_allocate(bytes)) return {};
    const uint32_t shift = shift_of(bytes);
    Free*& head = free_[shift - kLeastShift];
    if (head == nullptr) grow(shift);
    Free* block = head;
    head = block->next;
    if (head != nullptr) __builtin_prefetch(head, 1);
    used_ += size_t{1} << shift;
    return {reinterpret_cast<std::byte*>(block), shift};
  }

  void free(Block block) {
    used_ -= size_t{1} << block.shift;
    list(block);
  }

  size_t used_bytes() const { return used_; }  // handed out

 private:
  struct Free {
    Free* next;
  };
  struct Unaligned {
    void operator()(std::byte* chunk) const { ::operator delete (chunk, std::align_val_t{64}); }
  };

  static uint32_t shift_of(size_t bytes) {
    STRATA_CHECK(bytes <= kBlockBytesMax);
    const uint32_t width = bytes <= 1 ? 0 : static_cast<uint32_t>(std::bit_width(bytes - 1));
    return width < kLeastShift ? kLeastShift : width;
  }
  // Blocks come in chunks of 64 KiB or of one block, whichever is more.
  static size_t chunk_bytes(uint32_t shift) { return size_t{1} << (shift < 16 ? 16 : shift); }

  void list(Block block) {
    Free*& head = free_[block.shift - kLeastShift];
    head = new (block.data) Free{head};
  }

  void grow(uint32_t shift) {
    const size_t bytes = chunk_bytes(shift);
    chunks_.emplace_back(static_cast<std::byte*>(::operator new (bytes, std::align_val_t{64})));
    for (size_t at = bytes; at >= size_t{1} << shift; at -= size_t{1} << shift) {
      list({chunks_.back().get() + at - (size_t{1} << shift), shift});
    }
  }

  size_t bytes_max_;
  size_t used_ = 0;
  std::array<Free*, kMostShift - kLeastShift + 1> free_{};
  std::vector<std::unique_ptr<std::byte, Unaligned>> chunks_;
};

}  // namespace strata::base
