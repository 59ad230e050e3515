// CoreData: what a Core consists of. No behaviour, and for Core alone; see core.h.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "buffer/buffer_table.h"
#include "engine/cause_table.h"
#include "engine/core_trace.h"
#include "engine/core_types.h"
#include "engine/heap.h"
#include "engine/imports.h"
#include "engine/news_set.h"
#include "engine/run_record.h"
#include "model/args.h"
#include "registry/registry.h"
#include "sched/scheduler.h"

namespace strata::engine {

struct CoreData {
  explicit CoreData(CoreOptions options)
      : options_(std::move(options)),
        sched_({.slots = options_.limits.slots,
                .depth = options_.limits.depth,
                .buffers = options_.limits.buffers}),
        registry_(options_.limits.callables),
        trace_(options_.trace, registry_),
        buffers_(options_.uid_high, options_.limits.buffers),
        heap_(options_) {}
  CoreData(const CoreData&) = delete;
  CoreData& operator=(const CoreData&) = delete;

  CoreOptions options_;
  sched::Scheduler sched_;
  registry::Registry registry_;
  CoreTrace trace_;
  buffer::BufferTable buffers_;
  Imports imports_;
  bool refs_ = false;                                     // there are child Workers, or chips
  std::array<uint32_t, sched::kPools> pool_transfers_{};  // of WorkerCaps
  std::array<uint32_t, sched::kPools> pool_kinds_{};      // what any worker of the pool can run
  std::vector<Uid> dropped_;  // buffers that are gone and that workers may have mapped
  Heap heap_;
  CauseTable causes_;
  std::vector<WorkerEntry> workers_;
  std::vector<InlineEndpoint*> inline_;  // by worker
  std::vector<uint32_t> busy_;           // workers that may have news, but for those that note it
  NewsSet news_;
  bool any_notes_news_ = false;
  std::vector<uint32_t> posted_;  // workers with a posted control, and some that had one
  std::vector<uint32_t> barred_;  // workers whose rings are full
  Endings endings_;
  bool workers_expected_ = true;
  uint32_t polled_ = 0;  // the worker whose news are being taken
  uint32_t controls_open_ = 0;
  std::array<std::shared_ptr<RunRecord>, sched::Scheduler::kRunsMax> runs_;
  uint64_t run_ids_ = 0;
  std::vector<OpenScope> scopes_;  // of the run that is built; the first is the run's own
  uint64_t scope_ids_ = 0;
  bool wants_memory_ = false;                 // the last create_temporary was refused for it
  std::vector<sched::Access> accesses_;       // of the task that is submitted
  std::vector<model::Placement> placements_;  // likewise
  std::vector<uint32_t> member_of_;           // of each of accesses_, in a group
  // The class of the workers of a pool that have a callable, where these are not all of them.
  // And, last, of those that share this host's memory, for arguments that cannot leave it.
  std::vector<std::array<KnownClass, sched::kPools + 1>> known_classes_;  // by callable
  uint32_t remotes_ = 0;  // workers of other hosts, lost ones too
  std::vector<buffer::BufferTable::Freed> freed_;
  std::vector<WorkerEndpoint*> wakes_;
  std::vector<Kill> kills_;
  std::vector<uint32_t> replacements_;
  std::vector<std::unique_ptr<WorkerEndpoint>> retired_;
  uint32_t returning_ = 0;
  std::vector<std::pair<uint64_t, Result<std::vector<std::byte>>>> answers_;
  uint64_t questions_ = 0;
  bool notable_ = false, spreading_ = false, wake_points_set_ = false;
  std::array<uint32_t, 3> waiters_{};  // by Wake
};

}  // namespace strata::engine
