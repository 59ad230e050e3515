// ClassLists: the workers of one class in lists, one for each length of queue (and one more for the
// cold). Knows no queue: the caller says which list a worker is in. Not thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "sched/types.h"

namespace strata::sched {

struct ClassLists {
  static constexpr uint32_t kLists = 64;

  struct Link {
    uint32_t next = kNone;
    uint32_t previous = kNone;
    bool spent = false;  // nothing to take back
  };

  ClassLists() {
    heads.fill(kNone);
    tails.fill(kNone);
  }

  uint64_t occupied = 0;  // bit n: list n is not empty
  std::array<uint32_t, kLists> heads;
  std::array<uint32_t, kLists> tails;
  std::vector<Link> links;  // by worker

  // A worker of the class, in no list yet.
  void join(uint32_t worker) {
    if (links.size() <= worker) links.resize(worker + 1);
    links[worker] = Link{};
  }

  // At the head, or at the tail where there is nothing to take back: candidates come first.
  void link(uint32_t worker, uint32_t list) {
    Link& at = links[worker];
    uint32_t& head = heads[list];
    uint32_t& tail = tails[list];
    if (at.spent) {
      at.previous = tail;
      at.next = kNone;
      (tail == kNone ? head : links[tail].next) = worker;
      tail = worker;
    } else {
      at.next = head;
      at.previous = kNone;
      (head == kNone ? tail : links[head].previous) = worker;
      head = worker;
    }
    occupied |= uint64_t{1} << list;
  }
  void unlink(uint32_t worker, uint32_t list) {
    const Link& at = links[worker];
    (at.previous == kNone ? heads[list] : links[at.previous].next) = at.next;
    (at.next == kNone ? tails[list] : links[at.next].previous) = at.previous;
    if (heads[list] == kNone) occupied &= ~(uint64_t{1} << list);
  }
};

}  // namespace strata::sched
