// The Scheduler's order: dependencies, runs, poison, cancel, what goes back.
#include "sched/scheduler.h"

#include "scheduler_rig.h"

namespace strata::sched {
namespace {

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

TEST(Scheduler, WithoutAWorkerAllThatIsReadyAndAllThatBecomesSoIsStranded) {
  Rig rig(0);
  const uint32_t run = rig.scheduler.open_run();
  const uint32_t a = rig.submit(run, {});
  const uint32_t writer = rig.submit(run, {output(1)});
  const uint32_t overwriter = rig.submit(run, {output(1)});
  while (const auto slot = rig.scheduler.next_stranded(false)) rig.scheduler.skip(*slot, 5);
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
  const auto candidate = rig.scheduler.next_take_back();
  ASSERT_TRUE(candidate);
  rig.scheduler.take_back_failed(*candidate);
  EXPECT_FALSE(rig.scheduler.next_take_back());
}

}  // namespace
}  // namespace strata::sched
