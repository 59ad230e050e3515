// The part of WorkerCore that adds children to a Worker that may be running, here or far below.
#include <fmt/format.h>

#include <algorithm>

#include "base/bytes.h"
#include "base/result.h"
#include "os/clock.h"
#include "os/cores.h"
#include "runtime/spec.h"
#include "runtime/worker_core.h"

namespace strata {
namespace {

Error refuse(Code code, std::string text) {
  return Error(code, Scope::kCall, std::move(text));
}

const char* name_of(const runtime::ChildOrder& order) {
  return order.worker ? "add_worker" : "add_sub_workers";
}

}  // namespace

Result<std::vector<int>> WorkerCore::add_children(runtime::ChildOrder order) {
  STRATA_TRY(must_be_home("add_worker"));
  if (life_ == Life::kCreated) return add_before_init(std::move(order));
  STRATA_TRY(must_run(name_of(order)));
  if (spec_.start == StartMethod::kInline) {
    return refuse(Code::kUnsupported,
                  fmt::format("{} after init with StartMethod::kInline: what runs as calls in this "
                              "process is fixed by init; add it before",
                              name_of(order)));
  }
  return order.path.empty() ? add_here(order) : forward(std::move(order));
}

// Into the spec that init starts from, however far below.
Result<std::vector<int>> WorkerCore::add_before_init(runtime::ChildOrder order) {
  WorkerSpec with = spec_;
  WorkerSpec* at = &with;
  for (size_t i = 0; i < order.path.size(); ++i) {
    if (i == 0 && at == &with) STRATA_TRY(to_local(&order));
    if (order.path[i] >= at->workers.size()) {
      return refuse(Code::kNotFound,
                    fmt::format("{}: number {} of the path, {}, names no Worker: there are {}",
                                name_of(order), i, order.path[i], at->workers.size()));
    }
    at = &at->workers[order.path[i]];
  }
  std::vector<int> ids;
  if (order.worker) {
    STRATA_TRY(runtime::check_child_spec(*order.worker, at->level));
    const size_t before = at == &with ? next_is_remote_.size() : at->workers.size();
    ids.push_back(static_cast<int>(before));
    at->workers.push_back(*std::move(order.worker));
  } else {
    const size_t before = at == &with ? next_is_remote_.size() : at->workers.size();
    const int first = static_cast<int>(before) + at->chips + at->sub_workers;
    for (uint32_t i = 0; i < order.helpers; ++i) ids.push_back(first + static_cast<int>(i));
    at->sub_workers += static_cast<int>(order.helpers);
  }
  STRATA_TRY(runtime::check_spec(with));
  next_is_remote_.resize(next_is_remote_.size() + with.workers.size() - spec_.workers.size());
  spec_ = std::move(with);
  return ids;
}

// The first id of the path as the place of a Worker among those of this host.
Result<void> WorkerCore::to_local(runtime::ChildOrder* order) const {
  const uint32_t id = order->path.front();
  if (id >= next_is_remote_.size()) return {};  // refused by whoever looks for it
  if (next_is_remote_[id]) {
    return refuse(Code::kUnsupported,
                  fmt::format("worker {} is of another host, with the children that its "
                              "RemoteWorkerSpec names",
                              id));
  }
  order->path.front() = static_cast<uint32_t>(
      std::count(next_is_remote_.begin(), next_is_remote_.begin() + id, false));
  return {};
}

// ---------------------------------------------------------------- here

Result<std::vector<int>> WorkerCore::add_here(const runtime::ChildOrder& order) {
  using runtime::RosterEntry;
  RosterEntry entry;
  uint32_t limit_ms = spec_.timeouts.child_ready_ms;
  if (order.worker) {
    WorkerSpec with = spec_;
    with.workers = {*order.worker};
    with.sub_workers = 0;
    STRATA_TRY(runtime::check_child_spec(*order.worker, spec_.level));
    STRATA_TRY(runtime::check_spec(with));
    STRATA_TRY(runtime::check_cpus(
        *order.worker, spec_.cpus.empty() ? os::cores_allowed() : std::vector<int>(spec_.cpus)));
    entry = {RosterEntry::Kind::kWorker, *order.worker};
    limit_ms = runtime::ready_limit_ms(with);
  }
  std::vector<std::unique_ptr<engine::WorkerEndpoint>> endpoints;
  for (uint32_t i = 0; i < (order.worker ? 1 : order.helpers); ++i) {
    STRATA_ASSIGN(std::unique_ptr<engine::WorkerEndpoint> endpoint, make_endpoint());
    endpoints.push_back(std::move(endpoint));
  }
  // Ids that a child had which did not start are not given to others in a replay either.
  while (front_->look([](const engine::Core& core) { return core.worker_count(); }) < order.first) {
    STRATA_TRY(skip_id());
  }
  STRATA_ASSIGN(const std::vector<uint32_t> added, front_->call([&](engine::Core& core) {
    return spawn_late(core, entry, std::move(endpoints));
  }));
  if (std::optional<Error> failed = await_late(added, limit_ms)) return *std::move(failed);
  return std::vector<int>(added.begin(), added.end());
}

Result<void> WorkerCore::skip_id() {
  STRATA_ASSIGN(std::unique_ptr<engine::WorkerEndpoint> endpoint, make_endpoint());
  front_->call([&](engine::Core& core) {
    const uint32_t worker = roster_.add({});
    STRATA_CHECK(core.add_worker(std::move(endpoint), caps_of(worker)) == worker);
    core.lose_worker(worker, "it did not start when it was added");
  });
  return {};
}

Result<std::vector<uint32_t>> WorkerCore::spawn_late(
    engine::Core& core, const runtime::RosterEntry& entry,
    std::vector<std::unique_ptr<engine::WorkerEndpoint>> endpoints) {
  if (life_ != Life::kRunning) return refuse(Code::kWrongState, "the Worker is being closed");
  size_t alive = endpoints.size();
  for (uint32_t worker = 0; worker < core.worker_count(); ++worker) {
    alive += core.worker_state(worker) != engine::WorkerState::kLost;
  }
  const size_t all = core.worker_count() + endpoints.size();
  if (alive > size_t{runtime::kChildrenMax} || all > registry::kWorkersMax) {
    return Error(Code::kResourceExhausted, Scope::kCall,
                 fmt::format("a Worker has at most {} children at a time and {} in its life, and "
                             "this would make {} and {}",
                             runtime::kChildrenMax, registry::kWorkersMax, alive, all),
                 path_);
  }
  std::vector<uint32_t> added;
  for (std::unique_ptr<engine::WorkerEndpoint>& endpoint : endpoints) {
    const uint32_t worker = roster_.add(entry);
    STRATA_CHECK(core.add_worker(std::move(endpoint), caps_of(worker)) == worker);
    added.push_back(worker);
    const Result<void> asked = world_->spawn(core, worker);
    if (!asked) core.lose_worker(worker, asked.error().to_string());
  }
  return added;
}

// Until all are ready. An Error: some are not, and all of them are ended.
std::optional<Error> WorkerCore::await_late(const std::vector<uint32_t>& added, uint32_t limit_ms) {
  std::optional<Error> failed;
  const bool settled = front_->wait(
      "children that were added to be ready",
      os::monotonic_now() + base::Duration::from_ms(limit_ms), [&](engine::Core& core) {
        bool all = true;
        for (const uint32_t worker : added) {
          const engine::WorkerState state = core.worker_state(worker);
          if (state == engine::WorkerState::kLost && !failed) {
            failed = Error(Code::kEndpointFailed, Scope::kProcess,
                           fmt::format("a child did not start: {}", core.loss_reason(worker)),
                           core.worker_name(worker));
          }
          all = all && state == engine::WorkerState::kReady;
        }
        return all || failed;
      });
  if (settled && !failed) return std::nullopt;
  if (!settled) {
    failed = Error(Code::kDeadline, Scope::kProcess,
                   fmt::format("what was added was not ready within {} ms; "
                               "Timeouts::child_ready_ms is the limit",
                               limit_ms),
                   path_);
  }
  front_->call([&](engine::Core& core) {
    for (const uint32_t worker : added) {
      if (core.worker_state(worker) == engine::WorkerState::kLost) continue;
      core.end_worker(worker, "it was added with others that did not start");
    }
  });
  return failed;
}

// ---------------------------------------------------------------- far below

Result<std::vector<int>> WorkerCore::forward(runtime::ChildOrder order) {
  const uint32_t next = order.path.front();
  const std::vector<uint32_t> below = workers_below();
  if (std::find(below.begin(), below.end(), next) == below.end()) {
    return Error(Code::kNotFound, Scope::kCall,
                 fmt::format("{}: worker {} is no Worker below {}, whose child Workers are: {}",
                             name_of(order), next, path_, fmt::join(below, ", ")),
                 path_);
  }
  order.path.erase(order.path.begin());
  const uint64_t exit_ms = order.worker ? runtime::exit_grace_ms(*order.worker) : 0;
  uint64_t more_ms = uint64_t{spec_.timeouts.child_ready_ms} +
                     order.path.size() * uint64_t{spec_.timeouts.control_ms};
  if (order.worker) more_ms += runtime::ready_limit_ms(*order.worker);
  engine::Question question;
  question.request = runtime::encode(order);
  question.more_ms = static_cast<uint32_t>(std::min<uint64_t>(more_ms, 1u << 31));
  // One that is being replaced is ready again soon, or lost.
  front_->wait("a child Worker that is being replaced", base::Instant::never(),
               [next](engine::Core& core) { return !core.is_returning(next); });
  STRATA_ASSIGN(const uint64_t asked, front_->call([&](engine::Core& core) {
    return core.ask_worker(next, std::move(question), os::monotonic_now());
  }));
  std::optional<Result<std::vector<std::byte>>> answer;
  front_->wait("the answer of a child Worker", base::Instant::never(), [&](engine::Core& core) {
    if (!answer) answer = core.take_answer(asked);
    return answer.has_value();
  });
  STRATA_ASSIGN(const std::vector<std::byte> bytes, *std::move(answer));
  base::ByteReader in(bytes);
  std::vector<int> ids;
  while (in.ok() && in.left() > 0) ids.push_back(in.get<int32_t>());
  if (!in.ok() || ids.size() != (order.worker ? 1 : order.helpers)) {
    return Error(Code::kCorrupt, Scope::kSession, "its answer does not hold together",
                 fmt::format("{}/{}", path_, next));
  }
  front_->call([&](engine::Core&) {
    late_exit_ms_ = static_cast<uint32_t>(std::max<uint64_t>(late_exit_ms_, exit_ms));
  });
  return ids;
}

}  // namespace strata
