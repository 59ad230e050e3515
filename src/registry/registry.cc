#include "registry/registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "base/fault.h"
#include "base/result.h"

namespace strata::registry {
namespace {

Error wrong_state(std::string text) {
  return Error(Code::kWrongState, Scope::kCall, std::move(text));
}

}  // namespace

std::string_view name_of(Phase phase) {
  switch (phase) {
    case Phase::kPrepare:
      return "prepare";
    case Phase::kCommit:
      return "commit";
    case Phase::kAbort:
      return "abort";
    case Phase::kUnregister:
      return "unregister";
  }
  return "unknown";
}

// ---- registration ---------------------------------------------------------------------------

Result<uint64_t> Registry::begin(const PreparePayload& callable, std::span<const uint32_t> workers,
                                 Reach reach, std::span<const uint32_t> later) {
  if (open_ || outcome_) {
    return wrong_state("another registration of this Worker is open; they go one after another");
  }
  STRATA_ASSIGN(auto payload, encode_payload(callable));
  // A worker that should have it and is not named would make it unusable everywhere.
  bool wanted = reach == Reach::kListed && later.empty();
  for (const WorkerEntry& worker : workers_) {
    if (reach == Reach::kListed) break;
    wanted = wanted || (worker.state == WorkerState::kReady &&
                        can_have(worker, model::kind_of(callable.descriptor), callable.inner));
  }
  if (workers.empty() && wanted) {
    return Error(Code::kInvalidArgument, Scope::kCall, "a registration names no worker");
  }
  STRATA_TRY(check_workers(workers));
  const model::Digest digest = model::digest_of(model::descriptor_bytes(callable.descriptor));
  STRATA_ASSIGN(const uint32_t index, entry_for({digest, callable.inner}, workers));

  Entry& entry = entries_[index];
  ++entry.handles;
  if (entry.state == State::kDraining) entry.state = State::kVisible;
  if (entry.state != State::kVisible) {
    entry.state = State::kPreparing;
    entry.digest = digest;
    entry.kind = model::kind_of(callable.descriptor);
    entry.inner = callable.inner;
    entry.name = callable.name;
    entry.payload = std::make_shared<const std::vector<std::byte>>(std::move(payload));
    entry.everywhere = false;
    entry.listed.clear();
  }
  // A registration that fails leaves nothing: not even that later workers should have it.
  const bool was_everywhere = entry.everywhere;
  std::vector<uint32_t> was_listed = entry.listed;
  if (reach == Reach::kEverywhere) entry.everywhere = true;
  for (const auto& numbers : {workers, later}) {
    if (reach == Reach::kEverywhere) break;
    for (const uint32_t worker : numbers) {
      const auto at = std::lower_bound(entry.listed.begin(), entry.listed.end(), worker);
      if (at == entry.listed.end() || *at != worker) entry.listed.insert(at, worker);
    }
  }
  const uint64_t id = ++last_transaction_;
  open_ =
      Open{id, index, Phase::kPrepare, 0, {}, std::nullopt, was_everywhere, std::move(was_listed)};
  for (const uint32_t worker : workers) {
    // A pair in flight is a replay's: it ends committed, or the worker is not used.
    if (pair(entry, worker) != Pair::kNone) continue;
    open_->workers.push_back(worker);
    ++open_->waiting;
    open_flight(id, worker, index, Purpose::kTransaction, Phase::kPrepare);
  }
  // None becomes ready without it.
  for (WorkerEntry& worker : workers_) {
    worker.awaits_open = worker.state == WorkerState::kReplaying;
  }
  for (const uint32_t worker : workers) workers_[worker].awaits_open = false;
  if (open_->waiting == 0) commit_open();
  return id;
}

Result<void> Registry::check_workers(std::span<const uint32_t> workers) const {
  for (size_t i = 0; i < workers.size(); ++i) {
    const uint32_t worker = workers[i];
    if (worker >= workers_.size() || workers_[worker].state == WorkerState::kUnknown) {
      return Error(Code::kNotFound, Scope::kCall,
                   fmt::format("worker {} is not there, or was lost", worker));
    }
    if (workers_[worker].state == WorkerState::kFailed) {
      return wrong_state(fmt::format("worker {} failed to take what is registered", worker));
    }
    if (std::find(workers.begin(), workers.begin() + i, worker) != workers.begin() + i) {
      return Error(Code::kInvalidArgument, Scope::kCall,
                   fmt::format("a registration names worker {} twice", worker));
    }
  }
  return {};
}

// The index that holds `digest` or will: visible, draining, or with a new generation.
Result<uint32_t> Registry::entry_for(const Key& key, std::span<const uint32_t> workers) {
  const auto known = by_key_.find(key);
  if (known == by_key_.end()) {
    if (used_ >= callables_max_) {
      return Error(Code::kResourceExhausted, Scope::kCall,
                   fmt::format("{} callables are registered or not yet fully unregistered, which "
                               "is the limit; raise Limits::callables",
                               used_));
    }
    const uint32_t index = new_index();
    by_key_.emplace(key, index);
    return index;
  }
  Entry& entry = entries_[known->second];
  for (const uint32_t worker : workers) {
    if (pair(entry, worker) != Pair::kUncertain) continue;
    return wrong_state(fmt::format(
        "callable '{}' failed to be taken back from worker {}, so whether it is still there is "
        "not known: end or replace that worker first",
        entry.name, worker));
  }
  if (entry.state == State::kRemoving) {
    if (entry.flights > 0) {
      return wrong_state(fmt::format("callable '{}' is being unregistered: {} answers are missing",
                                     entry.name, entry.flights));
    }
    // Left only for its uncertain pairs, which stay.
    if (entry.generation == std::numeric_limits<uint32_t>::max()) {
      return Error(Code::kResourceExhausted, Scope::kCall,
                   fmt::format("callable '{}' was registered too often", entry.name));
    }
    ++entry.generation;
  }
  return known->second;
}

uint32_t Registry::new_index() {
  ++used_;
  if (free_.empty()) {
    entries_.emplace_back().generation = 1;
    return static_cast<uint32_t>(entries_.size() - 1);
  }
  const uint32_t index = free_.back();
  free_.pop_back();
  ++entries_[index].generation;
  return index;
}

// All flights of the open transaction are answered.
void Registry::advance_open() {
  switch (open_->phase) {
    case Phase::kPrepare:
      open_->phase = Phase::kCommit;
      for (const uint32_t worker : open_->workers) {
        ++open_->waiting;
        ask(flights_.find({open_->id, worker}), Phase::kCommit);
      }
      break;
    case Phase::kCommit:
      commit_open();
      break;
    case Phase::kAbort: {
      Error error = std::move(*open_->error);
      const uint32_t index = open_->index;
      entries_[index].everywhere = open_->was_everywhere;
      entries_[index].listed = std::move(open_->was_listed);
      ++epoch_;
      close_open(std::move(error));
      drop_handle(index);
      break;
    }
    case Phase::kUnregister:
      STRATA_CHECK(false);
  }
}

void Registry::commit_open() {
  const uint32_t index = open_->index;
  for (const uint32_t worker : open_->workers) {
    erase_flight(flights_.find({open_->id, worker}));
    set_pair(index, worker, Pair::kCommitted);
  }
  entries_[index].state = State::kVisible;
  close_open(EntryRef{index, entries_[index].generation});
}

void Registry::close_open(Result<EntryRef> outcome) {
  const uint32_t index = open_->index;
  const bool committed = outcome.ok();
  outcome_.emplace(std::move(outcome));
  open_.reset();
  for (uint32_t worker = 0; worker < workers_.size(); ++worker) {
    if (!workers_[worker].awaits_open) continue;
    workers_[worker].awaits_open = false;
    if (committed && belongs_to(entries_[index], worker) &&
        pair(entries_[index], worker) == Pair::kNone) {
      replay(index, worker);
    }
    check_ready(worker);
  }
}

// The first failure wins. ABORT goes to all that were asked, whatever they have answered.
void Registry::fail_open(Error error) {
  if (open_->phase == Phase::kAbort) return;
  open_->error = std::move(error);
  open_->phase = Phase::kAbort;
  open_->waiting = 0;
  if (base::fault() == 10 && !open_->workers.empty()) forget_in_open(open_->workers.front());
  for (const uint32_t worker : open_->workers) {
    ++open_->waiting;
    ask(flights_.find({open_->id, worker}), Phase::kAbort);
  }
}

// Only for the deliberate fault 10: a worker is not told that what it has is aborted.
void Registry::forget_in_open(uint32_t worker) {
  erase_flight(flights_.find({open_->id, worker}));
  set_pair(open_->index, worker, Pair::kNone);
  std::erase(open_->workers, worker);
}

void Registry::on_transaction_reply(FlightIt it, const Reply& reply) {
  if (reply.phase == Phase::kAbort) {
    const uint32_t index = it->second.index;
    erase_flight(it);
    set_pair(index, reply.worker, reply.failure ? Pair::kUncertain : Pair::kNone);
    std::erase(open_->workers, reply.worker);
    --open_->waiting;
  } else if (reply.failure) {
    fail_open(
        Error(*reply.failure, Scope::kCall,
              fmt::format("worker {} failed to {} callable '{}': {}", reply.worker,
                          name_of(reply.phase), entries_[it->second.index].name, reply.text)));
  } else {
    it->second.expects.reset();
    --open_->waiting;
  }
  if (open_->waiting == 0) advance_open();
}

// The worker of this flight of the open transaction is lost.
void Registry::lose_in_open(FlightIt it, std::string_view reason) {
  const uint32_t worker = it->first.second;
  const uint32_t index = it->second.index;
  if (it->second.expects) --open_->waiting;
  erase_flight(it);
  std::erase(open_->workers, worker);
  fail_open(
      Error(Code::kEndpointFailed, Scope::kCall,
            fmt::format("worker {} was lost while callable '{}' was being registered on it{}{}",
                        worker, entries_[index].name, reason.empty() ? "" : ": ", reason)));
  if (open_->waiting == 0) advance_open();
}

Result<std::vector<uint32_t>> Registry::activate(EntryRef ref) {
  if (!visible(ref)) return why_unusable(ref);
  Entry& entry = entries_[ref.index];
  entry.payload = std::make_shared<const std::vector<std::byte>>(activated(*entry.payload));
  std::vector<uint32_t> out;
  for (uint32_t worker = 0; worker < entry.pairs.size(); ++worker) {
    const Pair at = entry.pairs[worker];
    if (at == Pair::kCommitted || at == Pair::kInFlight) out.push_back(worker);
  }
  return out;
}

// ---- unregistration -------------------------------------------------------------------------

Result<void> Registry::unregister(EntryRef entry) {
  if (!visible(entry)) return why_unusable(entry);
  drop_handle(entry.index);
  return {};
}

void Registry::drop_handle(uint32_t index) {
  Entry& entry = entries_[index];
  STRATA_CHECK(entry.handles > 0);
  if (--entry.handles > 0) return;
  if (entry.references > 0) {
    entry.state = State::kDraining;
  } else {
    remove(index);
  }
}

void Registry::release(uint32_t index) {
  STRATA_CHECK(index < entries_.size() && entries_[index].references > 0);
  Entry& entry = entries_[index];
  if (--entry.references == 0 && entry.state == State::kDraining) remove(index);
}

// No handle and no task names it: takes it back wherever it is or may come to be.
void Registry::remove(uint32_t index) {
  Entry& entry = entries_[index];
  entry.state = State::kRemoving;
  // Replays of it that are on their way; those that failed are being aborted already.
  for (auto it = flights_.begin(); it != flights_.end(); ++it) {
    Flight& flight = it->second;
    if (flight.index != index || flight.purpose != Purpose::kReplay) continue;
    flight.purpose = Purpose::kRemoval;
    if (flight.expects == Phase::kAbort) continue;
    ask(it, Phase::kAbort);
    --workers_[it->first.second].replays;
    check_ready(it->first.second);
  }
  const uint64_t id = ++last_transaction_;
  for (uint32_t worker = 0; worker < entry.pairs.size(); ++worker) {
    if (entry.pairs[worker] != Pair::kCommitted) continue;
    open_flight(id, worker, index, Purpose::kRemoval, Phase::kUnregister);
  }
  maybe_free(index);
}

// The answer to an UNREGISTER, or to the ABORT of a replay.
void Registry::on_undone(FlightIt it, const Reply& reply) {
  const uint32_t index = it->second.index;
  erase_flight(it);
  set_pair(index, reply.worker, reply.failure ? Pair::kUncertain : Pair::kNone);
  maybe_free(index);
}

void Registry::maybe_free(uint32_t index) {
  Entry& entry = entries_[index];
  if (entry.state != State::kRemoving || entry.flights > 0 || entry.uncertain > 0) return;
  STRATA_CHECK(entry.handles == 0 && entry.references == 0);
  for (const uint32_t count : entry.ready_count) STRATA_CHECK(count == 0);
  by_key_.erase({entry.digest, entry.inner});
  entry.state = State::kFree;
  entry.pairs.clear();
  entry.name.clear();
  entry.payload.reset();
  --used_;
  // An index whose generations are used up is never given again.
  if (entry.generation < std::numeric_limits<uint32_t>::max()) free_.push_back(index);
}

bool Registry::gone(EntryRef entry) const {
  return entry.index >= entries_.size() || entries_[entry.index].generation != entry.generation ||
         entries_[entry.index].state == State::kFree;
}

bool Registry::being_removed(const model::Digest& digest, bool inner) const {
  const auto known = by_key_.find({digest, inner});
  if (known == by_key_.end()) return false;
  const Entry& entry = entries_[known->second];
  return entry.state == State::kRemoving && entry.flights > 0;
}

bool Registry::settled(EntryRef entry) const {
  return gone(entry) ||
         (entries_[entry.index].state == State::kRemoving && entries_[entry.index].flights == 0);
}

// ---- flights --------------------------------------------------------------------------------

void Registry::set_pair(uint32_t index, uint32_t worker, Pair to) {
  Entry& entry = entries_[index];
  const Pair from = pair(entry, worker);
  if (from == to) return;
  if (worker >= entry.pairs.size()) entry.pairs.resize(worker + 1, Pair::kNone);
  entry.pairs[worker] = to;
  ++epoch_;
  if (worker_ready(worker)) {
    uint32_t& count = entry.ready_count[workers_[worker].pool];
    if (from == Pair::kCommitted) --count;
    if (to == Pair::kCommitted) ++count;
  }
  if (from == Pair::kUncertain) --entry.uncertain;
  if (to == Pair::kUncertain) ++entry.uncertain;
}

void Registry::emit(uint32_t worker, Phase phase, uint64_t transaction, uint32_t index) {
  const Entry& entry = entries_[index];
  actions_.push_back({worker, phase, transaction, EntryRef{index, entry.generation},
                      phase == Phase::kPrepare ? entry.payload : nullptr});
}

void Registry::ask(FlightIt it, Phase phase) {
  STRATA_CHECK(it != flights_.end());
  it->second.expects = phase;
  emit(it->first.second, phase, it->first.first, it->second.index);
}

void Registry::open_flight(uint64_t transaction, uint32_t worker, uint32_t index, Purpose purpose,
                           Phase phase) {
  const auto [it, fresh] =
      flights_.emplace(FlightKey{transaction, worker}, Flight{index, purpose, phase});
  STRATA_CHECK(fresh);
  ++entries_[index].flights;
  const bool early = base::fault() == 3 && purpose == Purpose::kTransaction;
  set_pair(index, worker, early ? Pair::kCommitted : Pair::kInFlight);
  emit(worker, phase, transaction, index);
}

void Registry::erase_flight(FlightIt it) {
  STRATA_CHECK(it != flights_.end());
  --entries_[it->second.index].flights;
  flights_.erase(it);
}

bool Registry::on_reply(const Reply& reply) {
  const auto it = flights_.find({reply.transaction, reply.worker});
  if (it == flights_.end() || it->second.expects != reply.phase) return false;
  switch (it->second.purpose) {
    case Purpose::kTransaction:
      on_transaction_reply(it, reply);
      break;
    case Purpose::kReplay:
      on_replay_reply(it, reply);
      break;
    case Purpose::kRemoval:
      on_undone(it, reply);
      break;
  }
  return true;
}

// ---- workers --------------------------------------------------------------------------------

Result<size_t> Registry::on_worker_added(uint32_t worker, uint32_t pool, uint32_t kinds,
                                         bool takes_inner) {
  STRATA_CHECK(pool < kPools);
  if (worker >= kWorkersMax) {
    return Error(Code::kInvalidArgument, Scope::kCall,
                 fmt::format("worker {}: numbers are below {}", worker, kWorkersMax));
  }
  if (worker >= workers_.size()) workers_.resize(worker + 1);
  if (workers_[worker].state != WorkerState::kUnknown) {
    return wrong_state(fmt::format("worker {} is there already", worker));
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

// ---- queries --------------------------------------------------------------------------------

bool Registry::will_have(EntryRef entry, uint32_t worker, uint32_t kinds) const {
  if (!visible(entry)) return false;
  const Entry& at = entries_[entry.index];
  if (!at.everywhere) return std::binary_search(at.listed.begin(), at.listed.end(), worker);
  return !at.inner && (kinds >> static_cast<uint32_t>(at.kind) & 1) != 0;
}

std::vector<uint32_t> Registry::usable_workers(EntryRef entry, uint32_t pool) const {
  std::vector<uint32_t> out;
  for (uint32_t worker = 0; worker < workers_.size(); ++worker) {
    if (workers_[worker].pool != pool || !worker_ready(worker) || !usable(entry, worker)) continue;
    out.push_back(worker);
  }
  return out;
}

std::optional<Registry::Info> Registry::info(uint32_t index) const {
  if (index >= entries_.size() || entries_[index].state == State::kFree) return std::nullopt;
  const Entry& entry = entries_[index];
  return Info{entry.digest,
              entry.kind,
              entry.name,
              EntryRef{index, entry.generation},
              entry.handles,
              entry.references,
              entry.state == State::kVisible};
}

std::optional<EntryRef> Registry::find(const model::Digest& digest, bool inner) const {
  const auto it = by_key_.find({digest, inner});
  if (it == by_key_.end() || entries_[it->second].state != State::kVisible) return std::nullopt;
  return EntryRef{it->second, entries_[it->second].generation};
}

Error Registry::why_unusable(EntryRef ref, std::optional<uint32_t> worker) const {
  const auto not_found = [](std::string text) {
    return Error(Code::kNotFound, Scope::kCall, std::move(text));
  };
  if (ref.generation == 0 || ref.index >= entries_.size() ||
      ref.generation > entries_[ref.index].generation) {
    return not_found("a callable handle that this Worker never gave");
  }
  const Entry& entry = entries_[ref.index];
  if (entry.generation != ref.generation || entry.state == State::kFree) {
    return not_found("a callable handle whose callable was unregistered");
  }
  if (entry.state == State::kPreparing) {
    return wrong_state(fmt::format("callable '{}' is still being registered", entry.name));
  }
  if (entry.state != State::kVisible) {
    return not_found(fmt::format("callable '{}' was unregistered", entry.name));
  }
  if (worker && uncertain(ref.index, *worker)) {
    return wrong_state(
        fmt::format("callable '{}' failed to be taken back from worker {}, so it "
                    "may not be used there until that worker is replaced",
                    entry.name, *worker));
  }
  const std::string where = worker ? fmt::format("worker {}", *worker) : "every worker";
  return not_found(fmt::format("callable '{}' is not registered on {}", entry.name, where));
}

}  // namespace strata::registry
