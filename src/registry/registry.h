// Registry: the callables of one Worker and where they are usable. The parent's side.
//
// A state machine without I/O: it gives actions and takes replies and losses. Not the child's
// table of resolved entries. One thread at a time; the caller locks.
//
//   begin -> PREPARE to all -> COMMIT to all -> visible          all or nothing
//   a failure or a lost worker -> ABORT to all asked -> the first error
//   last unregister -> tombstone: tasks that hold it run -> UNREGISTER to all -> index reusable
//
// The caller sends actions to each worker in the order given. It answers each by on_reply, or ends
// it and says on_worker_lost; until then the transaction stays open.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/descriptor.h"
#include "registry/payload.h"
#include "registry/types.h"
#include "strata/result.h"

namespace strata::registry {

class Registry {
 public:
  explicit Registry(uint32_t callables_max) : callables_max_(callables_max) {}
  Registry(const Registry&) = delete;
  Registry& operator=(const Registry&) = delete;

  // ---- registration -------------------------------------------------------------------------
  // Opens the transaction; take_outcome tells its end, at once where nothing is to be asked (no
  // workers, or the digest is there already: same entry, one handle more). kWrongState while one
  // is open or its outcome not taken, while the digest is being unregistered, or where the pair of
  // a listed worker and this digest is uncertain. Returns the transaction's id.
  // `workers`: live_workers(), unless it is for some of them alone; one that is still being
  // replayed gets what was there when it came, and what names it.
  // kEverywhere: later workers that can run its kind get it too; kListed: those alone that were
  // ever listed for it, `later` among them, which are not there yet. One that is `inner` is an
  // entry of its own beside that of its digest.
  enum class Reach : uint8_t { kEverywhere, kListed };
  Result<uint64_t> begin(const PreparePayload& callable, std::span<const uint32_t> workers,
                         Reach reach = Reach::kEverywhere, std::span<const uint32_t> later = {});
  // Its end: visible now, or why not.
  std::optional<Result<EntryRef>> take_outcome() { return std::exchange(outcome_, std::nullopt); }
  bool open() const { return open_.has_value(); }

  // An inactive inner entry, of PreparePayload::inactive, is active for workers that come from here
  // on. The workers that have it already, or are about to: the caller tells them.
  Result<std::vector<uint32_t>> activate(EntryRef entry);

  // One handle less. The last one makes a tombstone: no submit may use it, tasks that hold it run.
  Result<void> unregister(EntryRef entry);
  // True once no reply is awaited for an unregistered entry any more. Uncertain pairs may be left:
  // they keep the index taken until their workers are lost.
  bool settled(EntryRef entry) const;
  // True once nothing of that registration is left anywhere: the index is free or reused.
  bool gone(EntryRef entry) const;

  // begin would be refused only because answers to an unregistration are missing: wait for them.
  bool being_removed(const model::Digest& digest, bool inner = false) const;
  // ---- events -------------------------------------------------------------------------------
  std::vector<Action> take_actions() { return std::exchange(actions_, {}); }
  bool has_actions() const { return !actions_.empty(); }
  // False where nothing waits for it (late, repeated or unknown): ignored.
  bool on_reply(const Reply& reply);
  // Forgets all about the worker, uncertain pairs too. Its number may be added again. The caller
  // drops the actions for it that it has taken and not sent.
  // `reason`: for the text of a registration that fails with it.
  void on_worker_lost(uint32_t worker, std::string_view reason = {});
  // A worker with nothing, in one of the pools, that can run callables of `kinds` (a bit for each
  // CallableKind): all committed entries that it should have (tombstones with tasks too) are
  // replayed to it by actions. It counts, in usable_on_all, from the moment that take_ready tells
  // it. Returns how many are replayed; with 0 it is ready at once unless a transaction is open.
  // `takes_inner`: it has the inner entries that it should have too, of any kind.
  Result<size_t> on_worker_added(uint32_t worker, uint32_t pool = 0, uint32_t kinds = ~0u,
                                 bool takes_inner = false);
  std::vector<WorkerReady> take_ready() { return std::exchange(ready_events_, {}); }
  bool has_ready() const { return !ready_events_.empty(); }
  bool worker_ready(uint32_t worker) const {
    return worker < workers_.size() && workers_[worker].state == WorkerState::kReady;
  }

  // Those added and neither lost nor failed, in rising order.
  std::vector<uint32_t> live_workers() const;

  // ---- references of submitted tasks ---------------------------------------------------------
  // False unless visible. Each true one is paired with a release.
  bool acquire(EntryRef entry) {
    if (!visible(entry)) return false;
    ++entries_[entry.index].references;
    return true;
  }
  void release(uint32_t index);

  // ---- queries, plain array accesses ---------------------------------------------------------
  bool visible(EntryRef entry) const {
    return entry.index < entries_.size() && entries_[entry.index].generation == entry.generation &&
           entries_[entry.index].state == State::kVisible;
  }
  // A submit may name it for this worker.
  bool usable(EntryRef entry, uint32_t worker) const {
    return visible(entry) && pair(entries_[entry.index], worker) == Pair::kCommitted;
  }
  // For every ready worker of the pool, and later ones get it too; true without any (tasks wait for
  // the first).
  bool usable_on_all(EntryRef entry, uint32_t pool = 0) const {
    return visible(entry) && entries_[entry.index].everywhere &&
           entries_[entry.index].ready_count[pool] == ready_count_[pool];
  }
  // A worker of these kinds that is replayed to, under that number, gets it.
  bool will_have(EntryRef entry, uint32_t worker, uint32_t kinds) const;
  // The ready workers of the pool that it is usable on, in rising order.
  std::vector<uint32_t> usable_workers(EntryRef entry, uint32_t pool) const;
  // Changes whenever an answer of the two above may change.
  uint64_t epoch() const { return epoch_; }
  // A task that holds a reference may be dispatched to this worker (tombstones count).
  bool present(uint32_t index, uint32_t worker) const {
    return index < entries_.size() && pair(entries_[index], worker) == Pair::kCommitted;
  }
  // An ABORT or UNREGISTER there was not answered with success: unusable there until the worker is
  // lost.
  bool uncertain(uint32_t index, uint32_t worker) const {
    return index < entries_.size() && pair(entries_[index], worker) == Pair::kUncertain;
  }

  struct Info {
    model::Digest digest;
    CallableKind kind;
    std::string name;
    EntryRef entry;
    uint32_t handles, references;
    bool visible;
  };
  // None for a free index.
  std::optional<Info> info(uint32_t index) const;
  std::optional<EntryRef> find(const model::Digest& digest, bool inner = false) const;  // visible
  // Why `entry` is not usable (on one worker, where one is given), for a refused submit.
  Error why_unusable(EntryRef entry, std::optional<uint32_t> worker = {}) const;
  uint32_t used() const { return used_; }  // entries that count against the limit

 private:
  enum class State : uint8_t {
    kFree,
    kPreparing,  // first registration, open
    kVisible,
    kDraining,  // no handle; tasks hold references
    kRemoving,  // ABORTs or UNREGISTERs on their way, or uncertain pairs left
  };
  enum class Pair : uint8_t { kNone, kInFlight, kCommitted, kUncertain };
  enum class WorkerState : uint8_t { kUnknown, kReplaying, kReady, kFailed };
  enum class Purpose : uint8_t { kTransaction, kReplay, kRemoval };

  using Key = std::pair<model::Digest, bool>;  // and whether it is an inner one
  struct Entry {
    State state = State::kFree;
    uint32_t generation = 0;
    uint32_t handles = 0;
    uint32_t references = 0;
    std::array<uint32_t, kPools> ready_count{};  // pairs that are committed on ready workers
    bool everywhere = false;
    std::vector<uint32_t> listed;  // where it is not everywhere; rising
    uint32_t flights = 0;
    uint32_t uncertain = 0;   // pairs
    std::vector<Pair> pairs;  // by worker; kNone beyond its end
    model::Digest digest{};
    CallableKind kind{};
    bool inner = false;
    std::string name;
    std::shared_ptr<const std::vector<std::byte>> payload;
  };
  struct WorkerEntry {
    WorkerState state = WorkerState::kUnknown;
    uint32_t replays = 0;  // flights of its replay that are not committed yet
    uint32_t pool = 0;
    uint32_t kinds = 0;
    bool takes_inner = false;
    bool awaits_open = false;  // replaying while a transaction is open that does not name it
  };
  // One action that waits for its reply.
  struct Flight {
    uint32_t index;
    Purpose purpose;
    std::optional<Phase> expects;  // none: prepared or committed, the others not yet
  };
  using FlightKey = std::pair<uint64_t, uint32_t>;  // transaction, worker
  using FlightIt = std::map<FlightKey, Flight>::iterator;
  struct Open {
    uint64_t id;
    uint32_t index;
    Phase phase;
    uint32_t waiting;  // flights that expect a reply
    std::vector<uint32_t> workers;
    std::optional<Error> error;
    bool was_everywhere;  // before it
    std::vector<uint32_t> was_listed;
  };

  static Pair pair(const Entry& entry, uint32_t worker) {
    return worker < entry.pairs.size() ? entry.pairs[worker] : Pair::kNone;
  }
  void set_pair(uint32_t index, uint32_t worker, Pair to);
  Result<void> check_workers(std::span<const uint32_t> workers) const;
  static bool can_have(const WorkerEntry& worker, CallableKind kind, bool inner) {
    return inner ? worker.takes_inner : (worker.kinds >> static_cast<uint32_t>(kind) & 1) != 0;
  }
  Result<uint32_t> entry_for(const Key& key, std::span<const uint32_t> workers);
  uint32_t new_index();
  void emit(uint32_t worker, Phase phase, uint64_t transaction, uint32_t index);
  void ask(FlightIt it, Phase phase);
  void open_flight(uint64_t transaction, uint32_t worker, uint32_t index, Purpose purpose,
                   Phase phase);
  void erase_flight(FlightIt it);
  void advance_open();
  void fail_open(Error error);
  void forget_in_open(uint32_t worker);
  void commit_open();
  void close_open(Result<EntryRef> outcome);
  void on_transaction_reply(FlightIt it, const Reply& reply);
  void lose_in_open(FlightIt it, std::string_view reason);
  bool belongs_to(const Entry& entry, uint32_t worker) const;
  void replay(uint32_t index, uint32_t worker);
  void on_replay_reply(FlightIt it, const Reply& reply);
  void check_ready(uint32_t worker);
  void drop_handle(uint32_t index);
  void remove(uint32_t index);
  void on_undone(FlightIt it, const Reply& reply);
  void maybe_free(uint32_t index);

  uint32_t callables_max_;
  uint32_t used_ = 0;
  std::array<uint32_t, kPools> ready_count_{};  // workers
  uint64_t epoch_ = 1;
  uint64_t last_transaction_ = 0;
  std::vector<Entry> entries_;
  std::vector<uint32_t> free_;
  std::map<Key, uint32_t> by_key_;  // every entry that is not free
  std::vector<WorkerEntry> workers_;
  std::map<FlightKey, Flight> flights_;
  std::optional<Open> open_;
  std::optional<Result<EntryRef>> outcome_;
  std::vector<Action> actions_;
  std::vector<WorkerReady> ready_events_;
};

}  // namespace strata::registry
