// A thousand lives of a Worker, and two hundred with a kill: nothing is left of any of them. Named
// so that it runs with children by exec too.
#include <malloc.h>

#include <algorithm>
#include <filesystem>

#include "base/prng.h"
#include "tests/runtime/worker_test_util.h"

namespace strata {
namespace {

using namespace test;  // NOLINT

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kShare = 10;  // these make each cycle several times as long
#else
constexpr int kShare = 1;
#endif
constexpr int kCycles = 1000 / kShare, kKilledCycles = 200 / kShare;
constexpr int kWarmCycles = 5;  // what is made once for the process is made in these

struct Left {
  std::set<int> fds, processes;
  size_t mappings = 0;
  std::set<std::string> files;  // shared memory and temporary files
  friend bool operator==(const Left&, const Left&) = default;
};

Left look() {
  Left left{open_fds(), descendants(), 0, {}};
  std::ifstream maps("/proc/self/maps");
  // Not the allocator's own, which come and go.
  for (std::string line; std::getline(maps, line);) {
    if (line.find("strata") != std::string::npos) ++left.mappings;
  }
  for (const char* folder : {"/dev/shm", "/tmp"}) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      const std::string name = entry.path().filename();
      if (name.find("strata") != std::string::npos) left.files.insert(entry.path());
    }
  }
  return left;
}

WorkerSpec two_levels() {
  WorkerSpec spec = spec_of(StartMethod::kFork, 1);
  spec.limits.slots = 256;
  return spec;
}

void run_one(Worker& worker, const CallableHandle& none) {
  static_cast<void>(worker.run([&](Orchestrator& orch) {
    for (int i = 0; i < 3; ++i) static_cast<void>(orch.submit_sub(none, TaskArgs()));
  }));
}

// Bytes that this process holds by malloc.
size_t held() {
  return ::mallinfo2().uordblks + ::mallinfo2().hblkhd;
}

template <class Cycle>
void expect_nothing_stays(int cycles, Cycle&& cycle) {
  for (int i = 0; i < kWarmCycles; ++i) cycle(i);
  const Left before = look();
  [[maybe_unused]] const size_t held_before = held();
  for (int i = 0; i < cycles; ++i) {
    cycle(i);
    if (testing::Test::HasFailure()) FAIL() << "cycle " << i;
  }
  // A server that has ended is reaped by the process's one a moment later.
  await([&] { return descendants() == before.processes; }, kLossBound);
  const Left after = look();
  EXPECT_EQ(after.fds, before.fds);
  EXPECT_EQ(after.processes, before.processes);
  EXPECT_EQ(after.mappings, before.mappings);
  // Another test of the same machine may have ended meanwhile. None makes files of such a name.
  for (const std::string& file : after.files) EXPECT_TRUE(before.files.contains(file)) << file;
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  // Less than a hundred bytes a cycle: what a list or a cache of the allocator grows by.
  EXPECT_LT(held(), held_before + static_cast<size_t>(cycles) * 100 + 65'536);
#endif
}

TEST(HygieneCycles, AThousandLivesLeaveNothing) {
  expect_nothing_stays(kCycles, [](int) {
    const auto worker = started(two_levels());
    run_one(*worker, registered<nothing>(*worker, "nothing"));
    ASSERT_TRUE(worker->close().ok());
  });
}

TEST(HygieneCycles, TwoHundredLivesWithAKillAtSomeMomentLeaveNothing) {
  base::Prng prng(7);
  expect_nothing_stays(kKilledCycles, [&](int) {
    WorkerSpec spec = two_levels();
    spec.sub_workers = 2;
    spec.restart = prng.below(2) == 0 ? Restart::kNever : Restart::kOnFailure;
    auto worker = Worker::create(spec).value();
    const auto none = worker->register_callable(local_function<nothing>("nothing")).value();
    std::atomic<bool> closed = false;
    // The child is killed while it starts, while tasks run, while the Worker closes.
    const auto after_us = static_cast<int>(prng.below(20'000));
    std::thread killer([&] {
      const base::Instant at = os::monotonic_now() + base::Duration::from_us(after_us);
      while (os::monotonic_now() < at && !closed) ::poll(nullptr, 0, 1);
      for (const Worker::Child& child : worker->sub_children()) {
        if (child.alive && child.pid > 0 && !closed) ::kill(child.pid, SIGKILL);
      }
    });
    if (worker->init().ok()) {
      for (int i = 0; i < 20; ++i) run_one(*worker, none);
    }
    static_cast<void>(worker->close());
    closed = true;
    killer.join();
  });
}

}  // namespace
}  // namespace strata
