// Registry against children that answer late, fail at will and are lost, in random order.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <set>

#include "base/prng.h"
#include "registry/registry.h"

namespace strata::registry {
namespace {

constexpr uint32_t kWorkers = 4;
constexpr uint32_t kCallables = 6;

// What one child process knows. It applies a question when it takes it from its inbox.
struct Child {
  struct Slot {
    EntryRef entry;
    uint64_t transaction = 0;
    bool committed = false;
  };
  bool alive = false;
  uint32_t incarnation = 0;
  std::deque<Action> inbox;
  std::deque<Reply> outbox;
  std::map<uint32_t, Slot> table;
  std::set<uint32_t> uncertain;  // indices whose ABORT or UNREGISTER failed, as the parent heard
};

struct Task {
  EntryRef entry;
  std::map<uint32_t, uint32_t> present;  // worker to incarnation, where it could be dispatched
};

// The transaction that is open.
struct Opened {
  model::Digest digest;
  uint64_t transaction = 0;
  std::map<uint32_t, uint32_t> asked;  // worker to incarnation
};

struct Counts {
  uint64_t committed = 0, failed = 0, lost = 0, uncertain = 0, revived = 0, ready = 0, unready = 0;
};

class World {
 public:
  // With `whole` every registration names all ready or all live workers, else random ones.
  World(uint64_t seed, bool whole, Counts* counts)
      : prng_(seed), whole_(whole), fail_one_in_(prng_.between(3, 40)), counts_(*counts) {}

  void run(int steps) {
    for (int i = 0; i < steps && !testing::Test::HasFatalFailure(); ++i) {
      step();
      check();
    }
    if (!testing::Test::HasFatalFailure()) finish();
  }

 private:
  void step() {
    switch (prng_.below(11)) {
      case 0:
      case 1:
        return send();
      case 2:
      case 3:
        return apply(worker());
      case 4:
      case 5:
        return deliver(worker());
      case 6:
        return begin();
      case 7:
        return unregister();
      case 8:
        return prng_.chance(1, 2) ? acquire() : release();
      case 9:
        if (prng_.chance(1, 8)) lose(worker());
        return;
      default:
        if (prng_.chance(1, 3)) add(worker());
        return take_ready();
    }
  }

  uint32_t worker() { return static_cast<uint32_t>(prng_.below(kWorkers)); }
  std::optional<Code> maybe_fail() {
    if (calm_ || !prng_.chance(1, fail_one_in_)) return std::nullopt;
    return Code::kSystem;
  }

  void send() {
    for (Action& action : registry_.take_actions()) {
      ASSERT_TRUE(children_[action.worker].alive);
      index_of_[action.transaction] = action.entry.index;
      if (opened_ && opened_->transaction == action.transaction) {
        opened_->asked[action.worker] = children_[action.worker].incarnation;
      }
      children_[action.worker].inbox.push_back(std::move(action));
    }
  }

  void apply(uint32_t number) {
    Child& child = children_[number];
    if (child.inbox.empty()) return;
    const Action action = std::move(child.inbox.front());
    child.inbox.pop_front();
    const std::optional<Code> failure = maybe_fail();
    child.outbox.push_back({number, action.transaction, action.phase, failure, "at random"});
    if (failure) return;  // a refusal applies nothing
    const auto slot = child.table.find(action.entry.index);
    const bool there = slot != child.table.end();
    switch (action.phase) {
      case Phase::kPrepare:
        ASSERT_FALSE(there) << "prepared over an entry that is there";
        ASSERT_TRUE(decode_payload(*action.payload).ok());
        child.table[action.entry.index] = {action.entry, action.transaction, false};
        break;
      case Phase::kCommit:
        ASSERT_TRUE(there && slot->second.transaction == action.transaction);
        ASSERT_FALSE(slot->second.committed);
        slot->second.committed = true;
        break;
      case Phase::kAbort:
        if (there && slot->second.transaction == action.transaction) child.table.erase(slot);
        break;
      case Phase::kUnregister:
        ASSERT_TRUE(there && slot->second.committed && slot->second.entry == action.entry);
        child.table.erase(slot);
        break;
    }
  }

  void deliver(uint32_t number) {
    Child& child = children_[number];
    if (child.outbox.empty()) return;
    const Reply reply = std::move(child.outbox.front());
    child.outbox.pop_front();
    const bool undo = reply.phase == Phase::kAbort || reply.phase == Phase::kUnregister;
    const bool heard = registry_.on_reply(reply);
    if (undo) {
      ASSERT_TRUE(heard);  // nothing overtakes the last question of a transaction
      if (reply.failure) {
        child.uncertain.insert(index_of_[reply.transaction]);
        ++counts_.uncertain;
      }
    }
    ASSERT_FALSE(registry_.on_reply(reply)) << "a repeated answer counted";
    take_outcome();
  }

  void begin() {
    std::vector<uint32_t> workers = registry_.live_workers();
    const bool ready_alone = prng_.chance(1, 2);
    if (ready_alone) std::erase_if(workers, [&](uint32_t w) { return !registry_.worker_ready(w); });
    if (!whole_) {
      std::erase_if(workers, [&](uint32_t) { return prng_.chance(1, 3); });
      if (workers.empty()) workers = registry_.live_workers();
    }
    const std::string symbol = "f" + std::to_string(prng_.below(kCallables));
    const PreparePayload callable{symbol, model::NativeImportDescriptor{"l.so", symbol}, {}};
    const auto digest = model::digest_of(model::descriptor_bytes(callable.descriptor));
    const bool was_visible = registry_.find(digest).has_value();
    const Result<uint64_t> got = registry_.begin(callable, workers);
    if (!got.ok()) return;
    ASSERT_FALSE(opened_.has_value());
    const std::optional<EntryRef> now = registry_.find(digest);
    if (!was_visible && now && registry_.info(now->index)->references > 0) ++counts_.revived;
    opened_ = Opened{digest, *got, {}};
    take_outcome();
  }

  // The transaction ends: what it asked for is committed on all, or on none but where an ABORT
  // failed.
  void take_outcome() {
    std::optional<Result<EntryRef>> outcome = registry_.take_outcome();
    if (!outcome) return;
    const Opened opened = std::move(*opened_);
    opened_.reset();
    for (const auto& [w, incarnation] : opened.asked) {
      const Child& child = children_[w];
      const bool lost = !child.alive || child.incarnation != incarnation;
      const auto slot = std::ranges::find_if(child.table, [&](const auto& entry) {
        return entry.second.transaction == opened.transaction;
      });
      if (outcome->ok()) {
        ASSERT_TRUE(!lost && slot != child.table.end() && slot->second.committed);
        ASSERT_TRUE(registry_.usable(outcome->value(), w));
      } else if (!lost && slot != child.table.end()) {
        ASSERT_TRUE(child.uncertain.contains(slot->first));
      }
    }
    if (outcome->ok()) {
      ++counts_.committed;
      handles_.push_back(outcome->value());
      return;
    }
    ++counts_.failed;
    if (outcome->error().code() == Code::kEndpointFailed) ++counts_.lost;
    ASSERT_NE(outcome->error().message().find("worker "), std::string::npos);
  }

  void unregister() {
    if (handles_.empty()) return;
    const size_t i = prng_.below(handles_.size());
    ASSERT_TRUE(registry_.unregister(handles_[i]).ok());
    handles_.erase(handles_.begin() + static_cast<std::ptrdiff_t>(i));
  }

  void acquire() {
    if (handles_.empty() || tasks_.size() >= 12) return;
    Task task{handles_[prng_.below(handles_.size())], {}};
    ASSERT_TRUE(registry_.acquire(task.entry));
    for (uint32_t w = 0; w < kWorkers; ++w) {
      if (registry_.present(task.entry.index, w)) task.present[w] = children_[w].incarnation;
    }
    tasks_.push_back(std::move(task));
  }
  void release() {
    if (tasks_.empty()) return;
    const size_t i = prng_.below(tasks_.size());
    registry_.release(tasks_[i].entry.index);
    tasks_.erase(tasks_.begin() + static_cast<std::ptrdiff_t>(i));
  }

  void lose(uint32_t number) {
    if (!children_[number].alive) return;
    registry_.on_worker_lost(number);
    Child next;
    next.incarnation = children_[number].incarnation;
    children_[number] = std::move(next);
    take_outcome();
  }
  void add(uint32_t number) {
    if (children_[number].alive) return;
    children_[number].alive = true;
    ++children_[number].incarnation;
    ASSERT_TRUE(registry_.on_worker_added(number).ok());
  }
  void take_ready() {
    for (const WorkerReady& event : registry_.take_ready()) {
      ASSERT_EQ(registry_.worker_ready(event.worker), !event.error.has_value());
      ++(event.error ? counts_.unready : counts_.ready);
      if (event.error && prng_.chance(1, 3)) lose(event.worker);  // the others live on for a while
    }
  }

  void check() {
    uint32_t used = 0;
    for (uint32_t index = 0; index < kCallables + 1; ++index) {
      const auto info = registry_.info(index);
      if (info) ++used;
      for (uint32_t w = 0; w < kWorkers; ++w) {
        const Child& child = children_[w];
        ASSERT_EQ(registry_.uncertain(index, w), child.uncertain.contains(index));
        if (!registry_.present(index, w)) continue;
        // Nobody may use what is not committed there.
        const auto slot = child.table.find(index);
        ASSERT_TRUE(info && child.alive && slot != child.table.end() && slot->second.committed);
        ASSERT_EQ(slot->second.entry, info->entry);
      }
      if (!info) continue;
      const auto same = [&](EntryRef ref) { return ref == info->entry; };
      const auto held = std::ranges::count_if(handles_, same);
      const bool pending = opened_ && opened_->digest == info->digest;
      ASSERT_LE(static_cast<uint32_t>(held), info->handles);
      ASSERT_LE(info->handles, static_cast<uint32_t>(held) + (pending ? 1 : 0));
      ASSERT_EQ(info->references, std::ranges::count_if(tasks_, [&](const Task& task) {
                  return task.entry == info->entry;
                }));
    }
    ASSERT_EQ(registry_.used(), used);
    for (const EntryRef handle : handles_) {
      ASSERT_TRUE(registry_.visible(handle));
      bool all = true;
      for (uint32_t w = 0; w < kWorkers; ++w) {
        if (registry_.worker_ready(w)) all = all && registry_.usable(handle, w);
      }
      ASSERT_EQ(registry_.usable_on_all(handle), all);
      // All or nothing: what names every live worker is on every ready one, at all times.
      if (whole_) {
        ASSERT_TRUE(all);
      }
    }
    for (const Task& task : tasks_) {
      for (const auto& [w, incarnation] : task.present) {
        if (children_[w].incarnation == incarnation && children_[w].alive) {
          ASSERT_TRUE(registry_.present(task.entry.index, w));
        }
      }
    }
  }

  void finish() {
    calm_ = true;
    while (!tasks_.empty()) release();
    settle();
    while (!handles_.empty()) unregister();
    settle();
    check();
    ASSERT_FALSE(registry_.open());
    for (uint32_t w = 0; w < kWorkers; ++w) {
      // Whatever a child still has is what failed to be taken back.
      for (const auto& [index, slot] : children_[w].table) {
        ASSERT_TRUE(children_[w].uncertain.contains(index));
      }
      if (!children_[w].uncertain.empty()) lose(w);
    }
    ASSERT_EQ(registry_.used(), 0u);
  }
  void settle() {
    for (int i = 0; i < 400; ++i) {
      send();
      for (uint32_t w = 0; w < kWorkers; ++w) {
        apply(w);
        deliver(w);
      }
      take_ready();
    }
    ASSERT_FALSE(registry_.has_actions());
  }

  base::Prng prng_;
  bool whole_;
  uint64_t fail_one_in_;
  Counts& counts_;
  bool calm_ = false;
  Registry registry_{kCallables};
  std::array<Child, kWorkers> children_;
  std::vector<EntryRef> handles_;  // one for each successful begin
  std::vector<Task> tasks_;
  std::optional<Opened> opened_;
  std::map<uint64_t, uint32_t> index_of_;  // of a transaction
};

void run_seeds(bool whole) {
  Counts counts;
  for (uint64_t seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE(seed);
    World(seed, whole, &counts).run(1500);
    if (testing::Test::HasFatalFailure()) return;
  }
  // The seeds reach what they are for.
  EXPECT_GT(counts.committed, 500u);
  EXPECT_GT(counts.failed, 50u);
  EXPECT_GT(counts.lost, 20u);
  EXPECT_GT(counts.uncertain, 50u);
  EXPECT_GT(counts.revived, 2u);
  EXPECT_GT(counts.ready, 500u);
  EXPECT_GT(counts.unready, 5u);
}

TEST(RegistryRandom, OnAllWorkersItIsAllOrNothing) {
  run_seeds(true);
}
TEST(RegistryRandom, OnSomeWorkersItIsAllOrNothing) {
  run_seeds(false);
}

}  // namespace
}  // namespace strata::registry
