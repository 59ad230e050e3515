// Roster: which children a Worker has, by worker id: what another one is made from that takes the
// place of a lost one. Ids are never given again.
//
// Not their state, which is engine::Core's. Under the step token.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "strata/worker_spec.h"

namespace strata::runtime {

struct RosterEntry {
  enum class Kind : uint8_t { kSub, kChip, kWorker };
  Kind kind = Kind::kSub;
  std::optional<WorkerSpec> spec = {};  // of a Worker
};

class Roster {
 public:
  Roster() = default;
  // Workers or chips first, then the helpers.
  explicit Roster(const WorkerSpec& spec) {
    for (const WorkerSpec& worker : spec.workers) add({RosterEntry::Kind::kWorker, worker});
    for (int i = 0; i < spec.chips; ++i) add({RosterEntry::Kind::kChip});
    for (int i = 0; i < spec.sub_workers; ++i) add({RosterEntry::Kind::kSub});
  }
  uint32_t add(RosterEntry entry) {
    entries_.push_back(std::move(entry));
    return size() - 1;
  }
  uint32_t size() const { return static_cast<uint32_t>(entries_.size()); }
  const RosterEntry& at(uint32_t worker) const { return entries_[worker]; }
  RosterEntry::Kind kind(uint32_t worker) const { return entries_[worker].kind; }
  bool is_worker(uint32_t worker) const {
    return worker < size() && kind(worker) == RosterEntry::Kind::kWorker;
  }
  // `spec` with all Workers of the roster below it, for limits that depend on what is below.
  WorkerSpec with_workers(WorkerSpec spec) const {
    spec.workers.clear();
    for (const RosterEntry& entry : entries_) {
      if (entry.spec) spec.workers.push_back(*entry.spec);
    }
    return spec;
  }

 private:
  std::vector<RosterEntry> entries_;
};

}  // namespace strata::runtime
