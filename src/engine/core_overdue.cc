#include "engine/core_overdue.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/mark.h"

namespace strata::engine {
namespace {

int64_t ms_of(base::Duration length) {
  return length.ns / 1'000'000;
}

}  // namespace

void Core::Overdue::check(Core& core, base::Instant now) {
  core.endings_.deadlines.check(now, [&](uint32_t worker) { return look(core, worker, now); });
  if (now < core.endings_.grace_at) return;
  for (const std::shared_ptr<RunRecord>& run : core.runs_) {
    if (!run || now < run->kill_at) continue;
    run->kill_at = base::Instant::never();
    end_run(core, *run, now);
  }
  core.endings_.grace_at = base::Instant::never();
  for (const std::shared_ptr<RunRecord>& run : core.runs_) {
    if (run) core.endings_.grace_at = std::min(core.endings_.grace_at, run->kill_at);
  }
}

void Core::Overdue::forget_grace(Core& core, const RunRecord& run) {
  core.endings_.grace_at = base::Instant::never();
  for (const std::shared_ptr<RunRecord>& other : core.runs_) {
    if (!other || other.get() == &run) continue;
    core.endings_.grace_at = std::min(core.endings_.grace_at, other->kill_at);
  }
}

// When to look at the worker again.
base::Instant Core::Overdue::look(Core& core, uint32_t worker, base::Instant now) {
  WorkerEntry& entry = core.workers_[worker];
  if (entry.doubted || entry.state == WorkerState::kLost) return base::Instant::never();
  // What has ended is not overdue.
  if (entry.endpoint->has_news()) core.take_news(worker, now);
  uint32_t oldest = sched::kNone;
  uint32_t shortest_ms = ~uint32_t{0};
  core.sched_.queues().for_each_slot(worker, [&](uint32_t slot) {
    if (oldest == sched::kNone) oldest = slot;
    const uint32_t deadline_ms = core.head_of(slot).post.deadline_ms;
    if (deadline_ms != 0) shortest_ms = std::min(shortest_ms, deadline_ms);
  });
  if (oldest == sched::kNone) return base::Instant::never();
  const uint64_t ticket = core.sched_.slot(oldest).ticket;
  const std::optional<int64_t> started =
      core.head_of(oldest).post.deadline_ms != 0 ? entry.endpoint->started(ticket) : std::nullopt;
  // Whatever starts does so from now on.
  if (!started) return now + base::Duration::from_ms(shortest_ms);
  if (*started == 0 && entry.rest->seen_ticket != ticket) {
    STRATA_MARK("engine: a task runs and has not told since when");
    entry.rest->seen_ticket = ticket;
    entry.rest->seen_at = base::Instant::never();
    // `now` may be older than its start: the thread that steps has read the clock before it looked.
    return now;
  }
  if (*started == 0 && entry.rest->seen_at == base::Instant::never()) entry.rest->seen_at = now;
  const base::Instant since = *started == 0 ? entry.rest->seen_at : base::Instant{*started};
  return judge(core, worker, oldest, std::min(since, now), now);
}

base::Instant Core::Overdue::judge(Core& core, uint32_t worker, uint32_t slot, base::Instant since,
                                   base::Instant now) {
  WorkerEntry& entry = core.workers_[worker];
  const uint32_t deadline_ms = core.head_of(slot).post.deadline_ms;
  const uint32_t grace_ms = core.options_.timeouts.deadline_grace_ms;
  const base::Instant due = since + base::Duration::from_ms(deadline_ms);
  if (now < due) return due;
  entry.endpoint->cancel_through(core.sched_.slot(slot).ticket);
  const base::Instant end = due + base::Duration::from_ms(grace_ms);
  if (now < end) {
    STRATA_MARK("engine: a task is told that its deadline has passed");
    return end;
  }
  STRATA_MARK("engine: a worker is ended for a task past its deadline");
  condemn(core, worker, slot,
          Error(Code::kDeadline, Scope::kTask,
                fmt::format("its deadline of {} ms has passed: it ran for {} ms, did not end "
                            "within {} ms after it was told, and so its worker was ended{}; it may "
                            "have run in part",
                            deadline_ms, ms_of(now - since), grace_ms,
                            entry.caps.nested ? " with all that ran below it" : ""),
                core.task_where(core.sched_.slot(slot), worker)));
  return base::Instant::never();
}

// What of the run is still queued somewhere has started: the cancel has revoked the rest.
void Core::Overdue::end_run(Core& core, const RunRecord& run, base::Instant now) {
  for (uint32_t worker = 0; worker < core.workers_.size(); ++worker) {
    WorkerEntry& entry = core.workers_[worker];
    if (core.sched_.queues().length(worker) == 0 || entry.inline_endpoint != nullptr) continue;
    if (entry.doubted || entry.state == WorkerState::kLost) continue;
    if (entry.endpoint->has_news()) core.take_news(worker, now);
    uint32_t running = sched::kNone;
    core.sched_.queues().for_each_slot(worker, [&](uint32_t slot) {
      if (running == sched::kNone && core.sched_.slot(slot).run == run.number) running = slot;
    });
    if (running == sched::kNone) continue;
    STRATA_MARK("engine: a worker is ended for a cancelled run");
    condemn(core, worker, running,
            Error(Code::kCancelled, Scope::kTask,
                  fmt::format("run {} was cancelled, and its worker was ended{} because it still "
                              "ran when the grace had passed; it may have run in part",
                              run.id, entry.caps.nested ? " with all that ran below it" : ""),
                  core.task_where(core.sched_.slot(running), worker)));
  }
}

void Core::Overdue::condemn(Core& core, uint32_t worker, uint32_t slot, Error error) {
  WorkerEntry& entry = core.workers_[worker];
  std::vector<uint32_t> behind;
  core.sched_.queues().for_each_slot(worker, [&](uint32_t other) {
    if (other != slot) behind.push_back(other);
  });
  std::string why = error.to_string();
  entry.rest->condemned = {core.sched_.slot(slot).ticket, std::move(error)};
  // First: it is given nothing more.
  core.doubt(worker, std::move(why));
  // The youngest first, so that none starts while an older one goes back.
  for (auto it = behind.rbegin(); it != behind.rend(); ++it) {
    STRATA_CHECK(!core.sched_.slot(*it).member);  // a member is alone at its worker
    const uint64_t ticket = core.sched_.slot(*it).ticket;
    if (!entry.endpoint->revoke(ticket)) continue;
    STRATA_MARK("engine: a task behind one that is ended goes back");
    core.left_worker(*it);
    if (core.trace_.on()) [[unlikely]] {
      core.trace_.taken_back(core.traced(*it), core.placed(worker, ticket));
    }
    core.sched_.requeue(*it);
  }
}

void Core::Overdue::ended(Core& core, uint32_t worker, uint32_t slot) {
  const Error& why = core.workers_[worker].rest->condemned->error;
  const Error error(why.code(), why.scope(), why.message() + core.workers_[worker].rest->last_lines,
                    why.where());
  const bool cancelled = error.code() == Code::kCancelled;
  RunRecord& run = *core.runs_[core.sched_.slot(slot).run % core.runs_.size()];
  ++run.kills;
  if (cancelled) {
    ++run.cancel_kills;
    if (run.killed_names.size() < RunRecord::kKilledNamesMax) {
      run.killed_names.push_back(error.where());
    }
  }
  core.sched_.finish(slot,
                     cancelled ? sched::Outcome::kEndpointFailed : sched::Outcome::kTaskFailed,
                     core.add_cause(error));
}

std::string Core::Overdue::late_text(uint32_t deadline_ms, const mailbox::Completion& completion,
                                     const std::string& own) {
  const int64_t ran = std::max<int64_t>(0, completion.ended_ns - completion.started_ns);
  return fmt::format("its deadline of {} ms has passed: it ended after {} ms{}{}", deadline_ms,
                     ran / 1'000'000, own.empty() ? "" : ": ", own);
}

// ---------------------------------------------------------------- reports

namespace {
constexpr size_t kNamedMax = 8;  // workers in a report
}  // namespace

std::string Core::describe_work(base::Instant now) {
  std::string out;
  size_t named = 0, unnamed = 0;
  for (uint32_t worker = 0; worker < workers_.size(); ++worker) {
    const WorkerEntry& entry = workers_[worker];
    const uint32_t length = sched_.queues().length(worker);
    if (length == 0 && !entry.control_posted) continue;
    if (named == kNamedMax) {
      ++unnamed;
      continue;
    }
    ++named;
    uint32_t oldest = sched::kNone;
    sched_.queues().for_each_slot(worker, [&](uint32_t slot) {
      if (oldest == sched::kNone) oldest = slot;
    });
    std::string does = "a control is not answered";
    if (oldest != sched::kNone) {
      const std::optional<int64_t> since = entry.endpoint->started(sched_.slot(oldest).ticket);
      does = fmt::format("{} {}", task_name(sched_.slot(oldest), head_of(oldest)),
                         since ? "runs" : "has not begun");
      if (since && *since != 0 && *since < now.ns) {
        does += fmt::format(" for {:.1f} s", base::Duration{now.ns - *since}.seconds());
      }
      if (length > 1) does += fmt::format(", {} behind it", length - 1);
      if (entry.control_posted) does += ", and a control behind that";
    }
    out += fmt::format("{}{}: {}", out.empty() ? "" : "; ", worker_name(worker), does);
  }
  if (unnamed > 0) out += fmt::format("; and {} more workers", unnamed);
  if (out.empty()) out = "no worker has anything to do";
  for (const std::shared_ptr<RunRecord>& run : runs_) {
    if (!run) continue;
    out +=
        fmt::format("; run {}: {} of {} tasks have ended{}", run->id, run->progress.terminal(),
                    run->progress.submitted, run->progress.built ? "" : ", and it is being built");
  }
  return out;
}

}  // namespace strata::engine
