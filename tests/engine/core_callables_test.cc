// Core and its callables: registration over all workers, unregister, refused submits.
#include "core_rig.h"

namespace strata::engine {
namespace {

constexpr auto kPrepare = static_cast<uint32_t>(Command::kPrepare);
constexpr auto kCommit = static_cast<uint32_t>(Command::kCommit);
constexpr auto kAbort = static_cast<uint32_t>(Command::kAbort);
constexpr auto kUnregister = static_cast<uint32_t>(Command::kUnregister);

TEST(CoreCallables, ACallableIsVisibleOnceAllWorkersHaveCommittedIt) {
  CoreRig rig(2);
  ASSERT_TRUE(rig.core.begin_register(native("add"), rig.now).ok());
  for (uint32_t worker = 0; worker < 2; ++worker) {
    EXPECT_EQ(rig.fake(worker).commands.back(), kPrepare);
  }
  rig.fake(0).answer();
  rig.step();
  EXPECT_EQ(rig.fake(0).commands.back(), kPrepare) << "the other has not prepared yet";
  rig.fake(1).answer();
  rig.step();
  for (uint32_t worker = 0; worker < 2; ++worker) {
    EXPECT_EQ(rig.fake(worker).commands.back(), kCommit);
  }
  EXPECT_FALSE(rig.core.take_register_outcome());
  rig.fake(0).answer();
  rig.fake(1).answer();
  rig.step();
  const auto outcome = rig.core.take_register_outcome();
  ASSERT_TRUE(outcome && outcome->ok());
  EXPECT_TRUE(rig.core.registry().usable_on_all(outcome->value()));
  EXPECT_TRUE(rig.core.idle());
}

TEST(CoreCallables, WhereOneWorkerRefusesNobodyKeepsTheCallable) {
  CoreRig rig(2);
  ASSERT_TRUE(rig.core.begin_register(native("add"), rig.now).ok());
  rig.fake(0).answer();
  rig.fake(1).answer(static_cast<uint32_t>(Code::kNotFound), "libkernels.so has no add");
  rig.step();
  EXPECT_EQ(rig.fake(0).commands.back(), kAbort);
  rig.settle();
  const auto outcome = rig.core.take_register_outcome();
  ASSERT_TRUE(outcome);
  ASSERT_FALSE(outcome->ok());
  EXPECT_EQ(outcome->error().code(), Code::kNotFound);
  EXPECT_NE(outcome->error().message().find("libkernels.so has no add"), std::string::npos);
  EXPECT_TRUE(rig.core.idle());
  EXPECT_EQ(rig.core.registry().used(), 1u) << "gemm alone";
  rig.register_callable("add");
}

TEST(CoreCallables, AWorkerThatTakesNoControlRefusesTheRegistration) {
  CoreRig rig(1);
  rig.fake().refuse_controls = true;
  ASSERT_TRUE(rig.core.begin_register(native("add"), rig.now).ok());
  rig.settle();
  const auto outcome = rig.core.take_register_outcome();
  ASSERT_TRUE(outcome);
  EXPECT_FALSE(outcome->ok());
  EXPECT_TRUE(rig.core.idle());
}

TEST(CoreCallables, AWorkerLostInTheMiddleFailsTheRegistration) {
  CoreRig rig(2);
  ASSERT_TRUE(rig.core.begin_register(native("add"), rig.now).ok());
  rig.fake(0).answer();
  rig.step();
  rig.core.lose_worker(1, "signal 9");
  rig.settle();
  const auto outcome = rig.core.take_register_outcome();
  ASSERT_TRUE(outcome);
  EXPECT_FALSE(outcome->ok());
  EXPECT_TRUE(rig.core.idle());
  EXPECT_EQ(rig.core.registry().used(), 1u);
}

TEST(CoreCallables, ASubmitOfAnUnregisteredCallableIsRefusedByName) {
  CoreRig rig(1);
  ASSERT_TRUE(rig.core.unregister(rig.gemm, rig.now).ok());
  const auto run = rig.core.open_run();
  EXPECT_EQ(rig.try_submit(*run, {}), Core::Submitted::kRefused);
  EXPECT_FALSE(rig.error->message().empty());
  EXPECT_EQ(run->progress.submitted, 0u);
  EXPECT_EQ(rig.core.scheduler().live(), 0u);
}

TEST(CoreCallables, TasksKeepTheirCallableUntilTheyAreTerminal) {
  CoreRig rig(1);
  const auto run = rig.core.open_run();
  rig.submit(*run);
  rig.submit(*run);
  rig.step();
  ASSERT_TRUE(rig.core.unregister(rig.gemm, rig.now).ok());
  rig.step();
  EXPECT_NE(rig.fake().commands.back(), kUnregister);
  rig.fake().end();
  rig.step();
  EXPECT_NE(rig.fake().commands.back(), kUnregister) << "the second task holds it";
  rig.fake().end();
  rig.step();
  rig.step();
  EXPECT_EQ(rig.fake().commands.back(), kUnregister);
  rig.settle();
  EXPECT_TRUE(rig.core.registry().gone(rig.gemm));
  EXPECT_EQ(run->progress.succeeded, 2u);
}

TEST(CoreCallables, AnUnregisterThatATaskSetsOffHasItsFullTime) {
  CoreRig rig(1);
  const auto run = rig.core.open_run();
  rig.submit(*run);
  rig.step();
  ASSERT_TRUE(rig.core.unregister(rig.gemm, rig.now).ok());
  rig.fake().end();
  for (int i = 0; i < 3; ++i) rig.step();
  EXPECT_EQ(rig.fake().commands.back(), kUnregister);
  EXPECT_FALSE(rig.core.idle());
  EXPECT_TRUE(rig.core.take_kills().empty());
  rig.now = rig.now + base::Duration::from_s(29);
  rig.step();
  EXPECT_TRUE(rig.core.take_kills().empty());
  rig.settle();
  EXPECT_TRUE(rig.core.idle());
}

TEST(CoreCallables, WhatATaskSetsOffIsNotForgottenByAThreadThatWouldSleep) {
  CoreRig rig(1);
  const auto run = rig.core.open_run();
  rig.submit(*run);
  rig.step();
  ASSERT_TRUE(rig.core.unregister(rig.gemm, rig.now).ok());
  rig.fake().end();
  rig.step();
  const bool posted = rig.fake().commands.back() == kUnregister;
  EXPECT_TRUE(posted || rig.core.next_deadline() <= rig.now) << "nobody would step again";
  EXPECT_FALSE(rig.core.idle());
}

}  // namespace
}  // namespace strata::engine
