// Pools, callables on some workers, and groups at a Core: cases that simulations found.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "core_rig.h"

namespace strata::engine {
namespace {

struct PlacesRig : CoreRig {
  using CoreRig::CoreRig;

  registry::EntryRef register_on(const std::string& name, std::vector<uint32_t> workers) {
    EXPECT_TRUE(core.begin_register(native(name), now, workers).ok());
    settle();
    auto outcome = core.take_register_outcome();
    EXPECT_TRUE(outcome && outcome->ok());
    return outcome->value();
  }
  TaskRef submit_as(RunRecord& run, const Job& job) {
    error.reset();
    EXPECT_EQ(core.submit(run, job, TaskArgs(), &ref, &error), Core::Submitted::kDone);
    return ref;
  }
  TaskRef submit_group(RunRecord& run, const Job& job, size_t members) {
    error.reset();
    const std::vector<TaskArgs> args(members);
    EXPECT_EQ(core.submit_group(run, job, args, {}, &ref, &error), Core::Submitted::kDone);
    return ref;
  }
};

TEST(CorePlaces, AMembersFailureDoesNotSkipATaskThatCameAfterAnEndedMember) {
  PlacesRig rig(3, {.slots = 8, .buffers = 8});
  const auto run = rig.core.open_run();
  const TaskRef group = rig.submit_group(*run, {rig.gemm, {}, {}}, 2);
  rig.step();
  std::vector<uint32_t> members;
  uint32_t other = 0;
  for (uint32_t worker = 0; worker < 3; ++worker) {
    if (rig.fake(worker).queue.empty()) {
      other = worker;
    } else {
      members.push_back(worker);
    }
  }
  ASSERT_EQ(members.size(), 2u);
  rig.fake(members[0]).end();
  rig.step();
  // It would get the slot of the member that has ended, if that were free.
  const TaskRef task =
      rig.submit_as(*run, {rig.gemm, {Pool::kSub, static_cast<int32_t>(other)}, {}});
  rig.step();
  rig.fake(members[1]).start();
  rig.fake(members[1]).fail("no");
  rig.step();
  EXPECT_EQ(run->tasks[group.task], TaskState::kTaskFailed);
  EXPECT_EQ(run->tasks[task.task], TaskState::kLive);
  rig.drain();
  EXPECT_EQ(run->tasks[task.task], TaskState::kOk);
}

TEST(CorePlaces, ALaterWorkerTakesNothingOfACallableThatOnlyTheListedOnesHave) {
  PlacesRig rig(2);
  const registry::EntryRef listed = rig.register_on("f", {0, 1});
  const auto run = rig.core.open_run();
  const uint32_t late = rig.add_ready_worker();
  for (int i = 0; i < 6; ++i) rig.submit_as(*run, {listed, {}, {}});
  rig.step();
  EXPECT_TRUE(rig.fake(late).queue.empty());
  EXPECT_EQ(rig.fake(0).queue.size() + rig.fake(1).queue.size(), 6u);
  rig.drain();
}

TEST(CorePlaces, ATaskWhoseListedWorkersAreLostIsSkippedAlthoughOthersMayCome) {
  PlacesRig rig(2);
  const registry::EntryRef listed = rig.register_on("f", {0});
  const auto run = rig.core.open_run();
  const TaskRef task = rig.submit_as(*run, {listed, {}, {}});
  rig.step();
  rig.core.lose_worker(0, "killed");
  rig.step();
  ASSERT_EQ(run->tasks[task.task], TaskState::kSkipped);
  EXPECT_EQ(run->errors.at(0).code(), Code::kNoWorker);
}

TEST(CorePlaces, AnIdleWorkerOfTheOtherPoolDoesNotKeepASleepingOneAsleep) {
  PlacesRig rig(1);
  auto endpoint = std::make_unique<FakeEndpoint>();
  rig.fakes.push_back(endpoint.get());
  const uint32_t next = rig.core.add_worker(std::move(endpoint), {.pool = Pool::kNext});
  rig.core.start_worker(next, rig.now);
  rig.settle();
  rig.fake(0).asleep = true;
  const auto run = rig.core.open_run();
  rig.submit(*run);
  rig.step();
  EXPECT_EQ(rig.fake(0).queue.size(), 1u);
  EXPECT_TRUE(rig.core.has_wakes());
  rig.drain();
}

TEST(CorePlaces, AMemberThatWasNotToldYetIsSkippedInTheStepThatLosesAnother) {
  PlacesRig rig(2);
  const auto run = rig.core.open_run();
  rig.fake(0).room = rig.fake(1).room = 0;
  const TaskRef group = rig.submit_group(*run, {rig.gemm, {}, {}}, 2);
  rig.step();  // both rings are full
  rig.core.lose_worker(0, "killed");
  rig.fake(1).room = 1;
  rig.step();
  EXPECT_TRUE(rig.fake(1).queue.empty());
  EXPECT_EQ(run->tasks[group.task], TaskState::kEndpointFailed);
}

}  // namespace
}  // namespace strata::engine
