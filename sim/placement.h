// Placement: what the simulation watches at the workers' queues: that each task goes only where it
// may, that the members of a group go to workers of their own which have nothing else to do, that
// runs keep their order, and that a worker which takes something takes the oldest that it may.
//
// It has its own notion of all this, from what was submitted and from what passes the endpoints;
// the engine tells it only which tasks have ended. Not checked: what an inline worker takes (its
// queue is not seen), whether a younger group waits for no need, and the oldest where bytes are
// not surely free: by covering ranges, and where poison may be read. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "sim/checks.h"
#include "sim/oracle.h"

namespace strata::sim {

// Who may take a task: by its pool, its callable, and what its submitter has said.
struct PlaceRule {
  uint32_t pool = 0;
  bool everywhere = true;        // its callable is on all workers of the pool, later ones too
  uint64_t callable_on = 0;      // else: on some of these (a bit for each worker), on no other
  std::vector<int32_t> workers;  // by part; -1: any
};

class Placement {
 public:
  using Name = Checks::Name;
  // What the engine says of a task. kUnknown: it has not taken it yet.
  enum class Known : uint8_t { kUnknown, kLive, kOk, kBad };

  Placement() = default;
  Placement(const Placement&) = delete;
  Placement& operator=(const Placement&) = delete;

  // `known(task)` by the oracle's number.
  void init(Checks* checks, std::function<Known(uint32_t)> known) {
    checks_ = checks;
    known_ = std::move(known);
  }
  void add_worker(uint32_t worker, uint32_t pool, bool is_inline);
  // The next task that the oracle is told, and: its submit was refused.
  void add_task(const Oracle::Task& task, PlaceRule rule);
  void withdraw_task();

  // --- What passes an endpoint. Before the child can see it; on_taken or on_refused follows.
  void on_dispatch(uint32_t worker, Name name);
  void on_taken(uint32_t worker, Name name, uint64_t ticket);
  void on_refused(uint32_t worker, Name name);
  // Revoked, or its worker was lost, and it may have started before.
  void on_back(uint32_t worker, uint64_t ticket, bool started);
  // --- What happens in a child.
  void on_start(uint32_t worker, Name name);
  void on_end(uint32_t worker, Name name);

  const PlaceRule& rule(uint32_t task) const { return tasks_[task].rule; }
  uint32_t pool_of(uint32_t worker) const { return workers_[worker].pool; }
  size_t worker_count() const { return workers_.size(); }

 private:
  struct Cover {
    uint32_t buffer;
    uint64_t begin, end;
    bool reads, writes;
  };
  struct Entry {
    Name name;
    uint64_t ticket;  // 0: not yet known
  };
  struct Worker {
    uint32_t pool = 0;
    std::vector<Entry> queue;  // given to it, and its code has not ended
    bool was_full = false;     // the last that was to be given to it found no room
  };
  struct Task {
    uint32_t run = 0;
    bool is_group = false;
    bool launched = false;     // some part was given to a worker
    bool was_refused = false;  // by a full ring
    PlaceRule rule;
    std::vector<Cover> covers;
    std::vector<int32_t> at;  // by part: the worker that has, or had, it; -1: none
  };

  // A hand-written scenario need not tell what it submits.
  bool knows(Name name) const { return name.task < tasks_.size(); }
  void fail(std::string what) { checks_->fail(Verdict::kCorrectness, std::move(what)); }
  void check_allowed(uint32_t worker, Name name);
  void check_distinct(uint32_t worker, Name name);
  void check_queue(uint32_t worker, Name name);
  void check_oldest(uint32_t worker, Name name);
  void check_group_order(uint32_t task);
  void forget_ended();
  bool may_take(const Task& task, uint32_t part, uint32_t worker) const;
  // Of a task that is in no queue: it must be ready.
  bool surely_ready(uint32_t task) const;
  static bool meet(const Task& a, const Task& b);

  Checks* checks_ = nullptr;
  std::function<Known(uint32_t)> known_;
  bool sees_all_ = true;  // no worker is inline
  std::vector<Worker> workers_;
  std::vector<Task> tasks_;
  std::vector<uint32_t> live_;    // rising
  std::vector<bool> may_be_bad_;  // by buffer: a task that writes it did not succeed
};

}  // namespace strata::sim
