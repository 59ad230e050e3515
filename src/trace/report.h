// Report: what the rings of a region say, put together: processes, lanes, spans that nest, and
// which dispatch led to which task.
//
// Every number in a ring is what some process wrote; what does not hold together is left out and
// counted. Pure: it reads the region that it is given, whose writers have ended or are quiet, and
// times come as ticks of the region's clock. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trace/ring.h"

namespace strata::trace {

// From ticks to nanoseconds since the timeline's beginning. What lies outside is moved to the
// nearer end.
struct TimeMap {
  uint64_t first_ticks = 0;
  uint64_t last_ticks = 0;
  double ns_per_tick = 1.0;

  int64_t ns_at(uint64_t ticks) const;
  int64_t end_ns() const { return ns_at(last_ticks); }
};

// What stands on a lane. An instant has the same start and end; a span is at least 1 ns long.
struct Slice {
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  Event event;
  bool instant = false;
  bool opened_only = false;  // its writer was gone before its end
  // Of a dispatch and of the task that came of it; 0: the other one is not known.
  uint64_t flow = 0;
};

struct Lane {
  uint32_t number = 0;  // within its ring, below kLanesMax
  std::string name;
  std::vector<Slice> slices;  // by start; spans nest
};

class Report {
 public:
  static constexpr uint32_t kBlockLanesMax = 64;
  static constexpr uint32_t kFirstBlockLane = 16;
  static constexpr uint32_t kLanesMax = kFirstBlockLane + kBlockLanesMax;

  Report(const Region& region, const TimeMap& time);

  const std::vector<Region::RingInfo>& rings() const { return rings_; }
  // The lanes of rings()[at], without those that are empty.
  std::vector<Lane> lanes(size_t at);
  // By Event::name; "?" for those that are not there.
  std::vector<std::string> names(size_t at) const;
  // Events of rings()[at] that do not hold together; after lanes().
  uint64_t bad(size_t at) const { return bad_[at]; }
  uint32_t refused() const { return region_.refused(); }
  const TimeMap& time() const { return time_; }

 private:
  struct Dispatch {
    uint32_t parent = 0;  // place of its ring in rings_
    uint16_t worker = 0;
    uint64_t ticket = 0;
    uint64_t start = 0;
    uint32_t run = 0;
    uint32_t task = 0;
    bool led = false;    // to a task that is known
    bool taken = false;  // that task has been given its end of the flow
  };
  struct Parent {
    bool known = false;
    uint32_t ring = 0;  // place in rings_
    uint16_t worker = 0;
    uint32_t incarnation = 1;
  };

  Parent parent_of(const std::string& path) const;
  void join();
  Dispatch* find(const Parent& parent, uint64_t ticket);
  void take(size_t at, const Event& event, bool opened_only, std::vector<Lane>* lanes);
  void take_open(size_t at, std::vector<Lane>* lanes);
  void connect(size_t at, Slice* slice);
  int64_t loss_of(size_t at) const;

  const Region& region_;
  TimeMap time_;
  std::vector<Region::RingInfo> rings_;
  std::vector<Parent> parents_;  // of each ring
  std::vector<uint64_t> bad_;
  std::map<std::string, uint32_t, std::less<>> by_path_;  // rings of parents
  std::vector<Dispatch> dispatches_;                      // by parent, worker, ticket, start
  std::map<std::pair<uint32_t, uint16_t>, std::vector<uint64_t>>
      losses_;  // parent's ring, worker: ticks
};

// An event whose fields can be what a writer meant.
bool holds_together(const Event& event);

}  // namespace strata::trace
