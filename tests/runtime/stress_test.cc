// Many threads at one Worker, for the thread sanitizer and for what no simulator reaches: the
// sleeps and wake-ups of real threads, deaths of real children meanwhile, memory that comes and
// goes. Bounded by counts, not by time.
#include <signal.h>

#include <optional>
#include <thread>

#include "tests/runtime/worker_test_util.h"

namespace strata::test {
namespace {

constexpr int kThreads = 4;

void add_one(Call& call) {
  call.tensor<int64_t>(0)(0) += 1;
}

void fail(Call&) {
  throw std::runtime_error("as it should");
}

class Stress : public ::testing::Test {
 protected:
  void SetUp() override {
    worker_ = Worker::create(spec_of(StartMethod::kFork, 3)).value();
    add_ = worker_->register_callable(local_function<add_one>("add_one")).value();
    fail_ = worker_->register_callable(local_function<fail>("fail")).value();
    worker_->init().value();
  }
  void TearDown() override { EXPECT_TRUE(worker_->close().ok()); }

  template <class Body>
  void in_threads(Body&& body) {
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) threads.emplace_back([&body, t] { body(t); });
    for (std::thread& thread : threads) thread.join();
  }
  static TaskArgs inout(const Buffer& buffer) {
    return TaskArgs().add_tensor(buffer.tensor<int64_t>({1}), INOUT);
  }

  std::unique_ptr<Worker> worker_;
  CallableHandle add_;
  CallableHandle fail_;
};

TEST_F(Stress, UserThreadsAndTheEngineThreadTakeTheLeadFromEachOther) {
  constexpr int kRounds = 60;
  std::vector<Buffer> sums;
  for (int t = 0; t < kThreads; ++t) sums.push_back(worker_->create_buffer(8).value());
  std::atomic<int> failures = 0;
  in_threads([&](int t) {
    for (int i = 0; i < kRounds; ++i) {
      auto run = worker_->submit([&](Orchestrator& orch) {
        for (int k = 0; k < 4; ++k) failures += !orch.submit_sub(add_, inout(sums[t])).ok();
      });
      if (!run) {
        ++failures;
        continue;
      }
      // Long enough for the watch: the engine thread leads, and a wait takes the lead back.
      if (i % 3 == t % 3) ::poll(nullptr, 0, 1);
      if (i % 2 == 0) failures += !run->wait().ok();
    }
  });
  EXPECT_EQ(failures, 0);
  auto last = worker_->submit([](Orchestrator&) {});
  ASSERT_TRUE(last.ok());
  EXPECT_TRUE(last->wait().ok());
  for (const Buffer& sum : sums) EXPECT_EQ(sum.as<int64_t>()[0], kRounds * 4);
}

TEST_F(Stress, BuffersLargeAndSmallComeAndGoWhileTasksUseOthers) {
  std::atomic<int> failures = 0;
  in_threads([&](int t) {
    for (int i = 0; i < 40; ++i) {
      // Beyond 256 KiB a buffer has pages of its own, which are given back at its end.
      Buffer buffer = worker_->create_buffer(i % 2 == 0 ? 8 : (300 << 10) + 4096 * t).value();
      for (const std::byte b : buffer.as<std::byte>()) failures += b != std::byte{0};
      failures += !worker_
                       ->run([&](Orchestrator& orch) {
                         failures += !orch.submit_sub(add_, inout(buffer)).ok();
                       })
                       .ok();
      failures += buffer.as<int64_t>()[0] != 1;
      buffer.as<int64_t>().back() = -1;
    }
  });
  EXPECT_EQ(failures, 0);
}

TEST_F(Stress, ChildrenDieWhileSeveralThreadsSubmitAndWait) {
  std::vector<Buffer> sums;
  for (int t = 0; t < kThreads; ++t) sums.push_back(worker_->create_buffer(8).value());
  std::atomic<int> odd = 0;
  std::atomic<int> begun = 0;
  std::thread killer([&] {
    await([&] { return begun >= kThreads; });
    const auto children = worker_->sub_children();
    ::kill(children[0].pid, SIGKILL);
    await([&] { return begun >= 10 * kThreads; });
    ::kill(children[2].pid, SIGKILL);
  });
  in_threads([&](int t) {
    for (int i = 0; i < 50; ++i) {
      ++begun;
      const auto outcome = worker_->run([&](Orchestrator& orch) {
        for (int k = 0; k < 3; ++k) odd += !orch.submit_sub(add_, inout(sums[t])).ok();
      });
      if (outcome) continue;
      const Code code = outcome.error().code();
      odd += code != Code::kEndpointFailed && code != Code::kSkipped;
      odd += !worker_->clear_error(sums[t]).ok();
    }
  });
  killer.join();
  EXPECT_EQ(odd, 0);
  int alive = 0;
  await([&] {
    alive = 0;
    for (const Worker::Child& child : worker_->sub_children()) alive += child.alive;
    return alive == 1;
  });
  EXPECT_EQ(alive, 1);
}

TEST_F(Stress, HandlesOfFailedRunsAreDroppedByManyThreads) {
  std::atomic<int> failures = 0;
  in_threads([&](int) {
    for (int i = 0; i < 30; ++i) {
      auto run = worker_->submit(
          [&](Orchestrator& orch) { failures += !orch.submit_sub(fail_, TaskArgs()).ok(); });
      failures += !run.ok();
      if (!run) continue;
      RunHandle copy = *run;
      if (i % 3 == 0) failures += copy.wait().ok();
      if (i % 3 == 1) copy.cancel();
    }
  });
  EXPECT_EQ(failures, 0);
}

TEST(StressOfProcesses, ThreadsStartAndCloseWorkersOfTheirOwnAtOnce) {
  // The first makes the process's fork server, while there is one thread.
  auto first = Worker::create(spec_of(StartMethod::kFork, 1)).value();
  ASSERT_TRUE(first->init().ok());
  std::atomic<int> failures = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 4; ++i) {
        WorkerSpec spec = spec_of(StartMethod::kFork, 2);
        spec.allow_threads = true;
        auto worker = Worker::create(spec).value();
        const auto add = worker->register_callable(local_function<add_one>("add_one")).value();
        Buffer sum = worker->create_buffer(8).value();
        failures += !worker->init().ok();
        failures += !worker
                         ->run([&](Orchestrator& orch) {
                           const auto args = TaskArgs().add_tensor(sum.tensor<int64_t>({1}), INOUT);
                           for (int k = 0; k < 10; ++k)
                             failures += !orch.submit_sub(add, args).ok();
                         })
                         .ok();
        failures += sum.as<int64_t>()[0] != 10;
        failures += !worker->close().ok();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
  EXPECT_TRUE(first->close().ok());
}

void write_lines(Call&) {
  for (int i = 0; i < 20; ++i) std::printf("a line of a task\n");
  std::fflush(stdout);
}

// The thread that reads, the engine's, and those of the program, while children come and go.
TEST(StressOfProcesses, LinesAreReadWhileChildrenAreKilledAndAdded) {
  std::atomic<uint64_t> lines = 0;
  WorkerSpec spec = spec_of(StartMethod::kFork, 3);
  spec.restart = Restart::kOnFailure;
  spec.restart_limit = 100;
  spec.output.lines_per_second = 0;
  spec.output.on_line = [&](const OutputLine& line) { lines += line.text == "a line of a task"; };
  auto worker = started(spec);
  const auto write = registered<write_lines>(*worker, "write_lines");
  std::atomic<int> writing = kThreads;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 15; ++i) {
        // Some of them fail: their child is killed.
        static_cast<void>(worker->run([&](Orchestrator& orch) {
          for (int k = 0; k < 5; ++k) static_cast<void>(orch.submit_sub(write, TaskArgs()));
        }));
      }
      --writing;
    });
  }
  threads.emplace_back([&] {
    for (int i = 0; writing > 0 && i < 20; ++i) {
      const std::vector<Worker::Child> children = worker->sub_children();
      const Worker::Child& child = children[static_cast<size_t>(i) % children.size()];
      if (child.alive && child.pid > 0) ::kill(child.pid, SIGKILL);
      if (i % 5 == 0) static_cast<void>(worker->add_sub_workers(1));
      ::poll(nullptr, 0, 3);
    }
  });
  for (std::thread& thread : threads) thread.join();
  static_cast<void>(worker->close());
  EXPECT_GT(lines, 0u);
}

// The handler runs in one thread while another one takes away what it touches.
TEST(StressOfProcesses, ASignalComesWhileItsDrainIsDropped) {
  struct sigaction before {};
  ASSERT_EQ(::sigaction(SIGINT, nullptr, &before), 0);
  ::signal(SIGINT, [](int) {});
  const int heard = ::dup(STDERR_FILENO);
  ASSERT_NE(::freopen("/dev/null", "w", stderr), nullptr);  // the handler says what it does
  int seen = 0;
  for (int round = 0; round < 300; ++round) {
    const auto worker = Worker::create(spec_of(StartMethod::kInline, 1)).value();
    auto drain = std::make_optional(drain_on_signals(*worker).value());
    std::atomic<bool> go = false;
    std::thread sender([&] {
      while (!go) {
      }
      ::raise(SIGINT);
    });
    go = true;
    // In every third round it is there before; else at any moment.
    while (round % 3 == 0 && drain->signal_number() == 0) std::this_thread::yield();
    for (int i = 0; i < round * 20; ++i) std::atomic_signal_fence(std::memory_order_seq_cst);
    seen += drain->signal_number() != 0;
    drain.reset();
    sender.join();
  }
  std::fflush(stderr);
  ::dup2(heard, STDERR_FILENO);
  ::close(heard);
  EXPECT_GE(seen, 100);
  ::sigaction(SIGINT, &before, nullptr);
}

// Each is the last one in some round, and whoever is last ends the Worker.
TEST(StressOfProcesses, TheLastOfBufferHandleAndWorkerGoesInAnyThread) {
  for (int round = 0; round < 12; ++round) {
    auto worker = started(StartMethod::kFork, 1);
    const auto none = registered<nothing>(*worker, "nothing");
    auto buffer = std::make_optional(worker->create_buffer(64).value());
    auto handle = std::make_optional(
        worker->submit([&](Orchestrator& orch) { orch.submit_sub(none, TaskArgs()).value(); })
            .value());
    std::thread one([&] { buffer.reset(); });
    std::thread two([&] { handle.reset(); });
    worker.reset();
    one.join();
    two.join();
  }
}

TEST(StressOfProcesses, InitAndCloseOfOneWorkerComeFromSeveralThreads) {
  // The process's server is made while there is one thread.
  { const auto first = started(StartMethod::kFork, 1); }
  for (int round = 0; round < 12; ++round) {
    WorkerSpec spec = spec_of(StartMethod::kFork, 1);
    spec.allow_threads = true;
    auto worker = Worker::create(spec).value();
    std::atomic<int> begun = 0, closed = 0;
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t) threads.emplace_back([&] { begun += worker->init().ok(); });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(begun, 1);
    threads.clear();
    for (int t = 0; t < 3; ++t) threads.emplace_back([&] { closed += worker->close().ok(); });
    for (std::thread& thread : threads) thread.join();
    EXPECT_GE(closed, 1);
  }
}

}  // namespace
}  // namespace strata::test
