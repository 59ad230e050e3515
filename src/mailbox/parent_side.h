// ParentSide: the parent's half of one mailbox: pushes tasks, revokes them, takes completions.
//
// Not a waiter and not a driver: it never sleeps, and tells its caller when the child must be woken
// (a futex wake on child_sleep_word()). It trusts nothing that the child wrote: what does not hold
// together sets Polled::corrupt, for good; then kill the child and abandon().
// One thread at a time (the one that holds the step token); the has_ functions from any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <span>

#include "base/check.h"
#include "base/fault.h"
#include "base/mark.h"
#include "mailbox/byte_ring.h"
#include "mailbox/layout.h"

namespace strata::mailbox {

struct TaskPost {
  uint64_t task = 0;  // the caller's own name of the task; opaque here
  uint32_t callable = 0;
  uint32_t flags = 0;
  int32_t block_dim = 0;
  uint32_t deadline_ms = 0;
};

// Of TaskPost::flags, beside those of the user: the child tells when the task began and ended. It
// does so too where there is a deadline.
inline constexpr uint32_t kFlagTimed = 1u << 31;
constexpr bool is_timed(uint32_t deadline_ms, uint32_t flags) {
  return deadline_ms != 0 || (flags & kFlagTimed) != 0;
}

// kDeadline: it ended after its deadline, however.
enum class Outcome : uint32_t { kOk = 0, kTaskFailed = 1, kDeadline = 2 };

struct Completion {
  uint64_t task = 0;
  uint64_t ticket = 0;
  Outcome outcome = Outcome::kOk;
  int32_t code = 0;
  int64_t started_ns = 0;  // 0 unless it is timed
  int64_t ended_ns = 0;
  // In the mapping, valid inside the callback. A hostile child may still change them: copy first,
  // then look.
  std::span<const std::byte> result = {};
  std::span<const std::byte> text = {};
};

struct Polled {
  size_t completions = 0;
  bool wake_child = false;        // it waits for result space, which is there now: send one wake
  const char* corrupt = nullptr;  // what does not hold together; sticks
};

template <class Memory>
class ParentSide {
 public:
  static constexpr size_t kRegionBytes = mailbox::kRegionBytes;

  // `region` is a mapping of kRegionBytes zeroed bytes that outlives this.
  ParentSide(Memory memory, void* region)
      : memory_(memory), region_(static_cast<RegionLayout*>(region)) {}
  ParentSide(const ParentSide&) = delete;
  ParentSide& operator=(const ParentSide&) = delete;

  // Writes the header; before the child attaches.
  void format();

  // The ticket, or nothing while the task ring or the args ring is full. args: at most
  // kArgsBytesMax. Then child_asleep_after_publish(), once for any number of pushes.
  std::optional<uint64_t> push(const TaskPost& post, std::span<const std::byte> args);
  bool can_push(size_t args_bytes);
  // True: the driver wakes the child, now. The flag is taken back, so that one wake is sent.
  bool child_asleep_after_publish();
  // A look without a fence: what it says may be past.
  bool child_asleep() const { return memory_.load_relaxed(&region_->child_sleep.asleep) != 0; }
  // While this side sleeps the child signals no completion of an earlier ticket, unless it has
  // nothing more to do. 0: every one. Before the hub's flag is set; or with fence and poll after
  // it.
  void set_wake_at(uint64_t ticket) {
    if (wake_at_ == ticket) return;
    wake_at_ = ticket;
    memory_.store_relaxed(&region_->parent_progress.wake_at, ticket);
  }
  void fence() { memory_.fence(); }
  const uint32_t* child_sleep_word() const { return &region_->child_sleep.asleep; }

  // True: the task never starts. False: it has started, or is no longer outstanding.
  bool revoke(uint64_t ticket);
  // When the task began, by the child's word; 0: it has, and the child has not told when. Nothing
  // where it has not, or is no longer outstanding.
  std::optional<int64_t> started(uint64_t ticket) const;
  // The callables of all tickets up to this one see cancelled().
  void cancel_through(uint64_t ticket);

  // Cheap: one load of one line.
  bool has_completion() const {
    const uint64_t next = next_completion_.load(std::memory_order_relaxed);
    return memory_.load_acquire(&region_->completions[ring_position(next)].state) ==
           state_word(next, Phase::kDone);
  }
  // Whether the completion that comes after `ahead` others is there, and so all before it.
  bool has_completion_ahead(uint32_t ahead) const {
    const uint64_t number = next_completion_.load(std::memory_order_relaxed) + ahead;
    return memory_.load_acquire(&region_->completions[ring_position(number)].state) ==
           state_word(number, Phase::kDone);
  }
  bool has_reply() const {
    return control_outstanding_ &&
           memory_.load_acquire(&region_->reply.state) == state_word(control_number_, Phase::kDone);
  }
  // What a driver looks at again between the hub's flag and its sleep: a completion, a reply, or
  // entries that the child has skipped (where a push waits for room).
  bool has_news() const {
    return has_completion() || has_reply() ||
           memory_.load_acquire(&region_->child_progress.consumed) > consumed_seen_;
  }
  // Takes up to `max` completions, in order; on_completion(const Completion&) may push and revoke.
  template <class Fn>
  Polled poll(size_t max, Fn&& on_completion);

  // The child is dead and poll() finds no more: on_entry(task, ticket, started) for each ticket
  // that is still outstanding, oldest first. `started` is true where it may have run.
  template <class Fn>
  void abandon(Fn&& on_entry);

  // Tickets that are queued or started as far as the parent has polled.
  uint32_t outstanding() const { return outstanding_; }

  // One control at a time: kWrongState while one is outstanding, kResourceExhausted over
  // kControlBytesMax. Then child_asleep_after_publish().
  Result<void> control_post(uint32_t command, std::span<const std::byte> request);
  // True where a reply was there: on_reply(command, code, std::span<const std::byte>).
  template <class Fn>
  bool control_poll(Fn&& on_reply);
  bool control_outstanding() const { return control_outstanding_; }
  const char* corrupt() const { return corrupt_; }

 private:
  enum class Entry : uint8_t { kDone, kOutstanding, kRevoked };
  struct Record {
    uint64_t task = 0;
    uint64_t args_end = 0;
    Entry entry = Entry::kDone;
  };

  Record& record(uint64_t ticket) { return records_[ring_position(ticket)]; }
  bool is_outstanding(uint64_t ticket) const {
    return ticket >= oldest_ && ticket < next_ &&
           records_[ring_position(ticket)].entry == Entry::kOutstanding;
  }
  // Lets entries and argument bytes go that the child has surely passed.
  void advance();
  void read_consumed();
  // Reads completion `number` once, validates it; false sets corrupt_.
  bool read_completion(uint64_t number, Completion* out);

  Memory memory_;
  RegionLayout* region_;
  std::array<Record, kRingEntries> records_{};
  ByteRing args_{kArgsRingBytes};
  uint64_t next_ = 1;                       // the next ticket
  uint64_t oldest_ = 1;                     // the oldest ticket whose entry may not be reused
  uint64_t consumed_ = 0;                   // the child has passed all tickets up to this one
  std::atomic<uint64_t> consumed_seen_{0};  // what its counter said last
  std::atomic<uint64_t> next_completion_{1};
  uint32_t outstanding_ = 0;
  uint64_t wake_at_ = 0;
  uint32_t control_command_ = 0;
  std::atomic<uint64_t> control_number_{0};
  std::atomic<bool> control_outstanding_{false};
  const char* corrupt_ = nullptr;
};

}  // namespace strata::mailbox

#include "mailbox/parent_side_inl.h"
