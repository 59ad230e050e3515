// Groups: submission, reservation of workers, launch, and the end of their members.
#include <algorithm>

#include "base/check.h"
#include "base/fault.h"
#include "base/mark.h"
#include "sched/scheduler.h"

namespace strata::sched {

// ---------------------------------------------------------------- submission

bool Scheduler::admits_group(const GroupShape& shape) {
  const size_t slots = shape.member_payload_bytes.size() + 1;
  size_t taken =
      base::BlockPool::taken_by(shape.accesses.size() * sizeof(Access) + shape.payload_bytes);
  for (const size_t bytes : shape.member_payload_bytes) taken += base::BlockPool::taken_by(bytes);
  return free_slots_.size() >= slots && edges_free_ >= live_ && bodies_.can_take(taken) &&
         map_.reserve(shape.accesses).ok();
}

uint32_t Scheduler::submit_group(uint32_t run_number, const GroupShape& shape) {
  STRATA_DCHECK(admits_group(shape));
  const uint64_t order = ++order_;
  const uint32_t own = take_slot(run_number, order, shape.accesses, shape.payload_bytes);
  uint32_t index = static_cast<uint32_t>(groups_.size());
  if (free_groups_.empty()) {
    groups_.emplace_back();
  } else {
    index = free_groups_.back();
    free_groups_.pop_back();
  }
  Group& group = groups_[index];
  group.own = own;
  group.cls = shape.cls;
  group.wanted.assign(shape.workers.begin(), shape.workers.end());
  group.got.assign(group.wanted.size(), false);
  group.any = static_cast<uint32_t>(std::count(group.wanted.begin(), group.wanted.end(), kNone));
  Slot& slot = slots_[own];
  slot.run_task = run_of(run_number).submitted++;
  const auto describe = [&](Slot& one, bool member, uint32_t worker) {
    one.cls = static_cast<uint8_t>(shape.cls);
    one.directed = worker;
    one.member = member;
    one.group = index;
    one.run_task = slot.run_task;
    if (shape.cls >= kPools) ++class_users_[shape.cls];
  };
  describe(slot, false, kNone);
  for (size_t i = 0; i < shape.member_payload_bytes.size(); ++i) {
    const uint32_t member = take_slot(run_number, order, {}, shape.member_payload_bytes[i]);
    describe(slots_[member], true, shape.workers[i]);
    group.members.push_back(member);
  }
  group.unended = static_cast<uint32_t>(group.members.size());
  add_accesses(own, shape.accesses);
  if (slot.pending == 0) make_ready(own);
  return own;
}

uint32_t Scheduler::member_number(uint32_t index) const {
  const std::vector<uint32_t>& members = groups_[slots_[index].group].members;
  return static_cast<uint32_t>(std::find(members.begin(), members.end(), index) - members.begin());
}

void Scheduler::free_group(uint32_t index) {
  Group& group = groups_[index];
  group.members.clear();
  group.wanted.clear();
  group.got.clear();
  group.any = 0;
  group.reserved.clear();
  group.unended = 0;
  group.launched = false;
  group.checked = 0;
  group.outcome = Outcome::kOk;
  group.cause = 0;
  free_groups_.push_back(index);
}

// ---------------------------------------------------------------- reservation

uint64_t Scheduler::head_group_order(Run& run) {
  if (run.head_group != kNone && !run.groups.empty() &&
      run.groups.front_order() < slots_[run.head_group].order) {
    STRATA_MARK("sched: a group makes way for an older one");
    give_back(groups_[slots_[run.head_group].group]);
    run.groups.push({slots_[run.head_group].order, run.head_group});
    run.head_group = kNone;
  }
  if (run.head_group == kNone) run.head_group = run.groups.pop().slot;
  return slots_[run.head_group].order;
}

void Scheduler::unhold(uint32_t worker) {
  queues_.release(worker);
  activate(worker);
}

// True once it has a worker for each member, and none of them has anything else to do. Where too
// few are empty the shortest queues are held too and run dry: else younger tasks could keep them
// busy for as long as there are any.
bool Scheduler::reserve(Group& group) {
  bool complete = true;
  const auto idle = [&](uint32_t worker) {
    return (queues_.length(worker) == 0 && !queues_.is_barred(worker)) || base::fault() == 11;
  };
  for (size_t i = 0; i < group.wanted.size(); ++i) {
    const uint32_t worker = group.wanted[i];
    if (worker == kNone) continue;
    if (!group.got[i] && queues_.is_open(worker) && !queues_.is_held(worker)) {
      queues_.hold(worker);
      group.got[i] = true;
    }
    complete = complete && group.got[i] && idle(worker);
  }
  while (group.reserved.size() < group.any) {
    uint32_t worker = queues_.any_empty(group.cls);
    if (worker == kNone) worker = queues_.shortest(group.cls);
    if (worker == kNone) return false;
    queues_.hold(worker);
    group.reserved.push_back(worker);
  }
  for (uint32_t& worker : group.reserved) {
    if (idle(worker)) continue;
    const uint32_t empty = queues_.any_empty(group.cls);
    if (empty == kNone) {
      complete = false;
      continue;
    }
    STRATA_MARK("sched: a group exchanges a busy worker for an empty one");
    queues_.hold(empty);
    unhold(std::exchange(worker, empty));
  }
  return complete;
}

std::optional<Assignment> Scheduler::older_for_held(Run& run, Group& group, uint64_t before) {
  uint32_t best = kNone;
  const auto look = [&](uint32_t worker) {
    if (!queues_.would_have_room(worker) || oldest_for(run, worker).order >= before) return;
    if (best == kNone || queues_.length(worker) < queues_.length(best)) best = worker;
  };
  for (const uint32_t worker : group.reserved) look(worker);
  for (size_t i = 0; i < group.wanted.size(); ++i) {
    if (group.got[i]) look(group.wanted[i]);
  }
  if (best == kNone) return std::nullopt;
  STRATA_MARK("sched: a group lends a worker to an older task");
  std::erase(group.reserved, best);
  for (size_t i = 0; i < group.wanted.size(); ++i) {
    if (group.wanted[i] == best) group.got[i] = false;
  }
  unhold(best);
  return give_oldest(run, best, false);
}

void Scheduler::launch_head(Run& run) {
  STRATA_MARK("sched: a group is launched");
  Group& group = groups_[slots_[run.head_group].group];
  for (size_t i = group.members.size(); i-- > 0;) {  // they are taken from the back
    uint32_t worker = group.wanted[i];
    if (worker == kNone) {
      worker = group.reserved.back();
      group.reserved.pop_back();
    }
    Slot& member = slots_[group.members[i]];
    member.state = SlotState::kReady;
    member.worker = worker;
    run.launching.push_back({group.members[i], worker});
  }
  group.launched = true;
  slots_[run.head_group].state = SlotState::kLaunched;
  run.head_group = kNone;
  --run.ready;
}

std::optional<Assignment> Scheduler::next_launch(Run& run) {
  for (size_t i = run.launching.size(); i-- > 0;) {
    const Assignment launch = run.launching[i];
    if (queues_.is_barred(launch.worker) || !queues_.is_open(launch.worker)) continue;
    run.launching.erase(run.launching.begin() + static_cast<ptrdiff_t>(i));
    return launch;
  }
  return std::nullopt;
}

void Scheduler::give_back(Group& group) {
  for (const uint32_t worker : group.reserved) unhold(worker);
  group.reserved.clear();
  for (size_t i = 0; i < group.wanted.size(); ++i) {
    if (group.got[i]) unhold(group.wanted[i]);
    group.got[i] = false;
  }
}

// Whether workers that are open or to be opened, or those that may yet be added where they are
// `expected`, suffice. None is added to a class that was made of some workers.
bool Scheduler::feasible(const Group& group, bool expected) const {
  size_t available = queues_.alive_count(group.cls);
  for (const uint32_t worker : group.wanted) {
    if (worker == kNone) continue;
    if (queues_.is_closed(worker)) return false;
    if (queues_.is_in(worker, group.cls)) --available;
  }
  return (expected && group.cls < kPools) || available >= group.any;
}

// ---------------------------------------------------------------- ends

void Scheduler::forget_launch(Run& run, uint32_t slot) {
  std::erase_if(run.launching, [slot](const Assignment& launch) { return launch.slot == slot; });
}

void Scheduler::member_ended(uint32_t index, Outcome outcome, uint32_t cause) {
  Slot& slot = slots_[index];
  Run& run = run_of(slot.run);
  if (slot.state == SlotState::kQueued) {
    leave_queue(index);
  } else {
    STRATA_CHECK(slot.state == SlotState::kReady);
    forget_launch(run, index);
  }
  unhold(slot.worker);
  slot.state = SlotState::kTerminal;
  slot.outcome = outcome;
  slot.cause = cause;
  Group& group = groups_[slot.group];
  const uint32_t own = group.own;
  const bool failure = outcome != Outcome::kOk && outcome != Outcome::kSkipped;
  if (group.outcome == Outcome::kOk || (failure && group.outcome == Outcome::kSkipped)) {
    group.outcome = outcome;
    group.cause = cause;
    if (failure) failed_groups_.push_back(own);
  }
  if (--group.unended > 0) return;
  // Not before: the slots are named by their group as long as it lives.
  terminal_.insert(terminal_.end(), group.members.begin(), group.members.end());
  std::erase(failed_groups_, own);
  settle(own, group.outcome, group.cause);
}

std::optional<uint32_t> Scheduler::take_failed_group() {
  if (failed_groups_.empty()) return std::nullopt;
  const uint32_t own = failed_groups_.back();
  failed_groups_.pop_back();
  return own;
}

// A group that ends before it was launched takes its members with it.
void Scheduler::skip_members(uint32_t own) {
  Group& group = groups_[slots_[own].group];
  if (group.launched) return;
  for (const uint32_t member : group.members) {
    Slot& slot = slots_[member];
    slot.state = SlotState::kTerminal;
    slot.outcome = Outcome::kSkipped;
    slot.cause = slots_[own].cause;
    terminal_.push_back(member);
  }
  group.unended = 0;
}

}  // namespace strata::sched
