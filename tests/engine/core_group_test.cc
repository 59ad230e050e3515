// Directed tasks, subsets of workers and groups through the Core: what is refused, what fails.
#include <algorithm>

#include "base/prng.h"
#include "core_rig.h"
#include "engine/member_conflict.h"

namespace strata::engine {
namespace {

struct GroupRig : CoreRig {
  using CoreRig::CoreRig;

  Core::Submitted group(RunRecord& run, const std::vector<TaskArgs>& members,
                        const std::vector<int32_t>& workers = {}) {
    error.reset();
    return core.submit_group(run, {gemm, Where{}, CallConfig{}}, members, workers, &ref, &error);
  }
  Core::Submitted directed(RunRecord& run, int32_t worker, Pool pool = Pool::kSub) {
    error.reset();
    return core.submit(run, {gemm, {pool, worker}, CallConfig{}}, TaskArgs(), &ref, &error);
  }
  std::string text() const { return error ? error->to_string() : ""; }
};

TaskArgs with(const Tensor& tensor, TensorArgType tag) {
  return TaskArgs().add_tensor(tensor, tag);
}

#define EXPECT_IN(piece, text) EXPECT_NE((text).find(piece), std::string::npos) << (text)

TEST(CoreDirected, GoesToItsWorkerAndIsRefusedForOneThatIsNotThere) {
  GroupRig rig(2);
  const auto run = rig.core.open_run();
  ASSERT_EQ(rig.directed(*run, 1), Core::Submitted::kDone);
  rig.step();
  EXPECT_EQ(rig.fake(1).queue.size(), 1u);
  EXPECT_EQ(rig.directed(*run, 2), Core::Submitted::kRefused);
  EXPECT_IN("there is no SUB child 2; this Worker has 0, 1", rig.text());
  EXPECT_EQ(rig.directed(*run, -2), Core::Submitted::kRefused);
  EXPECT_EQ(rig.directed(*run, 0, Pool::kNext), Core::Submitted::kRefused);
  EXPECT_IN("no next-level child 0; this Worker has none", rig.text());
}

TEST(CoreDirected, IsRefusedForALostWorkerAndSkippedWhereItIsLostMeanwhile) {
  GroupRig rig(2, {.slots = 64, .depth = 1, .buffers = 64});
  const auto run = rig.core.open_run();
  ASSERT_EQ(rig.directed(*run, 1), Core::Submitted::kDone);
  ASSERT_EQ(rig.directed(*run, 1), Core::Submitted::kDone);
  rig.step();
  rig.fake(1).start();
  rig.core.lose_worker(1, "killed by signal 9");
  rig.step();
  EXPECT_EQ(run->progress.failed, 1u);
  EXPECT_EQ(run->progress.skipped, 1u);
  EXPECT_EQ(run->errors.at(1).code(), Code::kNoWorker);
  EXPECT_IN("which it was submitted to, was lost: killed by signal 9", run->errors.at(1).message());
  EXPECT_EQ(rig.directed(*run, 1), Core::Submitted::kRefused);
  EXPECT_IN("was lost: killed by signal 9", rig.text());
}

TEST(CoreClasses, ACallableOnSomeWorkersRunsThereOnly) {
  GroupRig rig(3);
  const std::vector<uint32_t> some{0, 2};
  ASSERT_TRUE(rig.core.begin_register(native("rare"), rig.now, some).ok());
  rig.settle();
  rig.gemm = rig.core.take_register_outcome()->value();
  const auto run = rig.core.open_run();
  for (int i = 0; i < 4; ++i) rig.submit(*run);
  rig.step();
  EXPECT_EQ(rig.fake(0).queue.size(), 2u);
  EXPECT_EQ(rig.fake(1).queue.size(), 0u);
  EXPECT_EQ(rig.fake(2).queue.size(), 2u);
  EXPECT_EQ(rig.directed(*run, 1), Core::Submitted::kRefused);
  EXPECT_IN("'rare' is not registered on worker 1", rig.text());
  // A later worker does not get it.
  const uint32_t late = rig.add_ready_worker();
  EXPECT_EQ(rig.directed(*run, static_cast<int32_t>(late)), Core::Submitted::kRefused);
}

TEST(CoreClasses, RegistrationOnAWorkerThatCannotRunTheKindIsRefused) {
  GroupRig rig(0);
  auto endpoint = std::make_unique<FakeEndpoint>();
  rig.fakes.push_back(endpoint.get());
  rig.core.add_worker(std::move(endpoint),
                      {Pool::kNext, 1u << static_cast<uint32_t>(CallableKind::kChipCallable)});
  rig.core.start_worker(0, rig.now);
  rig.settle();
  const std::vector<uint32_t> chip{0};
  const Result<void> begun = rig.core.begin_register(native("f"), rig.now, chip);
  ASSERT_FALSE(begun.ok());
  EXPECT_EQ(begun.error().code(), Code::kUnsupported);
  EXPECT_IN("'f' is a NATIVE_IMPORT, which L3/0 fake cannot run", begun.error().to_string());
}

TEST(CoreGroups, MembersRunTogetherAndTheGroupIsOneTask) {
  GroupRig rig(3);
  const auto run = rig.core.open_run();
  const Core::NewBuffer out = rig.buffer(64);
  std::vector<TaskArgs> members;
  for (uint64_t i = 0; i < 3; ++i) members.push_back(with(tensor_of(out, 16 * i, 16), OUTPUT));
  ASSERT_EQ(rig.group(*run, members), Core::Submitted::kDone) << rig.text();
  rig.step();
  for (uint32_t worker = 0; worker < 3; ++worker) {
    ASSERT_EQ(rig.fake(worker).queue.size(), 1u);
    rig.fake(worker).end("r" + std::to_string(worker));
  }
  rig.step();
  rig.core.seal_run(*run, std::nullopt);
  EXPECT_TRUE(run->done);
  EXPECT_EQ(run->progress.submitted, 1u);
  EXPECT_EQ(run->progress.succeeded, 1u);
  EXPECT_EQ(run->results.size(), 3u);
  EXPECT_EQ(rig.core.buffers().at(out.index).references, 0u);
}

TEST(CoreGroups, WhatCannotRunTogetherIsRefusedInWords) {
  GroupRig rig(2);
  rig.core.expect_no_more_workers();
  const auto run = rig.core.open_run();
  const Core::NewBuffer x = rig.buffer(64);
  const TaskArgs none;
  EXPECT_EQ(rig.group(*run, {}), Core::Submitted::kRefused);
  EXPECT_IN("a group without members", rig.text());
  EXPECT_EQ(rig.group(*run, {none, none, none}), Core::Submitted::kRefused);
  EXPECT_IN("a group of 3 members, and 2 live workers", rig.text());
  EXPECT_EQ(rig.group(*run, {none, none}, {1, 1}), Core::Submitted::kRefused);
  EXPECT_IN("names worker 1 twice", rig.text());
  EXPECT_EQ(rig.group(*run, {none, none}, {1}), Core::Submitted::kRefused);
  EXPECT_IN("2 members with 1 workers", rig.text());
  EXPECT_EQ(rig.group(*run, {none, none}, {1, 7}), Core::Submitted::kRefused);
  EXPECT_IN("no SUB child 7", rig.text());
  EXPECT_EQ(rig.group(*run, {with(tensor_of(x, 0, 16), OUTPUT), with(tensor_of(x, 8, 16), INPUT)}),
            Core::Submitted::kRefused);
  EXPECT_IN("members 0 and 1 name the same bytes (from byte 8", rig.text());
  EXPECT_EQ(rig.group(*run, {none, with(tensor_of(x, 60, 16), INPUT)}), Core::Submitted::kRefused);
  EXPECT_IN("member 1: ", rig.text());
  EXPECT_EQ(run->progress.submitted, 0u);
  EXPECT_EQ(rig.core.buffers().at(x.index).references, 0u);
  // Read by both, or without a dependency: together.
  EXPECT_EQ(rig.group(*run, {with(tensor_of(x), INPUT), with(tensor_of(x), INPUT)}),
            Core::Submitted::kDone);
  EXPECT_EQ(rig.group(*run, {with(tensor_of(x), NO_DEP), with(tensor_of(x), NO_DEP)}),
            Core::Submitted::kDone);
}

TEST(CoreGroups, AGroupThatNeverHasSlotsIsRefusedAndOneThatHasNoneNowWaits) {
  GroupRig rig(4, {.slots = 4, .buffers = 64});
  const auto run = rig.core.open_run();
  const TaskArgs none;
  EXPECT_EQ(rig.group(*run, {none, none, none, none}), Core::Submitted::kRefused);
  EXPECT_IN("takes 5 slots of 4; Limits::slots", rig.text());
  EXPECT_EQ(rig.group(*run, {none, none, none}), Core::Submitted::kDone);
  EXPECT_EQ(rig.group(*run, {none}), Core::Submitted::kFull);
}

TEST(CoreGroups, AFailedMemberKeepsThoseFromStartingThatHaveNotAndLetsOthersEnd) {
  GroupRig rig(3);
  const auto run = rig.core.open_run();
  const TaskArgs none;
  ASSERT_EQ(rig.group(*run, {none, none, none}), Core::Submitted::kDone);
  rig.step();
  rig.fake(0).start();
  rig.fake(1).start();
  rig.fake(0).fail("no luck");
  rig.step();
  EXPECT_EQ(rig.fake(2).queue.size(), 0u) << "revoked";
  EXPECT_EQ(run->progress.failed, 0u) << "member 1 still runs";
  rig.fake(1).end();
  rig.step();
  EXPECT_EQ(run->progress.failed, 1u);
  ASSERT_TRUE(run->root.has_value());
  EXPECT_EQ(run->root->error.code(), Code::kTaskFailed);
  EXPECT_IN("no luck", run->root->error.message());
  EXPECT_IN("L3/0 pid 100, task 0 'gemm', member", run->root->error.where());
}

TEST(CoreGroups, ALostWorkerFailsTheGroupWhetherItsMemberHadStartedOrNot) {
  for (const bool started : {true, false}) {
    GroupRig rig(2);
    const auto run = rig.core.open_run();
    const TaskArgs none;
    ASSERT_EQ(rig.group(*run, {none, none}), Core::Submitted::kDone);
    rig.step();
    if (started) rig.fake(1).start();
    rig.fake(0).start();
    rig.core.lose_worker(1, "killed by signal 9");
    rig.step();
    rig.fake(0).end();
    rig.step();
    ASSERT_EQ(run->progress.failed, 1u) << started;
    EXPECT_EQ(run->root->error.code(), Code::kEndpointFailed);
    EXPECT_IN("killed by signal 9", run->root->error.message());
    // The other worker is free for what comes.
    rig.submit(*run);
    rig.step();
    EXPECT_EQ(rig.fake(0).queue.size(), 1u);
  }
}

TEST(CoreGroups, OneThatHasNoLongerEnoughWorkersFailsWithTheLoss) {
  GroupRig rig(2);
  rig.core.expect_no_more_workers();
  const auto run = rig.core.open_run();
  const TaskArgs none;
  rig.submit(*run);
  rig.step();
  ASSERT_EQ(rig.group(*run, {none, none}), Core::Submitted::kDone);
  rig.step();
  rig.core.lose_worker(1, "exit status 3");
  rig.step();
  EXPECT_EQ(run->progress.skipped, 1u);
  EXPECT_EQ(run->errors.at(1).code(), Code::kNoWorker);
  EXPECT_IN("its group has 2 members", run->errors.at(1).message());
  EXPECT_IN("exit status 3", run->errors.at(1).message());
  rig.drain();
  rig.submit(*run);
  rig.drain();
  EXPECT_EQ(run->progress.succeeded, 2u);
}

TEST(CoreGroups, CancelRevokesMembersAndEndsTheGroup) {
  GroupRig rig(2);
  const auto run = rig.core.open_run();
  const TaskArgs none;
  ASSERT_EQ(rig.group(*run, {none, none}), Core::Submitted::kDone);
  ASSERT_EQ(rig.group(*run, {none, none}), Core::Submitted::kDone);
  rig.step();
  rig.fake(0).start();
  rig.core.cancel_run(*run);
  rig.step();
  EXPECT_EQ(rig.fake(1).queue.size(), 0u);
  EXPECT_EQ(run->progress.skipped, 1u) << "the second; the first still has a member that runs";
  rig.fake(0).end();
  rig.step();
  EXPECT_EQ(run->progress.skipped, 2u);
}

TEST(CoreStorage, AnOutputWithoutStorageGetsSomeUntilItsScopeEnds) {
  CoreRig rig(1);
  const auto run = rig.core.open_run();
  TaskArgs args;
  args.add_tensor(Tensor::without_storage<double>({8}), OUTPUT);
  EXPECT_EQ(rig.try_submit(*run, args), Core::Submitted::kRefused);
  EXPECT_NE(rig.error->message().find("without storage"), std::string::npos);
  std::vector<size_t> given;
  ASSERT_TRUE(rig.core.give_storage(args, &given).ok());
  EXPECT_EQ(given, std::vector<size_t>{0});
  ASSERT_EQ(rig.try_submit(*run, args), Core::Submitted::kDone);
  const uint32_t index = args.tensor(0).buffer_index;
  EXPECT_EQ(rig.core.buffers().at(index).bytes, 64u);
  rig.core.seal_run(*run, std::nullopt);
  EXPECT_EQ(rig.core.buffers().used(), 1u) << "its task has not run yet";
  rig.drain();
  EXPECT_EQ(rig.core.buffers().used(), 0u);
}

TEST(CoreStorage, WhatARefusedSubmitWasGivenIsTakenBack) {
  CoreRig rig(1, {.slots = 64, .buffers = 2});
  const auto run = rig.core.open_run();
  TaskArgs args;
  for (int i = 0; i < 3; ++i) args.add_tensor(Tensor::without_storage<double>({8}), OUTPUT);
  std::vector<size_t> given;
  const Result<void> got = rig.core.give_storage(args, &given);
  ASSERT_FALSE(got.ok());
  EXPECT_EQ(got.error().code(), Code::kResourceExhausted);
  EXPECT_EQ(rig.core.buffers().used(), 0u);
  EXPECT_TRUE(args.tensor(0).wants_storage());
}

// ---------------------------------------------------------------- conflicts

sched::Access access(uint32_t buffer, uint64_t begin, uint64_t end, bool reads, bool writes) {
  return {buffer, graph::Region::range(begin, end), reads, writes};
}

TEST(MemberConflict, IsFoundBetweenMembersAndNotWithinOne) {
  const std::vector<sched::Access> accesses{access(1, 0, 8, false, true),
                                            access(1, 4, 12, true, false)};
  const std::vector<uint32_t> same{0, 0};
  const std::vector<uint32_t> different{3, 1};
  EXPECT_FALSE(find_member_conflict(accesses, same));
  const auto found = find_member_conflict(accesses, different);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->first, 1u);
  EXPECT_EQ(found->second, 3u);
  EXPECT_EQ(found->byte, 4u);
}

TEST(MemberConflict, ColumnsOfOneMatrixDoNotMeet) {
  std::vector<sched::Access> accesses;
  std::vector<uint32_t> members;
  for (uint32_t column = 0; column < 16; ++column) {
    accesses.push_back({5, graph::Region{column * 8, 8, 100, 128, false}, false, true});
    members.push_back(column);
  }
  EXPECT_FALSE(find_member_conflict(accesses, members));
  accesses.push_back({5, graph::Region{8, 16, 100, 128, false}, true, false});
  members.push_back(16);
  EXPECT_TRUE(find_member_conflict(accesses, members));
}

TEST(MemberConflict, AgreesWithAllPairsOnRandomRanges) {
  base::Prng prng(11);
  for (int round = 0; round < 2'000; ++round) {
    std::vector<sched::Access> accesses;
    std::vector<uint32_t> members;
    const auto count = 2 + prng.below(8);
    for (uint64_t i = 0; i < count; ++i) {
      const uint64_t begin = prng.below(100);
      const uint64_t kind = prng.below(4);
      accesses.push_back(access(static_cast<uint32_t>(prng.below(3)), begin, begin + prng.below(12),
                                kind != 1 && kind != 3, kind == 1 || kind == 2));
      members.push_back(static_cast<uint32_t>(prng.below(4)));
    }
    bool any = false;
    for (size_t i = 0; i < accesses.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        any = any || (members[i] != members[j] && accesses[i].buffer == accesses[j].buffer &&
                      (accesses[i].writes || accesses[j].writes) &&
                      (accesses[i].writes || accesses[i].reads) &&
                      (accesses[j].writes || accesses[j].reads) &&
                      graph::overlap(accesses[i].region, accesses[j].region));
      }
    }
    ASSERT_EQ(find_member_conflict(accesses, members).has_value(), any) << round;
  }
}

}  // namespace
}  // namespace strata::engine
