// Group: what the scheduler knows of a group of tasks that start together on distinct workers.
#pragma once

#include <cstdint>
#include <vector>

#include "sched/types.h"

namespace strata::sched {

struct Group {
  uint32_t own = kNone;            // its slot
  std::vector<uint32_t> members;   // slots
  std::vector<uint32_t> wanted;    // by member; kNone: any worker of the class
  std::vector<bool> got;           // by member: the wanted worker is held for it
  std::vector<uint32_t> reserved;  // held for members that take any worker
  uint32_t any = 0;                // how many of these there are
  uint32_t cls = 0;
  uint32_t unended = 0;  // members that are not terminal
  bool launched = false;
  uint64_t checked = 0;  // the membership at which there were enough workers for it
  // The first failure of a member.
  Outcome outcome = Outcome::kOk;
  uint32_t cause = 0;
};

}  // namespace strata::sched
