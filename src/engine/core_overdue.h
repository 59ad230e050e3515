// Core::Overdue: the part of Core that ends what does not end by itself: tasks past their deadline
// and its grace, and what a cancelled run still runs when its own grace has passed.
//
// A worker is ended as a whole, by its driver. What it had not started goes back first; the task it
// was ended for has the error that it was condemned with. Inline workers cannot be ended. With the
// step token, as all of Core.
#pragma once

#include <string>

#include "engine/core.h"

namespace strata::engine {

struct Core::Overdue {
  static void check(Core& core, base::Instant now);
  // The worker of a condemned task is gone.
  static void ended(Core& core, uint32_t worker, uint32_t slot);
  static void forget_grace(Core& core, const RunRecord& run);
  // The text of a task that ended by itself, after its deadline.
  static std::string late_text(uint32_t deadline_ms, const mailbox::Completion& completion,
                               const std::string& own);

 private:
  static base::Instant look(Core& core, uint32_t worker, base::Instant now);
  static base::Instant judge(Core& core, uint32_t worker, uint32_t slot, base::Instant since,
                             base::Instant now);
  static void end_run(Core& core, const RunRecord& run, base::Instant now);
  static void condemn(Core& core, uint32_t worker, uint32_t slot, Error error);
};

// The slot's task is no longer at its worker, or has ended there.
inline void Core::left_worker(uint32_t slot) {
  if (!endings_.deadlines.any()) [[likely]]
    return;
  if (head_of(slot).post.deadline_ms != 0) endings_.deadlines.gone(sched_.slot(slot).worker);
}

}  // namespace strata::engine
