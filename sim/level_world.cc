#include "sim/level_world.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace strata::sim {
namespace {

// Front makes its token without arguments; one simulation runs at a time on a thread.
thread_local World* token_machine = nullptr;

template <class T>
T take_any(std::vector<T>& from, base::Prng& prng) {
  const size_t at = prng.below(from.size());
  const T taken = from[at];
  from.erase(from.begin() + static_cast<ptrdiff_t>(at));
  return taken;
}

}  // namespace

void LevelWorld::Mutex::lock() {
  Scheduler& scheduler = token_machine->scheduler();
  if (token_machine->prng().chance(1, 4)) scheduler.yield();
  while (owner_ != nullptr) {
    waiting_.push_back(scheduler.current());
    scheduler.block();
    std::erase(waiting_, scheduler.current());
  }
  owner_ = scheduler.current();
}

void LevelWorld::Mutex::unlock() {
  owner_ = nullptr;
  if (waiting_.empty()) return;
  token_machine->scheduler().wake(take_any(waiting_, token_machine->prng()));
}

LevelWorld::LevelWorld(World* machine, Process* parent, mailbox::Hub<SimMemory>* hub,
                       const Options& options, EventLog* log, Hooks hooks)
    : machine_(machine),
      parent_(parent),
      hub_(hub),
      options_(options),
      log_(log),
      hooks_(std::move(hooks)) {
  token_machine = machine;
}

LevelWorld::~LevelWorld() {
  token_machine = nullptr;
}

base::Instant LevelWorld::now() {
  return scheduler().now() + base::Duration{kBootNs};
}

base::Instant LevelWorld::virtual_until(base::Instant until) const {
  if (until == base::Instant::never()) return until;
  return base::Instant{until.ns - kBootNs};
}

const void* LevelWorld::self() {
  return scheduler().current();
}

std::string_view LevelWorld::who() {
  if (scheduler().current() == nullptr) return "main";
  return scheduler().current()->name();
}

bool LevelWorld::spin(const std::vector<engine::Awaited>& awaited) {
  uint64_t looks = machine_->prng().below(options_.spin_looks + 1);
  bool news = false;
  for (; looks > 0 && !news; --looks) {
    for (const engine::Awaited& one : awaited) news = news || one.ready();
    scheduler().yield();
  }
  return news;
}

bool LevelWorld::linger(const std::vector<engine::Awaited>& awaited,
                        const engine::Changed& changed) {
  bool news = false;
  for (uint64_t looks = machine_->prng().below(options_.spin_looks + 1); looks > 0 && !news;
       --looks) {
    scheduler().yield();
    news = changed.now();
    for (const engine::Awaited& one : awaited) news = news || one.ready();
  }
  return news;
}

// News that nobody takes keep a leader awake for ever.
void LevelWorld::note_restless() {
  if (restless_since_ != log_->total()) restless_ = 0;
  restless_since_ = log_->total();
  if (++restless_ > kRestlessMax) hooks_.busy_loop();
}

base::Instant LevelWorld::cut(base::Instant until) {
  if (calm_ || !chance(options_.spurious_wake)) return until;
  return std::min(until, scheduler().now() +
                             base::Duration{static_cast<int64_t>(machine_->prng().below(20'000))});
}

void LevelWorld::take_lead_event() {
  // Level-triggered: a second look may find what a first one has taken.
  if (!calm_ && signalled_ && chance(options_.doubled_wake)) return;
  signalled_ = false;
}

void LevelWorld::wake_leads() {
  if (leads_.empty()) return;
  if (machine_->prng().chance(1, 2)) {
    for (Fiber* fiber : leads_) scheduler().wake(fiber);
  } else {
    scheduler().wake(leads_[machine_->prng().below(leads_.size())]);
  }
}

void LevelWorld::signal() {
  signalled_ = true;
  wake_leads();
}

void LevelWorld::arrive(Arrival arrival) {
  arrivals_.push_back(std::move(arrival));
  for (Fiber* fiber : leads_) scheduler().wake(fiber);
}

void LevelWorld::kick_lead() {
  parent_->drain();
  signal();
}

void LevelWorld::lead_sleep(base::Instant until) {
  parent_->drain();
  log_->add(scheduler().now(), who(), EventKind::kParentSleep);
  const base::Instant end = virtual_until(until);
  const base::Instant early = cut(end);
  Fiber* const self = scheduler().current();
  while (!lead_event() && scheduler().now() < early) {
    leads_.push_back(self);
    scheduler().block(early);
    std::erase(leads_, self);
  }
  if (lead_event()) take_lead_event();
  log_->add(scheduler().now(), who(), EventKind::kParentWake);
}

void LevelWorld::collect(engine::Core& core, bool) {
  for (const Arrival& arrival : std::exchange(arrivals_, {})) hooks_.arrived(core, arrival);
}

void LevelWorld::park(Mutex& mutex, base::Instant until) {
  log_->add(scheduler().now(), who(), EventKind::kPark);
  Fiber* const self = scheduler().current();
  parked_.push_back(self);
  parent_->drain();
  mutex.unlock();
  scheduler().block(cut(virtual_until(until)));
  std::erase(parked_, self);
  log_->add(scheduler().now(), who(), EventKind::kUnpark);
  mutex.lock();
}

void LevelWorld::unpark_all() {
  for (Fiber* fiber : std::exchange(parked_, {})) scheduler().wake(fiber);
}

void LevelWorld::arm_watch() {
  parent_->drain();
  uint64_t ns = 1 + machine_->prng().below(static_cast<uint64_t>(2 * options_.watch_ns));
  if (!calm_ && machine_->prng().chance(1, 16)) ns *= 32;
  watch_at_ = scheduler().now() + base::Duration{static_cast<int64_t>(ns)};
  if (engine_ != nullptr) scheduler().wake(engine_);  // sleeps on, until then
}

void LevelWorld::engine_sleep(bool leads, base::Instant until) {
  parent_->drain();
  log_->add(scheduler().now(), who(), EventKind::kEngineSleep, leads);
  const base::Instant end = virtual_until(until);
  const base::Instant early = cut(end);
  engine_ = scheduler().current();
  for (;;) {
    if (engine_kicked_) {
      engine_kicked_ = false;
      break;
    }
    if (watch_at_ <= scheduler().now()) {
      watch_at_ = base::Instant::never();
      log_->add(scheduler().now(), who(), EventKind::kWatch);
      break;
    }
    if (leads && lead_event()) {
      take_lead_event();
      break;
    }
    if (early <= scheduler().now()) break;
    if (leads) leads_.push_back(engine_);
    scheduler().block(std::min(early, watch_at_));
    std::erase(leads_, engine_);
  }
  engine_ = nullptr;
  log_->add(scheduler().now(), who(), EventKind::kEngineWake, leads);
}

void LevelWorld::kick_engine() {
  engine_kicked_ = true;
  if (engine_ != nullptr) scheduler().wake(engine_);
}

void LevelWorld::kill(engine::Core& core, const engine::Kill& kill) {
  parent_->drain();
  if (machine_->prng().chance(1, 2)) scheduler().yield();
  hooks_.kill(core, kill);
}

void LevelWorld::punch(const std::vector<engine::Punch>& punches) {
  parent_->drain();
  for (const engine::Punch& punch : punches) {
    if (machine_->prng().chance(1, 2)) scheduler().yield();
    log_->add(scheduler().now(), who(), EventKind::kPunch, punch.heap_offset, punch.bytes);
    hooks_.punch(punch.heap_offset, punch.bytes);
  }
}

Result<std::unique_ptr<engine::WorkerEndpoint>> LevelWorld::make_endpoint(uint32_t worker) {
  parent_->drain();
  if (machine_->prng().chance(1, 2)) scheduler().yield();
  return hooks_.endpoint(worker);
}

Result<void> LevelWorld::spawn(engine::Core& core, uint32_t worker) {
  parent_->drain();
  if (hooks_.spawn(core, worker)) return {};
  return Error(Code::kSystem, Scope::kProcess, "no room for another process");
}

void LevelWorld::stalled(const char* what, base::Duration since, const std::string&) {
  log_->add(scheduler().now(), who(), EventKind::kStall, static_cast<uint64_t>(since.ns));
  hooks_.stalled(what, since);
}

}  // namespace strata::sim
