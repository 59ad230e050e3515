// Front: how threads share one Core: the step token, who waits and who steps.
//
// The token guards the Core; it is never held over user code, a wait or a system call. A thread
// that waits steps the engine itself: it *leads*, that is, it spins and then sleeps in the one
// place where children and the kernel wake somebody up. Other waiting threads are parked. While
// nobody waits a *watch* is armed, and the engine thread takes the lead when it fires and finds
// that no user thread has stepped meanwhile. So a program that only submits and waits never pays
// for a thread between it and its children.
//
// One rule keeps this from hanging: while tasks are in flight there is a leader that sleeps with
// the flag set, or a thread that is about to step, or an armed watch.
//
// World is the policy: mutex, sleeping, clock. The product has threads (runtime/thread_world.h),
// the simulator fibers. Every call from any thread.
//
//   struct World {
//     struct Mutex { lock, unlock };
//     base::Instant now();
//     const void* self();                            names the calling thread
//     bool spin(endpoints);                          without the token; true: there is news
//     bool linger(endpoints, Changed);               the same, for longer, giving the core away
//     template <F> bool prepare_sleep(F has_news);   with the token
//     void finish_sleep();                           with the token
//     void lead_sleep(base::Instant until);          without; children, kernel events, kick_lead
//     void collect(Core&, bool slept);               with the token; deaths of children and such
//     void kick_lead();
//     void park(Mutex&, base::Instant until);        as a condition variable
//     void unpark_all();
//     void arm_watch();                              fires once, soon
//     void engine_sleep(bool leads, base::Instant until);  the engine thread: until the watch or
//                                                    kick_engine; where it leads, also what
//                                                    lead_sleep waits for
//     void kick_engine();
//     void kill(Core&, const Kill&);                 with the token
//     void punch(std::vector<Punch>);                without the token
//     std::unique_ptr<WorkerEndpoint> make_endpoint(uint32_t worker);  without; null: there is none
//     Result<void> spawn(Core&, uint32_t worker);    with; the worker that has this endpoint now
//     void stalled(const char* what, base::Duration since, const std::string& where);  a report
//   };
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/mark.h"
#include "engine/core.h"

namespace strata::engine {

template <class World>
class Front {
 public:
  Front(World& world, Core& core) : world_(world), core_(core) {}
  Front(const Front&) = delete;
  Front& operator=(const Front&) = delete;

  // fn(Core&) under the token, then a step. For calls that change something.
  template <class Fn>
  auto call(Fn&& fn);
  // fn(const Core&) under the token, nothing else.
  template <class Fn>
  auto look(Fn&& fn);

  // Steps the engine until ready(Core&) holds (true) or the deadline has passed (false). `what`
  // names the wait for reports of a stall.
  template <class Ready>
  bool wait(const char* what, base::Instant deadline, Ready&& ready, Wake wake = Wake::kRunEnd);

  // --- Runs. Building is exclusive.
  Result<std::shared_ptr<RunRecord>> open_run();
  void seal_run(RunRecord& run, std::optional<Error> build_error);
  Result<TaskRef> submit(RunRecord& run, const Job& job, const TaskArgs& args);
  Result<TaskRef> submit_group(RunRecord& run, const Job& job, std::span<const TaskArgs> members,
                               std::span<const int32_t> workers);
  // attempt(Core&), which gives a Result, under the token; again while it lacks memory that tasks
  // in flight give back. For temporaries.
  template <class Attempt>
  auto with_memory(Attempt&& attempt);
  Result<void> wait_run(RunRecord& run, base::Instant deadline);
  Result<void> wait_task(RunRecord& run, TaskRef task);
  // Calls it, without the token, when the run is done: in a thread that waits, else in the engine
  // thread; at once where it is done already. Calls are made one at a time. It throws nothing.
  void on_done(const std::shared_ptr<RunRecord>& run,
               std::function<void(const Result<void>&)> call);
  // Those that are left, after the engine thread has ended.
  void finish_calls();
  // The thread that calls is inside an orchestration function of this Worker.
  bool is_building() const { return builder_.load(std::memory_order_relaxed) == world_.self(); }
  // Why this thread may not wait here: it runs a task of this Worker, or an on_done callback.
  std::optional<Error> why_no_wait(const char* what);

  Result<registry::EntryRef> register_callable(const registry::PreparePayload& payload,
                                               std::span<const uint32_t> listed = {});

  // `poll(Core&)` runs under the token in every wait, at least that often. Before any wait.
  void poll_while_waiting(base::Duration every, std::function<void(Core&)> poll) {
    poll_every_ = every;
    poll_ = std::move(poll);
  }

  // The engine thread's life; returns after stop().
  void engine_main();
  void stop();

 private:
  enum class Lead : uint8_t { kNobody, kWaiter, kEngine };

  // attempt(core, &out, &error), again and again until there is room.
  template <class Attempt>
  Result<TaskRef> submit_with_room(Attempt&& attempt);

  // With the token held; all release and take it again.
  void step(std::unique_lock<typename World::Mutex>& token, bool streaming = false);
  void carry_out(std::unique_lock<typename World::Mutex>& token);
  void carry_out_once(std::unique_lock<typename World::Mutex>& token);
  void replace(std::unique_lock<typename World::Mutex>& token, uint32_t worker);
  void done_looking();
  void run_inline(std::unique_lock<typename World::Mutex>& token);
  bool nothing_comes(std::unique_lock<typename World::Mutex>& token, Changed changed,
                     std::vector<Awaited>* awaited);
  bool idle_as_leader(std::unique_lock<typename World::Mutex>& token, base::Instant until,
                      std::vector<Awaited>* awaited);
  void leave(std::unique_lock<typename World::Mutex>& token, bool led);
  // Not while this thread has a turn, to build or to register: a call that submits waits for the
  // turn to build, and whoever has that one may wait for the other.
  bool may_call() const {
    return !calling_ && !core_.done_calls().empty() && !is_building() &&
           registrar_ != world_.self();
  }
  void make_calls(std::unique_lock<typename World::Mutex>& token);
  void make_calls_of(RunRecord& run, std::unique_lock<typename World::Mutex>& token);
  void take_lead_from_engine();
  void note_call();
  void announce();
  base::Instant clamp(base::Instant until);

  World& world_;
  Core& core_;
  typename World::Mutex token_;
  Lead lead_ = Lead::kNobody;
  uint32_t parked_ = 0;
  uint32_t looking_ = 0;  // threads without the token that may look at endpoints
  bool leader_sleeps_ = false;
  bool watch_armed_ = false;
  bool stopping_ = false;
  bool inline_runs_ = false;
  std::atomic<uint64_t> epoch_{0};  // of announcements; written under the token
  std::atomic<uint64_t> calls_{0};  // of user threads; written under the token
  uint32_t steps_ = 0;              // since the kernel was last looked at
  bool build_taken_ = false;
  const void* registrar_ = nullptr;  // the thread whose registration is under way
  std::atomic<const void*> builder_{nullptr};
  std::atomic<const void*> task_thread_{nullptr};  // runs an inline task
  bool calling_ = false;                           // a thread makes the calls of runs that are done
  std::atomic<bool> calls_due_{false};             // and none does yet
  std::vector<const void*> callers_;               // threads inside such a call
  std::atomic<uint32_t> caller_count_{0};
  std::function<void(Core&)> poll_;
  base::Duration poll_every_{};
};

}  // namespace strata::engine

#include "engine/front_inl.h"
#include "engine/front_runs_inl.h"
