// Scheduler and Fiber: simulated threads, all on one real thread, in an order that a seed decides.
//
// Not threads and not a memory model (sim/memory.h): a fiber runs until it yields, blocks or ends.
// At each yield the scheduler draws the next fiber among those that can run. Time is virtual: each
// step costs a fixed number of nanoseconds, and when all fibers are blocked it jumps to the next
// deadline. The same seed gives the same run, bit for bit (fingerprint()).
// One real thread for a Scheduler; call from inside fibers except where noted.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/prng.h"
#include "base/time.h"

namespace strata::sim {

// Unwinds a killed fiber, thrown by yield() and block(). The only exception of ours, and only here.
// Catch it nowhere; code that runs in a fiber must not call into the simulator from a noexcept
// function, destructors included, unless it is being unwound by this.
struct FiberKilled {};

class Scheduler;

class Fiber {
 public:
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  const std::string& name() const { return name_; }
  bool ended() const { return state_ == State::kEnded; }
  bool blocked() const { return state_ == State::kBlocked; }

 private:
  friend class Scheduler;
  enum class State { kRunnable, kBlocked, kEnded };
  struct Context;

  Fiber(std::string name, std::function<void()> body);

  std::string name_;
  std::function<void()> body_;
  std::unique_ptr<Context> context_;
  State state_ = State::kRunnable;
  base::Instant deadline_ = base::Instant::never();
  bool woken_ = false;      // how the last block ended
  bool killed_ = false;     // unwind at the next call
  bool unwinding_ = false;  // the exception is under way or through
};

class Scheduler {
 public:
  struct Options {
    int64_t step_ns = 20;
    size_t stack_bytes = 256 * 1024;
  };
  enum class Stop {
    kEnded,  // every fiber has ended
    kStuck,  // all that live are blocked without a deadline
    kSteps,  // the limit was reached
  };

  explicit Scheduler(uint64_t seed) : Scheduler(seed, Options{}) {}
  Scheduler(uint64_t seed, Options options);
  // Unwinds the fibers that have not ended.
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // The fiber lives as long as the scheduler. From outside or inside.
  Fiber* spawn(std::string name, std::function<void()> body);
  // From outside: runs the fibers for at most that many more steps.
  Stop run(uint64_t steps_max);

  // Lets another fiber run, perhaps.
  void yield();
  // Until wake() or the deadline; false: the deadline passed.
  bool block(base::Instant deadline = base::Instant::never());
  // Ends a block; nothing where the fiber is not blocked. From outside or inside.
  void wake(Fiber* fiber);
  // The fiber is unwound from where it is, when it is drawn next. From outside or inside.
  void kill(Fiber* fiber);

  base::Instant now() const { return now_; }
  Fiber* current() const { return current_; }
  // The current fiber is being unwound: simulated effects are dropped, and nothing yields.
  bool unwinding() const { return current_ != nullptr && current_->unwinding_; }
  uint64_t steps() const { return steps_; }
  // A hash over every choice so far.
  uint64_t fingerprint() const { return fingerprint_; }

 private:
  friend class Fiber;
  struct MainContext;

  static void enter(Fiber* fiber);
  Fiber* pick();
  void expire_deadlines();
  bool advance_to_deadline();
  void make_runnable(Fiber* fiber);
  void switch_to_main();
  void resume(Fiber* fiber);
  void throw_if_killed();

  Options options_;
  base::Prng prng_;
  std::unique_ptr<MainContext> main_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> runnable_;
  Fiber* current_ = nullptr;
  Fiber* chosen_ = nullptr;  // by the fiber that switched to main; null: main chooses
  base::Instant now_{};
  base::Instant next_deadline_ = base::Instant::never();
  uint64_t steps_ = 0;
  uint64_t steps_end_ = 0;
  uint64_t fingerprint_ = 0;
};

}  // namespace strata::sim
