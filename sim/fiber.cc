#include "sim/fiber.h"

#include <cxxabi.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif
#if !defined(__x86_64__) || defined(STRATA_SIM_UCONTEXT)
#define STRATA_SIM_USE_UCONTEXT 1
#include <ucontext.h>
#endif

#ifndef STRATA_SIM_USE_UCONTEXT
// Saves the callee-saved registers on this stack and goes on where `load_sp` was saved.
extern "C" void strata_sim_switch(void** save_sp, void* load_sp);
asm(R"(
.text
.globl strata_sim_switch
.hidden strata_sim_switch
.type strata_sim_switch, @function
strata_sim_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size strata_sim_switch, .-strata_sim_switch
)");
#endif

namespace strata::sim {
namespace {

// The C++ runtime keeps the exceptions in flight for each real thread; each fiber needs its own.
struct ExceptionState {
  void* caught = nullptr;
  unsigned uncaught = 0;
};

void swap_exception_state(ExceptionState* save, const ExceptionState& load) {
  auto* const live = reinterpret_cast<ExceptionState*>(abi::__cxa_get_globals());
  *save = *live;
  *live = load;
}

// What a switch needs to know of either side.
struct Side {
#ifdef STRATA_SIM_USE_UCONTEXT
  ucontext_t machine{};
#else
  void* sp = nullptr;
#endif
  ExceptionState exceptions;
  // The bounds of the main stack are learned by the first fiber that is entered from it.
  const void* stack_bottom = nullptr;
  size_t stack_bytes = 0;
  void* fake_stack = nullptr;
  void* tsan_fiber = nullptr;
};

void jump(Side* from, Side* to) {
#ifdef STRATA_SIM_USE_UCONTEXT
  STRATA_CHECK(swapcontext(&from->machine, &to->machine) == 0);
#else
  strata_sim_switch(&from->sp, to->sp);
#endif
}

void before_switch([[maybe_unused]] Side* from, [[maybe_unused]] Side* to,
                   [[maybe_unused]] bool from_ends) {
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_start_switch_fiber(from_ends ? nullptr : &from->fake_stack, to->stack_bottom,
                                 to->stack_bytes);
#endif
#ifdef __SANITIZE_THREAD__
  __tsan_switch_to_fiber(to->tsan_fiber, 0);
#endif
}

// On the stack of `now`; `came_from` learns its bounds.
void after_switch([[maybe_unused]] Side* now, [[maybe_unused]] Side* came_from) {
#ifdef __SANITIZE_ADDRESS__
  const void* bottom = nullptr;
  size_t bytes = 0;
  __sanitizer_finish_switch_fiber(now->fake_stack, &bottom, &bytes);
  came_from->stack_bottom = bottom;
  came_from->stack_bytes = bytes;
#endif
}

thread_local Fiber* entering = nullptr;

}  // namespace

struct Scheduler::MainContext : Side {};

struct Fiber::Context : Side {
  ~Context() {
    if (mapping == nullptr) return;
#ifdef __SANITIZE_ADDRESS__
    // The last frames never returned; the addresses may be mapped again for another fiber.
    ASAN_UNPOISON_MEMORY_REGION(mapping, mapping_bytes);
#endif
#ifdef __SANITIZE_THREAD__
    __tsan_destroy_fiber(tsan_fiber);
#endif
    munmap(mapping, mapping_bytes);
  }
  void* mapping = nullptr;
  size_t mapping_bytes = 0;
  Scheduler* scheduler = nullptr;
};

Fiber::Fiber(std::string name, std::function<void()> body)
    : name_(std::move(name)), body_(std::move(body)), context_(std::make_unique<Context>()) {}
Fiber::~Fiber() = default;

Scheduler::Scheduler(uint64_t seed, Options options)
    : options_(options), prng_(seed), main_(std::make_unique<MainContext>()), fingerprint_(seed) {
#ifdef __SANITIZE_THREAD__
  main_->tsan_fiber = __tsan_get_current_fiber();
#endif
}

Scheduler::~Scheduler() {
  STRATA_CHECK(current_ == nullptr);
  for (size_t i = 0; i < fibers_.size(); ++i) {
    while (!fibers_[i]->ended()) {
      kill(fibers_[i].get());
      resume(fibers_[i].get());
    }
  }
}

void Scheduler::enter(Fiber* fiber) {
  Scheduler* const scheduler = fiber->context_->scheduler;
  after_switch(fiber->context_.get(), scheduler->main_.get());
  try {
    scheduler->throw_if_killed();
    fiber->body_();
  } catch (const FiberKilled&) {
  }
  fiber->state_ = Fiber::State::kEnded;
  std::erase(scheduler->runnable_, fiber);
  before_switch(fiber->context_.get(), scheduler->main_.get(), /*from_ends=*/true);
  swap_exception_state(&fiber->context_->exceptions, scheduler->main_->exceptions);
  jump(fiber->context_.get(), scheduler->main_.get());
  __builtin_unreachable();
}

namespace {
using Entry = void (*)();
}  // namespace

Fiber* Scheduler::spawn(std::string name, std::function<void()> body) {
  std::unique_ptr<Fiber> fiber(new Fiber(std::move(name), std::move(body)));
  Fiber::Context& context = *fiber->context_;
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t stack_bytes = (options_.stack_bytes + page - 1) / page * page;
  context.scheduler = this;
  context.mapping_bytes = stack_bytes + page;
  context.mapping = mmap(nullptr, context.mapping_bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK | MAP_NORESERVE, -1, 0);
  STRATA_CHECK(context.mapping != MAP_FAILED);
  STRATA_CHECK(mprotect(context.mapping, page, PROT_NONE) == 0);  // an overflow faults
  char* const bottom = static_cast<char*>(context.mapping) + page;
  context.stack_bottom = bottom;
  context.stack_bytes = stack_bytes;
#ifdef __SANITIZE_THREAD__
  context.tsan_fiber = __tsan_create_fiber(0);
#endif
  const Entry entry = [] { Scheduler::enter(entering); };
#ifdef STRATA_SIM_USE_UCONTEXT
  STRATA_CHECK(getcontext(&context.machine) == 0);
  context.machine.uc_stack.ss_sp = bottom;
  context.machine.uc_stack.ss_size = stack_bytes;
  context.machine.uc_link = nullptr;
  makecontext(&context.machine, entry, 0);
#else
  // Six registers, then the address that `ret` takes; after it the stack pointer is 8 modulo 16,
  // as a call leaves it, and a null return address ends backtraces.
  void** sp = reinterpret_cast<void**>(bottom + stack_bytes);
  *--sp = nullptr;
  *--sp = reinterpret_cast<void*>(entry);
  for (int i = 0; i < 6; ++i) *--sp = nullptr;
  context.sp = sp;
#endif
  fibers_.push_back(std::move(fiber));
  runnable_.push_back(fibers_.back().get());
  return fibers_.back().get();
}

void Scheduler::resume(Fiber* fiber) {
  current_ = fiber;
  entering = fiber;
  before_switch(main_.get(), fiber->context_.get(), /*from_ends=*/false);
  swap_exception_state(&main_->exceptions, fiber->context_->exceptions);
  jump(main_.get(), fiber->context_.get());
  after_switch(main_.get(), fiber->context_.get());
  current_ = nullptr;
}

void Scheduler::switch_to_main() {
  Fiber* const fiber = current_;
  before_switch(fiber->context_.get(), main_.get(), /*from_ends=*/false);
  swap_exception_state(&fiber->context_->exceptions, main_->exceptions);
  jump(fiber->context_.get(), main_.get());
  after_switch(fiber->context_.get(), main_.get());
}

void Scheduler::throw_if_killed() {
  if (!current_->killed_ || current_->unwinding_) return;
  current_->unwinding_ = true;
  throw FiberKilled{};
}

Fiber* Scheduler::pick() {
  ++steps_;
  now_ = now_ + base::Duration{options_.step_ns};
  if (now_ >= next_deadline_) expire_deadlines();
  if (runnable_.empty()) return nullptr;
  const size_t at = runnable_.size() == 1 ? 0 : prng_.below(runnable_.size());
  fingerprint_ = (fingerprint_ ^ (at + 1)) * 0x100000001b3ull + steps_;
  return runnable_[at];
}

Scheduler::Stop Scheduler::run(uint64_t steps_max) {
  STRATA_CHECK(current_ == nullptr);
  steps_end_ = steps_ + steps_max;
  while (steps_ < steps_end_) {
    Fiber* const next = chosen_ != nullptr ? chosen_ : pick();
    chosen_ = nullptr;
    if (next != nullptr) {
      resume(next);
    } else if (!advance_to_deadline()) {
      const bool ended = std::all_of(fibers_.begin(), fibers_.end(),
                                     [](const auto& fiber) { return fiber->ended(); });
      return ended ? Stop::kEnded : Stop::kStuck;
    }
  }
  return Stop::kSteps;
}

void Scheduler::yield() {
  STRATA_CHECK(current_ != nullptr);
  if (current_->unwinding_) return;
  if (steps_ < steps_end_) {
    chosen_ = pick();
    if (chosen_ == current_) {
      chosen_ = nullptr;
      throw_if_killed();
      return;
    }
  }
  switch_to_main();
  throw_if_killed();
}

bool Scheduler::block(base::Instant deadline) {
  STRATA_CHECK(current_ != nullptr);
  if (current_->unwinding_) return false;
  throw_if_killed();
  Fiber* const fiber = current_;
  fiber->state_ = Fiber::State::kBlocked;
  fiber->woken_ = false;
  fiber->deadline_ = deadline;
  next_deadline_ = std::min(next_deadline_, deadline);
  std::erase(runnable_, fiber);
  switch_to_main();
  throw_if_killed();
  return fiber->woken_;
}

void Scheduler::make_runnable(Fiber* fiber) {
  fiber->state_ = Fiber::State::kRunnable;
  fiber->deadline_ = base::Instant::never();
  runnable_.push_back(fiber);
}

void Scheduler::wake(Fiber* fiber) {
  if (fiber->state_ != Fiber::State::kBlocked) return;
  fiber->woken_ = true;
  make_runnable(fiber);
}

void Scheduler::kill(Fiber* fiber) {
  if (fiber->ended()) return;
  fiber->killed_ = true;
  if (fiber->state_ == Fiber::State::kBlocked) make_runnable(fiber);
  if (fiber == current_) throw_if_killed();
}

void Scheduler::expire_deadlines() {
  base::Instant next = base::Instant::never();
  for (const auto& fiber : fibers_) {
    if (fiber->state_ != Fiber::State::kBlocked) continue;
    if (fiber->deadline_ <= now_) {
      make_runnable(fiber.get());
    } else {
      next = std::min(next, fiber->deadline_);
    }
  }
  next_deadline_ = next;
}

bool Scheduler::advance_to_deadline() {
  base::Instant next = base::Instant::never();
  for (const auto& fiber : fibers_) {
    if (fiber->state_ == Fiber::State::kBlocked) next = std::min(next, fiber->deadline_);
  }
  if (next == base::Instant::never()) return false;
  now_ = std::max(now_, next);
  expire_deadlines();
  return true;
}

}  // namespace strata::sim
