// Directed tasks, classes of workers, and groups.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/fault.h"
#include "scheduler_rig.h"

namespace strata::sched {
namespace {

struct GroupRig : Rig {
  using Rig::Rig;

  std::vector<Assignment> assignments() {
    std::vector<Assignment> out;
    while (const auto assignment = scheduler.next_assignment()) {
      scheduler.assigned(*assignment, ++ticket);
      out.push_back(*assignment);
    }
    return out;
  }
};

std::set<uint32_t> workers_of(const std::vector<Assignment>& assignments) {
  std::set<uint32_t> workers;
  for (const Assignment& assignment : assignments) workers.insert(assignment.worker);
  return workers;
}

// ---------------------------------------------------------------- directed tasks

TEST(Directed, ATaskGoesToTheWorkerThatItNames) {
  GroupRig rig(3);
  const uint32_t run = rig.scheduler.open_run();
  for (const uint32_t worker : {2u, 0u, 2u, 1u}) rig.submit_to(run, {0, worker});
  for (const Assignment& assignment : rig.assignments()) {
    EXPECT_EQ(rig.scheduler.slot(assignment.slot).directed, assignment.worker);
  }
  EXPECT_EQ(rig.scheduler.queues().length(2), 2u);
}

TEST(Directed, WhatFindsItsWorkerFullWaitsForItAlone) {
  GroupRig rig(2, {.slots = 64, .depth = 2, .buffers = 64});
  const uint32_t run = rig.scheduler.open_run();
  std::vector<uint32_t> directed;
  for (int i = 0; i < 4; ++i) directed.push_back(rig.submit_to(run, {0, 1}));
  const uint32_t shared = rig.submit(run, {});
  EXPECT_EQ(rig.assignments().size(), 3u);
  EXPECT_EQ(rig.scheduler.slot(shared).worker, 0u);
  rig.end(directed[0]);
  const std::vector<Assignment> next = rig.assignments();
  ASSERT_EQ(next.size(), 1u);
  EXPECT_EQ(next[0].slot, directed[2]);
  EXPECT_EQ(next[0].worker, 1u);
}

TEST(Directed, AnOlderTaskThatItsWorkerMayTakeGoesFirst) {
  GroupRig rig(1, {.slots = 64, .depth = 1, .buffers = 64});
  const uint32_t run = rig.scheduler.open_run();
  const uint32_t running = rig.submit(run, {});
  rig.dispatch();
  const uint32_t older = rig.submit(run, {});
  const uint32_t directed = rig.submit_to(run, {0, 0});
  const uint32_t younger = rig.submit(run, {});
  rig.end(running);
  EXPECT_EQ(rig.dispatch(), (Slots{older}));
  rig.end(older);
  EXPECT_EQ(rig.dispatch(), (Slots{directed}));
  rig.end(directed);
  EXPECT_EQ(rig.dispatch(), (Slots{younger}));
}

TEST(Directed, IsNeverTakenBackForAnother) {
  GroupRig rig(2);
  const uint32_t run = rig.scheduler.open_run();
  for (int i = 0; i < 3; ++i) rig.submit_to(run, {0, 0});
  rig.dispatch();
  EXPECT_FALSE(rig.scheduler.next_take_back());
}

TEST(Directed, TheYoungestOfTheOthersIsTakenBackFromBehindIt) {
  GroupRig rig(1);
  const uint32_t run = rig.scheduler.open_run();
  rig.submit(run, {});
  const uint32_t shared = rig.submit(run, {});
  rig.submit_to(run, {0, 0});
  rig.dispatch();
  rig.scheduler.open_worker(rig.scheduler.add_worker());
  const auto taken = rig.scheduler.next_take_back();
  ASSERT_TRUE(taken);
  EXPECT_EQ(taken->slot, shared);
}

TEST(Directed, IsStrandedWhenItsWorkerIsClosedWhateverElseIsOpen) {
  GroupRig rig(2, {.slots = 64, .depth = 1, .buffers = 64});
  const uint32_t run = rig.scheduler.open_run();
  rig.submit_to(run, {0, 0});
  const uint32_t waiting = rig.submit_to(run, {0, 0});
  rig.dispatch();
  EXPECT_FALSE(rig.scheduler.next_stranded(true));
  rig.scheduler.close_worker(0);
  const uint32_t late = rig.submit_to(run, {0, 0});
  std::set<uint32_t> stranded;
  while (const auto slot = rig.scheduler.next_stranded(true)) {
    stranded.insert(*slot);
    rig.scheduler.skip(*slot, 3);
  }
  EXPECT_EQ(stranded, (std::set<uint32_t>{waiting, late}));
}

// ---------------------------------------------------------------- classes

TEST(Classes, ATaskGoesToWorkersOfItsClassOnly) {
  GroupRig rig(4);
  const std::vector<uint32_t> some{1, 3};
  const uint32_t cls = rig.scheduler.class_of(some);
  ASSERT_NE(cls, kNone);
  EXPECT_EQ(rig.scheduler.class_of(some), cls) << "the same set is the same class";
  const uint32_t run = rig.scheduler.open_run();
  for (int i = 0; i < 4; ++i) rig.submit_to(run, {cls, kNone});
  EXPECT_EQ(workers_of(rig.assignments()), (std::set<uint32_t>{1, 3}));
}

TEST(Classes, PoolsDoNotTakeEachOthersTasks) {
  GroupRig rig(1);
  rig.scheduler.open_worker(rig.scheduler.add_worker(1));
  const uint32_t run = rig.scheduler.open_run();
  const uint32_t sub = rig.submit_to(run, {0, kNone});
  const uint32_t next = rig.submit_to(run, {1, kNone});
  rig.dispatch();
  EXPECT_EQ(rig.scheduler.slot(sub).worker, 0u);
  EXPECT_EQ(rig.scheduler.slot(next).worker, 1u);
}

TEST(Classes, AFullClassDoesNotHoldUpAnother) {
  GroupRig rig(2, {.slots = 64, .depth = 1, .buffers = 64});
  const std::vector<uint32_t> first{0};
  const uint32_t cls = rig.scheduler.class_of(first);
  const uint32_t run = rig.scheduler.open_run();
  rig.submit_to(run, {cls, kNone});
  rig.submit_to(run, {cls, kNone});
  const uint32_t any = rig.submit(run, {});
  rig.dispatch();
  EXPECT_EQ(rig.scheduler.slot(any).worker, 1u);
  EXPECT_TRUE(rig.scheduler.has_ready());
}

TEST(Classes, OnesThatNothingUsesMakeWay) {
  GroupRig rig(12, {.slots = 256, .buffers = 64});
  const uint32_t run = rig.scheduler.open_run();
  std::set<uint32_t> used;
  // 66 pairs of 12 workers, more than there are classes.
  for (uint32_t a = 0; a < 12; ++a) {
    for (uint32_t b = a + 1; b < 12; ++b) {
      const std::vector<uint32_t> pair{a, b};
      const uint32_t cls = rig.scheduler.class_of(pair);
      ASSERT_NE(cls, kNone);
      const uint32_t task = rig.submit_to(run, {cls, kNone});
      rig.dispatch();
      EXPECT_TRUE(rig.scheduler.slot(task).worker == a || rig.scheduler.slot(task).worker == b);
      rig.end(task);
      rig.release();
    }
  }
}

TEST(Classes, TooManyInUseAreRefused) {
  GroupRig rig(12, {.slots = 256, .buffers = 64});
  const uint32_t run = rig.scheduler.open_run();
  uint32_t made = 0;
  for (uint32_t a = 0; a < 12; ++a) {
    for (uint32_t b = a + 1; b < 12; ++b) {
      const std::vector<uint32_t> pair{a, b};
      const uint32_t cls = rig.scheduler.class_of(pair);
      if (cls == kNone) continue;
      rig.submit_to(run, {cls, kNone});
      ++made;
    }
  }
  EXPECT_EQ(made, WorkerQueues::kClassesMax - kPools);
}

TEST(Classes, ATaskIsStrandedWhenTheLastWorkerOfItsClassIsClosed) {
  GroupRig rig(2);
  const std::vector<uint32_t> first{0};
  const uint32_t cls = rig.scheduler.class_of(first);
  const uint32_t run = rig.scheduler.open_run();
  rig.scheduler.close_worker(0);
  const uint32_t task = rig.submit_to(run, {cls, kNone});
  EXPECT_EQ(rig.scheduler.next_stranded(true), task) << "none comes to a class of its own";
}

// ---------------------------------------------------------------- groups

TEST(Groups, MembersGoToDistinctWorkersAllAtOnce) {
  GroupRig rig(3);
  const uint32_t run = rig.scheduler.open_run();
  const uint32_t group = rig.group(run, {kNone, kNone, kNone});
  const std::vector<Assignment> launched = rig.assignments();
  ASSERT_EQ(launched.size(), 3u);
  EXPECT_EQ(workers_of(launched).size(), 3u);
  for (const Assignment& assignment : launched) rig.end(assignment.slot);
  rig.release();
  EXPECT_EQ(rig.outcomes.at(group), Outcome::kOk);
  EXPECT_EQ(rig.scheduler.live(), 0u);
}

TEST(Groups, EachMemberThatNamesAWorkerGetsIt) {
  GroupRig rig(4);
  const uint32_t run = rig.scheduler.open_run();
  const uint32_t group = rig.group(run, {kNone, 2, kNone, 0});
  const std::vector<Assignment> launched = rig.assignments();
  EXPECT_EQ(workers_of(launched).size(), 4u);
  EXPECT_EQ(rig.scheduler.slot(rig.scheduler.member_slot(group, 1)).worker, 2u);
  EXPECT_EQ(rig.scheduler.slot(rig.scheduler.member_slot(group, 3)).worker, 0u);
}

TEST(Groups, NothingStartsBeforeAllWorkersAreEmpty) {
  GroupRig rig(2);
  const uint32_t run = rig.scheduler.open_run();
  const uint32_t running = rig.submit(run, {});
  rig.dispatch();
  rig.group(run, {kNone, kNone});
  EXPECT_TRUE(rig.assignments().empty());
  rig.end(running);
  EXPECT_EQ(rig.assignments().size(), 2u);
}

TEST(Groups, YoungerWorkWaitsForReservedWorkersOnly) {
  GroupRig rig(3);
  const uint32_t run = rig.scheduler.open_run();
  const uint32_t running = rig.submit_to(run, {0, 0});
  rig.dispatch();
  rig.group(run, {0, 1});
  const uint32_t younger = rig.submit(run, {});
  EXPECT_EQ(rig.dispatch(), (Slots{younger}));
  EXPECT_EQ(rig.scheduler.slot(younger).worker, 2u);
  const uint32_t directed = rig.submit_to(run, {0, 1});
  EXPECT_TRUE(rig.dispatch().empty());
  rig.end(running);
  const std::vector<Assignment> launched = rig.assignments();
  EXPECT_EQ(workers_of(launched), (std::set<uint32_t>{0, 1}));
  for (const Assignment& assignment : launched) rig.end(assignment.slot);
  EXPECT_EQ(rig.dispatch(), (Slots{directed}));
}

TEST(Groups, AFlowOfYoungerTasksDoesNotKeepAGroupWaiting) {
  GroupRig rig(2, {.slots = 64, .depth = 4, .buffers = 64});
  const uint32_t run = rig.scheduler.open_run();
  for (int i = 0; i < 8; ++i) rig.submit(run, {});
  rig.dispatch();
  const uint32_t group = rig.group(run, {kNone, kNone});
  for (int i = 0; i < 20; ++i) rig.submit(run, {});
  for (int steps = 0; rig.scheduler.slot(group).state == SlotState::kReady; ++steps) {
    ASSERT_LT(steps, 10) << "only what stood before the group may come first";
    rig.dispatch();
    for (const uint32_t worker : {0u, 1u}) {
      std::vector<uint32_t> queued;
      rig.scheduler.queues().for_each_slot(worker, [&](uint32_t slot) { queued.push_back(slot); });
      if (!queued.empty() && !rig.scheduler.slot(queued[0]).member) rig.end(queued[0]);
    }
  }
}

TEST(Groups, ABusyReservedWorkerIsExchangedForOneThatBecomesEmpty) {
  GroupRig rig(2);
  const uint32_t run = rig.scheduler.open_run();
  const uint32_t first = rig.submit_to(run, {0, 0});
  const uint32_t second = rig.submit_to(run, {0, 1});
  rig.dispatch();
  rig.group(run, {kNone});
  EXPECT_TRUE(rig.assignments().empty());
  const bool first_is_held = rig.scheduler.queues().is_held(0);
  rig.end(first_is_held ? second : first);
  const std::vector<Assignment> launched = rig.assignments();
  ASSERT_EQ(launched.size(), 1u);
  EXPECT_EQ(launched[0].worker, first_is_held ? 1u : 0u);
}

TEST(Groups, NothingIsQueuedBehindAMemberUntilItEnds) {
  GroupRig rig(1);
  const uint32_t run = rig.scheduler.open_run();
  rig.group(run, {kNone});
  const std::vector<Assignment> launched = rig.assignments();
  ASSERT_EQ(launched.size(), 1u);
  const uint32_t later = rig.submit(run, {});
  const uint32_t directed = rig.submit_to(run, {0, 0});
  EXPECT_TRUE(rig.dispatch().empty());
  rig.end(launched[0].slot);
  EXPECT_EQ(rig.dispatch(), (Slots{later, directed}));
}

TEST(Groups, ItsReadersWaitForAllMembersAndWritersBeforeItComeFirst) {
  GroupRig rig(2);
  const uint32_t run = rig.scheduler.open_run();
  const uint32_t writer = rig.submit(run, {output(1)});
  const uint32_t group = rig.group(run, {kNone, kNone}, {input(1), output(2), output(3)});
  const uint32_t reader = rig.submit(run, {input(3)});
  EXPECT_EQ(rig.dispatch(), (Slots{writer}));
  rig.end(writer);
  rig.release();
  const std::vector<Assignment> launched = rig.assignments();
  ASSERT_EQ(launched.size(), 2u);
  rig.end(launched[0].slot);
  EXPECT_EQ(rig.state(reader), SlotState::kWaiting);
  rig.end(launched[1].slot);
  EXPECT_EQ(rig.state(group), SlotState::kTerminal);
  EXPECT_EQ(rig.dispatch(), (Slots{reader}));
}

TEST(Groups, TheFirstFailureIsTheGroupsAndPoisonsAllItsOutputs) {
  GroupRig rig(3);
  const uint32_t run = rig.scheduler.open_run();
  const uint32_t group = rig.group(run, {kNone, kNone, kNone}, {output(1), output(2)});
  const uint32_t reader = rig.submit(run, {input(2)});
  const std::vector<Assignment> launched = rig.assignments();
  rig.fail(launched[1].slot, 7);
  EXPECT_EQ(rig.scheduler.take_failed_group(), group);
  EXPECT_FALSE(rig.scheduler.take_failed_group());
  rig.fail(launched[0].slot, 8);
  rig.scheduler.finish(launched[2].slot, Outcome::kSkipped, 7);
  rig.release();
  EXPECT_EQ(rig.outcomes.at(group), Outcome::kTaskFailed);
  EXPECT_EQ(rig.causes.at(group), 7u);
  EXPECT_EQ(rig.outcomes.at(reader), Outcome::kSkipped);
  EXPECT_EQ(rig.causes.at(reader), 7u);
}

TEST(Groups, AMemberThatHasEndedKeepsItsSlotUntilTheGroupEnds) {
  GroupRig rig(2);
  const uint32_t run = rig.scheduler.open_run();
  const uint32_t group = rig.group(run, {kNone, kNone});
  const std::vector<Assignment> launched = rig.assignments();
  rig.end(launched[0].slot);
  EXPECT_TRUE(rig.release().empty());
  EXPECT_EQ(rig.state(launched[0].slot), SlotState::kTerminal);
  rig.fail(launched[1].slot, 3);
  EXPECT_EQ(rig.release().size(), 3u);
  EXPECT_EQ(rig.outcomes.at(group), Outcome::kTaskFailed);
}

TEST(Groups, AReaderThatIsSubmittedWhileMembersRunWaitsForTheGroup) {
  GroupRig rig(2);
  const uint32_t run = rig.scheduler.open_run();
  rig.group(run, {kNone, kNone}, {output(1)});
  const std::vector<Assignment> launched = rig.assignments();
  const uint32_t reader = rig.submit(run, {input(1)});
  for (const Assignment& assignment : launched) rig.end(assignment.slot);
  EXPECT_EQ(rig.dispatch(), (Slots{reader}));
}

TEST(Groups, OneThatReadsPoisonIsSkippedWithItsMembers) {
  GroupRig rig(2);
  const uint32_t run = rig.scheduler.open_run();
  const uint32_t writer = rig.submit(run, {output(1)});
  const uint32_t group = rig.group(run, {kNone, kNone}, {input(1)});
  rig.dispatch();
  rig.fail(writer, 4);
  rig.release();
  EXPECT_EQ(rig.outcomes.at(group), Outcome::kSkipped);
  EXPECT_EQ(rig.scheduler.live(), 0u);
}

TEST(Groups, OneForWhichTooFewWorkersAreLeftIsStrandedAndGivesItsReservationsBack) {
  GroupRig rig(3);
  const uint32_t run = rig.scheduler.open_run();
  const uint32_t running = rig.submit_to(run, {0, 0});
  rig.dispatch();
  const uint32_t group = rig.group(run, {kNone, kNone, kNone});
  EXPECT_TRUE(rig.assignments().empty());
  EXPECT_FALSE(rig.scheduler.next_stranded(false));
  rig.scheduler.close_worker(2);
  EXPECT_EQ(rig.scheduler.next_stranded(false), group);
  rig.scheduler.skip(group, 9);
  const uint32_t next = rig.submit(run, {});
  EXPECT_EQ(rig.dispatch(), (Slots{next})) << "worker 1 is free again";
  rig.end(running);
}

TEST(Groups, ALostReservedWorkerIsReplacedByAnotherWhereThereIsOne) {
  GroupRig rig(3);
  const uint32_t run = rig.scheduler.open_run();
  const uint32_t running = rig.submit_to(run, {0, 0});
  const uint32_t other = rig.submit_to(run, {0, 1});
  rig.dispatch();
  rig.group(run, {kNone, kNone});
  EXPECT_TRUE(rig.assignments().empty());
  ASSERT_TRUE(rig.scheduler.queues().is_held(2));
  rig.scheduler.close_worker(2);
  EXPECT_FALSE(rig.scheduler.next_stranded(false));
  rig.end(running);
  rig.end(other);
  EXPECT_EQ(workers_of(rig.assignments()), (std::set<uint32_t>{0, 1}));
}

TEST(Groups, AMemberWhoseWorkerIsClosedBeforeItIsToldIsStranded) {
  GroupRig rig(2);
  const uint32_t run = rig.scheduler.open_run();
  const uint32_t group = rig.group(run, {0, 1});
  const auto first = rig.scheduler.next_assignment();
  ASSERT_TRUE(first);
  rig.scheduler.assigned(*first, 1);
  const uint32_t left = 1 - first->worker;
  rig.scheduler.close_worker(left);
  EXPECT_FALSE(rig.scheduler.next_assignment());
  const auto stranded = rig.scheduler.next_stranded(true);
  ASSERT_TRUE(stranded);
  EXPECT_TRUE(rig.scheduler.slot(*stranded).member);
  rig.scheduler.finish(*stranded, Outcome::kEndpointFailed, 5);
  EXPECT_FALSE(rig.scheduler.next_stranded(true));
  rig.end(first->slot);
  rig.release();
  EXPECT_EQ(rig.outcomes.at(group), Outcome::kEndpointFailed);
}

TEST(Groups, ARefusedMemberIsOfferedAgainWhenItsWorkerHasRoom) {
  GroupRig rig(1);
  const uint32_t run = rig.scheduler.open_run();
  rig.group(run, {kNone});
  const auto member = rig.scheduler.next_assignment();
  ASSERT_TRUE(member);
  rig.scheduler.refused(*member);
  EXPECT_FALSE(rig.scheduler.next_assignment());
  rig.scheduler.unbar(member->worker);
  EXPECT_EQ(rig.scheduler.next_assignment()->slot, member->slot);
}

TEST(Groups, CancelSkipsAWaitingGroupAndFreesWhatItHeld) {
  GroupRig rig(2);
  const uint32_t run = rig.scheduler.open_run();
  const uint32_t running = rig.submit_to(run, {0, 0});
  rig.dispatch();
  const uint32_t group = rig.group(run, {kNone, kNone});
  EXPECT_TRUE(rig.assignments().empty());
  rig.scheduler.cancel_run(run, 6);
  EXPECT_EQ(rig.state(group), SlotState::kTerminal);
  EXPECT_FALSE(rig.scheduler.queues().is_held(1));
  rig.end(running);
  rig.release();
  EXPECT_EQ(rig.outcomes.at(group), Outcome::kSkipped);
}

TEST(Groups, TheOldestWaitingGroupComesFirst) {
  GroupRig rig(2);
  const uint32_t run = rig.scheduler.open_run();
  const uint32_t running = rig.submit_to(run, {0, 0});
  rig.dispatch();
  const uint32_t first = rig.group(run, {kNone, kNone});
  const uint32_t second = rig.group(run, {kNone});
  EXPECT_TRUE(rig.assignments().empty()) << "worker 1 is the first group's";
  rig.end(running);
  const std::vector<Assignment> launched = rig.assignments();
  ASSERT_EQ(launched.size(), 2u);
  EXPECT_EQ(rig.scheduler.slot(launched[0].slot).group, rig.scheduler.slot(first).group);
  for (const Assignment& assignment : launched) rig.end(assignment.slot);
  EXPECT_EQ(rig.assignments().size(), 1u);
  EXPECT_EQ(rig.state(second), SlotState::kLaunched);
}

TEST(Groups, TheDeliberateFault11LaunchesBehindAQueuedTask) {
#ifdef STRATA_FAULTS
  base::set_fault(11);
  GroupRig rig(1);
  const uint32_t run = rig.scheduler.open_run();
  rig.submit(run, {});
  rig.dispatch();
  rig.group(run, {kNone});
  EXPECT_EQ(rig.assignments().size(), 1u);
  base::set_fault(0);
#else
  GTEST_SKIP() << "built without the deliberate faults";
#endif
}

}  // namespace
}  // namespace strata::sched
