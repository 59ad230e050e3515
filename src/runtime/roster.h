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
  enum class Kind : uint8_t { kSub, kChip, kWorker, kRemote };
  Kind kind = Kind::kSub;
  std::optional<WorkerSpec> spec = {};  // of a Worker
  std::vector<int> cpus = {};           // it is bound to; empty: none of its own
};

class Roster {
 public:
  Roster() = default;
  // Workers or chips first, then the helpers.
  // `remote`: of the Workers in their order, whether each is one of another host; the others are
  // those of `spec`.
  Roster(const WorkerSpec& spec, const std::vector<bool>& remote) {
    size_t next = 0;
    for (const bool is_remote : remote) {
      if (is_remote) {
        add({RosterEntry::Kind::kRemote});
      } else {
        const WorkerSpec& worker = spec.workers[next++];
        add({RosterEntry::Kind::kWorker, worker, worker.cpus});
      }
    }
    for (int i = 0; i < spec.chips; ++i) {
      add({RosterEntry::Kind::kChip, {}, cpus_of(spec.chip_cpus, i)});
    }
    for (int i = 0; i < spec.sub_workers; ++i) {
      add({RosterEntry::Kind::kSub, {}, cpus_of(spec.sub_cpus, i)});
    }
  }
  uint32_t add(RosterEntry entry) {
    entries_.push_back(std::move(entry));
    return size() - 1;
  }
  bool is_sub(uint32_t worker) const { return kind(worker) == RosterEntry::Kind::kSub; }
  bool is_remote(uint32_t worker) const { return kind(worker) == RosterEntry::Kind::kRemote; }
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
  static std::vector<int> cpus_of(const std::vector<std::vector<int>>& lists, int i) {
    return lists.empty() ? std::vector<int>() : lists[static_cast<size_t>(i)];
  }

  std::vector<RosterEntry> entries_;
};

}  // namespace strata::runtime
