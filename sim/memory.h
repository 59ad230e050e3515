// SimMemory: a memory policy (see mailbox/plain_memory.h) whose processes have store buffers, as on
// x86-TSO, and can die between any two stores.
//
// A store enters the FIFO buffer of its process and becomes visible to others later, in order:
// when chance drains it, at a fence, a locked operation or a system call, and at death. A process
// sees its own stores at once. Every operation may let another fiber run first, or leave its own
// out for some time; bytes are copied in pieces, each a store of its own. Not modelled: reordering
// that x86 does not do (a missing acquire or release is ThreadSanitizer's to find). Spans into the
// mapping are read directly: only after the word that covers them was loaded. Call from fibers of
// the world's scheduler; World and Process also from outside.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <vector>

#include "base/check.h"
#include "base/prng.h"
#include "sim/fiber.h"

namespace strata::sim {

class World;

// A simulated process: fibers that see memory through one store buffer.
class Process {
 public:
  explicit Process(World* world) : world_(world) {}
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  // The fiber dies with this process.
  void adopt(Fiber* fiber);
  // What was stored becomes visible, what was not never will be; the fibers are unwound.
  void die();
  bool dead() const { return dead_; }
  // Everything stored becomes visible: what a system call does.
  void drain() {
    while (!buffer_.empty()) commit_oldest();
  }

 private:
  friend class World;
  friend class SimMemory;
  static constexpr size_t kPieceBytes = 32;  // the widest store
  static constexpr size_t kBufferMax = 64;

  struct Store {
    std::byte* at;
    uint32_t bytes;
    std::byte data[kPieceBytes];
  };

  void store(std::byte* at, const void* data, size_t bytes);
  void load(const std::byte* at, void* out, size_t bytes);
  void commit_oldest() {
    const Store& oldest = buffer_.front();
    std::memcpy(oldest.at, oldest.data, oldest.bytes);
    buffer_.pop_front();
  }

  World* world_;
  std::deque<Store> buffer_;
  std::vector<Fiber*> fibers_;
  bool dead_ = false;
};

// The processes of one simulated machine, and the chances of this seed.
class World {
 public:
  World(Scheduler* scheduler, uint64_t seed) : scheduler_(scheduler), prng_(seed) {
    // From lock-step to long undisturbed stretches, from eager buffers to ones that hardly drain.
    yield_one_in_ = uint64_t{1} << prng_.below(7);
    drain_one_in_ = uint64_t{1} << prng_.below(9);
    if (prng_.chance(1, 2)) stall_one_in_ = uint64_t{1} << prng_.between(5, 10);
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  Process* make_process() { return processes_.emplace_back(std::make_unique<Process>(this)).get(); }
  Scheduler& scheduler() { return *scheduler_; }
  base::Prng& prng() { return prng_; }

 private:
  friend class SimMemory;

  // Before each operation: other fibers may run, and stores of any process may drain.
  void step() {
    if (scheduler_->unwinding()) return;
    if (prng_.chance(1, yield_one_in_)) scheduler_->yield();
    if (stall_one_in_ != 0 && prng_.chance(1, stall_one_in_)) stall();
    if (prng_.chance(1, drain_one_in_)) {
      Process& process = *processes_[prng_.below(processes_.size())];
      for (uint64_t n = prng_.between(1, 8); n > 0 && !process.buffer_.empty(); --n) {
        process.commit_oldest();
      }
    }
  }

  // Preempted: the others go on for some time, without this one.
  void stall() {
    const int64_t ns = static_cast<int64_t>(prng_.below(uint64_t{1} << prng_.between(6, 15)));
    scheduler_->block(scheduler_->now() + base::Duration{ns});
  }

  Scheduler* scheduler_;
  base::Prng prng_;
  std::vector<std::unique_ptr<Process>> processes_;
  uint64_t yield_one_in_;
  uint64_t drain_one_in_;
  uint64_t stall_one_in_ = 0;  // 0: never
};

class SimMemory {
 public:
  explicit SimMemory(Process* process) : process_(process) {}

  template <class T>
  T load_relaxed(const T* at) const {
    world().step();
    return read(at);
  }
  template <class T>
  T load_acquire(const T* at) const {
    return load_relaxed(at);
  }
  template <class T>
  void store_relaxed(T* at, T value) const {
    world().step();
    process_->store(reinterpret_cast<std::byte*>(at), &value, sizeof value);
  }
  template <class T>
  void store_release(T* at, T value) const {
    store_relaxed(at, value);
  }
  template <class T>
  bool compare_exchange(T* at, T expected, T desired) const {
    world().step();
    process_->drain();
    if (read(at) != expected) return false;
    write(at, desired);
    return true;
  }
  template <class T>
  T fetch_add(T* at, T value) const {
    world().step();
    process_->drain();
    const T before = read(at);
    write(at, static_cast<T>(before + value));
    return before;
  }
  void write_bytes(std::byte* to, const std::byte* from, size_t bytes) const {
    while (bytes > 0) {
      const size_t piece = std::min(bytes, Process::kPieceBytes);
      world().step();
      process_->store(to, from, piece);
      to += piece;
      from += piece;
      bytes -= piece;
    }
  }
  template <class T>
  void prefetch_for_write(const T*) const {}
  static constexpr bool kLockedIsFence = true;
  void fence() const {
    world().step();
    process_->drain();
  }

 private:
  World& world() const { return *process_->world_; }
  template <class T>
  T read(const T* at) const {
    T value;
    process_->load(reinterpret_cast<const std::byte*>(at), &value, sizeof value);
    return value;
  }
  template <class T>
  void write(T* at, T value) const {
    if (!process_->dead_) std::memcpy(at, &value, sizeof value);
  }

  Process* process_;
};

inline void Process::die() {
  drain();
  dead_ = true;
  for (Fiber* fiber : fibers_) world_->scheduler().kill(fiber);
}

inline void Process::adopt(Fiber* fiber) {
  fibers_.push_back(fiber);
  if (dead_) world_->scheduler().kill(fiber);
}

inline void Process::store(std::byte* at, const void* data, size_t bytes) {
  if (dead_) return;
  if (buffer_.size() >= kBufferMax) commit_oldest();
  Store& entry = buffer_.emplace_back();
  entry.at = at;
  entry.bytes = static_cast<uint32_t>(bytes);
  std::memcpy(entry.data, data, bytes);
}

inline void Process::load(const std::byte* at, void* out, size_t bytes) {
  for (auto entry = buffer_.rbegin(); entry != buffer_.rend(); ++entry) {
    if (at >= entry->at + entry->bytes || entry->at >= at + bytes) continue;
    if (entry->at <= at && at + bytes <= entry->at + entry->bytes) {
      std::memcpy(out, entry->data + (at - entry->at), bytes);
      return;
    }
    // The hardware cannot forward a part: the load waits until the buffer has drained.
    drain();
    break;
  }
  std::memcpy(out, at, bytes);
}

}  // namespace strata::sim
