#include "sched/scheduler.h"

#include <new>

#include "base/check.h"
#include "base/fault.h"

namespace strata::sched {
namespace {

// Edges are bounded by this many a slot on average; one task has at most as many as there are
// slots.
constexpr uint32_t kEdgesASlot = 32;

size_t body_bytes(size_t accesses, size_t payload_bytes) {
  return accesses * sizeof(Access) + payload_bytes;
}

}  // namespace

Scheduler::Scheduler(const Options& options)
    : options_(options),
      slots_(options.slots),
      edges_(size_t{options.slots} * kEdgesASlot),
      bodies_(options.body_bytes_max),
      map_({.tasks = options.slots, .buffers = options.buffers}),
      queues_(options.depth) {
  STRATA_CHECK(options.slots >= 1);
  free_slots_.reserve(slots_.size());
  for (uint32_t i = options.slots; i > 0; --i) free_slots_.push_back(i - 1);
  for (uint32_t i = static_cast<uint32_t>(edges_.size()); i > 0; --i) {
    edges_[i - 1].next = free_edge_;
    free_edge_ = i - 1;
  }
  edges_free_ = static_cast<uint32_t>(edges_.size());
}

uint32_t Scheduler::open_run() {
  STRATA_CHECK(can_open_run());
  Run& run = run_of(next_run_);
  STRATA_CHECK(run.live == 0 && run.ready == 0);
  run.submitted = 0;
  run.cancelled = false;
  run.sealed = false;
  return next_run_++;
}

void Scheduler::seal_run(uint32_t run) {
  run_of(run).sealed = true;
  advance_runs();
}

bool Scheduler::run_done(uint32_t run) const {
  return run < first_run_;
}

void Scheduler::advance_runs() {
  while (first_run_ != next_run_ && run_of(first_run_).sealed && run_of(first_run_).live == 0) {
    ++first_run_;
  }
}

void Scheduler::cancel_run(uint32_t run_number, uint32_t cause) {
  if (run_done(run_number)) return;
  Run& run = run_of(run_number);
  run.cancelled = true;
  run.cancel_cause = cause;
  drop_ready(run, cause);
}

bool Scheduler::admits(std::span<const Access> accesses, size_t payload_bytes) {
  return !free_slots_.empty() && edges_free_ >= live_ && map_.reserve(accesses).ok() &&
         bodies_.can_allocate(body_bytes(accesses.size(), payload_bytes));
}

uint32_t Scheduler::take_slot(uint32_t run_number, uint64_t order, std::span<const Access> accesses,
                              size_t payload_bytes) {
  const uint32_t index = free_slots_.back();
  free_slots_.pop_back();
  if (!free_slots_.empty()) __builtin_prefetch(&slots_[free_slots_.back()], 1);
  Slot& slot = slots_[index];
  slot.order = order;
  slot.run = run_number;
  slot.state = SlotState::kWaiting;
  slot.outcome = Outcome::kOk;
  slot.cause = 0;
  slot.pending = 0;
  slot.first_edge = kNone;
  slot.access_count = static_cast<uint32_t>(accesses.size());
  slot.payload_bytes = static_cast<uint32_t>(payload_bytes);
  slot.body = bodies_.allocate(body_bytes(accesses.size(), payload_bytes));
  STRATA_CHECK(slot.body.data != nullptr);
  ++run_of(run_number).live;
  ++live_;
  return index;
}

void Scheduler::add_accesses(uint32_t index, std::span<const Access> accesses) {
  Access* stored = reinterpret_cast<Access*>(slots_[index].body.data);
  for (size_t i = 0; i < accesses.size(); ++i) {
    const Access& access = *new (stored + i) Access(accesses[i]);
    if (!access.reads && !access.writes) continue;
    const Result<void> added =
        map_.add(index, access.buffer, access.region, access.reads, access.writes,
                 [&](uint32_t producer, bool by_cover) { add_edge(producer, index, by_cover); });
    STRATA_CHECK(added.ok());  // admits() has reserved it
  }
}

uint32_t Scheduler::submit(uint32_t run_number, std::span<const Access> accesses,
                           size_t payload_bytes, Target target) {
  STRATA_DCHECK(admits(accesses, payload_bytes));
  const uint32_t index = take_slot(run_number, ++order_, accesses, payload_bytes);
  Slot& slot = slots_[index];
  slot.run_task = run_of(run_number).submitted++;
  slot.cls = static_cast<uint8_t>(target.cls);
  slot.directed = target.worker;
  slot.member = false;
  slot.group = kNone;
  if (target.cls >= kPools) ++class_users_[target.cls];
  add_accesses(index, accesses);
  if (slot.pending == 0) make_ready(index);
  return index;
}

void Scheduler::add_edge(uint32_t producer_index, uint32_t consumer_index, bool by_cover) {
  Slot& producer = slots_[producer_index];
  Slot& consumer = slots_[consumer_index];
  if (producer.counted_by == consumer.order) return;
  producer.counted_by = consumer.order;
  // A group stands in no queue; each of its members is the last entry of its worker.
  if (producer.state == SlotState::kQueued && producer.first_edge == kNone &&
      producer.worker != kNone) {
    queues_.add_awaited(producer.worker);
  }
  const uint32_t edge = free_edge_;
  STRATA_CHECK(edge != kNone);
  free_edge_ = edges_[edge].next;
  --edges_free_;
  edges_[edge] = {consumer_index, producer.first_edge};
  producer.first_edge = edge;
  ++consumer.pending;
  ++edges_made_;
  if (by_cover) ++cover_edges_made_;
}

std::span<std::byte> Scheduler::payload(uint32_t index) {
  const Slot& slot = slots_[index];
  return {slot.body.data + slot.access_count * sizeof(Access), slot.payload_bytes};
}

std::span<const Access> Scheduler::accesses(uint32_t index) const {
  const Slot& slot = slots_[index];
  return {reinterpret_cast<const Access*>(slot.body.data), slot.access_count};
}

std::optional<uint32_t> Scheduler::reason_to_skip(const Slot& slot) {
  const Run& run = run_of(slot.run);
  if (run.cancelled) return run.cancel_cause;
  const Access* access = reinterpret_cast<const Access*>(slot.body.data);
  for (uint32_t i = 0; i < slot.access_count; ++i, ++access) {
    if (!access->reads || !poison_.any(access->buffer)) continue;
    if (const auto cause = poison_.cause_of(access->buffer, access->region)) return cause;
  }
  return std::nullopt;
}

void Scheduler::make_ready(uint32_t index) {
  if (const auto cause = reason_to_skip(slots_[index])) {
    settle(index, Outcome::kSkipped, *cause);
    return;
  }
  push_ready(index);
}

void Scheduler::push_ready(uint32_t index) {
  Slot& slot = slots_[index];
  Run& run = run_of(slot.run);
  slot.state = SlotState::kReady;
  ++run.ready;
  const ReadyQueue::Entry entry{slot.order, index};
  if (slot.group != kNone) {
    run.groups.push(entry);
  } else if (slot.directed == kNone) {
    run.shared[slot.cls].push(entry);
    run.shared_classes |= uint64_t{1} << slot.cls;
  } else {
    if (run.directed.size() <= slot.directed) {
      run.directed.resize(queues_.size());
      run.is_active.resize(queues_.size());
    }
    run.directed[slot.directed].push(entry);
    if (queues_.is_closed(slot.directed)) {
      run.stranded.push_back(slot.directed);
    } else {
      activate(slot.directed);
    }
  }
}

void Scheduler::assigned(Assignment assignment, uint64_t ticket) {
  Slot& slot = slots_[assignment.slot];
  STRATA_DCHECK(slot.state == SlotState::kReady);
  slot.state = SlotState::kQueued;
  slot.worker = assignment.worker;
  slot.ticket = ticket;
  queues_.push(assignment.worker, assignment.slot);
  if (slot.first_edge != kNone) queues_.add_awaited(assignment.worker);
}

void Scheduler::refused(Assignment assignment) {
  queues_.bar(assignment.worker);
  const Slot& slot = slots_[assignment.slot];
  if (slot.member) {
    run_of(slot.run).launching.push_back(assignment);
  } else {
    push_ready(assignment.slot);
  }
}

void Scheduler::leave_queue(uint32_t index) {
  const Slot& slot = slots_[index];
  queues_.remove(slot.worker, index);
  if (slot.first_edge != kNone) queues_.drop_awaited(slot.worker);
  activate(slot.worker);
}

void Scheduler::requeue(uint32_t index) {
  Slot& slot = slots_[index];
  STRATA_CHECK(slot.state == SlotState::kQueued && !slot.member);
  leave_queue(index);
  slot.worker = kNone;
  make_ready(index);
}

void Scheduler::finish(uint32_t index, Outcome outcome, uint32_t cause) {
  Slot& slot = slots_[index];
  if (slot.member) {
    member_ended(index, outcome, cause);
    return;
  }
  STRATA_CHECK(slot.state == SlotState::kQueued);
  leave_queue(index);
  settle(index, outcome, cause);
}

void Scheduler::skip(uint32_t index, uint32_t cause) {
  STRATA_CHECK(slots_[index].state == SlotState::kReady);
  settle(index, Outcome::kSkipped, cause);
}

// Terminal, with all that follows from it. Not recursive: a long chain of skips is a loop.
void Scheduler::settle(uint32_t index, Outcome outcome, uint32_t cause) {
  settle_one(index, outcome, cause);
  while (!became_ready_.empty()) {
    const uint32_t next = became_ready_.back();
    became_ready_.pop_back();
    Slot& slot = slots_[next];
    if (const auto reason = reason_to_skip(slot)) {
      settle_one(next, Outcome::kSkipped, *reason);
    } else {
      push_ready(next);
    }
  }
}

void Scheduler::settle_one(uint32_t index, Outcome outcome, uint32_t cause) {
  Slot& slot = slots_[index];
  slot.state = SlotState::kTerminal;
  slot.outcome = outcome;
  slot.cause = cause;
  if (slot.access_count != 0) {
    map_.remove(index);
    mark_written(slot);
  }
  uint32_t edge = slot.first_edge;
  while (edge != kNone) {
    const Edge taken = edges_[edge];
    edges_[edge].next = free_edge_;
    free_edge_ = edge;
    ++edges_free_;
    if (--slots_[taken.successor].pending == 0) became_ready_.push_back(taken.successor);
    edge = taken.next;
  }
  slot.first_edge = kNone;
  if (slot.group != kNone) skip_members(index);
  terminal_.push_back(index);
}

// Conflicting tasks are totally ordered, so at this moment no later one has touched these bytes:
// poison that is kept in the order of execution means the same as in the order of submission.
void Scheduler::mark_written(const Slot& slot) {
  const Access* access = reinterpret_cast<const Access*>(slot.body.data);
  for (uint32_t i = 0; i < slot.access_count; ++i, ++access) {
    if (!access->writes) continue;
    if (slot.outcome != Outcome::kOk) {
      poison_.poison(access->buffer, access->region, slot.cause);
    } else if (poison_.any(access->buffer)) {
      poison_.heal(access->buffer, access->region);
    }
  }
}

// Only for the deliberate fault 1, which loses with the slot what outlives it.
void Scheduler::forget_poison(const Slot& slot) {
  if (slot.outcome == Outcome::kOk) return;
  const Access* access = reinterpret_cast<const Access*>(slot.body.data);
  for (uint32_t i = 0; i < slot.access_count; ++i, ++access) {
    if (access->writes) poison_.clear(access->buffer);
  }
}

void Scheduler::release_terminal() {
  for (const uint32_t index : terminal_) {
    Slot& slot = slots_[index];
    STRATA_DCHECK(slot.state == SlotState::kTerminal);
    if (base::fault() == 1) forget_poison(slot);
    bodies_.free(slot.body);
    if (slot.cls >= kPools) --class_users_[slot.cls];
    if (slot.group != kNone && !slot.member) free_group(slot.group);
    slot.body = {};
    slot.state = SlotState::kFree;
    slot.worker = kNone;
    ++slot.generation;
    free_slots_.push_back(index);
    --run_of(slot.run).live;
    --live_;
  }
  terminal_.clear();
  advance_runs();
}

}  // namespace strata::sched
