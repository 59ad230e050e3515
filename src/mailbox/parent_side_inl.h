// The member functions of ParentSide; included by parent_side.h alone.
#pragma once

#include <algorithm>

#include "mailbox/header_access.h"
#include "mailbox/parent_side.h"

namespace strata::mailbox {

template <class Memory>
void ParentSide<Memory>::format() {
  write_header(memory_, &region_->header, make_header(kRegionMagic, sizeof(RegionLayout)));
}

template <class Memory>
void ParentSide<Memory>::read_consumed() {
  const uint64_t said = memory_.load_acquire(&region_->child_progress.consumed);
  if (said >= next_) {
    corrupt_ = "the child says that it has passed tickets that were never pushed";
    return;
  }
  if (said > consumed_seen_) consumed_seen_ = said;
  consumed_ = std::max(consumed_, said);
}

template <class Memory>
void ParentSide<Memory>::advance() {
  while (oldest_ < next_) {
    const Record& oldest = record(oldest_);
    if (oldest.entry == Entry::kOutstanding) return;
    if (oldest.entry == Entry::kRevoked && oldest_ > consumed_) return;
    args_.free_to(oldest.args_end);
    ++oldest_;
  }
}

template <class Memory>
bool ParentSide<Memory>::can_push(size_t args_bytes) {
  const auto fits = [&] {
    return next_ - oldest_ < kRingEntries && args_.fit(args_bytes).has_value();
  };
  if (corrupt_ != nullptr) return false;
  if (fits()) return true;
  read_consumed();
  advance();
  return corrupt_ == nullptr && fits();
}

template <class Memory>
std::optional<uint64_t> ParentSide<Memory>::push(const TaskPost& post,
                                                 std::span<const std::byte> args) {
  STRATA_CHECK(args.size() <= kArgsBytesMax);
  if (!can_push(args.size())) {
    if (next_ - oldest_ >= kRingEntries) {
      STRATA_MARK("mailbox: task ring full");
    } else {
      STRATA_MARK("mailbox: args ring full");
    }
    return std::nullopt;
  }
  const uint64_t ticket = next_++;
  const uint64_t begin = *args_.fit(args.size());
  record(ticket) = {post.task, args_.take(begin, args.size()), Entry::kOutstanding};
  ++outstanding_;

  TaskEntry& entry = region_->tasks[ring_position(ticket)];
  memory_.write_bytes(region_->args + begin % kArgsRingBytes, args.data(), args.size());
  memory_.store_relaxed(&entry.task, post.task);
  memory_.store_relaxed(&entry.args_begin, begin);
  memory_.store_relaxed(&entry.args_bytes, static_cast<uint32_t>(args.size()));
  memory_.store_relaxed(&entry.callable, post.callable);
  memory_.store_relaxed(&entry.flags, post.flags);
  memory_.store_relaxed(&entry.block_dim, post.block_dim);
  memory_.store_relaxed(&entry.deadline_ms, post.deadline_ms);
  if (is_timed(post.deadline_ms, post.flags)) [[unlikely]] {
    memory_.store_relaxed(&entry.started_ns, int64_t{0});
  }
  memory_.store_release(&entry.state, state_word(ticket, Phase::kQueued));
  return ticket;
}

template <class Memory>
bool ParentSide<Memory>::child_asleep_after_publish() {
  if (base::fault() != 7) memory_.fence();
  uint32_t* const asleep = &region_->child_sleep.asleep;
  if (memory_.load_relaxed(asleep) == 0) return false;
  return memory_.compare_exchange(asleep, uint32_t{1}, uint32_t{0});
}

template <class Memory>
bool ParentSide<Memory>::revoke(uint64_t ticket) {
  if (!is_outstanding(ticket)) return false;
  uint64_t* const state = &region_->tasks[ring_position(ticket)].state;
  if (!memory_.compare_exchange(state, state_word(ticket, Phase::kQueued),
                                state_word(ticket, Phase::kRevoked))) {
    STRATA_MARK("mailbox: revoke lost against the start");
    return false;
  }
  STRATA_MARK("mailbox: revoke won");
  record(ticket).entry = Entry::kRevoked;
  --outstanding_;
  return true;
}

template <class Memory>
std::optional<int64_t> ParentSide<Memory>::started(uint64_t ticket) const {
  const TaskEntry& entry = region_->tasks[ring_position(ticket)];
  if (!is_outstanding(ticket) ||
      memory_.load_acquire(&entry.state) != state_word(ticket, Phase::kStarted)) {
    return std::nullopt;
  }
  return memory_.load_relaxed(&entry.started_ns);
}

template <class Memory>
void ParentSide<Memory>::cancel_through(uint64_t ticket) {
  memory_.store_relaxed(&region_->cancel.through, ticket);
}

template <class Memory>
bool ParentSide<Memory>::read_completion(uint64_t number, Completion* out) {
  const CompletionEntry& entry = region_->completions[ring_position(number)];
  // Each word is read once: the child could change it between a check and its use.
  out->ticket = memory_.load_relaxed(&entry.ticket);
  out->task = memory_.load_relaxed(&entry.task);
  out->started_ns = memory_.load_relaxed(&entry.started_ns);
  out->ended_ns = memory_.load_relaxed(&entry.ended_ns);
  out->code = memory_.load_relaxed(&entry.code);
  const uint32_t outcome = memory_.load_relaxed(&entry.outcome);
  const uint64_t begin = memory_.load_relaxed(&entry.bytes_begin);
  const uint32_t result_bytes = memory_.load_relaxed(&entry.result_bytes);
  const uint32_t text_bytes = memory_.load_relaxed(&entry.text_bytes);
  if (!is_outstanding(out->ticket)) {
    corrupt_ = "the child completed a ticket that is not outstanding";
  } else if (out->task != record(out->ticket).task) {
    corrupt_ = "the child completed a ticket under another task's name";
  } else if (outcome > static_cast<uint32_t>(Outcome::kDeadline)) {
    corrupt_ = "a completion has an unknown outcome";
  } else if (result_bytes > kResultBytesMax || text_bytes > kTextBytesMax ||
             !within_ring(begin, uint64_t{result_bytes} + text_bytes, kResultsRingBytes)) {
    corrupt_ = "a completion names bytes outside the result ring";
  }
  if (corrupt_ != nullptr) return false;
  out->outcome = static_cast<Outcome>(outcome);
  const std::byte* const bytes = region_->results + begin % kResultsRingBytes;
  out->result = {bytes, result_bytes};
  out->text = {bytes + result_bytes, text_bytes};
  return true;
}

template <class Memory>
template <class Fn>
Polled ParentSide<Memory>::poll(size_t max, Fn&& on_completion) {
  Polled polled;
  bool freed = false;
  // Entries that the child only skipped come without a completion. Not taking note of them would
  // leave has_news() true, and a leader awake, until the next push that finds no room.
  read_consumed();
  advance();
  while (polled.completions < max && corrupt_ == nullptr && has_completion()) {
    const uint64_t number = next_completion_.load(std::memory_order_relaxed);
    Completion completion;
    if (!read_completion(number, &completion)) break;
    ++polled.completions;
    next_completion_.store(number + 1, std::memory_order_relaxed);
    record(completion.ticket).entry = Entry::kDone;
    --outstanding_;
    // The child takes tasks in order, so it has passed every ticket before this one.
    consumed_ = std::max(consumed_, completion.ticket);
    advance();
    on_completion(static_cast<const Completion&>(completion));
    if (!completion.result.empty() || !completion.text.empty()) {
      memory_.store_release(&region_->parent_progress.results_freed, number);
      freed = true;
    }
  }
  // The child may sleep for the space; its wake-up is owed as after a push.
  if (freed) polled.wake_child = child_asleep_after_publish();
  polled.corrupt = corrupt_;
  return polled;
}

template <class Memory>
template <class Fn>
void ParentSide<Memory>::abandon(Fn&& on_entry) {
  for (uint64_t ticket = oldest_; ticket < next_; ++ticket) {
    Record& entry = record(ticket);
    if (entry.entry != Entry::kOutstanding) continue;
    entry.entry = Entry::kDone;
    --outstanding_;
    // Anything but a queued entry, garbage included, may have run.
    const bool started = memory_.load_acquire(&region_->tasks[ring_position(ticket)].state) !=
                         state_word(ticket, Phase::kQueued);
    on_entry(entry.task, ticket, started);
  }
  oldest_ = next_;
}

template <class Memory>
Result<void> ParentSide<Memory>::control_post(uint32_t command,
                                              std::span<const std::byte> request) {
  if (control_outstanding_) {
    return Error(Code::kWrongState, Scope::kCall,
                 "the child's control slot is taken by a request that has no reply yet");
  }
  if (request.size() > kControlBytesMax) {
    return Error(Code::kResourceExhausted, Scope::kCall,
                 "a control request of " + std::to_string(request.size()) +
                     " bytes is over the limit of " + std::to_string(kControlBytesMax));
  }
  control_outstanding_ = true;
  control_command_ = command;
  ++control_number_;
  memory_.write_bytes(region_->request_bytes, request.data(), request.size());
  memory_.store_relaxed(&region_->request.word, command);
  memory_.store_relaxed(&region_->request.bytes, static_cast<uint32_t>(request.size()));
  memory_.store_release(&region_->request.state, state_word(control_number_, Phase::kQueued));
  return {};
}

template <class Memory>
template <class Fn>
bool ParentSide<Memory>::control_poll(Fn&& on_reply) {
  if (corrupt_ != nullptr || !has_reply()) return false;
  const uint32_t code = memory_.load_relaxed(&region_->reply.word);
  const uint32_t bytes = memory_.load_relaxed(&region_->reply.bytes);
  if (bytes > kControlBytesMax) {
    corrupt_ = "a control reply is longer than its area";
    return false;
  }
  control_outstanding_ = false;
  // The bytes stay until the next request, which the callback may post only after reading them.
  on_reply(control_command_, code, std::span<const std::byte>(region_->reply_bytes, bytes));
  return true;
}

}  // namespace strata::mailbox
