// Who may take a task: the workers of its pool that have the callable and reach the arguments. A
// part of Core, under its token.
#pragma once

#include "engine/core.h"

namespace strata::engine {

struct Core::Eligible {
  // Why the arguments cannot leave this host; empty where they can, or nobody is elsewhere.
  static std::string why_stays(const Core& core, const Job& job, std::span<const TaskArgs> members);
  // Most tasks: any worker of the pool takes it, and all are of this host.
  static bool is_all_of_pool(const Core& core, const Job& job, sched::Target* out) {
    const auto pool = static_cast<uint32_t>(job.where.pool);
    if (job.where.worker != -1 || core.remotes_ != 0 || core.pool_kinds_[pool] == 0 ||
        !core.registry_.usable_on_all(job.callable, pool)) {
      return false;
    }
    *out = {pool, sched::kNone};
    return true;
  }
  // A pool, a class of its workers, or one; false, and *error, where there is none. `stays`: the
  // above.
  static bool find(Core& core, const Job& job, const std::string& stays, sched::Target* out,
                   std::optional<Error>* error);
  static bool check_worker(const Core& core, int32_t worker, const Job& job,
                           const std::string& stays, std::optional<Error>* error);

 private:
  static std::vector<uint32_t> workers(const Core& core, const Job& job, const std::string& stays);
};

}  // namespace strata::engine
