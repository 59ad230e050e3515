#include "engine/core.h"

#include <fmt/format.h>

#include <cstring>

#include "base/bytes.h"
#include "base/check.h"
#include "base/mark.h"
#include "engine/core_overdue.h"

namespace strata::engine {
namespace {

constexpr uint64_t pack(uint32_t slot, uint32_t generation) {
  return uint64_t{generation} << 32 | slot;
}
constexpr uint32_t slot_of(uint64_t task) {
  return static_cast<uint32_t>(task);
}

// The last loss of a worker of the pool, in words.
std::string loss_of(std::span<const WorkerEntry> workers, Pool pool) {
  std::string last = "none was started";
  for (const WorkerEntry& entry : workers) {
    if (entry.caps.pool == pool && !entry.rest->loss.empty()) last = entry.rest->loss;
  }
  return last;
}

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

Core::Core(CoreOptions options) : CoreData(std::move(options)) {}

// ---------------------------------------------------------------- stepping

void Core::step(base::Instant now, bool streaming) {
  const bool timed = wants_time();  // else `now` says nothing
  if (!busy_.empty()) poll_workers(now, streaming);
  if (news_.any()) poll_noted(now);
  if (!barred_.empty()) unbar_workers();
  endings_.now = timed ? std::optional(now) : std::nullopt;
  if (timed) {
    pump_registry(now);
    check_control_deadlines(now);
    Overdue::check(*this, now);
  }
  // What has become ready first: the accounts are done while the children run.
  dispatch_ready();
  // What is skipped may end a run, and then the next one's tasks are to be handed out.
  while (!sched_.terminal().empty()) {
    account_terminal();
    dispatch_ready();
  }
  if (buffers_.has_freed()) collect_freed();
}

void Core::poll_workers(base::Instant now, bool streaming) {
  for (size_t i = 0; i < busy_.size();) {
    const uint32_t worker = busy_[i];
    WorkerEntry& entry = workers_[worker];
    bool idle = entry.state == WorkerState::kLost;
    if (entry.unconfirmed) {
      entry.unconfirmed = false;
      if (!idle && entry.endpoint->needs_wake()) {
        STRATA_MARK("engine: a busy worker had fallen asleep");
        wakes_.push_back(entry.endpoint.get());
      }
    }
    if (!idle && (entry.inline_endpoint != nullptr ||
                  (streaming ? entry.endpoint->has_news_ahead(ahead_of(worker))
                             : entry.endpoint->has_news()))) {
      take_news(worker, now);
    }
    idle = idle || (sched_.queues().length(worker) == 0 && !entry.control_posted);
    if (idle) {
      entry.busy = false;
      busy_[i] = busy_.back();
      busy_.pop_back();
    } else {
      ++i;
    }
  }
}

void Core::poll_noted(base::Instant now) {
  news_.drain([&](uint32_t worker) {
    const WorkerEntry& entry = workers_[worker];
    sched_.queues().prefetch(worker);  // while the entry and the endpoint come
    if (entry.state == WorkerState::kLost) return;
    take_news(worker, now);
    // A poll may leave some, and nobody says so again.
    if (entry.endpoint->has_news()) news_.note(worker);
  });
}

void Core::take_news(uint32_t worker, base::Instant now) {
  WorkerEntry& entry = workers_[worker];
  polled_ = worker;
  if (const Result<void> polled = entry.endpoint->poll(*this); !polled) {
    doubt(worker, polled.error().message());
  }
  if (entry.control_posted && !entry.endpoint->control_outstanding()) {
    entry.control_posted = false;
    post_controls(worker, now);
  }
}

bool Core::slot_is(uint32_t worker, uint64_t task, uint64_t ticket) const {
  const uint32_t index = slot_of(task);
  if (index >= options_.limits.slots) return false;
  const sched::Scheduler::Slot& slot = sched_.slot(index);
  return pack(index, slot.generation) == task && slot.state == sched::SlotState::kQueued &&
         slot.worker == worker && slot.ticket == ticket;
}

void Core::on_completion(const mailbox::Completion& completion) {
  const uint32_t worker = polled_;
  if (!slot_is(worker, completion.task, completion.ticket)) {
    doubt(worker, "it completed a task that it was not given");
    return;
  }
  const uint32_t index = slot_of(completion.task);
  left_worker(index);
  ++workers_[worker].tasks_done;
  if (trace_.on()) [[unlikely]] {
    const bool ok = completion.outcome == mailbox::Outcome::kOk;
    trace_.completed(traced(index), placed(worker, completion.ticket),
                     ok ? sched::Outcome::kOk : sched::Outcome::kTaskFailed);
  }
  if (completion.outcome == mailbox::Outcome::kOk) [[likely]] {
    if (!completion.result.empty()) {
      const sched::Scheduler::Slot& slot = sched_.slot(index);
      RunRecord& run = *runs_[slot.run % runs_.size()];
      const uint32_t member = slot.member ? sched_.member_number(index) : 0;
      run.results[{slot.run_task, member}].assign(completion.result.begin(),
                                                  completion.result.end());
    }
    sched_.finish(index, sched::Outcome::kOk, 0);
    return;
  }
  std::string text = text_of(completion.text);
  const bool late = completion.outcome == mailbox::Outcome::kDeadline;
  if (late) {
    text = Overdue::late_text(head_of(index).post.deadline_ms, completion, text);
  } else if (text.empty()) {
    text = fmt::format("it returned {}", completion.code);
  }
  const uint32_t cause = add_cause(Error(late ? Code::kDeadline : Code::kTaskFailed, Scope::kTask,
                                         std::move(text), task_where(sched_.slot(index), worker)));
  sched_.finish(index, sched::Outcome::kTaskFailed, cause);
}

void Core::on_abandoned(uint64_t task, uint64_t ticket, bool started) {
  const uint32_t worker = polled_;
  STRATA_CHECK(slot_is(worker, task, ticket));
  const uint32_t index = slot_of(task);
  left_worker(index);
  if (trace_.on()) [[unlikely]] {
    if (started) {
      trace_.completed(traced(index), placed(worker, ticket), sched::Outcome::kEndpointFailed);
    } else {
      trace_.taken_back(traced(index), placed(worker, ticket));
    }
  }
  if (!started && sched_.slot(index).member) {
    STRATA_MARK("engine: a member's worker is lost before it has started");
    const uint32_t cause = add_cause(
        Error(Code::kEndpointFailed, Scope::kTask,
              fmt::format("its worker was lost before it started ({}), and a group goes together",
                          workers_[worker].rest->loss),
              task_where(sched_.slot(index), worker)));
    sched_.finish(index, sched::Outcome::kEndpointFailed, cause);
    return;
  }
  if (!started) {
    STRATA_MARK("engine: a lost worker's task goes back");
    sched_.requeue(index);
    return;
  }
  if (const auto& condemned = workers_[worker].rest->condemned;
      condemned && condemned->ticket == ticket) {
    return Overdue::ended(*this, worker, index);
  }
  const uint32_t cause = add_cause(
      Error(Code::kEndpointFailed, Scope::kTask,
            fmt::format("its worker was lost while it ran ({}); it may have run in part{}",
                        workers_[worker].rest->loss, workers_[worker].rest->last_lines),
            task_where(sched_.slot(index), worker)));
  sched_.finish(index, sched::Outcome::kEndpointFailed, cause);
}

void Core::unbar_workers() {
  std::erase_if(barred_, [this](uint32_t worker) {
    const WorkerEntry& entry = workers_[worker];
    if (entry.state == WorkerState::kReady && (entry.doubted || !entry.endpoint->has_room())) {
      return false;
    }
    workers_[worker].barred = false;
    sched_.unbar(worker);
    return true;
  });
}

void Core::dispatch_ready() {
  while (const auto slot = sched_.next_stranded(workers_expected_)) strand(*slot);
  while (const auto group = sched_.take_failed_group()) stop_group(*group);
  assign_all();
  take_back();
}

// No worker is left for it.
void Core::strand(uint32_t index) {
  const sched::Scheduler::Slot& slot = sched_.slot(index);
  if (slot.member) {
    STRATA_MARK("engine: a member's worker is lost before it was told");
    sched_.finish(index, sched::Outcome::kEndpointFailed,
                  add_cause(Error(Code::kEndpointFailed, Scope::kTask,
                                  fmt::format("its worker was lost before it started ({}), and a "
                                              "group goes together",
                                              workers_[slot.worker].rest->loss),
                                  task_where(slot, slot.worker))));
    return;
  }
  std::string why;
  if (slot.directed != sched::kNone) {
    why = fmt::format("worker {}, which it was submitted to, was lost: {}; it did not run",
                      worker_name(slot.directed), workers_[slot.directed].rest->loss);
  } else {
    STRATA_MARK("engine: no worker is left");
    const Pool pool = slot.cls < sched::kPools
                          ? static_cast<Pool>(slot.cls)
                          : workers_[sched_.class_workers(slot.cls).front()].caps.pool;
    why = fmt::format("no live worker is left to run it (the last was lost: {}); it did not run",
                      loss_of(workers_, pool));
    if (slot.group != sched::kNone) {
      why = fmt::format(
          "its group has {} members, and no longer that many live workers are left "
          "for them (the last was lost: {}); it did not run",
          sched_.members(index).size(), loss_of(workers_, pool));
    }
  }
  sched_.skip(index,
              add_cause(Error(Code::kNoWorker, Scope::kTask, std::move(why), options_.path)));
}

bool Core::may_wake() const {
  return spreading_ || sched_.queues().awake_count() < options_.awake_max;
}

void Core::assign_all() {
  const auto asleep = [this](uint32_t worker) { return workers_[worker].endpoint->asleep(); };
  while (const auto assignment = sched_.next_assignment(may_wake(), asleep)) dispatch(*assignment);
}

bool Core::spread() {
  if (sched_.queues().awake_count() == sched_.queues().open_count() &&
      !sched_.queues().any_awake_empty()) {
    return false;
  }
  spreading_ = true;
  dispatch_ready();
  spreading_ = false;
  return !wakes_.empty();
}

// The first entry whose end lets something else go on: a task that waits for it, or one that waits
// for room in the queue.
uint64_t Core::wake_point(uint32_t worker) const {
  if (waiters_[static_cast<size_t>(Wake::kEach)] > 0) return 0;
  const bool soon = waiters_[static_cast<size_t>(Wake::kSoon)] > 0 || sched_.has_ready();
  const uint32_t middle = (sched_.queues().length(worker) - 1) / 2;
  uint64_t point = ~uint64_t{0};
  uint32_t at = 0;
  sched_.queues().for_each_slot(worker, [&](uint32_t slot) {
    const bool awaited = sched_.slot(slot).first_edge != sched::kNone || (soon && at == middle);
    if (awaited) point = std::min(point, sched_.slot(slot).ticket);
    ++at;
  });
  return point;
}

void Core::set_wake_points() {
  for (const uint32_t worker : busy_) {
    if (sched_.queues().length(worker) == 0) continue;
    workers_[worker].endpoint->set_wake_at(wake_point(worker));
  }
  wake_points_set_ = true;
}

void Core::clear_wake_points() {
  if (!wake_points_set_) return;
  wake_points_set_ = false;
  for (const uint32_t worker : busy_) {
    workers_[worker].endpoint->set_wake_at(0);
    workers_[worker].endpoint->fence();
  }
}

CoreTrace::Task Core::traced(uint32_t slot) {
  return {sched_.slot(slot).run, sched_.slot(slot).run_task, head_of(slot).callable};
}

const TaskHead& Core::head_of(uint32_t slot) {
  return *reinterpret_cast<const TaskHead*>(sched_.payload(slot).data());
}

void Core::dispatch(sched::Assignment assignment) {
  WorkerEntry& entry = workers_[assignment.worker];
  const bool had_work = sched_.queues().length(assignment.worker) > 0;
  // What a sleeping leader asked of it was about tasks that are gone.
  if (!had_work) entry.endpoint->set_wake_at(0);
  const std::span<const std::byte> payload = sched_.payload(assignment.slot);
  const uint64_t since = trace_.now();
  const mailbox::TaskPost& post = head_of(assignment.slot).post;
  const auto ticket = entry.doubted
                          ? std::nullopt
                          : entry.endpoint->dispatch(post, payload.subspan(sizeof(TaskHead)));
  if (!ticket) {
    STRATA_MARK("engine: a ring has no room");
    sched_.refused(assignment);
    if (!entry.barred) barred_.push_back(assignment.worker);
    entry.barred = true;
    return;
  }
  if (trace_.on()) [[unlikely]] {
    trace_.dispatched(since, traced(assignment.slot), placed(assignment.worker, *ticket));
  }
  sched_.assigned(assignment, *ticket);
  if (post.deadline_ms != 0 && entry.inline_endpoint == nullptr) [[unlikely]] {
    endings_.deadlines.given(assignment.worker, post.deadline_ms, endings_.now);
  }
  note_busy(assignment.worker);
  if (had_work && !entry.caps.notes_news) {
    // It has work and so is awake, unless it ends that this instant: the next step looks, when the
    // store is long since visible and the fence is cheap.
    entry.unconfirmed = true;
  } else if (entry.endpoint->needs_wake()) {
    wakes_.push_back(entry.endpoint.get());
  }
}

void Core::take_back() {
  while (const auto candidate = sched_.next_take_back(may_wake())) {
    WorkerEntry& entry = workers_[candidate->worker];
    const uint64_t ticket = sched_.slot(candidate->slot).ticket;
    if (entry.endpoint->revoke(ticket)) {
      STRATA_MARK("engine: a queued task is taken back");
      left_worker(candidate->slot);
      if (trace_.on()) [[unlikely]] {
        trace_.taken_back(traced(candidate->slot), placed(candidate->worker, ticket));
      }
      sched_.requeue(candidate->slot);
    } else {
      STRATA_MARK("engine: a task to take back has started");
      sched_.take_back_failed(*candidate);
    }
    assign_all();
  }
}

// ---------------------------------------------------------------- accounts

std::string Core::task_name(const sched::Scheduler::Slot& slot, const TaskHead& head) const {
  const auto info = registry_.info(head.callable.index);
  if (slot.member) {
    const uint32_t index = static_cast<uint32_t>(&slot - &sched_.slot(0));
    return fmt::format("task {} '{}', member {}", slot.run_task, info ? info->name : "?",
                       sched_.member_number(index));
  }
  return fmt::format("task {} '{}'", slot.run_task, info ? info->name : "?");
}

std::string Core::task_where(const sched::Scheduler::Slot& slot, uint32_t worker) const {
  const uint32_t index = static_cast<uint32_t>(&slot - &sched_.slot(0));
  const TaskHead& head = const_cast<Core*>(this)->head_of(index);
  return fmt::format("{}, {}", worker_name(worker), task_name(slot, head));
}

// A cause that a terminal task carries is in use until the task is accounted for.
uint32_t Core::add_cause(Error error) {
  return causes_.add(std::move(error), [this](auto&& visit) {
    sched_.poison().for_each_cause(visit);
    sched_.for_each_group_cause(visit);
    for (const uint32_t slot : sched_.terminal()) visit(sched_.slot(slot).cause);
  });
}

void Core::account_terminal() {
  for (const uint32_t slot : sched_.terminal()) account(slot);
  sched_.release_terminal();
  finish_runs();
  notable_ = true;
}

void Core::account(uint32_t index) {
  const sched::Scheduler::Slot& slot = sched_.slot(index);
  if (slot.member) return;  // its group's own slot accounts for all
  RunRecord& run = *runs_[slot.run % runs_.size()];
  const TaskHead& head = head_of(index);
  switch (slot.outcome) {
    case sched::Outcome::kOk:
      run.tasks[slot.run_task] = TaskState::kOk;
      ++run.progress.succeeded;
      break;
    case sched::Outcome::kTaskFailed:
    case sched::Outcome::kEndpointFailed: {
      const bool task = slot.outcome == sched::Outcome::kTaskFailed;
      run.tasks[slot.run_task] = task ? TaskState::kTaskFailed : TaskState::kEndpointFailed;
      ++run.progress.failed;
      run.note_failure(slot.run_task, slot.order, false, causes_.at(slot.cause));
      break;
    }
    case sched::Outcome::kSkipped: {
      run.tasks[slot.run_task] = TaskState::kSkipped;
      ++run.progress.skipped;
      const Error& cause = causes_.at(slot.cause);
      if (trace_.on()) [[unlikely]] {
        trace_.skipped(traced(index), cause.code() == Code::kCancelled);
      }
      const bool own =
          cause.code() == Code::kNoWorker || (cause.code() == Code::kCancelled && run.cancelled);
      run.note_failure(
          slot.run_task, slot.order, true,
          own ? cause
              : Error(Code::kSkipped, Scope::kTask,
                      fmt::format("{} was skipped: it reads what was never written, because {}",
                                  task_name(slot, head), cause.to_string()),
                      options_.path));
      break;
    }
  }
  for (const sched::Access& access : sched_.accesses(index)) buffers_.release(access.buffer);
  registry_.release(head.callable.index);
}

void Core::finish_runs() {
  for (std::shared_ptr<RunRecord>& run : runs_) {
    if (!run || !sched_.run_done(run->number)) continue;
    run->done = true;
    if (run->kill_at != base::Instant::never()) Overdue::forget_grace(*this, *run);
    if (trace_.on()) [[unlikely]] {
      trace_.run_done(run->number, run->outcome().has_value(), run->cancelled);
    }
    if (!run->on_done.empty()) {
      run->calls_pending = true;
      endings_.done_calls.push_back(run);
    }
    if (run->cancel_cause != 0) causes_.unpin(run->cancel_cause);
    run.reset();
  }
}

// ---------------------------------------------------------------- for the waiting thread

bool Core::has_news() const {
  if (news_.any()) return true;
  for (const uint32_t worker : busy_) {
    const WorkerEntry& entry = workers_[worker];
    if (entry.inline_endpoint != nullptr) continue;
    if (entry.endpoint->has_news() || (entry.unconfirmed && entry.endpoint->asleep())) return true;
  }
  for (const uint32_t worker : barred_) {
    if (workers_[worker].endpoint->has_news()) return true;
  }
  return false;
}

void Core::busy_endpoints(std::vector<Awaited>* out) const {
  out->clear();
  for (const uint32_t worker : busy_) {
    out->push_back({workers_[worker].endpoint.get(), ahead_of(worker)});
  }
  if (any_notes_news_) out->push_back({nullptr, 0, &news_});
}

// Half of the queue may end unseen while nobody waits for one of its tasks.
uint32_t Core::ahead_of(uint32_t worker) const {
  const uint32_t length = sched_.queues().length(worker);
  const bool each = waiters_[static_cast<size_t>(Wake::kEach)] > 0;
  if (length < 2 || each || sched_.queues().awaited(worker) > 0) return 0;
  return (length - 1) / 2;
}

InlineEndpoint* Core::inline_work() const {
  for (InlineEndpoint* endpoint : inline_) {
    if (endpoint->has_work()) return endpoint;
  }
  return nullptr;
}

}  // namespace strata::engine
