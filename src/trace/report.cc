#include "trace/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <tuple>

namespace strata::trace {
namespace {

enum LaneNumber : uint32_t {
  kRunsOdd = 0,
  kRunsEven = 1,
  kSubmits = 2,
  kDispatches = 3,
  kCompletions = 4,
  kSleeps = 5,
  kEvents = 6,
  kTasks = 7,
};

bool is_span(Kind kind) {
  switch (kind) {
    case Kind::kRun:
    case Kind::kBuild:
    case Kind::kDispatch:
    case Kind::kSleep:
    case Kind::kTask:
    case Kind::kControl:
    case Kind::kBlock:
      return true;
    default:
      return false;
  }
}

uint32_t lane_of(const Event& event, Role role) {
  switch (event.kind) {
    case Kind::kRun:
    case Kind::kBuild:
      // Two runs are in flight at most, and the third opens when the first is done.
      return event.run % 2 == 1 ? kRunsOdd : kRunsEven;
    case Kind::kSubmit:
      return kSubmits;
    case Kind::kDispatch:
      return kDispatches;
    case Kind::kCompletion:
    case Kind::kTakeBack:
      return kCompletions;
    case Kind::kSleep:
      return kSleeps;
    case Kind::kTask:
    case Kind::kControl:
      return kTasks;
    case Kind::kBlock:
      return Report::kFirstBlockLane + event.worker % Report::kBlockLanesMax;
    default:
      return role == Role::kParent ? kEvents : kTasks;
  }
}

std::string lane_name(uint32_t lane) {
  static constexpr std::string_view kNames[] = {
      "runs 1, 3, 5, ...", "runs 2, 4, 6, ...", "submits", "dispatch",
      "completions",       "leader asleep",     "events",  "tasks",
  };
  if (lane < std::size(kNames)) return std::string(kNames[lane]);
  return fmt::format("blocks {}", lane - Report::kFirstBlockLane);
}

bool before(const Slice& a, const Slice& b) {
  // Of those that begin together the longest is outside.
  return std::tuple(a.start_ns, -a.end_ns) < std::tuple(b.start_ns, -b.end_ns);
}

// Spans one after another: where two overlap the earlier is cut, as when another thread takes the
// lead from one that sleeps.
void put_in_a_row(std::vector<Slice>& slices) {
  Slice* last = nullptr;
  for (Slice& slice : slices) {
    if (slice.instant) continue;
    if (last != nullptr && last->end_ns > slice.start_ns) {
      last->end_ns = std::max(last->start_ns + 1, slice.start_ns);
      slice.start_ns = std::max(slice.start_ns, last->end_ns);
      slice.end_ns = std::max(slice.end_ns, slice.start_ns + 1);
    }
    last = &slice;
  }
}

// Spans inside others: what begins in one ends with it at the latest.
void nest(std::vector<Slice>& slices) {
  std::vector<int64_t> ends;
  for (Slice& slice : slices) {
    if (slice.instant) continue;
    while (!ends.empty() && ends.back() <= slice.start_ns) ends.pop_back();
    if (!ends.empty()) slice.end_ns = std::min(slice.end_ns, ends.back());
    ends.push_back(slice.end_ns);
  }
}

void order(Lane& lane) {
  std::stable_sort(lane.slices.begin(), lane.slices.end(), before);
  if (lane.number == kRunsOdd || lane.number == kRunsEven) {
    nest(lane.slices);
  } else {
    put_in_a_row(lane.slices);
    std::stable_sort(lane.slices.begin(), lane.slices.end(), before);
  }
}

}  // namespace

int64_t TimeMap::ns_at(uint64_t ticks) const {
  const uint64_t within = std::clamp(ticks, first_ticks, std::max(first_ticks, last_ticks));
  return static_cast<int64_t>(static_cast<double>(within - first_ticks) * ns_per_tick);
}

bool holds_together(const Event& event) {
  return event.kind > Kind::kNone && event.kind < Kind::kCount && event.mark < Mark::kCount &&
         event.end >= event.start;
}

Report::Report(const Region& region, const TimeMap& time)
    : region_(region), time_(time), rings_(region.rings()), bad_(rings_.size()) {
  for (uint32_t at = 0; at < rings_.size(); ++at) {
    if (rings_[at].role == Role::kParent) by_path_.emplace(rings_[at].path, at);
  }
  for (const Region::RingInfo& ring : rings_) parents_.push_back(parent_of(ring.path));
  join();
}

// "L4/0/1" is worker 1 of "L4/0", and "L4/0/1#2" the one that took its place.
Report::Parent Report::parent_of(const std::string& path) const {
  Parent out;
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return out;
  const char* const end = path.data() + path.size();
  auto number = std::from_chars(path.data() + slash + 1, end, out.worker);
  if (number.ec == std::errc{} && number.ptr != end && *number.ptr == '#') {
    number = std::from_chars(number.ptr + 1, end, out.incarnation);
  }
  if (number.ec != std::errc{} || number.ptr != end || out.incarnation == 0) return out;
  const auto found = by_path_.find(std::string_view(path).substr(0, slash));
  if (found == by_path_.end()) return out;
  out.known = true;
  out.ring = found->second;
  return out;
}

Report::Dispatch* Report::find(const Parent& parent, uint64_t ticket) {
  if (!parent.known) return nullptr;
  const auto key = [](const Dispatch& d) { return std::tuple(d.parent, d.worker, d.ticket); };
  const Dispatch wanted{.parent = parent.ring, .worker = parent.worker, .ticket = ticket};
  const auto found =
      std::lower_bound(dispatches_.begin(), dispatches_.end(), wanted,
                       [&](const Dispatch& a, const Dispatch& b) { return key(a) < key(b); });
  if (found == dispatches_.end() || key(*found) != key(wanted)) return nullptr;
  return &*found;
}

// Finds the dispatch of every task. An effect before its cause is no effect of it.
void Report::join() {
  for (uint32_t at = 0; at < rings_.size(); ++at) {
    if (rings_[at].role != Role::kParent) continue;
    for (uint32_t i = 0; i < rings_[at].events; ++i) {
      const Event event = region_.event(rings_[at].ring, i);
      if (!holds_together(event)) continue;
      if (event.kind == Kind::kDispatch) {
        dispatches_.push_back({.parent = at,
                               .worker = event.worker,
                               .ticket = event.id,
                               .start = event.start,
                               .run = event.run,
                               .task = event.task});
      } else if (event.kind == Kind::kGone) {
        losses_[{at, event.worker}].push_back(event.start);
      }
    }
  }
  std::sort(dispatches_.begin(), dispatches_.end(), [](const Dispatch& a, const Dispatch& b) {
    return std::tuple(a.parent, a.worker, a.ticket, a.start) <
           std::tuple(b.parent, b.worker, b.ticket, b.start);
  });
  const auto lead = [this](size_t at, const Event& event) {
    if (!holds_together(event) || event.kind != Kind::kTask) return;
    Dispatch* const dispatch = find(parents_[at], ticket_of(parents_[at].incarnation, event.id));
    if (dispatch != nullptr && time_.ns_at(dispatch->start) <= time_.ns_at(event.start)) {
      dispatch->led = true;
    }
  };
  for (size_t at = 0; at < rings_.size(); ++at) {
    for (uint32_t i = 0; i < rings_[at].events; ++i) lead(at, region_.event(rings_[at].ring, i));
    for (const Event& event : region_.open_spans(rings_[at].ring)) lead(at, event);
  }
}

// A flow has the place of its dispatch as its number, and one end at most.
void Report::connect(size_t at, Slice* slice) {
  if (slice->event.kind == Kind::kDispatch) {
    const Parent here{
        .known = true, .ring = static_cast<uint32_t>(at), .worker = slice->event.worker};
    const Dispatch* const found = find(here, slice->event.id);
    if (found == nullptr || !found->led || found->start != slice->event.start) return;
    slice->flow = 1 + static_cast<uint64_t>(found - dispatches_.data());
  } else if (slice->event.kind == Kind::kTask) {
    Dispatch* const found =
        find(parents_[at], ticket_of(parents_[at].incarnation, slice->event.id));
    if (found == nullptr) return;
    slice->event.run = found->run;
    slice->event.task = found->task;
    if (!found->led || found->taken) return;
    if (time_.ns_at(found->start) > slice->start_ns) return;
    slice->flow = 1 + static_cast<uint64_t>(found - dispatches_.data());
    found->taken = true;  // a second task by this name is not its
  }
}

// When the parent found that the process of this ring is gone.
int64_t Report::loss_of(size_t at) const {
  const Parent& parent = parents_[at];
  if (parent.known) {
    const auto found = losses_.find({parent.ring, parent.worker});
    // Its incarnations are lost one after the other.
    if (found != losses_.end() && parent.incarnation <= found->second.size()) {
      return time_.ns_at(found->second[parent.incarnation - 1]);
    }
  }
  return time_.end_ns();
}

void Report::take(size_t at, const Event& event, bool opened_only, std::vector<Lane>* lanes) {
  if (!holds_together(event)) {
    ++bad_[at];
    return;
  }
  Slice slice;
  slice.event = event;
  slice.instant = !is_span(event.kind);
  slice.opened_only = opened_only;
  slice.start_ns = time_.ns_at(event.start);
  slice.end_ns = slice.start_ns;
  if (opened_only) {
    slice.event.mark = Mark::kLost;
    slice.end_ns = std::max(slice.start_ns + 1, loss_of(at));
  } else if (!slice.instant) {
    slice.end_ns = std::max(slice.start_ns + 1, time_.ns_at(event.end));
  }
  (*lanes)[lane_of(event, rings_[at].role)].slices.push_back(slice);
}

void Report::take_open(size_t at, std::vector<Lane>* lanes) {
  const Region::RingInfo& ring = rings_[at];
  Event last;
  if (ring.events > 0) last = region_.event(ring.ring, ring.events - 1);
  for (const Event& event : region_.open_spans(ring.ring)) {
    // Killed after it had pushed the whole span.
    if (event.kind == last.kind && event.start == last.start && event.id == last.id) continue;
    if (!is_span(event.kind)) {
      ++bad_[at];
      continue;
    }
    take(at, event, true, lanes);
  }
}

std::vector<Lane> Report::lanes(size_t at) {
  std::vector<Lane> all(kLanesMax);
  bad_[at] = 0;
  for (uint32_t i = 0; i < rings_[at].events; ++i) {
    take(at, region_.event(rings_[at].ring, i), false, &all);
  }
  take_open(at, &all);
  std::vector<Lane> out;
  for (uint32_t number = 0; number < kLanesMax; ++number) {
    if (all[number].slices.empty()) continue;
    Lane& lane = out.emplace_back(std::move(all[number]));
    lane.number = number;
    lane.name = lane_name(number);
    order(lane);
    for (Slice& slice : lane.slices) connect(at, &slice);
  }
  return out;
}

std::vector<std::string> Report::names(size_t at) const {
  std::vector<std::string> out = region_.names(rings_[at].ring);
  out[0] = "?";
  return out;
}

}  // namespace strata::trace
