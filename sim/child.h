// Child: a simulated child process: the host of mailbox::ChildLoop, its table of callables, and the
// code of its tasks.
//
// Not the product's child: it resolves nothing and runs no user code. It can be killed, paused or
// slowed between any two of its memory operations. From fibers of the simulation; the loop itself
// is a fiber of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mailbox/child_loop.h"
#include "sim/fiber.h"
#include "sim/memory.h"
#include "sim/task_code.h"

namespace strata::sim {

struct Shared;

// What the faults do to a process at its memory operations.
struct Gate {
  Scheduler* scheduler = nullptr;
  Process* process = nullptr;
  base::Instant paused_until{};
  uint64_t ops = 0;
  uint64_t kill_at = 0;  // at this operation; 0: not
  std::function<void()> on_kill;

  void pass();
};

// SimMemory behind a gate.
class GatedMemory {
 public:
  GatedMemory(Process* process, Gate* gate) : memory_(process), gate_(gate) {}

  template <class T>
  T load_relaxed(const T* at) const {
    return gate_->pass(), memory_.load_relaxed(at);
  }
  template <class T>
  T load_acquire(const T* at) const {
    return gate_->pass(), memory_.load_acquire(at);
  }
  template <class T>
  void store_relaxed(T* at, T value) const {
    gate_->pass(), memory_.store_relaxed(at, value);
  }
  template <class T>
  void store_release(T* at, T value) const {
    gate_->pass(), memory_.store_release(at, value);
  }
  template <class T>
  bool compare_exchange(T* at, T expected, T desired) const {
    return gate_->pass(), memory_.compare_exchange(at, expected, desired);
  }
  template <class T>
  T fetch_add(T* at, T value) const {
    return gate_->pass(), memory_.fetch_add(at, value);
  }
  void write_bytes(std::byte* to, const std::byte* from, size_t bytes) const {
    gate_->pass(), memory_.write_bytes(to, from, bytes);
  }
  void fence() const { gate_->pass(), memory_.fence(); }
  template <class T>
  void prefetch_for_write(const T*) const {}
  static constexpr bool kLockedIsFence = SimMemory::kLockedIsFence;

 private:
  SimMemory memory_;
  Gate* gate_;
};

class Child {
 public:
  // `region` and the hub of `shared` are formatted.
  Child(Shared* shared, uint32_t worker, uint32_t incarnation, std::byte* region);
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // The process begins; it says that it has started after a while.
  void start();
  // What a futex wake on its sleep word does.
  void wake();
  // SIGKILL: now, or at a memory operation a few ahead.
  void kill(const std::string& reason);
  void strike(const std::string& reason);  // the same, by the faults
  void kill_soon(uint64_t operations);
  void pause_for(base::Duration length);
  void resume() { gate_.paused_until = {}; }
  bool alive() const { return process_ != nullptr && !process_->dead(); }
  bool started() const { return process_ != nullptr; }
  bool asleep() const { return asleep_; }
  const std::string& name() const { return name_; }
  uint32_t worker() const { return worker_; }
  uint32_t incarnation() const { return incarnation_; }
  std::vector<uint32_t> callables() const;  // that it was given and not told to forget

 private:
  using Side = mailbox::ChildSide<GatedMemory>;
  using Loop = mailbox::ChildLoop<GatedMemory, Child>;
  friend Loop;  // it is the loop's Host
  struct Callable {
    uint32_t generation = 0;
    uint64_t transaction = 0;
    bool committed = false;
  };

  // --- Host
  uint32_t control(uint32_t command, std::span<const std::byte> request, std::string* text);
  void run(const mailbox::TaskView& view, mailbox::TaskOutcome* out);
  bool past_deadline(const mailbox::TaskView& view) const;
  void signal_parent();
  void sleep(const uint32_t* word);
  int64_t now_ns() const;
  void pause();
  void yield() { pause(); }

  void main();
  void refuse_start();
  uint32_t answer(uint32_t command, std::span<const std::byte> request, std::string* text);
  void linger(uint64_t ns_max);

  Shared* shared_;
  uint32_t worker_;
  uint32_t incarnation_;
  std::byte* region_;
  std::string name_;
  uint64_t slowness_ = 1;
  Process* process_ = nullptr;
  Fiber* fiber_ = nullptr;
  Gate gate_;
  bool asleep_ = false;  // in the futex
  std::map<uint32_t, Callable> callables_;
  std::unique_ptr<TaskCode> code_;
  TaskCode::End end_;  // of the task that ran last
  std::optional<Side> side_;
};

}  // namespace strata::sim
