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

// While the engine thread is in a callback another thread arms the watch; the engine thread then
// leads and takes it. Who submits afterwards and waits for nothing must still be carried on.
TEST(FrontScenario, AWatchThatIsArmedDuringACallbackOfTheEngineThreadIsNotLost) {
  for (uint64_t order = 1; order <= kOrders; ++order) {
    Scene scene(quiet(order, 1));
    scene.play([&] {
      scene.wait_workers();
      ASSERT_TRUE(scene.level().register_callable(0));
      const auto until = [&](const auto& ready) {
        for (int i = 0; i < 200 && !ready(); ++i) {
          scene.stage.linger(base::Duration::from_us(20));
        }
        EXPECT_TRUE(ready()) << "order " << order;
      };
      bool inside = false, ended = false;
      const auto first = scene.open();
      scene.submit(*first, 2'000);
      scene.level().front().on_done(first, [&](const Result<void>&) {
        inside = true;
        scene.stage.linger(base::Duration::from_us(20));
        ended = true;
      });
      scene.seal(*first);
      until([&] { return inside; });
      const auto second = scene.open();
      scene.submit(*second, 100'000);  // the watch fires while the engine thread leads
      scene.seal(*second);
      until([&] { return ended && second->done; });
      const auto third = scene.open();
      scene.submit(*third, 2'000);
      scene.seal(*third);
      until([&] { return third->done; });
    });
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace strata::sim
