// The bodies of Front; see front.h.
#pragma once

#include <fmt/format.h>

#include <algorithm>

#include "engine/front.h"

namespace strata::engine {

inline constexpr uint32_t kStepsBetweenKernelLooks = 128;

// ---------------------------------------------------------------- under the token

// One step, and what it asks for. May let go of the token in between.
template <class World>
void Front<World>::step(std::unique_lock<typename World::Mutex>& token, bool streaming) {
  if (++steps_ >= kStepsBetweenKernelLooks) {
    steps_ = 0;
    world_.collect(core_, false);
  }
  core_.step(core_.wants_time() ? world_.now() : base::Instant{}, streaming);
  carry_out(token);
  run_inline(token);
}

// A thread that looked at endpoints without the token has it again.
template <class World>
void Front<World>::done_looking() {
  if (--looking_ == 0 && core_.has_retired()) core_.drop_retired();
}

// All that the last step asked for, and what follows from that.
template <class World>
void Front<World>::carry_out(std::unique_lock<typename World::Mutex>& token) {
  while (core_.has_wakes() || core_.has_chores()) carry_out_once(token);
}

template <class World>
void Front<World>::carry_out_once(std::unique_lock<typename World::Mutex>& token) {
  std::vector<WorkerEndpoint*> wakes;
  core_.take_wakes(&wakes);
  const bool chores = core_.has_chores();
  std::vector<Punch> punches;
  std::vector<uint32_t> replacements;
  if (chores) {
    for (const Kill& kill : core_.take_kills()) world_.kill(core_, kill);
    punches = core_.take_punches();
    replacements = core_.take_replacements();
  }
  ++looking_;
  token.unlock();
  for (WorkerEndpoint* endpoint : wakes) endpoint->wake();
  if (!punches.empty()) world_.punch(punches);
  token.lock();
  done_looking();
  for (const Punch& punch : punches) core_.segment_punched(punch);
  for (const uint32_t worker : replacements) replace(token, worker);
  // Some may have failed for good.
  if (!replacements.empty()) core_.step(world_.now());
}

// Makes what the next incarnation needs without the token, for it takes a while.
template <class World>
void Front<World>::replace(std::unique_lock<typename World::Mutex>& token, uint32_t worker) {
  token.unlock();
  Result<std::unique_ptr<WorkerEndpoint>> made = world_.make_endpoint(worker);
  token.lock();
  if (!core_.wants_replacement(worker)) return;
  if (!made) {
    core_.lose_worker(worker, made.error().to_string(), {}, true);
    return;
  }
  core_.renew_worker(worker, *std::move(made));
  // A spawn that fails is one more that has failed before it was ready.
  if (Result<void> asked = world_.spawn(core_, worker); !asked) {
    core_.lose_worker(worker, asked.error().to_string());
  }
}

// Inline tasks run in the thread that steps, one at a time, without the token.
template <class World>
void Front<World>::run_inline(std::unique_lock<typename World::Mutex>& token) {
  while (!inline_runs_) {
    InlineEndpoint* const endpoint = core_.inline_work();
    if (endpoint == nullptr) return;
    inline_runs_ = true;
    endpoint->take();
    const void* const outer = task_thread_.exchange(world_.self(), std::memory_order_relaxed);
    token.unlock();
    endpoint->run();
    token.lock();
    task_thread_.store(outer, std::memory_order_relaxed);
    endpoint->put();
    inline_runs_ = false;
    core_.step(world_.now());
    // What this step handed to other workers must not wait for the next one: nobody may come.
    carry_out(token);
  }
}

// Wakes those whose wait may be over.
template <class World>
void Front<World>::announce() {
  if (!core_.done_calls().empty() && !calling_ && !calls_due_.load(std::memory_order_relaxed)) {
    calls_due_.store(true, std::memory_order_relaxed);
    if (!stopping_) world_.kick_engine();
  }
  if (!core_.take_notable()) return;
  epoch_.store(epoch_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  if (parked_ > 0) world_.unpark_all();
  if (leader_sleeps_) world_.kick_lead();
}

// A user thread calls.
template <class World>
void Front<World>::note_call() {
  calls_.store(calls_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  if (lead_ == Lead::kEngine) take_lead_from_engine();
  // What the leader asked to be woken for is out of date with what this call will change.
  if (leader_sleeps_) core_.clear_wake_points();
}

// A user thread steps now, so children need not signal for the engine thread.
template <class World>
void Front<World>::take_lead_from_engine() {
  STRATA_MARK("front: a user thread takes the lead from the engine thread");
  lead_ = Lead::kNobody;
  if (leader_sleeps_) world_.finish_sleep();
  leader_sleeps_ = false;
}

// The end of a call or a wait: somebody else must go on with what is in flight.
template <class World>
void Front<World>::leave(std::unique_lock<typename World::Mutex>& token, bool led) {
  announce();
  if (led) {
    lead_ = Lead::kNobody;
    if (parked_ > 0) {
      STRATA_MARK("front: a leader hands over to a parked thread");
      world_.unpark_all();
    }
  }
  const bool arm = lead_ == Lead::kNobody && !watch_armed_ && !core_.at_rest();
  if (arm) watch_armed_ = true;
  token.unlock();
  if (arm) world_.arm_watch();
}

template <class World>
base::Instant Front<World>::clamp(base::Instant until) {
  until = std::min(until, core_.next_deadline());
  if (core_.has_barred()) until = std::min(until, world_.now() + base::Duration::from_ms(1));
  return until;
}

// The leader spins, then lingers. False: there is news, or it leads no longer.
template <class World>
bool Front<World>::nothing_comes(std::unique_lock<typename World::Mutex>& token, Changed changed,
                                 std::vector<Awaited>* awaited) {
  const Lead mine = lead_;
  core_.busy_endpoints(awaited);
  ++looking_;
  token.unlock();
  bool news = world_.spin(*awaited);
  token.lock();
  news = news || changed.now() || lead_ != mine;
  if (!news && core_.spread()) {
    STRATA_MARK("front: a sleeping worker is woken before the leader sleeps");
    news = true;
  }
  if (!news) {
    token.unlock();
    news = world_.linger(*awaited, changed);
    token.lock();
    news = news || changed.now() || lead_ != mine;
  }
  done_looking();
  if (news && lead_ != mine && leader_sleeps_) {
    STRATA_MARK("front: what a former leader has seen wakes the one that leads now");
    world_.kick_lead();
  }
  return !news;
}

// Spins, lingers, then sleeps until something may have happened. False: the lead was taken away
// meanwhile.
template <class World>
bool Front<World>::idle_as_leader(std::unique_lock<typename World::Mutex>& token,
                                  base::Instant until, std::vector<Awaited>* awaited) {
  const Lead mine = lead_;
  // What another thread's call ends while this one spins may be what it waits for.
  const Changed changed{&epoch_, epoch_.load(std::memory_order_relaxed)};
  if (!nothing_comes(token, changed, awaited)) return lead_ == mine;
  core_.set_wake_points();
  if (!world_.prepare_sleep([this] { return core_.has_news(); })) return true;
  leader_sleeps_ = true;
  until = clamp(until);
  const uint64_t sleeps_since = core_.trace().now();
  token.unlock();
  if (mine == Lead::kEngine) {
    world_.engine_sleep(true, until);
  } else {
    world_.lead_sleep(until);
  }
  token.lock();
  if (core_.trace().on()) [[unlikely]]
    core_.trace().slept(sleeps_since);
  if (lead_ != mine) {
    // The event that woke this thread may have been meant for the one that leads now.
    STRATA_MARK("front: the former leader passes a wake-up on");
    world_.kick_lead();
    return false;
  }
  world_.finish_sleep();
  leader_sleeps_ = false;
  steps_ = 0;
  world_.collect(core_, true);
  return true;
}

// ---------------------------------------------------------------- calls and waits

template <class World>
template <class Fn>
auto Front<World>::call(Fn&& fn) {
  std::unique_lock token(token_);
  note_call();
  using Out = std::invoke_result_t<Fn&, Core&>;
  if constexpr (std::is_void_v<Out>) {
    fn(core_);
    step(token, true);
    leave(token, false);
    if (calls_due_.load(std::memory_order_relaxed)) [[unlikely]]
      finish_calls();
  } else {
    Out out = fn(core_);
    step(token, true);
    leave(token, false);
    if (calls_due_.load(std::memory_order_relaxed)) [[unlikely]]
      finish_calls();
    return out;
  }
}

template <class World>
template <class Fn>
auto Front<World>::look(Fn&& fn) {
  std::unique_lock token(token_);
  return fn(core_);
}

template <class World>
template <class Ready>
bool Front<World>::wait(const char* what, base::Instant deadline, Ready&& ready, Wake wake) {
  std::unique_lock token(token_);
  note_call();
  core_.add_waiter(wake);
  bool led = false;
  bool held = false;
  std::vector<Awaited> awaited;
  std::optional<base::Instant> began;
  base::Instant report_at = base::Instant::never();
  for (;;) {
    if (poll_) poll_(core_);
    step(token);
    if (may_call()) {
      // Others go on with what is in flight; this thread steps again before it sleeps.
      leave(token, std::exchange(led, false));
      token.lock();
      make_calls(token);
      continue;
    }
    if (ready(core_)) {
      held = true;
      break;
    }
    if (began) {  // it has slept at least once: look at the clock
      const base::Instant now = world_.now();
      if (now >= deadline) break;
      if (now >= report_at) {
        world_.stalled(what, now - *began, core_.describe_work(now));
        report_at = now + base::Duration::from_ms(core_.options().timeouts.stall_report_ms);
      }
    } else {
      began = world_.now();
      report_at = *began + base::Duration::from_ms(core_.options().timeouts.stall_report_ms);
      if (*began >= deadline) break;
    }
    announce();
    base::Instant until = std::min(deadline, report_at);
    if (poll_) until = std::min(until, world_.now() + poll_every_);
    if (lead_ == Lead::kEngine) take_lead_from_engine();
    if (lead_ == Lead::kNobody) {
      lead_ = Lead::kWaiter;
      led = true;
    }
    if (led) {
      idle_as_leader(token, until, &awaited);
    } else {
      STRATA_MARK("front: a second waiting thread is parked");
      ++parked_;
      world_.park(token_, until);
      --parked_;
    }
  }
  core_.drop_waiter(wake);
  leave(token, led);
  return held;
}

// ---------------------------------------------------------------- calls when a run is done

template <class World>
void Front<World>::make_calls_of(RunRecord& run, std::unique_lock<typename World::Mutex>& token) {
  const void* const self = world_.self();
  callers_.push_back(self);
  caller_count_.fetch_add(1, std::memory_order_relaxed);
  while (!run.on_done.empty()) {
    const auto call = std::move(run.on_done.front());
    run.on_done.pop_front();
    run.error_seen = true;
    const std::optional<Error> error = run.outcome();
    token.unlock();
    call(error ? Result<void>(*error) : Result<void>());
    token.lock();
  }
  callers_.erase(std::find(callers_.begin(), callers_.end(), self));
  caller_count_.fetch_sub(1, std::memory_order_relaxed);
}

template <class World>
void Front<World>::make_calls(std::unique_lock<typename World::Mutex>& token) {
  if (!may_call()) return;
  STRATA_MARK("front: a thread makes the calls of a run that is done");
  calling_ = true;
  while (!core_.done_calls().empty()) {
    calls_due_.store(false, std::memory_order_relaxed);
    const std::shared_ptr<RunRecord> run = std::move(core_.done_calls().front());
    core_.done_calls().pop_front();
    make_calls_of(*run, token);
    run->calls_pending = false;
  }
  calls_due_.store(false, std::memory_order_relaxed);
  calling_ = false;
}

template <class World>
void Front<World>::finish_calls() {
  std::unique_lock token(token_);
  // Before it has ended it is the engine thread's, and no caller's whose own locks may be held.
  if (stopping_) make_calls(token);
}

template <class World>
void Front<World>::on_done(const std::shared_ptr<RunRecord>& run,
                           std::function<void(const Result<void>&)> call) {
  std::unique_lock token(token_);
  run->on_done.push_back(std::move(call));
  if (run->done && !run->calls_pending) make_calls_of(*run, token);
}

template <class World>
std::optional<Error> Front<World>::why_no_wait(const char* what) {
  if (task_thread_.load(std::memory_order_relaxed) == world_.self()) {
    return Error(Code::kWrongState, Scope::kCall,
                 fmt::format("{} inside a task of the same Worker: it would wait for the end of "
                             "this very task; do it in the program that submits",
                             what));
  }
  if (caller_count_.load(std::memory_order_relaxed) == 0) return std::nullopt;
  std::unique_lock token(token_);
  if (std::find(callers_.begin(), callers_.end(), world_.self()) == callers_.end()) {
    return std::nullopt;
  }
  return Error(Code::kWrongState, Scope::kCall,
               fmt::format("{} inside an on_done callback, which must not wait: submit, query, or "
                           "hand it to a thread of your own",
                           what));
}

// ---------------------------------------------------------------- the engine thread

template <class World>
void Front<World>::engine_main() {
  std::vector<Awaited> awaited;
  uint64_t seen = 0;
  bool lost_lead = false;  // the watch may have fired unseen: look at once
  for (;;) {
    if (!lost_lead) {
      world_.engine_sleep(false, base::Instant::never());
      // While user threads call they step. To look again later needs no token, for which the very
      // next call would have to wait; the watch stays armed.
      if (const uint64_t calls = calls_.load(std::memory_order_relaxed);
          calls != seen && !calls_due_.load(std::memory_order_relaxed)) {
        seen = calls;
        world_.arm_watch();
        continue;
      }
    }
    lost_lead = false;
    std::unique_lock token(token_);
    watch_armed_ = false;
    make_calls(token);
    if (stopping_) return;
    if (lead_ != Lead::kNobody) continue;
    world_.collect(core_, false);
    announce();
    if (core_.at_rest()) continue;
    STRATA_MARK("front: the engine thread leads");
    // A watch that was armed while calls were made fires, and is taken, in a leader's sleep.
    watch_armed_ = false;
    lead_ = Lead::kEngine;
    do {
      step(token);
      announce();
      if (lead_ == Lead::kEngine && (core_.at_rest() || may_call())) break;
    } while (lead_ == Lead::kEngine && !stopping_ &&
             idle_as_leader(token, base::Instant::never(), &awaited));
    const bool lost = lead_ != Lead::kEngine;
    // The kick of stop() may be taken already; calls are made at the top, without the lead.
    lost_lead = lost || stopping_ || may_call();
    leave(token, !lost);
  }
}

template <class World>
void Front<World>::stop() {
  {
    std::unique_lock token(token_);
    stopping_ = true;
  }
  world_.kick_engine();
}

}  // namespace strata::engine
