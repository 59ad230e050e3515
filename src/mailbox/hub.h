// Hub: the parent's view of the memory that all children of one Worker share: its own sleep flag
// and the permits to spin.
//
// Not a waiter: the driver sleeps, in its epoll. prepare_sleep and finish_sleep by the one thread
// that holds the step token; permits by any thread.
#pragma once

#include <cstdint>

#include "base/mark.h"
#include "mailbox/header_access.h"
#include "mailbox/layout.h"

namespace strata::mailbox {

// One of the permits that all processes of the local tree share; never below zero.
template <class Memory>
bool take_permit(const Memory& memory, HubLayout* hub) {
  int32_t free = memory.load_relaxed(&hub->permits.free);
  while (free > 0) {
    if (memory.compare_exchange(&hub->permits.free, free, free - 1)) return true;
    free = memory.load_relaxed(&hub->permits.free);
  }
  STRATA_MARK("mailbox: no permit to spin");
  return false;
}

// Never above the total: who dies between taking a permit and noting it is counted once too often.
template <class Memory>
void give_permit(const Memory& memory, HubLayout* hub) {
  const int32_t total = memory.load_relaxed(&hub->permits.total);
  int32_t free = memory.load_relaxed(&hub->permits.free);
  while (free < total) {
    if (memory.compare_exchange(&hub->permits.free, free, free + 1)) return;
    free = memory.load_relaxed(&hub->permits.free);
  }
}

template <class Memory>
class Hub {
 public:
  static constexpr size_t kBytes = kHubBytes;

  // `hub` is a mapping of kBytes zeroed bytes that outlives this.
  Hub(Memory memory, void* hub) : memory_(memory), hub_(static_cast<HubLayout*>(hub)) {}

  // Before the first child attaches. permits: cores in the affinity mask minus one.
  void format(int32_t permits) {
    HeaderLine header = make_header(kHubMagic, sizeof(HubLayout));
    memory_.store_relaxed(&hub_->permits.free, permits);
    memory_.store_relaxed(&hub_->permits.total, permits);
    write_header(memory_, &hub_->header, header);
  }

  // Stores the flag, fences and asks has_news() for each child: false = there is news, and the flag
  // is withdrawn. True: wait; a child that publishes from now on signals.
  template <class HasNews>
  bool prepare_sleep(HasNews&& has_news) {
    memory_.store_release(&hub_->parent_sleep.asleep, uint32_t{1});
    memory_.fence();
    if (!has_news()) return true;
    STRATA_MARK("mailbox: parent finds news on its way to sleep");
    memory_.store_relaxed(&hub_->parent_sleep.asleep, uint32_t{0});
    return false;
  }
  void finish_sleep() { memory_.store_relaxed(&hub_->parent_sleep.asleep, uint32_t{0}); }

  bool acquire_permit() { return take_permit(memory_, hub_); }
  void release_permit() { give_permit(memory_, hub_); }

 private:
  Memory memory_;
  HubLayout* hub_;
};

}  // namespace strata::mailbox
