// The part of Registry that is about workers: their replay, and their loss.
#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/result.h"
#include "registry/registry.h"

namespace strata::registry {

Result<size_t> Registry::on_worker_added(uint32_t worker, uint32_t pool, uint32_t kinds,
                                         bool takes_inner) {
  STRATA_CHECK(pool < kPools);
  if (worker >= kWorkersMax) {
    return Error(Code::kInvalidArgument, Scope::kCall,
                 fmt::format("worker {}: numbers are below {}", worker, kWorkersMax));
  }
  if (worker >= workers_.size()) workers_.resize(worker + 1);
  if (workers_[worker].state != WorkerState::kUnknown) {
    return Error(Code::kWrongState, Scope::kCall,
                 fmt::format("worker {} is there already", worker));
  }
  workers_[worker] = {WorkerState::kReplaying, 0, pool, kinds, takes_inner, open_.has_value()};
  size_t count = 0;
  for (uint32_t index = 0; index < entries_.size(); ++index) {
    const State state = entries_[index].state;
    if (state != State::kVisible && state != State::kDraining) continue;
    if (!belongs_to(entries_[index], worker)) continue;
    replay(index, worker);
    ++count;
  }
  check_ready(worker);
  return count;
}

std::vector<uint32_t> Registry::live_workers() const {
  std::vector<uint32_t> out;
  for (uint32_t worker = 0; worker < workers_.size(); ++worker) {
    const WorkerState state = workers_[worker].state;
    if (state == WorkerState::kReplaying || state == WorkerState::kReady) out.push_back(worker);
  }
  return out;
}

bool Registry::belongs_to(const Entry& entry, uint32_t worker) const {
  if (!entry.everywhere) {
    return std::binary_search(entry.listed.begin(), entry.listed.end(), worker);
  }
  return can_have(workers_[worker], entry.kind, entry.inner);
}

void Registry::replay(uint32_t index, uint32_t worker) {
  ++workers_[worker].replays;
  open_flight(++last_transaction_, worker, index, Purpose::kReplay, Phase::kPrepare);
}

void Registry::on_replay_reply(FlightIt it, const Reply& reply) {
  const uint32_t index = it->second.index;
  WorkerEntry& worker = workers_[reply.worker];
  if (reply.phase == Phase::kAbort) {
    on_undone(it, reply);
  } else if (reply.failure) {
    ask(it, Phase::kAbort);
    --worker.replays;
    if (worker.state != WorkerState::kReplaying) return;
    worker.state = WorkerState::kFailed;
    worker.awaits_open = false;
    ready_events_.push_back(
        {reply.worker,
         Error(*reply.failure, Scope::kCall,
               fmt::format("worker {} failed to {} callable '{}', which was registered before it "
                           "came: {}",
                           reply.worker, name_of(reply.phase), entries_[index].name, reply.text))});
  } else if (reply.phase == Phase::kPrepare) {
    ask(it, Phase::kCommit);
  } else {
    erase_flight(it);
    set_pair(index, reply.worker, Pair::kCommitted);
    --worker.replays;
    check_ready(reply.worker);
  }
}

void Registry::check_ready(uint32_t number) {
  WorkerEntry& worker = workers_[number];
  if (worker.state != WorkerState::kReplaying || worker.replays > 0 || worker.awaits_open) return;
  worker.state = WorkerState::kReady;
  ++epoch_;
  ++ready_count_[worker.pool];
  for (Entry& entry : entries_) {
    if (pair(entry, number) == Pair::kCommitted) ++entry.ready_count[worker.pool];
  }
  ready_events_.push_back({number, std::nullopt});
}

void Registry::on_worker_lost(uint32_t number, std::string_view reason) {
  if (number >= workers_.size() || workers_[number].state == WorkerState::kUnknown) return;
  // What was not sent yet must not reach another process under the same number.
  std::erase_if(actions_, [&](const Action& action) { return action.worker == number; });
  std::erase_if(ready_events_, [&](const WorkerReady& event) { return event.worker == number; });
  for (uint32_t index = 0; index < entries_.size(); ++index) set_pair(index, number, Pair::kNone);
  if (worker_ready(number)) --ready_count_[workers_[number].pool];
  ++epoch_;
  workers_[number] = {};

  bool in_open = false;
  for (auto it = flights_.begin(); it != flights_.end();) {
    const auto at = it++;
    if (at->first.second != number) continue;
    if (at->second.purpose == Purpose::kTransaction) {
      in_open = true;
    } else {
      erase_flight(at);
    }
  }
  for (uint32_t index = 0; index < entries_.size(); ++index) maybe_free(index);
  // Last: it may end the transaction, which emits and frees on its own.
  if (in_open) lose_in_open(flights_.find({open_->id, number}), reason);
}

}  // namespace strata::registry
