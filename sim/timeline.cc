#include "sim/timeline.h"

#include <fmt/format.h>

#include <map>

namespace strata::sim {
namespace {

using trace::Event;
using trace::Kind;
using trace::Region;

trace::Shape shape_of(uint32_t events) {
  return {.rings = 64, .events = events, .names_bytes = 4096};
}

uint64_t virtual_ticks(void* scheduler) {
  return static_cast<uint64_t>(static_cast<Scheduler*>(scheduler)->now().ns);
}

}  // namespace

SimTimeline::SimTimeline(Scheduler* scheduler, uint32_t events)
    : scheduler_(scheduler),
      pages_(Region::bytes(shape_of(events))),
      region_(Region::format({pages_.data(), pages_.size()}, shape_of(events),
                             trace::ClockKind::kNanoseconds)),
      parent_(std::make_unique<trace::Recorder>(
          region_, host(), trace::Recorder::Who{1, trace::Role::kParent, "L3"})) {}

trace::Host SimTimeline::host() {
  return {.ticks = &virtual_ticks, .context = scheduler_};
}

SimTimeline::Child& SimTimeline::child(Who who) {
  Child& out = children_[who];
  if (!out.recorder) {
    const auto [worker, incarnation] = who;
    out.recorder = std::make_unique<trace::Recorder>(
        region_, host(),
        trace::Recorder::Who{worker << 16 | incarnation, trace::Role::kSub,
                             fmt::format("L3/{}#{}", worker, incarnation)});
  }
  return out;
}

void SimTimeline::begin_task(uint32_t worker, uint32_t incarnation, uint64_t ticket) {
  Child& at = child({worker, incarnation});
  at.task = {.start = at.recorder->now(), .id = ticket, .kind = Kind::kTask};
  at.recorder->begin(0, at.task);
}

void SimTimeline::end_task(uint32_t worker, uint32_t incarnation) {
  Child& at = child({worker, incarnation});
  at.task.end = at.recorder->now();
  ++at.pushed;
  at.recorder->end(0, at.task);
}

std::string SimTimeline::judge_parent(const Region::RingInfo& ring, uint64_t submits) const {
  uint64_t seen = 0;
  uint64_t dispatched_until = 0;
  std::map<uint32_t, Event> builds;
  std::map<uint32_t, Event> runs;
  for (uint32_t i = 0; i < ring.events; ++i) {
    const Event event = region_.event(ring.ring, i);
    if (event.end < event.start) return fmt::format("event {} ends before it begins", i);
    seen += event.kind == Kind::kSubmit;
    if (event.kind == Kind::kDispatch) {
      if (event.start < dispatched_until) return "two dispatches overlap";
      dispatched_until = event.end;
    }
    if (event.kind == Kind::kBuild) builds[event.run] = event;
    if (event.kind == Kind::kRun) runs[event.run] = event;
  }
  if (ring.dropped == 0 && seen != submits) {
    return fmt::format("{} submits are there, of {}", seen, submits);
  }
  if (ring.dropped > 0 && ring.events != region_.shape().events) {
    return "events were dropped although there was room";
  }
  for (const auto& [number, run] : runs) {
    const auto build = builds.find(number);
    if (build == builds.end()) return fmt::format("run {} has no building", number);
    if (build->second.start < run.start || build->second.end > run.end) {
      return fmt::format("run {} was built outside its span", number);
    }
    const auto before = runs.find(number - 2);
    if (before != runs.end() && before->second.end > run.start) {
      return fmt::format("run {} began before run {} was done", number, number - 2);
    }
  }
  if (!region_.open_spans(ring.ring).empty()) return "a run is still open";
  return {};
}

std::string SimTimeline::judge_child(const Region::RingInfo& ring,
                                     const Region::RingInfo& parent) const {
  const uint32_t worker = ring.pid >> 16;
  const uint32_t incarnation = ring.pid & 0xffff;
  struct Given {
    uint64_t since = 0;
    uint64_t done = ~uint64_t{0};
  };
  std::map<uint64_t, Given> given;
  for (uint32_t i = 0; i < parent.events; ++i) {
    const Event event = region_.event(parent.ring, i);
    if (event.worker != worker) continue;
    if (event.kind == Kind::kDispatch) given[event.id].since = event.start;
    if (event.kind == Kind::kCompletion) given[event.id].done = event.start;
  }
  std::vector<Event> tasks;
  for (uint32_t i = 0; i < ring.events; ++i) tasks.push_back(region_.event(ring.ring, i));
  for (const Event& open : region_.open_spans(ring.ring)) tasks.push_back(open);
  uint64_t until = 0;
  for (const Event& task : tasks) {
    if (task.kind != Kind::kTask || task.end < task.start || task.start < until) {
      return fmt::format("the spans of worker {} do not follow each other", worker);
    }
    until = task.end;
    const auto found = given.find(trace::ticket_of(incarnation, task.id));
    if (found == given.end()) {
      if (parent.dropped > 0) continue;
      return fmt::format("worker {} ran ticket {}, which was not dispatched", worker, task.id);
    }
    if (found->second.since > task.start || found->second.done < task.end) {
      return fmt::format(
          "the task of ticket {} of worker {} is not between its dispatch and its "
          "completion",
          task.id, worker);
    }
  }
  const uint64_t pushed = children_.at({worker, incarnation}).pushed;
  if (ring.events + ring.dropped != pushed) {
    return fmt::format("worker {} wrote {} events; {} are kept and {} counted as dropped", worker,
                       pushed, ring.events, ring.dropped);
  }
  return {};
}

std::string SimTimeline::judge(uint64_t submits) const {
  const std::vector<Region::RingInfo> rings = region_.rings();
  if (std::string wrong = judge_parent(rings[0], submits); !wrong.empty()) return wrong;
  for (size_t i = 1; i < rings.size(); ++i) {
    if (std::string wrong = judge_child(rings[i], rings[0]); !wrong.empty()) return wrong;
  }
  return {};
}

}  // namespace strata::sim
