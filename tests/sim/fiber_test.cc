#include "sim/fiber.h"

#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace strata::sim {
namespace {

using base::Duration;
using base::Instant;

std::string interleaving(uint64_t seed) {
  Scheduler scheduler(seed);
  std::string out;
  for (const char name : {'a', 'b', 'c'}) {
    scheduler.spawn(std::string(1, name), [&scheduler, &out, name] {
      for (int i = 0; i < 5; ++i) {
        out += name;
        scheduler.yield();
      }
    });
  }
  EXPECT_EQ(scheduler.run(1000), Scheduler::Stop::kEnded);
  return out;
}

TEST(Scheduler, TheSeedDecidesTheOrder) {
  EXPECT_EQ(interleaving(1), interleaving(1));
  EXPECT_EQ(interleaving(1).size(), 15u);
  bool differs = false;
  for (uint64_t seed = 2; seed < 6; ++seed) differs |= interleaving(seed) != interleaving(1);
  EXPECT_TRUE(differs);
}

TEST(Scheduler, TimeJumpsToTheNextDeadlineWhenAllAreBlocked) {
  Scheduler scheduler(1);
  std::vector<int> order;
  const auto sleeper = [&](int number, int64_t ms) {
    return [&, number, ms] {
      EXPECT_FALSE(scheduler.block(Instant{} + Duration::from_ms(ms)));
      EXPECT_GE(scheduler.now().ns, ms * 1'000'000);
      order.push_back(number);
    };
  };
  scheduler.spawn("late", sleeper(2, 2000));
  scheduler.spawn("early", sleeper(1, 1000));
  EXPECT_EQ(scheduler.run(100), Scheduler::Stop::kEnded);
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
  EXPECT_LT(scheduler.now().ns, 2'001'000'000);
}

TEST(Scheduler, ADeadlinePassesAlsoWhileOthersRun) {
  Scheduler scheduler(1);
  bool over = false;
  scheduler.spawn("sleeper", [&] {
    EXPECT_FALSE(scheduler.block(Instant{1000}));
    over = true;
  });
  scheduler.spawn("spinner", [&] {
    while (!over) scheduler.yield();
  });
  EXPECT_EQ(scheduler.run(10'000), Scheduler::Stop::kEnded);
}

TEST(Scheduler, WakeEndsABlockAndTellsSo) {
  Scheduler scheduler(1);
  bool woken = false;
  Fiber* const sleeper = scheduler.spawn("sleeper", [&] { woken = scheduler.block(); });
  scheduler.spawn("waker", [&] {
    while (!sleeper->blocked()) scheduler.yield();
    scheduler.wake(sleeper);
  });
  EXPECT_EQ(scheduler.run(1000), Scheduler::Stop::kEnded);
  EXPECT_TRUE(woken);
}

TEST(Scheduler, SaysWhenAllWaitForEver) {
  Scheduler scheduler(1);
  bool unwound = false;
  scheduler.spawn("sleeper", [&] {
    const auto note = std::shared_ptr<void>(nullptr, [&](void*) { unwound = true; });
    scheduler.block();
  });
  EXPECT_EQ(scheduler.run(1000), Scheduler::Stop::kStuck);
  EXPECT_FALSE(unwound);
}

TEST(Scheduler, GoesOnAfterItsStepLimit) {
  Scheduler scheduler(1);
  int turns = 0;
  scheduler.spawn("fiber", [&] {
    for (; turns < 100; ++turns) scheduler.yield();
  });
  EXPECT_EQ(scheduler.run(10), Scheduler::Stop::kSteps);
  EXPECT_LT(turns, 20);
  EXPECT_EQ(scheduler.run(1000), Scheduler::Stop::kEnded);
  EXPECT_EQ(turns, 100);
}

TEST(Scheduler, AKilledFiberIsUnwoundAndRunsNoFurther) {
  Scheduler scheduler(1);
  std::string log;
  Fiber* const victim = scheduler.spawn("victim", [&] {
    const auto note = std::shared_ptr<void>(nullptr, [&](void*) { log += "unwound"; });
    scheduler.block();
    log += "woke";
  });
  Fiber* const never_entered = scheduler.spawn("never", [&] { log += "entered"; });
  scheduler.kill(never_entered);
  scheduler.spawn("killer", [&] {
    while (!victim->blocked()) scheduler.yield();
    scheduler.kill(victim);
  });
  EXPECT_EQ(scheduler.run(1000), Scheduler::Stop::kEnded);
  EXPECT_EQ(log, "unwound");
}

TEST(Scheduler, TheDestructorUnwindsWhoIsLeft) {
  std::string log;
  {
    Scheduler scheduler(1);
    scheduler.spawn("blocked", [&] {
      const auto note = std::shared_ptr<void>(nullptr, [&](void*) {
        scheduler.yield();  // while unwinding: nothing happens
        log += "unwound";
      });
      scheduler.block();
    });
    scheduler.run(10);
  }
  EXPECT_EQ(log, "unwound");
}

// Each fiber is inside a catch block while the others throw: the runtime's list of caught
// exceptions must be one for each fiber.
TEST(Scheduler, ExceptionsOfOneFiberAreNotSeenByAnother) {
  Scheduler scheduler(3);
  int right = 0;
  for (int number = 0; number < 4; ++number) {
    scheduler.spawn("thrower", [&, number] {
      for (int i = 0; i < 20; ++i) {
        try {
          throw std::runtime_error(std::to_string(number));
        } catch (const std::runtime_error&) {
          scheduler.yield();
          try {
            std::rethrow_exception(std::current_exception());
          } catch (const std::runtime_error& again) {
            scheduler.yield();
            right += again.what() == std::to_string(number);
          }
        }
      }
    });
  }
  EXPECT_EQ(scheduler.run(10'000), Scheduler::Stop::kEnded);
  EXPECT_EQ(right, 80);
}

}  // namespace
}  // namespace strata::sim
