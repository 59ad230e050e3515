// NewsSet: the workers that have said that they have news: a bitmap of three levels, 64 bits a
// word, so that a look costs one word and a drain what was noted. It keeps no order and no count:
// a worker that is noted twice before a drain is drained once.
//
// note() and any() from any thread; cover() and drain() by one thread at a time (the one with the
// step token), and cover() of a worker before its first note(). What a thread wrote before note()
// is visible to the drain that finds the worker.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>

#include "base/check.h"

namespace strata::engine {

class NewsSet {
 public:
  static constexpr uint32_t kWorkersMax = 64 * 64 * 64;

  // Makes room for the workers up to this one. What is noted stays.
  void cover(uint32_t worker) {
    STRATA_CHECK(worker < kWorkersMax);
    for (uint32_t block = 0; block <= worker / kBlock; ++block) {
      if (blocks_[block] == nullptr) blocks_[block] = std::make_unique<Block>();
    }
  }

  // From the leaf up, where drain() goes down, all in one order: whoever finds an upper bit set
  // here is sure that the drain that clears it comes to the leaf later. The leaf's own bit is
  // written in any case, for what this thread wrote before must be visible to whoever clears it.
  void note(uint32_t worker) {
    Block& block = *blocks_[worker / kBlock];
    const uint32_t leaf = worker % kBlock / 64;
    block.leaves[leaf].fetch_or(uint64_t{1} << worker % 64, std::memory_order_seq_cst);
    set(block.summary, leaf);
    set(root_, worker / kBlock);
  }

  bool any() const { return root_.load(std::memory_order_seq_cst) != 0; }

  // fn(worker) for all that are noted; those that are noted meanwhile now or the next time.
  template <class Fn>
  void drain(Fn&& fn) {
    if (!any()) return;
    take(root_, [&](uint32_t block_index) {
      Block& block = *blocks_[block_index];
      take(block.summary, [&](uint32_t leaf) {
        take(block.leaves[leaf], [&](uint32_t bit) { fn(block_index * kBlock + leaf * 64 + bit); });
      });
    });
  }

 private:
  static constexpr uint32_t kBlock = 64 * 64;
  struct Block {
    std::atomic<uint64_t> summary{0};
    std::array<std::atomic<uint64_t>, 64> leaves{};
  };

  // A bit that is set already is not written: its line may stay shared.
  static void set(std::atomic<uint64_t>& word, uint32_t bit) {
    const uint64_t mask = uint64_t{1} << bit;
    if ((word.load(std::memory_order_seq_cst) & mask) != 0) return;
    word.fetch_or(mask, std::memory_order_seq_cst);
  }
  template <class Fn>
  static void take(std::atomic<uint64_t>& word, Fn&& fn) {
    for (uint64_t bits = word.exchange(0, std::memory_order_seq_cst); bits != 0; bits &= bits - 1) {
      fn(static_cast<uint32_t>(std::countr_zero(bits)));
    }
  }

  std::atomic<uint64_t> root_{0};
  std::array<std::unique_ptr<Block>, 64> blocks_;
};

}  // namespace strata::engine
