// SimTimeline: the timeline of one simulated Worker in virtual time, and what must hold of it:
// spans close and nest, an effect comes after its cause, dropped events are counted.
//
// It does not look at the file that is made of a timeline (tests/trace does), nor at inline
// workers. From fibers of the simulation.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "sim/fiber.h"
#include "sim/pages.h"
#include "trace/ring.h"

namespace strata::sim {

class SimTimeline {
 public:
  // `events`: of a ring.
  SimTimeline(Scheduler* scheduler, uint32_t events);
  SimTimeline(const SimTimeline&) = delete;
  SimTimeline& operator=(const SimTimeline&) = delete;

  trace::Recorder* parent() { return parent_.get(); }

  // Around a task of a child. Whoever is killed in between never comes to end_task.
  void begin_task(uint32_t worker, uint32_t incarnation, uint64_t ticket);
  void end_task(uint32_t worker, uint32_t incarnation);

  // What is wrong; empty where nothing is. When all runs are done.
  std::string judge(uint64_t submits) const;

 private:
  struct Child {
    std::unique_ptr<trace::Recorder> recorder;  // null: no ring was left
    trace::Event task;
    uint64_t pushed = 0;
  };
  using Who = std::pair<uint32_t, uint32_t>;  // worker, incarnation
  Child& child(Who who);
  trace::Host host();
  std::string judge_parent(const trace::Region::RingInfo& ring, uint64_t submits) const;
  std::string judge_child(const trace::Region::RingInfo& ring,
                          const trace::Region::RingInfo& parent) const;

  Scheduler* scheduler_;
  Pages pages_;
  trace::Region region_;
  std::unique_ptr<trace::Recorder> parent_;
  std::map<Who, Child> children_;
};

}  // namespace strata::sim
