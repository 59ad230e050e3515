#include "registry/registry.h"

#include <gtest/gtest.h>

namespace strata::registry {
namespace {

PreparePayload callable(const std::string& symbol) {
  return {symbol, model::NativeImportDescriptor{"libk.so", symbol}, {"/opt/k/libk.so"}};
}

// A Registry whose workers answer when the test says so.
class RegistryTest : public testing::Test {
 protected:
  // One line for an action: "1 prepare 0.1" is worker 1, entry index 0, generation 1.
  std::vector<std::string> take() {
    std::vector<std::string> out;
    for (Action& action : registry_.take_actions()) {
      out.push_back(std::to_string(action.worker) + " " + std::string(name_of(action.phase)) + " " +
                    std::to_string(action.entry.index) + "." +
                    std::to_string(action.entry.generation));
      EXPECT_EQ(action.payload != nullptr, action.phase == Phase::kPrepare);
      asked_.push_back(std::move(action));
    }
    return out;
  }
  // Answers the oldest question that was taken and not answered to `worker`.
  bool answer(uint32_t worker, std::optional<Code> failure = {}, std::string text = "no luck") {
    for (auto it = asked_.begin(); it != asked_.end(); ++it) {
      if (it->worker != worker) continue;
      const Reply reply{worker, it->transaction, it->phase, failure, std::move(text)};
      asked_.erase(it);
      return registry_.on_reply(reply);
    }
    ADD_FAILURE() << "worker " << worker << " was not asked";
    return false;
  }
  void answer_all() {
    for (;;) {
      take();
      if (asked_.empty()) return;
      answer(asked_.front().worker);
    }
  }
  void add_workers(uint32_t n) {
    for (uint32_t i = 0; i < n; ++i) ASSERT_TRUE(registry_.on_worker_added(i).ok());
    answer_all();
    ASSERT_EQ(registry_.take_ready().size(), n);
  }
  EntryRef add(const std::string& symbol) {
    const std::vector<uint32_t> workers = registry_.live_workers();
    EXPECT_TRUE(registry_.begin(callable(symbol), workers).ok());
    answer_all();
    return registry_.take_outcome().value().value();
  }
  uint64_t begin(const std::string& symbol, std::vector<uint32_t> workers) {
    return registry_.begin(callable(symbol), workers).value();
  }
  using Lines = std::vector<std::string>;

  Registry registry_{8};
  std::vector<Action> asked_;
};

TEST_F(RegistryTest, BeforeAnyWorkerACallableIsCommittedAtOnce) {
  begin("f", {});
  EXPECT_EQ(take(), Lines{});
  const EntryRef f = registry_.take_outcome().value().value();
  EXPECT_EQ(f, (EntryRef{0, 1}));
  EXPECT_TRUE(registry_.visible(f));
  EXPECT_TRUE(registry_.usable_on_all(f));
  EXPECT_FALSE(registry_.usable(f, 0));
}

TEST_F(RegistryTest, IsVisibleOnlyWhenAllHaveCommitted) {
  add_workers(2);
  begin("f", {0, 1});
  const EntryRef f{0, 1};
  EXPECT_EQ(take(), (Lines{"0 prepare 0.1", "1 prepare 0.1"}));
  EXPECT_TRUE(answer(1));
  EXPECT_EQ(take(), Lines{});
  EXPECT_TRUE(answer(0));
  EXPECT_EQ(take(), (Lines{"0 commit 0.1", "1 commit 0.1"}));
  EXPECT_TRUE(answer(0));
  EXPECT_FALSE(registry_.visible(f));
  EXPECT_FALSE(registry_.usable(f, 0));
  EXPECT_FALSE(registry_.present(0, 0));
  EXPECT_FALSE(registry_.take_outcome().has_value());
  EXPECT_TRUE(answer(1));
  EXPECT_EQ(registry_.take_outcome().value().value(), f);
  EXPECT_TRUE(registry_.usable(f, 0));
  EXPECT_TRUE(registry_.usable_on_all(f));
  EXPECT_EQ(registry_.find(registry_.info(0)->digest), f);
}

TEST_F(RegistryTest, FailedPrepareAbortsOnAllThatWereAsked) {
  add_workers(3);
  begin("f", {0, 1, 2});
  take();
  EXPECT_TRUE(answer(0));
  EXPECT_TRUE(answer(1, Code::kNotFound, "no such library"));
  EXPECT_EQ(take(), (Lines{"0 abort 0.1", "1 abort 0.1", "2 abort 0.1"}));
  EXPECT_FALSE(answer(2));  // its late answer to prepare
  EXPECT_TRUE(answer(0));
  EXPECT_TRUE(answer(1));
  EXPECT_FALSE(registry_.take_outcome().has_value());
  EXPECT_TRUE(answer(2));
  const Result<EntryRef> outcome = registry_.take_outcome().value();
  EXPECT_EQ(outcome.error().code(), Code::kNotFound);
  EXPECT_EQ(outcome.error().message(), "worker 1 failed to prepare callable 'f': no such library");
  EXPECT_EQ(registry_.used(), 0u);
  EXPECT_TRUE(registry_.gone({0, 1}));
}

TEST_F(RegistryTest, FailedCommitUndoesTheCommitsOfOthers) {
  add_workers(2);
  begin("f", {0, 1});
  take();
  answer(0);
  answer(1);
  take();
  answer(0);
  answer(1, Code::kAbiMismatch);
  EXPECT_EQ(take(), (Lines{"0 abort 0.1", "1 abort 0.1"}));
  answer(0);
  answer(1);
  EXPECT_EQ(registry_.take_outcome().value().error().code(), Code::kAbiMismatch);
  EXPECT_FALSE(registry_.visible({0, 1}));
}

TEST_F(RegistryTest, FirstFailureIsTheOneThatIsTold) {
  add_workers(2);
  begin("f", {0, 1});
  take();
  answer(1, Code::kNotFound);
  EXPECT_FALSE(answer(0, Code::kAbiMismatch));
  answer_all();
  EXPECT_EQ(registry_.take_outcome().value().error().code(), Code::kNotFound);
}

TEST_F(RegistryTest, LostWorkerFailsTheRegistration) {
  for (const int answered : {0, 1, 2}) {
    SCOPED_TRACE(answered);
    Registry registry(4);
    ASSERT_TRUE(registry.on_worker_added(0).ok() && registry.on_worker_added(1).ok());
    const uint32_t workers[] = {0, 1};
    const uint64_t id = registry.begin(callable("f"), workers).value();
    if (answered >= 1) registry.on_reply({1, id, Phase::kPrepare, {}, ""});
    if (answered >= 2) registry.on_reply({0, id, Phase::kPrepare, {}, ""});
    registry.take_actions();
    registry.on_worker_lost(1);
    const std::vector<Action> actions = registry.take_actions();
    ASSERT_EQ(actions.size(), 1u);
    EXPECT_EQ(actions[0].worker, 0u);
    EXPECT_EQ(actions[0].phase, Phase::kAbort);
    EXPECT_TRUE(registry.on_reply({0, id, Phase::kAbort, {}, ""}));
    const Result<EntryRef> outcome = registry.take_outcome().value();
    EXPECT_EQ(outcome.error().code(), Code::kEndpointFailed);
    EXPECT_NE(outcome.error().message().find("worker 1 was lost"), std::string::npos);
    EXPECT_EQ(registry.used(), 0u);
  }
}

TEST_F(RegistryTest, LossOfTheOnlyWorkerEndsTheRegistration) {
  add_workers(1);
  begin("f", {0});
  registry_.on_worker_lost(0);
  EXPECT_EQ(take(), Lines{});  // not even the prepare that was not sent
  EXPECT_EQ(registry_.take_outcome().value().error().code(), Code::kEndpointFailed);
}

TEST_F(RegistryTest, FailedAbortLeavesThePairUncertain) {
  add_workers(2);
  begin("f", {0, 1});
  take();
  answer(0, Code::kNotFound);
  take();
  answer(0);
  EXPECT_FALSE(answer(1));
  EXPECT_TRUE(answer(1, Code::kSystem));
  EXPECT_EQ(registry_.take_outcome().value().error().code(), Code::kNotFound);
  EXPECT_TRUE(registry_.uncertain(0, 1));
  EXPECT_FALSE(registry_.uncertain(0, 0));
  EXPECT_EQ(registry_.used(), 1u);

  const uint32_t both[] = {0, 1};
  const auto again = registry_.begin(callable("f"), both);
  EXPECT_EQ(again.error().code(), Code::kWrongState);
  EXPECT_NE(again.error().message().find("worker 1"), std::string::npos);

  // Elsewhere it may come again, with a larger generation; there it stays unusable.
  begin("f", {0});
  answer_all();
  const EntryRef f = registry_.take_outcome().value().value();
  EXPECT_EQ(f, (EntryRef{0, 2}));
  EXPECT_TRUE(registry_.usable(f, 0));
  EXPECT_FALSE(registry_.usable(f, 1));
  EXPECT_FALSE(registry_.usable_on_all(f));
  EXPECT_NE(registry_.why_unusable(f, 1).message().find("replaced"), std::string::npos);

  // The worker's end clears it; its successor gets it by replay.
  registry_.on_worker_lost(1);
  EXPECT_FALSE(registry_.uncertain(0, 1));
  EXPECT_TRUE(registry_.usable_on_all(f));
  EXPECT_EQ(registry_.on_worker_added(1).value(), 1u);
  answer_all();
  EXPECT_TRUE(registry_.usable(f, 1));
}

TEST_F(RegistryTest, TombstoneWithAnUncertainPairGoesWithItsWorker) {
  add_workers(1);
  const EntryRef f = add("f");
  ASSERT_TRUE(registry_.unregister(f).ok());
  EXPECT_FALSE(registry_.settled(f));
  take();
  answer(0, Code::kSystem);
  EXPECT_TRUE(registry_.settled(f));
  EXPECT_FALSE(registry_.gone(f));
  registry_.on_worker_lost(0);
  EXPECT_TRUE(registry_.gone(f));
  EXPECT_EQ(registry_.used(), 0u);
}

TEST_F(RegistryTest, RegistrationsGoOneAfterAnother) {
  add_workers(1);
  begin("f", {0});
  const uint32_t workers[] = {0};
  EXPECT_EQ(registry_.begin(callable("g"), workers).error().code(), Code::kWrongState);
  answer_all();
  EXPECT_EQ(registry_.begin(callable("g"), workers).error().code(), Code::kWrongState);
  EXPECT_TRUE(registry_.take_outcome().value().ok());
  EXPECT_TRUE(registry_.begin(callable("g"), workers).ok());
}

TEST_F(RegistryTest, SameDigestIsTheSameEntryCounted) {
  add_workers(1);
  const EntryRef f = add("f");
  begin("f", {0});
  EXPECT_EQ(take(), Lines{});
  EXPECT_EQ(registry_.take_outcome().value().value(), f);
  EXPECT_EQ(registry_.info(0)->handles, 2u);
  ASSERT_TRUE(registry_.unregister(f).ok());
  EXPECT_TRUE(registry_.usable(f, 0));
  ASSERT_TRUE(registry_.unregister(f).ok());
  EXPECT_FALSE(registry_.usable(f, 0));
  EXPECT_EQ(take(), Lines{"0 unregister 0.1"});
  EXPECT_EQ(registry_.unregister(f).error().code(), Code::kNotFound);
}

TEST_F(RegistryTest, SameDigestOnMoreWorkersAsksOnlyTheNewOnes) {
  add_workers(2);
  begin("f", {0});
  answer_all();
  const EntryRef f = registry_.take_outcome().value().value();
  begin("f", {0, 1});
  EXPECT_EQ(take(), Lines{"1 prepare 0.1"});
  answer(1, Code::kNotFound);
  EXPECT_EQ(take(), Lines{"1 abort 0.1"});
  answer(1);
  EXPECT_FALSE(registry_.take_outcome().value().ok());
  EXPECT_TRUE(registry_.usable(f, 0));  // the failure of more leaves what was there
  EXPECT_EQ(registry_.info(0)->handles, 1u);
  begin("f", {0, 1});
  answer_all();
  EXPECT_EQ(registry_.take_outcome().value().value(), f);
  EXPECT_TRUE(registry_.usable_on_all(f));
}

TEST_F(RegistryTest, AFailedRegistrationOnMoreWorkersLeavesWhoHasItAsItWas) {
  add_workers(2);
  const std::vector<uint32_t> first = {0};
  ASSERT_TRUE(registry_.begin(callable("f"), first, Registry::Reach::kListed).ok());
  answer_all();
  const EntryRef f = registry_.take_outcome()->value();
  const auto failing = [&](std::vector<uint32_t> workers, Registry::Reach reach) {
    ASSERT_TRUE(registry_.begin(callable("f"), workers, reach).ok());
    EXPECT_EQ(take(), Lines{"1 prepare 0.1"});
    answer(1, Code::kNotFound);
    answer_all();
    EXPECT_FALSE(registry_.take_outcome()->ok());
  };
  failing({0, 1}, Registry::Reach::kListed);
  EXPECT_TRUE(registry_.usable(f, 0));
  EXPECT_FALSE(registry_.will_have(f, 1, ~0u));
  failing({0, 1}, Registry::Reach::kEverywhere);
  EXPECT_FALSE(registry_.usable_on_all(f));
  // A worker in the place of the one that refused it has nothing of it.
  registry_.on_worker_lost(1);
  EXPECT_EQ(registry_.on_worker_added(1).value(), 0u);
  EXPECT_TRUE(registry_.will_have(f, 0, ~0u));
}

TEST_F(RegistryTest, AnInactiveInnerOneIsReplayedActiveOnceItIs) {
  PreparePayload inner = callable("f");
  inner.inner = inner.inactive = true;
  ASSERT_TRUE(registry_.on_worker_added(0, 0, ~0u, true).ok());
  ASSERT_TRUE(registry_.begin(inner, registry_.live_workers()).ok());
  const auto prepared = [&] {
    const std::vector<Action> actions = registry_.take_actions();
    EXPECT_EQ(actions.size(), 1u);
    asked_.insert(asked_.end(), actions.begin(), actions.end());
    return decode_payload(*actions.front().payload).value();
  };
  EXPECT_TRUE(prepared().inactive);
  answer(0);
  answer_all();
  const EntryRef f = registry_.take_outcome()->value();
  EXPECT_EQ(registry_.activate(f).value(), std::vector<uint32_t>{0});
  ASSERT_TRUE(registry_.on_worker_added(1, 0, ~0u, true).ok());
  const PreparePayload replayed = prepared();
  EXPECT_TRUE(replayed.inner);
  EXPECT_FALSE(replayed.inactive);
}

TEST_F(RegistryTest, TombstoneWaitsForTasksThenForWorkers) {
  add_workers(2);
  const EntryRef f = add("f");
  ASSERT_TRUE(registry_.acquire(f));
  ASSERT_TRUE(registry_.acquire(f));
  ASSERT_TRUE(registry_.unregister(f).ok());
  EXPECT_FALSE(registry_.acquire(f));
  EXPECT_FALSE(registry_.usable(f, 0));
  EXPECT_TRUE(registry_.present(0, 0));  // what is queued still runs
  EXPECT_EQ(take(), Lines{});
  registry_.release(0);
  EXPECT_EQ(take(), Lines{});
  registry_.release(0);
  EXPECT_EQ(take(), (Lines{"0 unregister 0.1", "1 unregister 0.1"}));
  EXPECT_FALSE(registry_.present(0, 0));
  answer(1);
  EXPECT_FALSE(registry_.gone(f));
  const uint32_t workers[] = {0};
  EXPECT_EQ(registry_.begin(callable("f"), workers).error().code(), Code::kWrongState);
  answer(0);
  EXPECT_TRUE(registry_.gone(f));
  EXPECT_EQ(registry_.why_unusable(f).message(),
            "a callable handle whose callable was unregistered");
  const EntryRef g = add("g");
  EXPECT_EQ(g, (EntryRef{0, 2}));  // the index again, with a larger generation
  EXPECT_FALSE(registry_.visible(f));
}

TEST_F(RegistryTest, RegisteringWhatTasksStillHoldBringsItBack) {
  add_workers(1);
  const EntryRef f = add("f");
  ASSERT_TRUE(registry_.acquire(f));
  ASSERT_TRUE(registry_.unregister(f).ok());
  EXPECT_EQ(add("f"), f);
  EXPECT_TRUE(registry_.usable(f, 0));
  registry_.release(0);
  EXPECT_EQ(take(), Lines{});
}

TEST_F(RegistryTest, LostWorkerCountsAsHavingConfirmed) {
  add_workers(2);
  const EntryRef f = add("f");
  ASSERT_TRUE(registry_.unregister(f).ok());
  take();
  answer(0);
  registry_.on_worker_lost(1);
  EXPECT_TRUE(registry_.gone(f));
}

TEST_F(RegistryTest, NewWorkerGetsAllCommittedEntriesBeforeItIsReady) {
  const EntryRef f = add("f"), g = add("g");
  EXPECT_EQ(registry_.on_worker_added(0).value(), 2u);
  EXPECT_EQ(take(), (Lines{"0 prepare 0.1", "0 prepare 1.1"}));
  answer(0);
  EXPECT_EQ(take(), Lines{"0 commit 0.1"});
  answer(0);
  answer(0);
  EXPECT_TRUE(registry_.usable(f, 0) != registry_.usable(g, 0));
  EXPECT_FALSE(registry_.worker_ready(0));
  answer_all();
  EXPECT_TRUE(registry_.worker_ready(0));
  const std::vector<WorkerReady> ready = registry_.take_ready();
  ASSERT_EQ(ready.size(), 1u);
  EXPECT_FALSE(ready[0].error.has_value());
  EXPECT_TRUE(registry_.usable_on_all(f) && registry_.usable_on_all(g));
}

TEST_F(RegistryTest, TombstoneWithTasksIsReplayedToo) {
  add_workers(1);
  const EntryRef f = add("f");
  ASSERT_TRUE(registry_.acquire(f));
  ASSERT_TRUE(registry_.unregister(f).ok());
  registry_.on_worker_lost(0);
  EXPECT_EQ(registry_.on_worker_added(0).value(), 1u);
  answer_all();
  EXPECT_TRUE(registry_.present(0, 0));
  registry_.release(0);
  EXPECT_EQ(take(), Lines{"0 unregister 0.1"});
}

TEST_F(RegistryTest, ReplayOfWhatIsUnregisteredMeanwhileIsAborted) {
  const EntryRef f = add("f");
  ASSERT_TRUE(registry_.on_worker_added(0).ok());
  take();
  ASSERT_TRUE(registry_.unregister(f).ok());
  EXPECT_EQ(take(), Lines{"0 abort 0.1"});
  EXPECT_TRUE(registry_.worker_ready(0));
  EXPECT_FALSE(answer(0));
  EXPECT_TRUE(answer(0));
  EXPECT_TRUE(registry_.gone(f));
}

TEST_F(RegistryTest, WorkerThatFailsItsReplayIsNotReady) {
  const EntryRef f = add("f");
  add("g");
  ASSERT_TRUE(registry_.on_worker_added(0).ok());
  take();
  answer(0, Code::kNotFound, "no libk.so");
  const std::vector<WorkerReady> ready = registry_.take_ready();
  ASSERT_EQ(ready.size(), 1u);
  EXPECT_EQ(ready[0].error->message(),
            "worker 0 failed to prepare callable 'f', which was registered before it came: no "
            "libk.so");
  answer_all();
  EXPECT_FALSE(registry_.worker_ready(0));
  EXPECT_EQ(registry_.take_ready().size(), 0u);
  EXPECT_TRUE(registry_.live_workers().empty());
  const uint32_t workers[] = {0};
  EXPECT_EQ(registry_.begin(callable("h"), workers).error().code(), Code::kWrongState);
  registry_.on_worker_lost(0);
  EXPECT_TRUE(registry_.visible(f));
}

TEST_F(RegistryTest, WorkerThatComesDuringARegistrationGetsItBeforeItIsReady) {
  add_workers(1);
  begin("f", {0});
  take();
  EXPECT_EQ(registry_.on_worker_added(1).value(), 0u);
  EXPECT_FALSE(registry_.worker_ready(1));
  answer(0);
  take();
  answer(0);
  EXPECT_EQ(take(), Lines{"1 prepare 0.1"});
  EXPECT_FALSE(registry_.worker_ready(1));
  answer_all();
  EXPECT_TRUE(registry_.worker_ready(1));
  EXPECT_TRUE(registry_.usable_on_all({0, 1}));
}

TEST_F(RegistryTest, WorkerInItsReplayThatIsNotNamedGetsItBeforeItIsReady) {
  add("f");
  ASSERT_TRUE(registry_.on_worker_added(0).ok());
  take();
  begin("g", {});  // no worker is ready yet
  EXPECT_EQ(take(), Lines{"0 prepare 1.1"});
  EXPECT_EQ(registry_.take_outcome().value().value(), (EntryRef{1, 1}));
  answer_all();
  EXPECT_TRUE(registry_.worker_ready(0));
  EXPECT_TRUE(registry_.usable_on_all({1, 1}));

  ASSERT_TRUE(registry_.on_worker_added(1).ok());
  begin("h", {0});
  take();
  answer(1), answer(1), take(), answer(1), answer(1);  // all of its replay so far
  EXPECT_FALSE(registry_.worker_ready(1));
  answer_all();
  EXPECT_TRUE(registry_.worker_ready(1));
  EXPECT_TRUE(registry_.usable_on_all({2, 1}));
}

TEST_F(RegistryTest, WorkerThatComesDuringAFailingRegistrationIsReadyAfterIt) {
  add_workers(1);
  begin("f", {0});
  take();
  ASSERT_TRUE(registry_.on_worker_added(1).ok());
  answer(0, Code::kNotFound);
  take();
  answer(0);
  EXPECT_TRUE(registry_.worker_ready(1));
  EXPECT_EQ(take(), Lines{});
}

TEST_F(RegistryTest, LateAnswerOfALostWorkerIsNotThatOfItsSuccessor) {
  add("f");
  ASSERT_TRUE(registry_.on_worker_added(0).ok());
  take();
  const std::vector<Action> old = std::exchange(asked_, {});
  registry_.on_worker_lost(0);
  ASSERT_TRUE(registry_.on_worker_added(0).ok());
  take();
  EXPECT_FALSE(registry_.on_reply({0, old[0].transaction, old[0].phase, {}, ""}));
  EXPECT_FALSE(registry_.worker_ready(0));
  answer_all();
  EXPECT_TRUE(registry_.worker_ready(0));
}

TEST_F(RegistryTest, LimitIsACleanError) {
  for (int i = 0; i < 8; ++i) add("f" + std::to_string(i));
  const auto more = registry_.begin(callable("f8"), {});
  EXPECT_EQ(more.error().code(), Code::kResourceExhausted);
  EXPECT_NE(more.error().message().find("Limits::callables"), std::string::npos);
  EXPECT_TRUE(registry_.begin(callable("f7"), {}).ok());  // one handle more
  EXPECT_TRUE(registry_.take_outcome().value().ok());
  ASSERT_TRUE(registry_.unregister({0, 1}).ok());
  add("f8");
}

TEST_F(RegistryTest, RefusesListsOfWorkersThatMakeNoSense) {
  add_workers(2);
  const uint32_t twice[] = {0, 1, 0}, unknown[] = {0, 2};
  EXPECT_EQ(registry_.begin(callable("f"), twice).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(registry_.begin(callable("f"), unknown).error().code(), Code::kNotFound);
  EXPECT_EQ(registry_.begin(callable("f"), {}).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(registry_.on_worker_added(1).error().code(), Code::kWrongState);
  EXPECT_EQ(registry_.on_worker_added(kWorkersMax).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(registry_.used(), 0u);
}

TEST_F(RegistryTest, RefusesHandlesThatItNeverGave) {
  for (const EntryRef ref : {EntryRef{}, EntryRef{7, 1}, EntryRef{0, 0}}) {
    EXPECT_FALSE(registry_.visible(ref));
    EXPECT_EQ(registry_.unregister(ref).error().message(),
              "a callable handle that this Worker never gave");
  }
}

TEST(PreparePayload, ComesBackAndIsRefusedWhenCut) {
  const PreparePayload sent{
      "gemm", model::NativeImportDescriptor{"libk.so", "gemm"}, {"/a/libk.so", "/b/libk.so"}};
  std::vector<std::byte> bytes = encode_payload(sent).value();
  const PreparePayload got = decode_payload(bytes).value();
  EXPECT_EQ(got.name, sent.name);
  EXPECT_EQ(got.descriptor, sent.descriptor);
  EXPECT_EQ(got.library_paths, sent.library_paths);
  for (size_t n = 0; n < bytes.size(); ++n) {
    ASSERT_FALSE(decode_payload(std::vector(bytes.begin(), bytes.begin() + n)).ok()) << n;
  }
  bytes.push_back(std::byte{0});
  EXPECT_FALSE(decode_payload(bytes).ok());
}

TEST(PreparePayload, OfAChipCallableNamesItsBlob) {
  PreparePayload sent{"scale", model::ChipCallableDescriptor{"cpu", "scale", "", {}}, {}};
  EXPECT_FALSE(encode_payload(sent).ok());
  sent.blob_offset = 4096;
  sent.blob_bytes = 77;
  const PreparePayload got = decode_payload(encode_payload(sent).value()).value();
  EXPECT_EQ(got.descriptor, sent.descriptor);
  EXPECT_EQ(got.blob_offset, 4096u);
  EXPECT_EQ(got.blob_bytes, 77u);
  sent.blob_bytes = ChipCallable::kBlobBytesMax + 1;
  EXPECT_FALSE(encode_payload(sent).ok());
}

TEST(PreparePayload, OverALimitIsRefused) {
  PreparePayload payload = callable("f");
  payload.blob_bytes = 1;
  EXPECT_FALSE(encode_payload(payload).ok());
  payload = callable("f");
  payload.library_paths.assign(kLibraryPathsMax, std::string(kPathBytesMax, 'p'));
  EXPECT_TRUE(encode_payload(payload).ok());
  payload.library_paths.emplace_back("p");
  EXPECT_FALSE(encode_payload(payload).ok());
  payload.library_paths = {std::string(kPathBytesMax + 1, 'p')};
  EXPECT_FALSE(encode_payload(payload).ok());
  payload = callable("f");
  payload.name = std::string(256, 'n');
  EXPECT_FALSE(encode_payload(payload).ok());
  payload.name = "\xff";
  EXPECT_FALSE(encode_payload(payload).ok());
  payload = callable("not an identifier");
  EXPECT_FALSE(encode_payload(payload).ok());
}

// ---- inner callables

TEST_F(RegistryTest, InnerOneIsAPairOfItsOwnWithItsDigest) {
  ASSERT_TRUE(registry_.on_worker_added(0, 0, ~0u, true).ok());
  ASSERT_TRUE(registry_.on_worker_added(1).ok());
  answer_all();
  registry_.take_ready();
  PreparePayload inner = callable("f");
  inner.inner = true;
  const EntryRef own = add("f");
  const std::vector<uint32_t> nested = {0};
  ASSERT_TRUE(registry_.begin(inner, nested).ok());
  EXPECT_EQ(take(), (Lines{"0 prepare 1.1"}));
  answer_all();
  const EntryRef ref = registry_.take_outcome().value().value();
  EXPECT_NE(ref.index, own.index);
  EXPECT_EQ(registry_.find(registry_.info(own.index)->digest), own);
  EXPECT_EQ(registry_.find(registry_.info(own.index)->digest, true), ref);
  // One goes, the other stays.
  ASSERT_TRUE(registry_.unregister(own).ok());
  answer_all();
  EXPECT_TRUE(registry_.gone(own));
  EXPECT_TRUE(registry_.visible(ref));
  EXPECT_FALSE(registry_.being_removed(registry_.info(ref.index)->digest, true));
}

TEST_F(RegistryTest, LaterWorkersGetInnerOnesOnlyWhereTheyTakeThem) {
  PreparePayload inner = callable("f");
  inner.inner = true;
  ASSERT_TRUE(registry_.begin(inner, {}).ok());
  registry_.take_outcome().value().value();
  EXPECT_EQ(registry_.on_worker_added(0).value(), 0u);
  EXPECT_EQ(registry_.on_worker_added(1, 0, ~0u, true).value(), 1u);
  EXPECT_EQ(take(), (Lines{"1 prepare 0.1"}));
}

TEST_F(RegistryTest, LaterWorkersGetWhatIsForSomeOnlyWhereTheyAreAmongThem) {
  PreparePayload inner = callable("f");
  inner.inner = true;
  const std::vector<uint32_t> some = {2, 1};
  ASSERT_TRUE(registry_.begin(inner, {}, Registry::Reach::kListed, some).ok());
  registry_.take_outcome().value().value();
  EXPECT_EQ(registry_.on_worker_added(0, 0, ~0u, true).value(), 0u);
  EXPECT_EQ(registry_.on_worker_added(1, 0, ~0u, true).value(), 1u);
  // A second registration adds to them; one for all makes it for all.
  answer_all();
  registry_.take_ready();
  const std::vector<uint32_t> first = {0};
  ASSERT_TRUE(registry_.begin(inner, first, Registry::Reach::kListed).ok());
  answer_all();
  registry_.take_outcome().value().value();
  registry_.on_worker_lost(0);
  EXPECT_EQ(registry_.on_worker_added(0, 0, ~0u, true).value(), 1u);
  EXPECT_EQ(registry_.on_worker_added(3, 0, ~0u, true).value(), 0u);
}

TEST_F(RegistryTest, InnerOneWithoutATakerThatIsThereIsRefused) {
  add_workers(1);
  PreparePayload inner = callable("f");
  inner.inner = true;
  EXPECT_TRUE(registry_.begin(inner, {}).ok());  // none takes such: for those that come
  registry_.take_outcome().value().value();
  ASSERT_TRUE(registry_.on_worker_added(1, 0, ~0u, true).ok());
  answer_all();
  EXPECT_EQ(registry_.begin(inner, {}).error().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace strata::registry
