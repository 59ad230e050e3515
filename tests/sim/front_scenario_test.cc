// Hand-written scenarios of the engine's front: what simulations once found, each as small as it
// can be. A scenario runs under many orders of its threads; without its fix some of them hang.
#include <gtest/gtest.h>

#include "scene.h"

namespace strata::sim {
namespace {

TEST(FrontScenario, AStepAmongInlineTasksWakesOtherWorkersToo) {
  for (uint64_t order = 1; order <= kOrders; ++order) {
    Scene scene(quiet(order, 1, 1));
    scene.play([&] {
      scene.wait_workers();
      ASSERT_TRUE(scene.level().register_callable(0));
      const auto buffer = scene.level().create_buffer(64);
      scene.stage.linger(base::Duration::from_ms(1));  // the child sleeps
      const auto run = scene.open();
      // The writers run alone, the readers at both workers.
      for (int i = 0; i < 4; ++i) {
        scene.submit(*run, 50'000, buffer.get(), OUTPUT);
        for (int j = 0; j < 2; ++j) scene.submit(*run, 50'000, buffer.get(), INPUT);
      }
      scene.seal(*run);
      EXPECT_TRUE(scene.join(*run).ok());
      scene.level().release_buffer(*buffer);
    });
    if (testing::Test::HasFailure()) return;
  }
}

TEST(FrontScenario, AThreadThatWaitsForItsTurnToRegisterIsWoken) {
  for (uint64_t order = 1; order <= kOrders; ++order) {
    Scene scene(quiet(order, 1));
    scene.play([&] {
      scene.wait_workers();
      uint32_t left = 3;
      for (uint32_t i = 0; i < 3; ++i) {
        scene.stage.spawn("registrar", [&, i] {
          EXPECT_TRUE(scene.level().register_callable(i));
          --left;
        });
      }
      while (left > 0) scene.stage.linger(base::Duration::from_us(50));
    });
    if (testing::Test::HasFailure()) return;
  }
}

TEST(FrontScenario, ALeaderSleepsAlthoughItsChildHasOnlySkippedEntries) {
  for (uint64_t order = 1; order <= kOrders / 4; ++order) {
    Scene scene(quiet(order, 1));
    scene.play([&] {
      scene.wait_workers();
      ASSERT_TRUE(scene.level().register_callable(0));
      const auto first = scene.open();
      for (int i = 0; i < 4; ++i) scene.submit(*first, 5'000);
      scene.seal(*first);
      scene.level().front().call([&](engine::Core& core) { core.cancel_run(*first); });
      scene.join(*first).ok();
      scene.stage.linger(base::Duration::from_ms(1));  // the child passes what was revoked
      const uint64_t steps = scene.stage.scheduler().steps();
      const auto second = scene.open();
      scene.submit(*second, 20'000'000);
      scene.seal(*second);
      EXPECT_TRUE(scene.join(*second).ok());
      // A million steps of time pass; nobody may be awake for many of them.
      EXPECT_LT(scene.stage.scheduler().steps() - steps, 10'000u);
    });
    if (testing::Test::HasFailure()) return;
  }
}

TEST(FrontScenario, StopEndsTheEngineThreadThatLeads) {
  for (uint64_t order = 1; order <= kOrders; ++order) {
    Options options = quiet(order, 1);
    Scene scene(options);
    scene.play(
        [&] {
          scene.wait_workers();
          ASSERT_TRUE(scene.level().register_callable(0));
          const auto run = scene.open();
          scene.submit(*run, 200'000);
          scene.seal(*run);
          // By now the engine thread leads; its last task ends around the stop.
          while (!scene.stage.shared().checks.started({0, 0}).ended)
            scene.stage.scheduler().yield();
          for (uint64_t i = 0; i < order % 40; ++i) scene.stage.scheduler().yield();
          scene.level().front().stop();
          scene.stage.linger(base::Duration::from_ms(2));
          scene.level().children()[0]->kill("the scenario is over");
        },
        false);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(FrontScenario, AnInlineWorkerThatRefusesWhatIsRegisteredIsLostNotKilled) {
  for (uint64_t order = 1; order <= kOrders / 4; ++order) {
    Options options = quiet(order, 0, 1);
    options.refuse_prepare = 1000;
    Scene scene(options);
    scene.play([&] {
      scene.level().register_callable(0);
      scene.wait_workers();
      if (scene.level().callables().empty()) return;  // refused before it was anyone's
      const auto run = scene.open();
      scene.submit(*run, 1'000);
      scene.seal(*run);
      const Result<void> waited = scene.join(*run);
      ASSERT_FALSE(waited.ok());
      EXPECT_EQ(waited.error().code(), Code::kNoWorker);
    });
    if (testing::Test::HasFailure()) return;
  }
}

TEST(FrontScenario, ASleepingPoolIsWokenWhileAnotherThreadLeadsAndTheOtherPoolIsIdle) {
  for (uint64_t order = 1; order <= kOrders / 4; ++order) {
    Options options = quiet(order, 2);
    options.next_workers = 1;
    Scene scene(options);
    scene.play([&] {
      scene.wait_workers();
      ASSERT_TRUE(scene.level().register_callable(0));
      bool over = false;
      bool left = false;
      scene.stage.spawn("leader", [&] {
        scene.wait([&](engine::Core&) { return over; });
        left = true;
      });
      scene.stage.linger(base::Duration::from_ms(1));  // the leader and both children sleep
      const auto run = scene.open();
      scene.submit(*run, 5'000, nullptr, INPUT, {engine::Pool::kSub, -1});
      scene.seal(*run);
      EXPECT_TRUE(scene.join(*run).ok());
      over = true;
      scene.level().front().call([](engine::Core& core) { core.note(); });
      while (!left) scene.stage.linger(base::Duration::from_us(50));
    });
    if (testing::Test::HasFailure()) return;
  }
}

TEST(FrontScenario, AWatchThatWasArmedInACallbackIsNotTakenForOneThatIsStillToFire) {
  for (uint64_t order = 1; order <= kOrders; ++order) {
    Scene scene(quiet(order, 1));
    scene.play([&] {
      scene.wait_workers();
      ASSERT_TRUE(scene.level().register_callable(0));
      std::shared_ptr<engine::RunRecord> second;
      const auto first = scene.open();
      scene.level().front().on_done(first, [&](const Result<void>&) {
        second = scene.open();
        scene.submit(*second, 3'000'000);  // the watch fires meanwhile, and the engine thread leads
        scene.seal(*second);
      });
      scene.submit(*first, 100'000);
      scene.seal(*first);
      scene.stage.linger(base::Duration::from_ms(10));
      ASSERT_TRUE(second != nullptr && second->done);
      const auto third = scene.open();
      scene.submit(*third, 1'000);
      scene.seal(*third);
      scene.stage.linger(base::Duration::from_ms(10));
      EXPECT_TRUE(third->done) << "nobody goes on with a run that nobody waits for";
    });
    if (testing::Test::HasFailure()) return;
  }
}

// It would stand there until its turn has a limit, and the builder with it.
TEST(FrontScenario, AThreadThatRegistersDoesNotWaitInACallbackForATurnWhoseHolderWantsToRegister) {
  for (uint64_t order = 1; order <= kOrders; ++order) {
    Scene scene(quiet(order, 1));
    scene.play([&] {
      scene.wait_workers();
      ASSERT_TRUE(scene.level().register_callable(0));
      const base::Instant begun = scene.level().world().now();
      bool registered = false, called = false;
      const auto first = scene.open();
      scene.level().front().on_done(first, [&](const Result<void>&) {
        const auto third = scene.open();
        scene.submit(*third, 1'000);
        scene.seal(*third);
        called = true;
      });
      scene.submit(*first, 100'000);
      scene.seal(*first);
      scene.stage.spawn("registrar", [&] {
        EXPECT_TRUE(scene.level().register_callable(1));  // behind the task
        registered = true;
      });
      const auto second = scene.open();
      scene.stage.linger(base::Duration::from_us(50));
      EXPECT_TRUE(scene.level().register_callable(2));
      scene.seal(*second);
      while (!registered || !called) scene.stage.linger(base::Duration::from_us(50));
      EXPECT_LT((scene.level().world().now() - begun).seconds(), 1) << "order " << order;
    });
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace strata::sim
