#include "engine/core_eligible.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/remote_task.h"

namespace strata::engine {

bool Core::Eligible::check_worker(const Core& core, int32_t worker, const Job& job,
                                  const std::string& stays, std::optional<Error>* error) {
  const auto number = static_cast<uint32_t>(worker);
  if (worker < 0 || number >= core.workers_.size() ||
      core.workers_[number].caps.pool != job.where.pool) {
    std::string ids;
    for (uint32_t i = 0; i < core.workers_.size(); ++i) {
      if (core.workers_[i].caps.pool == job.where.pool)
        ids += fmt::format("{}{}", ids.empty() ? "" : ", ", i);
    }
    *error = Error(Code::kNotFound, Scope::kCall,
                   fmt::format("there is no {} child {}; this Worker has {}",
                               job.where.pool == Pool::kNext ? "next-level" : "SUB", worker,
                               ids.empty() ? "none" : ids),
                   core.options_.path);
    return false;
  }
  if (core.workers_[number].state == WorkerState::kLost) {
    *error = Error(Code::kNoWorker, Scope::kCall,
                   fmt::format("worker {} was lost: {}", core.worker_name(number),
                               core.workers_[number].rest->loss),
                   core.options_.path);
    return false;
  }
  if (!core.registry_.usable(job.callable, number) && !core.will_have(job, number)) {
    *error = core.wrong_kind(job);
    if (!*error) *error = core.registry_.why_unusable(job.callable, number);
    return false;
  }
  if (!stays.empty() && core.workers_[number].caps.remote) {
    *error = Error(Code::kInvalidArgument, Scope::kCall,
                   fmt::format("it cannot go to worker {}: {}", core.worker_name(number), stays),
                   core.options_.path);
    return false;
  }
  return true;
}

std::string Core::Eligible::why_stays(const Core& core, const Job& job,
                                      std::span<const TaskArgs> members) {
  if (core.remotes_ == 0 || job.where.pool != Pool::kNext) [[likely]]
    return {};
  for (const TaskArgs& args : members) {
    if (std::string why = why_not_remote(args); !why.empty()) return why;
  }
  return {};
}

// Who has the callable, or will have it, and reaches the arguments.
std::vector<uint32_t> Core::Eligible::workers(const Core& core, const Job& job,
                                              const std::string& stays) {
  std::vector<uint32_t> workers =
      core.registry_.usable_workers(job.callable, static_cast<uint32_t>(job.where.pool));
  for (uint32_t worker = 0; worker < core.workers_.size() && core.returning_ > 0; ++worker) {
    if (core.workers_[worker].caps.pool != job.where.pool || !core.will_have(job, worker)) continue;
    workers.insert(std::lower_bound(workers.begin(), workers.end(), worker), worker);
  }
  if (!stays.empty()) {
    std::erase_if(workers, [&core](uint32_t worker) { return core.workers_[worker].caps.remote; });
  }
  return workers;
}

// Eligible is who has the callable: a pool, the workers of a pool that it is registered on, or one.
bool Core::Eligible::find(Core& core, const Job& job, const std::string& stays, sched::Target* out,
                          std::optional<Error>* error) {
  const auto pool = static_cast<uint32_t>(job.where.pool);
  if (job.where.worker != -1) {
    if (!check_worker(core, job.where.worker, job, stays, error)) return false;
    *out = {pool, static_cast<uint32_t>(job.where.worker)};
    return true;
  }
  out->worker = sched::kNone;
  out->cls = pool;
  if (stays.empty() && core.registry_.usable_on_all(job.callable, pool)) [[likely]] {
    if (core.pool_kinds_[pool] != 0 || !(*error = core.wrong_kind(job))) return true;
    return false;
  }
  if (!core.registry_.visible(job.callable)) {
    *error = core.registry_.why_unusable(job.callable);
    return false;
  }
  if (core.known_classes_.size() <= job.callable.index)
    core.known_classes_.resize(job.callable.index + 1);
  KnownClass& known = core.known_classes_[job.callable.index][stays.empty() ? pool : sched::kPools];
  if (known.epoch != core.registry_.epoch() || known.stamp != core.sched_.class_stamp(known.cls)) {
    const std::vector<uint32_t> workers = Eligible::workers(core, job, stays);
    if (workers.empty() && !stays.empty()) {
      *error = Error(Code::kInvalidArgument, Scope::kCall,
                     fmt::format("no worker of this host has the callable, and to another host the "
                                 "task cannot go: {}",
                                 stays),
                     core.options_.path);
      return false;
    }
    if (workers.empty()) {
      *error = core.wrong_kind(job);
      if (!*error) *error = core.registry_.why_unusable(job.callable);
      return false;
    }
    const uint32_t cls = core.sched_.class_of(workers);
    if (cls == sched::kNone) {
      *error = Error(Code::kResourceExhausted, Scope::kCall,
                     fmt::format("tasks in flight already name {} different sets of workers; wait "
                                 "for some, or register callables on the same sets",
                                 sched::WorkerQueues::kClassesMax - sched::kPools),
                     core.options_.path);
      return false;
    }
    known = {core.registry_.epoch(), core.sched_.class_stamp(cls), cls};
  }
  out->cls = known.cls;
  return true;
}

// It is to be ready again, and then has the callable.
bool Core::will_have(const Job& job, uint32_t worker) const {
  return is_returning(worker) &&
         registry_.will_have(job.callable, worker, workers_[worker].caps.kinds);
}

}  // namespace strata::engine
