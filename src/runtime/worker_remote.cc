// The part of WorkerCore that has Workers of other hosts.
#include <fmt/format.h>
#include <sys/random.h>

#include "base/result.h"
#include "engine/remote_endpoint.h"
#include "os/clock.h"
#include "runtime/spec.h"
#include "runtime/worker_core.h"
#include "strata/version.h"

namespace strata {
namespace {

Error refuse(Code code, std::string text) {
  return Error(code, Scope::kCall, std::move(text));
}

// Never 0.
uint64_t random_session_id() {
  uint64_t out = 0;
  while (out == 0) {
    if (::getrandom(&out, sizeof out, 0) != sizeof out) out = 0;
  }
  return out;
}

}  // namespace

Result<std::shared_ptr<runtime::RemoteWorker>> WorkerCore::make_remote(RemoteWorkerSpec spec,
                                                                       uint32_t worker) {
  if (spec.level < runtime::kLowestLevel || spec.level >= spec_.level) {
    return refuse(Code::kInvalidArgument,
                  fmt::format("RemoteWorkerSpec::level is {}, and below a Worker of level {} it is "
                              "{} to {}",
                              spec.level, spec_.level, runtime::kLowestLevel, spec_.level - 1));
  }
  if (spec_.chips > 0) {
    return refuse(Code::kInvalidArgument,
                  "a Worker has chips or Workers below it, not both: this one has chips");
  }
  if (spec_.start == StartMethod::kInline) {
    return refuse(Code::kUnsupported,
                  "add_remote_worker with StartMethod::kInline, which has calls in this process "
                  "alone");
  }
  {
    const std::lock_guard lock(start_mutex_);
    if (!remote_service_) {
      STRATA_ASSIGN(remote_service_, runtime::RemoteService::create());
    }
  }
  runtime::RemotePlace place;
  place.parent_path = path_;
  place.parent_level = spec_.level;
  place.worker = worker;
  place.session_id = random_session_id();
  place.build = "strata " STRATA_VERSION;
  return runtime::RemoteWorker::create(std::move(spec), std::move(place), [this] {
    world_->remote_news();
    remote_service_->wake();
  });
}

Result<int> WorkerCore::add_remote(RemoteWorkerSpec spec) {
  STRATA_TRY(must_be_home("add_remote_worker"));
  if (life_ == Life::kCreated) {
    const auto worker = static_cast<uint32_t>(next_is_remote_.size());
    STRATA_ASSIGN(std::shared_ptr<runtime::RemoteWorker> remote,
                  make_remote(std::move(spec), worker));
    remotes_.emplace(worker, std::move(remote));
    next_is_remote_.push_back(true);
    return static_cast<int>(worker);
  }
  STRATA_TRY(must_run("add_remote_worker"));
  // The number is taken first: two threads may add at once.
  std::vector<std::unique_ptr<engine::WorkerEndpoint>> endpoints(1);
  // The session's own limit is told first.
  const uint32_t limit_ms = std::min(spec.session.start_ms, ~0u - 5'000) + 5'000;
  STRATA_ASSIGN(endpoints[0], make_endpoint());
  STRATA_ASSIGN(const uint32_t worker, front_->call([&](engine::Core& core) -> Result<uint32_t> {
    return core.worker_count();
  }));
  STRATA_ASSIGN(std::shared_ptr<runtime::RemoteWorker> remote,
                make_remote(std::move(spec), worker));
  STRATA_ASSIGN(const std::vector<uint32_t> added,
                front_->call([&](engine::Core& core) -> Result<std::vector<uint32_t>> {
                  if (core.worker_count() != worker) {
                    return refuse(Code::kWrongState,
                                  "another thread has added a child meanwhile: add it again");
                  }
                  remotes_.emplace(worker, remote);
                  endpoints[0] = std::make_unique<engine::RemoteEndpoint>(remote, segments());
                  return spawn_late(core, {runtime::RosterEntry::Kind::kRemote},
                                    std::move(endpoints));
                }));
  if (std::optional<Error> failed = await_late(added, limit_ms)) return *std::move(failed);
  return static_cast<int>(worker);
}

// Drained where it is ready, so that what it runs ends first.
Result<void> WorkerCore::remove_remote(int worker) {
  STRATA_TRY(must_be_home("remove_remote_worker"));
  STRATA_TRY(must_run("remove_remote_worker"));
  const auto number = static_cast<uint32_t>(worker);
  STRATA_ASSIGN(const uint32_t limit_ms, front_->call([&](engine::Core& core) -> Result<uint32_t> {
    if (worker < 0 || number >= roster_.size() || !roster_.is_remote(number)) {
      return refuse(Code::kNotFound, fmt::format("worker {} is no Worker of another host", worker));
    }
    core.ask_exit(number, os::monotonic_now());
    return remotes_.at(number)->close_ms();
  }));
  const base::Duration limit = base::Duration::from_ms(limit_ms);
  const bool gone = front_->wait("a remote Worker that was removed to end",
                                 os::monotonic_now() + limit, [number](engine::Core& core) {
                                   return core.worker_state(number) == engine::WorkerState::kLost;
                                 });
  if (gone) return {};
  front_->call([&](engine::Core& core) { core.end_worker(number, "it did not end in time"); });
  return Error(Code::kDeadline, Scope::kSession,
               fmt::format("it did not end within {} ms, and was ended; "
                           "SessionTimeouts::close_ms is the limit",
                           limit.ns / 1'000'000),
               fmt::format("{}/{}", path_, worker));
}

}  // namespace strata
