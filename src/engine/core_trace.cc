#include "engine/core_trace.h"

#include "sched/scheduler.h"

namespace strata::engine {
namespace {

using trace::Event;
using trace::Kind;
using trace::Mark;

static_assert(sched::Scheduler::kRunsMax == 2);

// Places of open spans: a run and the building of one are kept for whoever is killed meanwhile.
constexpr uint32_t run_place(uint32_t run) {
  return run % 2;
}
constexpr uint32_t kBuildPlace = 2;

// Users count runs from 1.
constexpr uint32_t shown(uint32_t run) {
  return run + 1;
}

Mark mark_of(sched::Outcome outcome) {
  switch (outcome) {
    case sched::Outcome::kOk:
      return Mark::kOk;
    case sched::Outcome::kEndpointFailed:
      return Mark::kLost;
    default:
      return Mark::kFailed;
  }
}

}  // namespace

uint32_t CoreTrace::name_of(registry::EntryRef callable) {
  if (callable.index >= names_.size()) names_.resize(callable.index + 1);
  Name& known = names_[callable.index];
  if (known.generation != callable.generation || known.name == 0) {
    const auto info = registry_.info(callable.index);
    known = {callable.generation, info ? recorder_->name(info->name) : 0};
  }
  return known.name;
}

Event CoreTrace::event_of(Kind kind, const Task& task) {
  Event event;
  event.kind = kind;
  event.run = shown(task.run);
  event.task = task.task;
  event.name = name_of(task.callable);
  return event;
}

void CoreTrace::run_opened(uint32_t run) {
  Event event;
  event.kind = Kind::kRun;
  event.run = shown(run);
  event.start = recorder_->now();
  opened_[run_place(run)] = event.start;
  recorder_->begin(run_place(run), event);
  event.kind = Kind::kBuild;
  recorder_->begin(kBuildPlace, event);
}

void CoreTrace::run_built(uint32_t run) {
  Event event;
  event.kind = Kind::kBuild;
  event.run = shown(run);
  event.start = opened_[run_place(run)];
  event.end = recorder_->now();
  recorder_->end(kBuildPlace, event);
}

void CoreTrace::run_done(uint32_t run, bool failed, bool cancelled) {
  Event event;
  event.kind = Kind::kRun;
  event.run = shown(run);
  event.start = opened_[run_place(run)];
  event.end = recorder_->now();
  event.mark = cancelled ? Mark::kCancelled : failed ? Mark::kFailed : Mark::kOk;
  recorder_->end(run_place(run), event);
}

void CoreTrace::run_cancelled(uint32_t run) {
  Event event;
  event.kind = Kind::kCancel;
  event.run = shown(run);
  recorder_->mark(event);
}

void CoreTrace::submitted(const Task& task) {
  recorder_->mark(event_of(Kind::kSubmit, task));
}

void CoreTrace::dispatched(uint64_t since, const Task& task, Place place) {
  Event event = event_of(Kind::kDispatch, task);
  event.worker = static_cast<uint16_t>(place.worker);
  event.id = place.ticket;
  event.start = since;
  event.end = recorder_->now();
  recorder_->push(event);
}

void CoreTrace::taken_back(const Task& task, Place place) {
  Event event = event_of(Kind::kTakeBack, task);
  event.worker = static_cast<uint16_t>(place.worker);
  event.id = place.ticket;
  recorder_->mark(event);
}

void CoreTrace::completed(const Task& task, Place place, sched::Outcome outcome) {
  Event event = event_of(Kind::kCompletion, task);
  event.worker = static_cast<uint16_t>(place.worker);
  event.id = place.ticket;
  event.mark = mark_of(outcome);
  recorder_->mark(event);
}

void CoreTrace::skipped(const Task& task, bool cancelled) {
  Event event = event_of(Kind::kSkip, task);
  event.mark = cancelled ? Mark::kCancelled : Mark::kFailed;
  recorder_->mark(event);
}

void CoreTrace::worker_gone(uint32_t worker, std::string_view reason, bool asked) {
  Event event;
  event.kind = Kind::kGone;
  event.worker = static_cast<uint16_t>(worker);
  event.name = recorder_->name(reason);
  event.mark = asked ? Mark::kOk : Mark::kLost;
  recorder_->mark(event);
}

void CoreTrace::slept(uint64_t since) {
  Event event;
  event.kind = Kind::kSleep;
  event.start = since;
  event.end = recorder_->now();
  recorder_->push(event);
}

}  // namespace strata::engine
