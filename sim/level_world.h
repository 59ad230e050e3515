// LevelWorld: the World policy of engine::Front over fibers and virtual time: the token, sleeping,
// waking, the watch, and what a driver's thread would bring: starts and deaths of children.
//
// Kept as weak as the contract in engine/front.h allows: the token goes to waiters in any order and
// to whoever comes by, a wake-up may be spurious or come twice, the watch fires late, several
// wake-ups may become one. None is lost. From fibers of the parent process.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/core.h"
#include "mailbox/hub.h"
#include "sim/events.h"
#include "sim/fiber.h"
#include "sim/memory.h"
#include "sim/options.h"

namespace strata::sim {

class LevelWorld {
 public:
  class Mutex {
   public:
    void lock();
    void unlock();  // never yields: destructors call it

   private:
    friend class LevelWorld;
    Fiber* owner_ = nullptr;
    std::vector<Fiber*> waiting_;
  };

  // A start or the end of a child, as the kernel would tell it.
  struct Arrival {
    uint32_t worker = 0;
    uint32_t incarnation = 1;
    bool started = false;
    std::string reason;
  };

  // What the driver around the Front does.
  struct Hooks {
    std::function<void(engine::Core&, const Arrival&)> arrived;    // with the token
    std::function<void(engine::Core&, const engine::Kill&)> kill;  // with the token
    std::function<std::unique_ptr<engine::WorkerEndpoint>(uint32_t worker)> endpoint;
    // With the token; false where the kernel has no room for the process.
    std::function<bool(engine::Core&, uint32_t worker)> spawn;
    std::function<void(uint64_t heap_offset, uint64_t bytes)> punch;
    std::function<void(const char* what, base::Duration since)> stalled;
    std::function<void()> busy_loop;  // a leader that never comes to sleep
  };

  LevelWorld(World* machine, Process* parent, mailbox::Hub<SimMemory>* hub, const Options& options,
             EventLog* log, Hooks hooks);
  ~LevelWorld();
  LevelWorld(const LevelWorld&) = delete;
  LevelWorld& operator=(const LevelWorld&) = delete;

  // --- The policy; see engine/front.h.
  base::Instant now();
  const void* self();
  bool spin(const std::vector<engine::Awaited>& awaited);
  bool linger(const std::vector<engine::Awaited>& awaited, const engine::Changed& changed);
  template <class HasNews>
  bool prepare_sleep(HasNews&& has_news) {
    if (hub_->prepare_sleep(has_news)) {
      restless_ = 0;
      return true;
    }
    note_restless();
    return false;
  }
  void finish_sleep() { hub_->finish_sleep(); }
  void lead_sleep(base::Instant until);
  void collect(engine::Core& core, bool slept);
  void kick_lead();
  void park(Mutex& mutex, base::Instant until);
  void unpark_all();
  void arm_watch();
  void engine_sleep(bool leads, base::Instant until);
  void kick_engine();
  void kill(engine::Core& core, const engine::Kill& kill);
  void punch(const std::vector<engine::Punch>& punches);
  Result<std::unique_ptr<engine::WorkerEndpoint>> make_endpoint(uint32_t worker);
  Result<void> spawn(engine::Core& core, uint32_t worker);
  void stalled(const char* what, base::Duration since, const std::string& where);

  // --- For the rest of the simulation.
  // A child's signal, or the kernel's: the flag of the hub was taken back before.
  void signal();
  void arrive(Arrival arrival);
  Scheduler& scheduler() { return machine_->scheduler(); }
  // Faults are over: no more spurious wake-ups, and the watch comes soon.
  void calm() { calm_ = true; }

 private:
  // Virtual time begins here, so that an Instant of zero is never now.
  static constexpr int64_t kBootNs = 1'000'000'000'000;
  static constexpr uint32_t kRestlessMax = 20'000;

  bool lead_event() const { return signalled_ || !arrivals_.empty(); }
  void take_lead_event();
  void wake_leads();
  base::Instant virtual_until(base::Instant until) const;
  // When a spurious wake-up ends this sleep; `until` where none does.
  base::Instant cut(base::Instant until);
  void note_restless();
  std::string_view who();
  bool chance(uint32_t in_thousand) { return machine_->prng().chance(in_thousand, 1000); }

  World* machine_;
  Process* parent_;
  mailbox::Hub<SimMemory>* hub_;
  const Options& options_;
  EventLog* log_;
  Hooks hooks_;
  bool calm_ = false;
  bool signalled_ = false;
  std::vector<Arrival> arrivals_;
  std::vector<Fiber*> leads_;  // asleep where signals wake
  std::vector<Fiber*> parked_;
  Fiber* engine_ = nullptr;  // asleep
  bool engine_kicked_ = false;
  base::Instant watch_at_ = base::Instant::never();  // virtual
  uint32_t restless_ = 0;
  uint64_t restless_since_ = 0;
};

}  // namespace strata::sim
