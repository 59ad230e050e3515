// The member functions of ChildSide; included by child_side.h alone.
#pragma once

#include "base/result.h"
#include "mailbox/child_side.h"
#include "mailbox/header_access.h"
#include "mailbox/hub.h"

namespace strata::mailbox {

template <class Memory>
Result<ChildSide<Memory>> ChildSide<Memory>::attach(Memory memory, std::span<std::byte> region,
                                                    std::span<std::byte> hub) {
  if (region.size() < sizeof(HeaderLine) || hub.size() < sizeof(HeaderLine)) {
    return Error(Code::kAbiMismatch, Scope::kProcess, "a mapping is too small for a header");
  }
  auto* const region_layout = reinterpret_cast<RegionLayout*>(region.data());
  auto* const hub_layout = reinterpret_cast<HubLayout*>(hub.data());
  STRATA_TRY(check_header(read_header(memory, &region_layout->header), "mailbox", kRegionMagic,
                          sizeof(RegionLayout), region.size()));
  STRATA_TRY(check_header(read_header(memory, &hub_layout->header), "hub", kHubMagic,
                          sizeof(HubLayout), hub.size()));
  return ChildSide(memory, region_layout, hub_layout);
}

template <class Memory>
bool ChildSide<Memory>::try_take(TaskView* out) {
  STRATA_CHECK(running_ == 0);
  if (busy_ && corrupt_ == nullptr &&
      memory_.compare_exchange(&region_->tasks[ring_position(next_)].state,
                               state_word(next_, Phase::kQueued),
                               state_word(next_, Phase::kStarted))) {
    // Without a look before it the line is fetched once, ready to be written.
    fenced_ = Memory::kLockedIsFence;
    return start(region_->tasks[ring_position(next_)], out);
  }
  busy_ = false;
  while (corrupt_ == nullptr) {
    TaskEntry& entry = region_->tasks[ring_position(next_)];
    const uint64_t state = memory_.load_acquire(&entry.state);
    if (number_of(state) != next_) break;
    if (phase_of(state) == Phase::kQueued) {
      if (!memory_.compare_exchange(&entry.state, state, state_word(next_, Phase::kStarted))) {
        STRATA_MARK("mailbox: start lost against a revoke");
        continue;
      }
      fenced_ = Memory::kLockedIsFence;
      return start(entry, out);
    }
    if (phase_of(state) != Phase::kRevoked) {
      corrupt_ = "the next task entry is in a phase that the parent never writes";
      break;
    }
    if (base::fault() == 13) return start(entry, out);
    STRATA_MARK("mailbox: child skips a revoked entry");
    ++next_;
    skipped_ = true;
  }
  note_skips();
  return false;
}

template <class Memory>
bool ChildSide<Memory>::start(TaskEntry& entry, TaskView* out) {
  const uint64_t begin = memory_.load_relaxed(&entry.args_begin);
  const uint32_t bytes = memory_.load_relaxed(&entry.args_bytes);
  if (!within_ring(begin, bytes, kArgsRingBytes)) {
    corrupt_ = "a task names argument bytes outside the args ring";
    return false;
  }
  running_ = next_++;
  busy_ = true;
  // Both lines are written next; the parent has them now.
  memory_.prefetch_for_write(&region_->tasks[ring_position(next_)]);
  memory_.prefetch_for_write(&region_->completions[ring_position(next_completion_)]);
  skipped_ = false;  // the completion says that the skipped ones before it are passed
  *out = {.task = memory_.load_relaxed(&entry.task),
          .ticket = running_,
          .callable = memory_.load_relaxed(&entry.callable),
          .flags = memory_.load_relaxed(&entry.flags),
          .block_dim = memory_.load_relaxed(&entry.block_dim),
          .deadline_ms = memory_.load_relaxed(&entry.deadline_ms),
          .args = {region_->args + begin % kArgsRingBytes, bytes}};
  return true;
}

template <class Memory>
void ChildSide<Memory>::note_start(TaskView* task, int64_t now_ns) {
  task->started_ns = now_ns;
  memory_.store_relaxed(&region_->tasks[ring_position(task->ticket)].started_ns, now_ns);
}

template <class Memory>
void ChildSide<Memory>::note_skips() {
  if (!skipped_) return;
  skipped_ = false;
  published_ = true;
  fenced_ = false;
  memory_.store_release(&region_->child_progress.consumed, next_ - 1);
}

template <class Memory>
void ChildSide<Memory>::reclaim_results() {
  const uint64_t freed = memory_.load_acquire(&region_->parent_progress.results_freed);
  if (freed <= results_freed_) return;
  if (freed >= next_completion_) {
    corrupt_ = "the parent says that it has read completions that were never written";
    return;
  }
  results_freed_ = freed;
  results_.free_to(result_ends_[ring_position(freed)]);
}

template <class Memory>
bool ChildSide<Memory>::try_complete(const TaskView& task, const TaskOutcome& outcome) {
  STRATA_CHECK(running_ == task.ticket && running_ != 0);
  STRATA_CHECK(outcome.result.size() <= kResultBytesMax && outcome.text.size() <= kTextBytesMax);
  const uint64_t bytes = outcome.result.size() + outcome.text.size();
  std::optional<uint64_t> begin = results_.fit(bytes);
  if (!begin) {
    reclaim_results();
    begin = results_.fit(bytes);
  }
  waits_for_space_ = !begin;
  if (!begin) {
    STRATA_MARK("mailbox: result space short");
    return false;
  }
  const uint64_t number = next_completion_++;
  result_ends_[ring_position(number)] = results_.take(*begin, bytes);
  std::byte* const to = region_->results + *begin % kResultsRingBytes;
  memory_.write_bytes(to, outcome.result.data(), outcome.result.size());
  memory_.write_bytes(to + outcome.result.size(), outcome.text.data(), outcome.text.size());

  CompletionEntry& entry = region_->completions[ring_position(number)];
  memory_.store_relaxed(&entry.task, task.task);
  memory_.store_relaxed(&entry.ticket, task.ticket);
  memory_.store_relaxed(&entry.started_ns, outcome.started_ns);
  memory_.store_relaxed(&entry.ended_ns, outcome.ended_ns);
  memory_.store_relaxed(&entry.bytes_begin, *begin);
  memory_.store_relaxed(&entry.result_bytes, static_cast<uint32_t>(outcome.result.size()));
  memory_.store_relaxed(&entry.text_bytes, static_cast<uint32_t>(outcome.text.size()));
  memory_.store_relaxed(&entry.outcome, static_cast<uint32_t>(outcome.outcome));
  memory_.store_relaxed(&entry.code, outcome.code);
  memory_.store_release(&entry.state, state_word(number, Phase::kDone));
  running_ = 0;
  completed_ = task.ticket;
  published_ = true;
  fenced_ = false;
  return true;
}

template <class Memory>
bool ChildSide<Memory>::control_take(ControlView* out) {
  if (control_taken_ || corrupt_ != nullptr) return false;
  if (memory_.load_acquire(&region_->request.state) != state_word(next_control_, Phase::kQueued)) {
    return false;
  }
  const uint32_t bytes = memory_.load_relaxed(&region_->request.bytes);
  if (bytes > kControlBytesMax) {
    corrupt_ = "a control request is longer than its area";
    return false;
  }
  control_taken_ = true;
  *out = {memory_.load_relaxed(&region_->request.word), {region_->request_bytes, bytes}};
  return true;
}

template <class Memory>
void ChildSide<Memory>::control_reply(uint32_t code, std::span<const std::byte> bytes) {
  STRATA_CHECK(control_taken_ && bytes.size() <= kControlBytesMax);
  memory_.write_bytes(region_->reply_bytes, bytes.data(), bytes.size());
  memory_.store_relaxed(&region_->reply.word, code);
  memory_.store_relaxed(&region_->reply.bytes, static_cast<uint32_t>(bytes.size()));
  memory_.store_release(&region_->reply.state, state_word(next_control_, Phase::kDone));
  control_taken_ = false;
  ++next_control_;
  completed_ = ~uint64_t{0};  // always worth telling
  published_ = true;
  fenced_ = false;
}

template <class Memory>
bool ChildSide<Memory>::parent_asleep_after_publish(bool idle) {
  if (!published_) return false;
  if (!fenced_ && base::fault() != 7) memory_.fence();
  fenced_ = true;
  uint32_t* const asleep = &hub_->parent_sleep.asleep;
  const bool sleeps = memory_.load_acquire(asleep) != 0;
  if (sleeps && !idle && completed_ < memory_.load_relaxed(&region_->parent_progress.wake_at)) {
    STRATA_MARK("mailbox: a completion is not worth waking the parent");
    return false;  // and stays to be told
  }
  published_ = false;
  completed_ = 0;
  return sleeps && memory_.compare_exchange(asleep, uint32_t{1}, uint32_t{0});
}

template <class Memory>
bool ChildSide<Memory>::have_work() const {
  if (waits_for_space_) {
    return memory_.load_acquire(&region_->parent_progress.results_freed) > results_freed_;
  }
  if (corrupt_ != nullptr) return false;
  if (running_ == 0 &&
      number_of(memory_.load_acquire(&region_->tasks[ring_position(next_)].state)) == next_) {
    return true;
  }
  return !control_taken_ &&
         memory_.load_acquire(&region_->request.state) == state_word(next_control_, Phase::kQueued);
}

template <class Memory>
bool ChildSide<Memory>::prepare_sleep() {
  memory_.store_relaxed(&region_->child_sleep.asleep, uint32_t{1});
  memory_.fence();
  if (!have_work()) return true;
  STRATA_MARK("mailbox: child finds work on its way to sleep");
  finish_sleep();
  return false;
}

template <class Memory>
void ChildSide<Memory>::finish_sleep() {
  memory_.store_relaxed(&region_->child_sleep.asleep, uint32_t{0});
}

}  // namespace strata::mailbox
