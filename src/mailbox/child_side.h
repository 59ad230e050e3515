// ChildSide: the child's half of one mailbox: takes tasks in order, completes them, answers
// controls.
//
// Not a waiter and not a driver. The driver's loop: control_take, try_take, and when both give
// nothing wait until have_work(), by spinning and then prepare_sleep, a futex wait on sleep_word()
// while it is 1, finish_sleep. It calls parent_asleep_after_publish() after each completion and
// reply and once before it waits. One task at a time. One thread; cancelled() from any thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "base/fault.h"
#include "base/mark.h"
#include "mailbox/byte_ring.h"
#include "mailbox/layout.h"
#include "mailbox/parent_side.h"

namespace strata::mailbox {

struct TaskView {
  uint64_t task = 0;
  uint64_t ticket = 0;
  uint32_t callable = 0;
  uint32_t flags = 0;
  int32_t block_dim = 0;
  uint32_t deadline_ms = 0;
  int64_t started_ns = 0;                // of one that is timed
  std::span<const std::byte> args = {};  // in the mapping, valid until the task is completed
};

struct ControlView {
  uint32_t command = 0;
  std::span<const std::byte> request = {};  // in the mapping, valid until the reply
};

struct TaskOutcome {
  Outcome outcome = Outcome::kOk;
  int32_t code = 0;
  int64_t started_ns = 0;
  int64_t ended_ns = 0;
  std::span<const std::byte> result = {};  // at most kResultBytesMax
  std::span<const std::byte> text = {};    // at most kTextBytesMax
};

// Whoever ends after its deadline has failed by it, whatever it says: it may have seen that it is
// cancelled and stopped half-way.
inline void judge_deadline(uint32_t deadline_ms, TaskOutcome* outcome) {
  if (deadline_ms == 0) return;
  if (outcome->ended_ns - outcome->started_ns < int64_t{deadline_ms} * 1'000'000) return;
  STRATA_MARK("mailbox: a task ends after its deadline");
  outcome->outcome = Outcome::kDeadline;
  outcome->result = {};
}

template <class Memory>
class ChildSide {
 public:
  // kAbiMismatch in words where the parent's layout is another one. Once for a region: a replaced
  // child gets a fresh one. The mappings outlive this.
  static Result<ChildSide> attach(Memory memory, std::span<std::byte> region,
                                  std::span<std::byte> hub);

  // The next task that is still queued, which then is started; revoked ones are skipped.
  bool try_take(TaskView* out);
  // Tells the parent when the task that was taken began.
  void note_start(TaskView* task, int64_t now_ns);
  // False while the result ring is short of space: then wait as for work, and try again.
  bool try_complete(const TaskView& task, const TaskOutcome& outcome);
  bool control_take(ControlView* out);
  // bytes: at most kControlBytesMax.
  void control_reply(uint32_t code, std::span<const std::byte> bytes);
  // True: the driver signals the parent, now. The flag is taken back, so that one child signals.
  // Costs nothing where nothing was published since the last call. `idle`: this child has nothing
  // more to do, so the parent hears of it whatever ticket it waits for.
  bool parent_asleep_after_publish(bool idle);

  // One line for a task, one for a control; while try_complete waits, the result space instead.
  bool have_work() const;
  // False: there is work, and the flag is withdrawn.
  bool prepare_sleep();
  void finish_sleep();
  const uint32_t* sleep_word() const { return &region_->child_sleep.asleep; }

  bool cancelled(const TaskView& task) const {
    return memory_.load_relaxed(&region_->cancel.through) >= task.ticket;
  }
  // What the parent wrote and does not hold together, or null; sticks. Nothing more is taken then:
  // ask whenever nothing was, and leave.
  const char* corrupt() const { return corrupt_; }

 private:
  ChildSide(Memory memory, RegionLayout* region, HubLayout* hub)
      : memory_(memory), region_(region), hub_(hub) {}

  bool start(TaskEntry& entry, TaskView* out);
  void note_skips();
  void reclaim_results();

  Memory memory_;
  RegionLayout* region_;
  HubLayout* hub_;
  std::array<uint64_t, kRingEntries> result_ends_{};
  ByteRing results_{kResultsRingBytes};
  uint64_t next_ = 1;             // the ticket that is taken next
  uint64_t next_completion_ = 1;  // the number of the next completion
  uint64_t results_freed_ = 0;    // as last read
  uint64_t next_control_ = 1;
  uint64_t running_ = 0;  // ticket of the task that is taken and not completed
  bool control_taken_ = false;
  bool fenced_ = false;           // since the last publication
  uint64_t completed_ = 0;        // the newest ticket completed that is not told
  bool published_ = false;        // since parent_asleep_after_publish()
  bool busy_ = false;             // the last look found a task: the next may be there too
  bool skipped_ = false;          // entries since the consumed counter was written
  bool waits_for_space_ = false;  // try_complete said false
  const char* corrupt_ = nullptr;
};

}  // namespace strata::mailbox

#include "mailbox/child_side_inl.h"
