// Every wait of Strata that is not the user's own ends by one of these. All in milliseconds.
#pragma once

#include <cstdint>

namespace strata {

struct Timeouts {
  uint32_t child_ready_ms = 30'000;    // start of a local child until it is READY
  uint32_t building_turn_ms = 30'000;  // a submit that waits until another thread has built its run
  uint32_t control_ms = 30'000;        // one registry control, without the task it stands behind
  uint32_t close_ms = 60'000;          // close: drain, then cancel, then the end of the children
  uint32_t exit_ms = 5'000;            // exit of a child that was told to, before SIGKILL
  // A task that does not end when its deadline has passed and it was told, before its child is
  // ended.
  uint32_t deadline_grace_ms = 1'000;
  uint32_t stall_report_ms = 30'000;  // how often an unbounded wait says what it waits for
};

}  // namespace strata
