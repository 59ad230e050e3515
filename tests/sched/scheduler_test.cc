#include "sched/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <map>
#include <numeric>
#include <vector>

namespace strata::sched {
namespace {

Access input(uint32_t buffer, uint64_t begin = 0, uint64_t end = 8) {
  return {buffer, graph::Region::range(begin, end), true, false};
}
Access output(uint32_t buffer, uint64_t begin = 0, uint64_t end = 8) {
  return {buffer, graph::Region::range(begin, end), false, true};
}
Access inout(uint32_t buffer, uint64_t begin = 0, uint64_t end = 8) {
  return {buffer, graph::Region::range(begin, end), true, true};
}
Access no_dep(uint32_t buffer) {
  return {buffer, graph::Region::range(0, 8), false, false};
}

// A scheduler with workers that run nothing: the test says what each task does.
struct Rig {
  explicit Rig(uint32_t workers = 1, Scheduler::Options options = {.slots = 64, .buffers = 64})
      : scheduler(options) {
    for (uint32_t i = 0; i < workers; ++i) scheduler.open_worker(scheduler.add_worker());
  }

  uint32_t submit(uint32_t run, std::initializer_list<Access> accesses) {
    const std::vector<Access> list(accesses);
    EXPECT_TRUE(scheduler.admits(list, 8));
    return scheduler.submit(run, list, 8);
  }
  // Hands out all that can be handed out; the slots in that order.
  std::vector<uint32_t> dispatch() {
    std::vector<uint32_t> slots;
    while (const auto assignment = scheduler.next_assignment()) {
      scheduler.assigned(*assignment, ++ticket);
      slots.push_back(assignment->slot);
    }
    return slots;
  }
  void end(uint32_t slot) { scheduler.finish(slot, Outcome::kOk, 0); }
  void fail(uint32_t slot, uint32_t cause) { scheduler.finish(slot, Outcome::kTaskFailed, cause); }
  // What became terminal since the last call.
  std::vector<uint32_t> release() {
    std::vector<uint32_t> slots = scheduler.terminal();
    for (const uint32_t slot : slots) {
      outcomes[slot] = scheduler.slot(slot).outcome;
      causes[slot] = scheduler.slot(slot).cause;
    }
    scheduler.release_terminal();
    return slots;
  }
  // Runs everything to its end.
  void drain() {
    for (;;) {
      const std::vector<uint32_t> slots = dispatch();
      for (const uint32_t slot : slots) end(slot);
      if (release().empty() && slots.empty()) return;
    }
  }
  SlotState state(uint32_t slot) const { return scheduler.slot(slot).state; }

  Scheduler scheduler;
  uint64_t ticket = 0;
  std::map<uint32_t, Outcome> outcomes;
  std::map<uint32_t, uint32_t> causes;
};

using Slots = std::vector<uint32_t>;

// ---------------------------------------------------------------- dependencies

TEST(Scheduler, TasksWithoutAccessesAreReadyAtOnceInTheOrderOfSubmission) {
  Rig rig;
  const uint32_t run = rig.scheduler.open_run();
  const uint32_t a = rig.submit(run, {});
  const uint32_t b = rig.submit(run, {});
  EXPECT_EQ(rig.dispatch(), (Slots{a, b}));
  EXPECT_EQ(rig.scheduler.edges_made(), 0u);
}

TEST(Scheduler, AReaderWaitsForTheWriterBeforeIt) {
  Rig rig;
  const uint32_t run = rig.scheduler.open_run();
  const uint32_t writer = rig.submit(run, {output(1)});
  const uint32_t reader = rig.submit(run, {input(1)});
  EXPECT_EQ(rig.dispatch(), (Slots{writer}));
  EXPECT_EQ(rig.state(reader), SlotState::kWaiting);
  rig.end(writer);
  EXPECT_EQ(rig.dispatch(), (Slots{reader}));
}

TEST(Scheduler, AWriterWaitsForAllReadersBeforeIt) {
  Rig rig(4);
  const uint32_t run = rig.scheduler.open_run();
  const uint32_t first = rig.submit(run, {input(1)});
  const uint32_t second = rig.submit(run, {input(1)});
  const uint32_t writer = rig.submit(run, {output(1)});
  EXPECT_EQ(rig.dispatch(), (Slots{first, second}));
  rig.end(second);
  EXPECT_EQ(rig.dispatch(), Slots{});
  rig.end(first);
  EXPECT_EQ(rig.dispatch(), (Slots{writer}));
}

TEST(Scheduler, AWriterWaitsForTheWriterBeforeIt) {
  Rig rig(2);
  const uint32_t run = rig.scheduler.open_run();
  const uint32_t first = rig.submit(run, {output(1)});
  const uint32_t second = rig.submit(run, {output(1)});
  EXPECT_EQ(rig.dispatch(), (Slots{first}));
  rig.end(first);
  EXPECT_EQ(rig.dispatch(), (Slots{second}));
}

TEST(Scheduler, OtherBytesAndOtherBuffersAreIndependent) {
  Rig rig(4);
  const uint32_t run = rig.scheduler.open_run();
  const uint32_t a = rig.submit(run, {output(1, 0, 8)});
  const uint32_t b = rig.submit(run, {output(1, 8, 16)});
  const uint32_t c = rig.submit(run, {inout(2)});
  EXPECT_EQ(rig.dispatch(), (Slots{a, b, c}));
}

TEST(Scheduler, AnAccessWithoutADependencyOrdersNothing) {
  Rig rig(2);
  const uint32_t run = rig.scheduler.open_run();
  const uint32_t writer = rig.submit(run, {output(1)});
  const uint32_t other = rig.submit(run, {no_dep(1)});
  EXPECT_EQ(rig.dispatch(), (Slots{writer, other}));
}

TEST(Scheduler, OneProducerOfManyInputsIsOneEdge) {
  Rig rig;
  const uint32_t run = rig.scheduler.open_run();
  const uint32_t writer = rig.submit(run, {output(1), output(2), output(3)});
  const uint32_t reader = rig.submit(run, {input(1), input(2), inout(3)});
  EXPECT_EQ(rig.scheduler.edges_made(), 1u);
  EXPECT_EQ(rig.scheduler.slot(reader).pending, 1u);
  EXPECT_EQ(rig.dispatch(), (Slots{writer}));
  rig.end(writer);
  EXPECT_EQ(rig.dispatch(), (Slots{reader}));
}

TEST(Scheduler, ATaskThatNamesTheSameBytesTwiceDoesNotWaitForItself) {
  Rig rig;
  const uint32_t run = rig.scheduler.open_run();
  const uint32_t task = rig.submit(run, {input(1), output(1), inout(1, 4, 12)});
  EXPECT_EQ(rig.scheduler.edges_made(), 0u);
  EXPECT_EQ(rig.dispatch(), (Slots{task}));
}

TEST(Scheduler, EdgesOfCoversAloneAreCounted) {
  Rig rig;
  const uint32_t run = rig.scheduler.open_run();
  Access cover = output(1, 0, 64);
  cover.region.cover = true;
  rig.submit(run, {cover});
  rig.submit(run, {input(1, 8, 16)});
  rig.submit(run, {output(2)});
  rig.submit(run, {input(2)});
  EXPECT_EQ(rig.scheduler.edges_made(), 2u);
  EXPECT_EQ(rig.scheduler.cover_edges_made(), 1u);
}

TEST(Scheduler, AnOlderTaskThatBecomesReadyLateGoesFirst) {
  Rig rig(1, {.slots = 64, .depth = 1, .buffers = 64});
  const uint32_t run = rig.scheduler.open_run();
  const uint32_t writer = rig.submit(run, {output(1)});
  const uint32_t late = rig.submit(run, {input(1)});
  const uint32_t younger = rig.submit(run, {});
  EXPECT_EQ(rig.dispatch(), (Slots{writer}));
  rig.end(writer);
  EXPECT_EQ(rig.dispatch(), (Slots{late}));
  rig.end(late);
  EXPECT_EQ(rig.dispatch(), (Slots{younger}));
}

// ---------------------------------------------------------------- runs

TEST(Scheduler, TheSecondRunWaitsUntilTheFirstIsDone) {
  Rig rig(4);
  const uint32_t first = rig.scheduler.open_run();
  const uint32_t a = rig.submit(first, {});
  rig.scheduler.seal_run(first);
  const uint32_t second = rig.scheduler.open_run();
  const uint32_t b = rig.submit(second, {});
  EXPECT_FALSE(rig.scheduler.can_open_run());
  EXPECT_EQ(rig.dispatch(), (Slots{a}));
  rig.end(a);
  EXPECT_FALSE(rig.scheduler.run_done(first));
  EXPECT_EQ(rig.dispatch(), Slots{}) << "terminal is not yet accounted for";
  rig.release();
  EXPECT_TRUE(rig.scheduler.run_done(first));
  EXPECT_TRUE(rig.scheduler.can_open_run());
  EXPECT_EQ(rig.dispatch(), (Slots{b}));
}

TEST(Scheduler, ARunIsDoneOnlyWhenItIsSealed) {
  Rig rig;
  const uint32_t run = rig.scheduler.open_run();
  rig.submit(run, {});
  rig.drain();
  EXPECT_FALSE(rig.scheduler.run_done(run));
  rig.scheduler.seal_run(run);
  EXPECT_TRUE(rig.scheduler.run_done(run));
}

TEST(Scheduler, AnEmptyRunIsDoneWhenItIsSealed) {
  Rig rig;
  const uint32_t run = rig.scheduler.open_run();
  rig.scheduler.seal_run(run);
  EXPECT_TRUE(rig.scheduler.run_done(run));
}

TEST(Scheduler, DependenciesCrossRuns) {
  Rig rig(2);
  const uint32_t first = rig.scheduler.open_run();
  const uint32_t writer = rig.submit(first, {output(1)});
  rig.scheduler.seal_run(first);
  const uint32_t second = rig.scheduler.open_run();
  const uint32_t reader = rig.submit(second, {input(1)});
  EXPECT_EQ(rig.scheduler.slot(reader).pending, 1u);
  EXPECT_EQ(rig.dispatch(), (Slots{writer}));
  rig.end(writer);
  rig.release();
  EXPECT_EQ(rig.dispatch(), (Slots{reader}));
}

TEST(Scheduler, TasksAreNumberedWithinTheirRunAndOrderedAcrossRuns) {
  Rig rig;
  for (uint64_t round = 0; round < 3; ++round) {
    const uint32_t run = rig.scheduler.open_run();
    for (uint32_t i = 0; i < 2; ++i) {
      const uint32_t task = rig.submit(run, {});
      EXPECT_EQ(rig.scheduler.slot(task).run, run);
      EXPECT_EQ(rig.scheduler.slot(task).run_task, i);
      EXPECT_EQ(rig.scheduler.slot(task).order, round * 2 + i + 1);
    }
    rig.drain();
    rig.scheduler.seal_run(run);
  }
}

// ---------------------------------------------------------------- poison

TEST(Scheduler, AFailureSkipsItsReadersWithItsCause) {
  Rig rig;
  const uint32_t run = rig.scheduler.open_run();
  const uint32_t writer = rig.submit(run, {output(1)});
  const uint32_t reader = rig.submit(run, {input(1), output(2)});
  const uint32_t next = rig.submit(run, {input(2)});
  const uint32_t other = rig.submit(run, {input(3)});
  EXPECT_EQ(rig.dispatch(), (Slots{writer, other}));
  rig.fail(writer, 7);
  EXPECT_EQ(rig.release(), (Slots{writer, reader, next}));
  EXPECT_EQ(rig.outcomes[writer], Outcome::kTaskFailed);
  for (const uint32_t slot : {reader, next}) {
    EXPECT_EQ(rig.outcomes[slot], Outcome::kSkipped);
    EXPECT_EQ(rig.causes[slot], 7u);
  }
  EXPECT_EQ(rig.state(other), SlotState::kQueued);
}

TEST(Scheduler, AnEndpointFailurePoisonsToo) {
  Rig rig;
  const uint32_t run = rig.scheduler.open_run();
  const uint32_t writer = rig.submit(run, {output(1)});
  const uint32_t reader = rig.submit(run, {input(1)});
  rig.dispatch();
  rig.scheduler.finish(writer, Outcome::kEndpointFailed, 3);
  rig.release();
  EXPECT_EQ(rig.outcomes[reader], Outcome::kSkipped);
}

TEST(Scheduler, AnOutputHealsWhatItWrites) {
  Rig rig;
  const uint32_t run = rig.scheduler.open_run();
  const uint32_t bad = rig.submit(run, {output(1, 0, 16)});
  const uint32_t good = rig.submit(run, {output(1, 0, 8)});
  const uint32_t healed = rig.submit(run, {input(1, 0, 8)});
  const uint32_t still_bad = rig.submit(run, {input(1, 8, 16)});
  rig.dispatch();
  rig.fail(bad, 7);
  EXPECT_EQ(rig.dispatch(), (Slots{good}));
  rig.end(good);
  EXPECT_EQ(rig.dispatch(), (Slots{healed}));
  rig.end(healed);
  rig.release();
  EXPECT_EQ(rig.outcomes[healed], Outcome::kOk);
  EXPECT_EQ(rig.outcomes[still_bad], Outcome::kSkipped);
}

TEST(Scheduler, AnInoutIsSkippedAndKeepsThePoison) {
  Rig rig;
  const uint32_t run = rig.scheduler.open_run();
  const uint32_t bad = rig.submit(run, {output(1)});
  const uint32_t update = rig.submit(run, {inout(1)});
  rig.dispatch();
  rig.fail(bad, 7);
  rig.release();
  EXPECT_EQ(rig.outcomes[update], Outcome::kSkipped);
  const uint32_t reader = rig.submit(run, {input(1)});
  EXPECT_EQ(rig.release(), (Slots{reader}));
  EXPECT_EQ(rig.causes[reader], 7u);
}

TEST(Scheduler, PoisonOutlivesTheSlotAndCrossesRuns) {
  Rig rig;
  const uint32_t first = rig.scheduler.open_run();
  const uint32_t bad = rig.submit(first, {output(1)});
  rig.dispatch();
  rig.fail(bad, 7);
  rig.release();
  rig.scheduler.seal_run(first);
  for (int i = 0; i < 100; ++i) {  // every slot is used again meanwhile
    const uint32_t run = rig.scheduler.open_run();
    rig.submit(run, {output(2)});
    rig.drain();
    rig.scheduler.seal_run(run);
  }
  const uint32_t last = rig.scheduler.open_run();
  const uint32_t reader = rig.submit(last, {input(1)});
  EXPECT_EQ(rig.state(reader), SlotState::kTerminal);
  rig.release();
  EXPECT_EQ(rig.outcomes[reader], Outcome::kSkipped);
  EXPECT_EQ(rig.causes[reader], 7u);
}

TEST(Scheduler, ClearedPoisonSkipsNobody) {
  Rig rig;
  const uint32_t run = rig.scheduler.open_run();
  const uint32_t bad = rig.submit(run, {output(1)});
  rig.dispatch();
  rig.fail(bad, 7);
  rig.release();
  rig.scheduler.poison().clear(1);
  const uint32_t reader = rig.submit(run, {input(1)});
  EXPECT_EQ(rig.dispatch(), (Slots{reader}));
}

TEST(Scheduler, AChainOfTenThousandSkipsIsNoRecursion) {
  Rig rig(1, {.slots = 10'001, .buffers = 4});
  const uint32_t run = rig.scheduler.open_run();
  const uint32_t bad = rig.submit(run, {output(1)});
  for (int i = 0; i < 10'000; ++i) rig.submit(run, {inout(1)});
  rig.dispatch();
  rig.fail(bad, 7);
  EXPECT_EQ(rig.release().size(), 10'001u);
  EXPECT_EQ(rig.scheduler.live(), 0u);
}

// ---------------------------------------------------------------- cancel, requeue, skip

TEST(Scheduler, CancelSkipsWhatIsReadyAndWhatBecomesReady) {
  Rig rig(1, {.slots = 64, .depth = 1, .buffers = 64});
  const uint32_t run = rig.scheduler.open_run();
  const uint32_t running = rig.submit(run, {output(1)});
  const uint32_t ready = rig.submit(run, {});
  const uint32_t waiting = rig.submit(run, {input(1)});
  EXPECT_EQ(rig.dispatch(), (Slots{running}));
  rig.scheduler.cancel_run(run, 9);
  EXPECT_EQ(rig.release(), (Slots{ready}));
  EXPECT_EQ(rig.state(waiting), SlotState::kWaiting) << "its producer still runs";
  rig.end(running);
  EXPECT_EQ(rig.release(), (Slots{running, waiting}));
  EXPECT_EQ(rig.outcomes[running], Outcome::kOk);
  EXPECT_EQ(rig.outcomes[waiting], Outcome::kSkipped);
  EXPECT_EQ(rig.causes[waiting], 9u);
  const uint32_t later = rig.submit(run, {});
  EXPECT_EQ(rig.release(), (Slots{later}));
  EXPECT_EQ(rig.causes[later], 9u);
}

TEST(Scheduler, ACancelledRunLeavesTheNextOneAlone) {
  Rig rig;
  const uint32_t first = rig.scheduler.open_run();
  rig.submit(first, {});
  rig.scheduler.seal_run(first);
  const uint32_t second = rig.scheduler.open_run();
  const uint32_t b = rig.submit(second, {});
  rig.scheduler.cancel_run(first, 9);
  rig.release();
  EXPECT_TRUE(rig.scheduler.run_done(first));
  EXPECT_EQ(rig.dispatch(), (Slots{b}));
  rig.end(b);
  rig.release();
  EXPECT_EQ(rig.outcomes[b], Outcome::kOk);
  rig.scheduler.seal_run(second);
  // The place in the table of the cancelled one is used by the third.
  const uint32_t third = rig.scheduler.open_run();
  const uint32_t c = rig.submit(third, {});
  EXPECT_EQ(rig.dispatch(), (Slots{c}));
}

TEST(Scheduler, TheSecondRunCanBeCancelledBeforeTheFirst) {
  Rig rig;
  const uint32_t first = rig.scheduler.open_run();
  const uint32_t a = rig.submit(first, {});
  rig.scheduler.seal_run(first);
  const uint32_t second = rig.scheduler.open_run();
  const uint32_t b = rig.submit(second, {});
  rig.scheduler.seal_run(second);
  rig.scheduler.cancel_run(second, 9);
  EXPECT_EQ(rig.release(), (Slots{b}));
  EXPECT_FALSE(rig.scheduler.run_done(second)) << "runs end in order";
  EXPECT_EQ(rig.dispatch(), (Slots{a}));
  rig.end(a);
  rig.release();
  EXPECT_TRUE(rig.scheduler.run_done(second));
}

TEST(Scheduler, CancelOfARunThatIsDoneIsNothing) {
  Rig rig;
  const uint32_t first = rig.scheduler.open_run();
  rig.scheduler.seal_run(first);
  rig.scheduler.open_run();
  const uint32_t third_place_of_first = rig.scheduler.open_run();
  rig.scheduler.cancel_run(first, 9);
  rig.submit(third_place_of_first, {});
  EXPECT_TRUE(rig.scheduler.terminal().empty());
}

TEST(Scheduler, ARequeuedTaskIsReadyAgainInItsOldPlace) {
  Rig rig(2, {.slots = 64, .depth = 1, .buffers = 64});
  const uint32_t run = rig.scheduler.open_run();
  const uint32_t a = rig.submit(run, {});
  const uint32_t b = rig.submit(run, {});
  const uint32_t c = rig.submit(run, {});
  EXPECT_EQ(rig.dispatch(), (Slots{a, b}));
  const uint32_t worker = rig.scheduler.slot(a).worker;
  rig.scheduler.requeue(a);
  EXPECT_EQ(rig.scheduler.slot(a).worker, kNone);
  EXPECT_EQ(rig.dispatch(), (Slots{a}));
  EXPECT_EQ(rig.scheduler.slot(a).worker, worker);
  EXPECT_EQ(rig.state(c), SlotState::kReady);
}

TEST(Scheduler, ARequeuedTaskOfACancelledRunIsSkipped) {
  Rig rig;
  const uint32_t run = rig.scheduler.open_run();
  const uint32_t a = rig.submit(run, {});
  rig.dispatch();
  rig.scheduler.cancel_run(run, 9);
  EXPECT_TRUE(rig.scheduler.terminal().empty());
  rig.scheduler.requeue(a);
  EXPECT_EQ(rig.release(), (Slots{a}));
  EXPECT_EQ(rig.outcomes[a], Outcome::kSkipped);
}

TEST(Scheduler, ARefusedTaskIsReadyAgainAndItsWorkerIsBarred) {
  Rig rig(2);
  const uint32_t run = rig.scheduler.open_run();
  const uint32_t a = rig.submit(run, {});
  const auto first = rig.scheduler.next_assignment();
  ASSERT_TRUE(first);
  EXPECT_EQ(first->slot, a);
  rig.scheduler.refused(*first);
  const auto second = rig.scheduler.next_assignment();
  ASSERT_TRUE(second);
  EXPECT_EQ(second->slot, a);
  EXPECT_NE(second->worker, first->worker);
  rig.scheduler.refused(*second);
  EXPECT_FALSE(rig.scheduler.next_assignment());
  EXPECT_TRUE(rig.scheduler.has_ready());
  rig.scheduler.unbar(first->worker);
  EXPECT_EQ(rig.scheduler.next_assignment()->worker, first->worker);
}

TEST(Scheduler, SkipReadySkipsAllThatIsReadyAndAllThatBecomesSo) {
  Rig rig(0);
  const uint32_t run = rig.scheduler.open_run();
  const uint32_t a = rig.submit(run, {});
  const uint32_t writer = rig.submit(run, {output(1)});
  const uint32_t overwriter = rig.submit(run, {output(1)});
  rig.scheduler.skip_ready(5);
  EXPECT_EQ(rig.release(), (Slots{a, writer, overwriter}));
  for (const uint32_t slot : {a, writer, overwriter}) {
    EXPECT_EQ(rig.outcomes[slot], Outcome::kSkipped);
    EXPECT_EQ(rig.causes[slot], 5u);
  }
}

TEST(Scheduler, NothingIsTakenBackWhileATaskIsReady) {
  Rig rig(1);
  const uint32_t run = rig.scheduler.open_run();
  for (int i = 0; i < 3; ++i) rig.submit(run, {});
  rig.dispatch();
  rig.scheduler.open_worker(rig.scheduler.add_worker());
  rig.submit(run, {});
  EXPECT_FALSE(rig.scheduler.next_take_back());
  rig.dispatch();
  EXPECT_FALSE(rig.scheduler.next_take_back()) << "no worker is empty";
}

TEST(Scheduler, TheYoungestQueuedTaskIsTakenBackForAnEmptyWorker) {
  Rig rig(1);
  const uint32_t run = rig.scheduler.open_run();
  rig.submit(run, {});
  rig.submit(run, {});
  const uint32_t youngest = rig.submit(run, {});
  rig.dispatch();
  rig.scheduler.open_worker(rig.scheduler.add_worker());
  const auto taken = rig.scheduler.next_take_back();
  ASSERT_TRUE(taken);
  EXPECT_EQ(taken->slot, youngest);
  rig.scheduler.requeue(taken->slot);
  EXPECT_EQ(rig.dispatch(), (Slots{youngest}));
  EXPECT_EQ(rig.scheduler.slot(youngest).worker, 1u);
}

TEST(Scheduler, AWorkerWhoseYoungestTaskHasStartedIsNotAskedAgain) {
  Rig rig(1);
  const uint32_t run = rig.scheduler.open_run();
  rig.submit(run, {});
  rig.submit(run, {});
  rig.dispatch();
  rig.scheduler.open_worker(rig.scheduler.add_worker());
  ASSERT_TRUE(rig.scheduler.next_take_back());
  rig.scheduler.take_back_failed(0);
  EXPECT_FALSE(rig.scheduler.next_take_back());
}

// ---------------------------------------------------------------- bounds and accounts

TEST(Scheduler, AFullTableAdmitsNothingUntilASlotIsReleased) {
  Rig rig(1, {.slots = 2, .buffers = 4});
  const uint32_t run = rig.scheduler.open_run();
  const uint32_t a = rig.submit(run, {});
  rig.submit(run, {});
  EXPECT_FALSE(rig.scheduler.admits({}, 0));
  rig.dispatch();
  rig.end(a);
  EXPECT_FALSE(rig.scheduler.admits({}, 0)) << "terminal, but not released";
  rig.release();
  EXPECT_TRUE(rig.scheduler.admits({}, 0));
}

TEST(Scheduler, TheMemoryOfBodiesIsBoundedAndComesBack) {
  Rig rig(1, {.slots = 64, .buffers = 4, .body_bytes_max = 128 << 10});
  const uint32_t run = rig.scheduler.open_run();
  uint32_t submitted = 0;
  while (rig.scheduler.admits({}, 60'000)) {
    rig.scheduler.submit(run, {}, 60'000);
    ++submitted;
  }
  EXPECT_EQ(submitted, 2u);
  rig.drain();
  EXPECT_TRUE(rig.scheduler.admits({}, 60'000));
}

TEST(Scheduler, SmallTasksAreAdmittedAfterLargeOnesHaveHadAllTheMemory) {
  Rig rig(1, {.slots = 64, .buffers = 4, .body_bytes_max = 128 << 10});
  const uint32_t run = rig.scheduler.open_run();
  while (rig.scheduler.admits({}, 60'000)) rig.scheduler.submit(run, {}, 60'000);
  rig.drain();
  EXPECT_TRUE(rig.scheduler.admits({}, 8));
}

TEST(Scheduler, LargeTasksAreAdmittedAfterSmallOnesHaveHadAllTheMemory) {
  Rig rig(1, {.slots = 2048, .buffers = 4, .body_bytes_max = 128 << 10});
  const uint32_t run = rig.scheduler.open_run();
  while (rig.scheduler.admits({}, 8)) rig.scheduler.submit(run, {}, 8);
  rig.drain();
  EXPECT_TRUE(rig.scheduler.admits({}, 120'000));
}

TEST(Scheduler, EdgesAreBoundedAndComeBack) {
  // 64 slots have 2048 edges; a reader of 32 buffers makes 32 of them.
  Rig rig(1, {.slots = 64, .depth = 63, .buffers = 64});
  const uint32_t run = rig.scheduler.open_run();
  for (int round = 0; round < 50; ++round) {
    std::vector<Access> all;
    for (uint32_t buffer = 0; buffer < 32; ++buffer) {
      rig.submit(run, {output(buffer)});
      all.push_back(input(buffer));
    }
    while (rig.scheduler.admits(all, 8)) rig.scheduler.submit(run, all, 8);
    EXPECT_LE(rig.scheduler.live(), 64u);
    rig.drain();
    ASSERT_EQ(rig.scheduler.live(), 0u);
  }
  EXPECT_EQ(rig.scheduler.edges_made(), 50u * 32u * 32u);
}

TEST(Scheduler, PayloadAndAccessesAreKeptUntilTheRelease) {
  Rig rig;
  const uint32_t run = rig.scheduler.open_run();
  const std::vector<Access> accesses{input(3, 8, 24), output(4)};
  ASSERT_TRUE(rig.scheduler.admits(accesses, 1000));
  const uint32_t task = rig.scheduler.submit(run, accesses, 1000);
  const std::span<std::byte> payload = rig.scheduler.payload(task);
  ASSERT_EQ(payload.size(), 1000u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(payload.data()) % 8, 0u);
  std::ranges::fill(payload, std::byte{0x5a});
  rig.dispatch();
  rig.end(task);
  EXPECT_EQ(rig.scheduler.payload(task)[999], std::byte{0x5a});
  ASSERT_EQ(rig.scheduler.accesses(task).size(), 2u);
  EXPECT_EQ(rig.scheduler.accesses(task)[0].buffer, 3u);
  EXPECT_EQ(rig.scheduler.accesses(task)[0].region, graph::Region::range(8, 24));
  EXPECT_TRUE(rig.scheduler.accesses(task)[1].writes);
}

TEST(Scheduler, ASlotThatIsUsedAgainHasAnotherGeneration) {
  Rig rig(1, {.slots = 1, .buffers = 4});
  const uint32_t run = rig.scheduler.open_run();
  const uint32_t first = rig.submit(run, {});
  const uint32_t generation = rig.scheduler.slot(first).generation;
  rig.drain();
  const uint32_t second = rig.submit(run, {});
  EXPECT_EQ(first, second);
  EXPECT_NE(rig.scheduler.slot(second).generation, generation);
}

TEST(Scheduler, TheSlotsOfAClosedWorkerAreRequeuedOrFinished) {
  Rig rig(1);
  const uint32_t run = rig.scheduler.open_run();
  const uint32_t started = rig.submit(run, {output(1)});
  const uint32_t queued = rig.submit(run, {});
  rig.dispatch();
  rig.scheduler.close_worker(0);
  rig.scheduler.finish(started, Outcome::kEndpointFailed, 4);
  rig.scheduler.requeue(queued);
  EXPECT_EQ(rig.dispatch(), Slots{});
  EXPECT_TRUE(rig.scheduler.has_ready());
  rig.scheduler.open_worker(rig.scheduler.add_worker());
  EXPECT_EQ(rig.dispatch(), (Slots{queued}));
  EXPECT_EQ(rig.scheduler.slot(queued).worker, 1u);
}

}  // namespace
}  // namespace strata::sched
