// Event: one thing that a process of a Worker's tree did, as it stands in the shared rings.
//
// A value: it knows no clock and no file. Times are ticks of the region's clock (ring.h).
#pragma once

#include <cstdint>
#include <type_traits>

namespace strata::trace {

// Spans have an end after their start; all others are instants, whose end is their start.
enum class Kind : uint8_t {
  kNone = 0,
  // --- of a parent
  kRun = 1,         // span: from its opening until it is done
  kBuild = 2,       // span: its orchestration function
  kSubmit = 3,      // instant: one task
  kDispatch = 4,    // span: a task is put where `worker` finds it, by the name `id`
  kCompletion = 5,  // instant: what `worker` did with the task `id` was taken
  kTakeBack = 6,    // instant: `worker` will not start `id`; it goes elsewhere
  kSkip = 7,        // instant: a task that never starts
  kSleep = 8,       // span: the thread that leads sleeps
  kGone = 9,        // instant: the process of `worker` has ended; the name says how
  kCancel = 10,     // instant: a run is cancelled
  // --- of a child
  kStart = 11,    // instant: the process is there; of a parent too
  kTask = 12,     // span: the task `id`
  kControl = 13,  // span: the command `id`; the name is the callable's
  kBlock = 14,    // span: block `id` of the task that a chip runs; `worker` is its lane
  kCount
};

enum class Mark : uint8_t { kOk = 0, kFailed = 1, kLost = 2, kCancelled = 3, kCount };

struct Event {
  uint64_t start = 0;   // ticks
  uint64_t end = 0;     // ticks
  uint64_t id = 0;      // the ticket of a task, by which parent and child call it; see Kind
  uint32_t run = 0;     // from 1, of the parent; 0: none
  uint32_t task = 0;    // its number within the run
  uint32_t name = 0;    // of the ring's table; 0: none
  uint16_t worker = 0;  // of the parent
  Kind kind = Kind::kNone;
  Mark mark = Mark::kOk;
};
// A ticket by which a parent means the task also where a worker was replaced: the child of the n-th
// incarnation knows the ticket alone, and its path ends with "#n" where n is not 1.
constexpr uint64_t ticket_of(uint32_t incarnation, uint64_t ticket) {
  return uint64_t{incarnation - 1} << 44 | ticket;
}
static_assert(sizeof(Event) == 40 && std::is_trivially_copyable_v<Event>);

}  // namespace strata::trace
