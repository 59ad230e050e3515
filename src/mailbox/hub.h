// Hub: the parent's view of the memory that all children of one Worker share: its own sleep flag.
//
// Not a waiter: the driver sleeps, in its epoll. prepare_sleep and finish_sleep by the one thread
// that holds the step token.
#pragma once

#include <cstdint>

#include "base/mark.h"
#include "mailbox/header_access.h"
#include "mailbox/layout.h"

namespace strata::mailbox {

template <class Memory>
class Hub {
 public:
  static constexpr size_t kBytes = kHubBytes;

  // `hub` is a mapping of kBytes zeroed bytes that outlives this.
  Hub(Memory memory, void* hub) : memory_(memory), hub_(static_cast<HubLayout*>(hub)) {}

  // Before the first child attaches.
  void format() {
    HeaderLine header = make_header(kHubMagic, sizeof(HubLayout));
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

 private:
  Memory memory_;
  HubLayout* hub_;
};

}  // namespace strata::mailbox
