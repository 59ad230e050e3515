// Shared: what all parts of one simulation see: its options, its machine, its heap, its log, its
// checks and the oracle. A bundle, no logic. One thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "sim/checks.h"
#include "sim/events.h"
#include "sim/memory.h"
#include "sim/options.h"
#include "sim/oracle.h"
#include "sim/overdue.h"
#include "sim/placement.h"
#include "sim/registrations.h"

namespace strata::sim {

class LevelWorld;
class SimTimeline;

// How often each fault took effect. A pause alone does not: only the deadline that it breaks.
struct FaultCounts {
  uint32_t kills = 0;  // by the nemesis
  uint32_t pauses = 0;
  uint32_t task_failures = 0;
  uint32_t refusals = 0;   // of a prepare, a commit or an undoing
  uint32_t full = 0;       // a limit stopped a submit, a buffer or a registration
  uint32_t deadlines = 0;  // a wait or a control passed its deadline
  uint32_t cancels = 0;    // that changed an outcome
  uint32_t wakes = 0;      // spurious or doubled
  uint32_t spawns = 0;     // of a replacement, that failed
  uint32_t kinds() const {
    return (kills > 0) + (task_failures > 0) + (refusals > 0) + (full > 0) + (deadlines > 0) +
           (cancels > 0) + (spawns > 0);
  }
};

struct Shared {
  Options options;
  Scheduler* scheduler = nullptr;
  World* machine = nullptr;
  LevelWorld* level = nullptr;
  SimTimeline* timeline = nullptr;
  std::byte* heap = nullptr;
  void* hub = nullptr;
  EventLog* log = nullptr;
  Checks checks;
  Placement placement;
  Overdue overdue;
  Registrations registrations{&checks};
  Oracle oracle;
  FaultCounts faults;
  bool late = false;  // some control was answered too late
  bool calm = false;  // faults are over
  // The fewest workers of each pool that were not lost for good at some moment when no other was to
  // come.
  std::array<uint32_t, 2> fewest = {~0u, ~0u};
  uint32_t deaths = 0;

  base::Prng& prng() { return machine->prng(); }
  bool chance(uint32_t in_thousand) { return prng().chance(in_thousand, 1000); }
  bool fault(uint32_t in_thousand) { return !calm && in_thousand > 0 && chance(in_thousand); }
  void note(std::string_view who, EventKind kind, uint64_t a = 0, uint64_t b = 0) {
    log->add(scheduler->now(), who, kind, a, b);
  }
};

}  // namespace strata::sim
