// Groups: which members may go together, and on which workers; what a failed one stops.
#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/mark.h"
#include "engine/core_eligible.h"
#include "engine/core_overdue.h"
#include "engine/member_conflict.h"

namespace strata::engine {
namespace {

Error refuse(Code code, std::string text, const std::string& path) {
  return Error(code, Scope::kCall, std::move(text), path);
}

}  // namespace

// Whether each member can have a worker of its own.
bool Core::check_members(const Job& job, const std::string& stays, size_t members,
                         std::span<const int32_t> workers, const sched::Target& any,
                         std::optional<Error>* error) {
  if (members == 0) {
    *error = refuse(Code::kInvalidArgument, "a group without members", options_.path);
    return false;
  }
  if (!workers.empty() && workers.size() != members) {
    *error = refuse(Code::kInvalidArgument,
                    fmt::format("a group of {} members with {} workers: give one for each, -1 for "
                                "any, or none at all",
                                members, workers.size()),
                    options_.path);
    return false;
  }
  std::vector<int32_t> named;
  for (const int32_t worker : workers) {
    if (worker == -1) continue;
    if (!Eligible::check_worker(*this, worker, job, stays, error)) return false;
    named.push_back(worker);
  }
  std::sort(named.begin(), named.end());
  const auto twice = std::adjacent_find(named.begin(), named.end());
  if (twice != named.end()) {
    *error = refuse(Code::kInvalidArgument,
                    fmt::format("a group names worker {} twice: its members run at the same time, "
                                "each on a worker of its own",
                                *twice),
                    options_.path);
    return false;
  }
  size_t eligible = 0;
  std::string lost;  // the first of those that could have
  for (uint32_t worker = 0; worker < workers_.size(); ++worker) {
    if (!sched_.queues().is_in(worker, any.cls)) continue;
    const WorkerState state = workers_[worker].state;
    if (state == WorkerState::kReady || is_returning(worker)) {
      ++eligible;
    } else if (state == WorkerState::kLost && lost.empty()) {
      lost = fmt::format("; {} was lost: {}", worker_name(worker), loss_reason(worker));
    }
  }
  const bool too_many = members > eligible && !(workers_expected_ && any.cls < sched::kPools);
  if (too_many || !sched_.could_admit_group(members)) {
    *error = refuse(
        too_many ? Code::kInvalidArgument : Code::kResourceExhausted,
        too_many ? fmt::format("a group of {} members, and {} live workers that can run it: its "
                               "members run at the same time, each on a worker of its own{}",
                               members, eligible, lost)
                 : fmt::format("a group of {} members takes {} slots of {}; Limits::slots enlarges "
                               "them",
                               members, members + 1, options_.limits.slots),
        options_.path);
    return false;
  }
  return true;
}

// Accesses and placements of all members, one member after the other.
bool Core::collect_members(const Job& job, std::span<const TaskArgs> members,
                           std::vector<size_t>* payload_bytes, std::optional<Error>* error) {
  accesses_.clear();
  placements_.clear();
  member_of_.clear();
  for (size_t i = 0; i < members.size(); ++i) {
    Result<void> checked = model::check_args(members[i]);
    if (!checked) *error = std::move(checked).error();
    if (!checked || !accesses_of(members[i], job.where.pool, error)) {
      *error = refuse((*error)->code(), fmt::format("member {}: {}", i, (*error)->message()),
                      options_.path);
      return false;
    }
    member_of_.resize(accesses_.size(), static_cast<uint32_t>(i));
    payload_bytes->push_back(sizeof(TaskHead) + model::encoded_bytes(members[i], with_refs(job)));
  }
  if (accesses_.size() > kGroupTensorsMax) {
    *error = refuse(
        Code::kInvalidArgument,
        fmt::format("a group with {} tensors; at most {}", accesses_.size(), kGroupTensorsMax),
        options_.path);
    return false;
  }
  if (const auto conflict = find_member_conflict(accesses_, member_of_)) {
    *error =
        refuse(Code::kInvalidArgument,
               fmt::format("members {} and {} name the same bytes (from byte {} of buffer {}), "
                           "and one writes them: members run at the same time, so what two of "
                           "them name both must read, or both pass as NO_DEP",
                           conflict->first, conflict->second, conflict->byte, conflict->buffer),
               options_.path);
    return false;
  }
  return true;
}

Core::Submitted Core::submit_group(RunRecord& run, const Job& job,
                                   std::span<const TaskArgs> members,
                                   std::span<const int32_t> workers, TaskRef* out,
                                   std::optional<Error>* error) {
  sched::Target any;
  Job anywhere = job;
  anywhere.where.worker = -1;
  const std::string stays = Eligible::why_stays(*this, job, members);
  if (!Eligible::find(*this, anywhere, stays, &any, error)) return Submitted::kRefused;
  if (!check_members(job, stays, members.size(), workers, any, error)) return Submitted::kRefused;
  std::vector<size_t> payload_bytes;
  if (!collect_members(job, members, &payload_bytes, error)) return Submitted::kRefused;
  std::vector<uint32_t> wanted(members.size(), sched::kNone);
  for (size_t i = 0; i < workers.size(); ++i) {
    if (workers[i] != -1) wanted[i] = static_cast<uint32_t>(workers[i]);
  }
  const sched::Scheduler::GroupShape shape{.accesses = accesses_,
                                           .payload_bytes = sizeof(TaskHead),
                                           .member_payload_bytes = payload_bytes,
                                           .workers = wanted,
                                           .cls = any.cls};
  if (!sched_.admits_group(shape)) {
    STRATA_MARK("engine: a group finds no room");
    return Submitted::kFull;
  }
  STRATA_CHECK(registry_.acquire(job.callable));
  for (const sched::Access& access : accesses_) buffers_.acquire(access.buffer);
  const uint64_t edges = sched_.edges_made();
  const uint64_t cover_edges = sched_.cover_edges_made();
  const uint32_t own = sched_.submit_group(run.number, shape);
  TaskHead* head = new (sched_.payload(own).data()) TaskHead;
  head->callable = job.callable;
  size_t placement = 0;
  for (size_t i = 0; i < members.size(); ++i) {
    write_payload(sched_.member_slot(own, i), job, members[i], placement);
    placement += members[i].tensors().size();
  }
  run.dependencies += sched_.edges_made() - edges;
  run.cover_dependencies += sched_.cover_edges_made() - cover_edges;
  run.tasks.push_back(TaskState::kLive);
  ++run.progress.submitted;
  if (trace_.on()) [[unlikely]] {
    trace_.submitted(traced(own));
  }
  *out = {run.id, sched_.slot(own).run_task};
  return Submitted::kDone;
}

// ---------------------------------------------------------------- ends

// A member has failed: those that run go on to their end, the others do not start.
void Core::stop_group(uint32_t own) {
  const std::vector<uint32_t> members(sched_.members(own).begin(), sched_.members(own).end());
  const uint32_t cause = sched_.group_cause(own);
  for (const uint32_t member : members) {
    const sched::Scheduler::Slot& slot = sched_.slot(member);
    if (slot.state == sched::SlotState::kQueued) {
      if (!workers_[slot.worker].endpoint->revoke(slot.ticket)) continue;
      left_worker(member);
    }
    if (slot.state == sched::SlotState::kTerminal) continue;
    STRATA_MARK("engine: a member does not start because another has failed");
    sched_.finish(member, sched::Outcome::kSkipped, cause);
  }
}

}  // namespace strata::engine
