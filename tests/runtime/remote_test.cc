// Workers of other hosts, which here are daemons of this one: real processes, real sockets.
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <thread>

#include "tests/runtime/remote_util.h"

namespace strata {
namespace {

using namespace test;  // NOLINT

double seconds_since(base::Instant begun) {
  return (os::monotonic_now() - begun).seconds();
}

class Remote : public ::testing::Test {
 protected:
  std::unique_ptr<Worker> parent(int local_subs = 0) {
    WorkerSpec spec = spec_of(StartMethod::kFork, local_subs);
    spec.level = 4;
    return Worker::create(spec).value();
  }
  static CallableHandle far(Worker& worker, const char* symbol) {
    auto made = worker.register_callable(NativeImport{"libnative_far.so", symbol});
    EXPECT_TRUE(made.ok()) << (made ? "" : made.error().to_string());
    return made.value();
  }
  static Result<void> run(Worker& worker, const CallableHandle& callable, TaskArgs args = {},
                          TaskRef* task = nullptr, std::unique_ptr<RunHandle>* handle = nullptr,
                          const CallConfig& config = {}) {
    TaskRef ref;
    auto submitted = worker.submit([&](Orchestrator& orch) -> Result<void> {
      auto got = orch.submit_next_level(callable, args, config);
      if (!got) return got.error();
      ref = *got;
      return {};
    });
    if (!submitted) return submitted.error();
    Result<void> out = submitted->wait();
    if (task != nullptr) *task = ref;
    if (handle != nullptr) *handle = std::make_unique<RunHandle>(*std::move(submitted));
    return out;
  }
  template <class T>
  static T result_of(Worker& worker, const CallableHandle& callable, const TaskArgs& args = {}) {
    TaskRef task;
    std::unique_ptr<RunHandle> handle;
    const Result<void> ran = run(worker, callable, args, &task, &handle);
    EXPECT_TRUE(ran.ok()) << (ran ? "" : ran.error().to_string());
    if (!ran) return {};
    return handle->result_as<T>(task).value();
  }
};

TEST_F(Remote, AWorkerAddedBeforeInitRunsTasksWithTheirArguments) {
  const Daemon daemon;
  auto worker = parent();
  ASSERT_EQ(worker->add_remote_worker(daemon.spec()).value(), 0);
  const auto begun = worker->init();
  ASSERT_TRUE(begun.ok()) << begun.error().to_string();
  const auto sum = far(*worker, "far_sum");
  Buffer buffer = worker->create_buffer(8 * 100).value();
  for (int64_t i = 0; i < 100; ++i) buffer.as<int64_t>()[i] = i;
  EXPECT_EQ(
      result_of<int64_t>(
          *worker, sum,
          TaskArgs().add_tensor(buffer.tensor<int64_t>({100}), INPUT).add_scalar(int64_t{1000})),
      4950 + 1000);
  const auto pid = far(*worker, "far_pid");
  EXPECT_EQ(result_of<int64_t>(*worker, pid), worker->next_level_children()[0].pid);
  EXPECT_TRUE(worker->close().ok());
}

TEST_F(Remote, AWorkerAddedLaterTakesWhatIsRegisteredAndRunsBesideLocalOnes) {
  const Daemon daemon;
  auto worker = parent();
  WorkerSpec local = spec_of(StartMethod::kFork, 0);
  local.library_path = {STRATA_TEST_LIBRARIES};
  ASSERT_EQ(worker->add_worker(local).value(), 0);
  const auto pid = far(*worker, "far_pid");
  ASSERT_TRUE(worker->init().ok());
  ASSERT_EQ(worker->add_remote_worker(daemon.spec(0)).value(), 1);
  const std::vector<Worker::Child> children = worker->next_level_children();
  ASSERT_EQ(children.size(), 2u);
  EXPECT_NE(children[0].pid, children[1].pid);
  const auto bit = [](auto value) { return 1u << static_cast<uint32_t>(value); };
  EXPECT_EQ(children[0].where, "");
  EXPECT_TRUE(children[0].caps.shares_memory && children[0].caps.nested);
  EXPECT_NE(children[0].caps.kinds & bit(CallableKind::kLocalFunction), 0u);
  EXPECT_NE(children[0].caps.tags & bit(INOUT), 0u);
  EXPECT_EQ(children[1].where, daemon.endpoint());
  EXPECT_FALSE(children[1].caps.shares_memory);
  EXPECT_TRUE(children[1].caps.nested);
  EXPECT_EQ(children[1].caps.kinds, bit(CallableKind::kNativeImport));
  EXPECT_EQ(children[1].caps.tags, bit(INPUT));
  std::vector<TaskRef> tasks;
  auto handle = worker
                    ->submit([&](Orchestrator& orch) {
                      for (int i = 0; i < 2; ++i) {
                        tasks.push_back(orch.submit_next_level(pid, TaskArgs(), {}, i).value());
                      }
                    })
                    .value();
  ASSERT_TRUE(handle.wait().ok());
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(handle.result_as<int64_t>(tasks[i]).value(), children[i].pid);
  }
  EXPECT_TRUE(worker->close().ok());
}

TEST_F(Remote, ManyTasksGoAndComeAndNoneIsLost) {
  const Daemon daemon;
  auto worker = parent();
  ASSERT_TRUE(worker->add_remote_worker(daemon.spec(0)).ok());
  ASSERT_TRUE(worker->add_remote_worker(daemon.spec(0)).ok());
  ASSERT_TRUE(worker->init().ok());
  const auto sum = far(*worker, "far_sum");
  Buffer buffer = worker->create_buffer(8 * 64).value();
  std::vector<TaskRef> tasks;
  auto handle =
      worker
          ->submit([&](Orchestrator& orch) {
            for (int64_t i = 0; i < 500; ++i) {
              tasks.push_back(
                  orch.submit_next_level(
                          sum,
                          TaskArgs().add_tensor(buffer.tensor<int64_t>({64}), INPUT).add_scalar(i))
                      .value());
            }
          })
          .value();
  const Result<void> done = handle.wait();
  ASSERT_TRUE(done.ok()) << done.error().to_string();
  for (int64_t i = 0; i < 500; ++i) EXPECT_EQ(handle.result_as<int64_t>(tasks[i]).value(), i);
  for (const Worker::Child& child : worker->next_level_children()) EXPECT_GT(child.tasks_done, 0u);
  EXPECT_TRUE(worker->close().ok());
}

// A runner keeps answers back for a moment where the tasks behind them have been quick so far.
TEST_F(Remote, AnAnswerDoesNotWaitBehindATaskThatWasAlwaysQuick) {
  constexpr int64_t kLongMs = 3'000;
  const Daemon daemon;
  auto worker = parent();
  RemoteWorkerSpec spec = daemon.spec(0);
  spec.session.beat_ms = 2'000;  // all that waits is written with a beat
  spec.session.hold_ms = 6'000;
  spec.session.verdict_ms = 9'000;
  ASSERT_TRUE(worker->add_remote_worker(spec).ok());
  ASSERT_TRUE(worker->init().ok());
  const auto stay = far(*worker, "far_stay");
  const auto quick = TaskArgs().add_scalar(int64_t{0});
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(run(*worker, stay, quick).ok());
  auto submitted = worker->submit([&](Orchestrator& orch) {
    // The others come meanwhile.
    std::vector<TaskRef> first = {
        orch.submit_next_level(stay, TaskArgs().add_scalar(int64_t{50})).value()};
    for (int i = 0; i < 6; ++i) first.push_back(orch.submit_next_level(stay, quick).value());
    ASSERT_TRUE(orch.submit_next_level(stay, TaskArgs().add_scalar(kLongMs)).ok());
    const base::Instant begun = os::monotonic_now();
    for (const TaskRef& task : first) ASSERT_TRUE(orch.wait(task).ok());
    EXPECT_LT(seconds_since(begun), 1.0);
  });
  ASSERT_TRUE(submitted.ok());
  EXPECT_EQ(submitted->progress().succeeded, 7u) << "the long one has ended: nothing was tested";
  submitted->cancel();
  EXPECT_TRUE(submitted->wait().ok()) << "a task that stops and returns is done";
  EXPECT_TRUE(worker->close().ok());
}

TEST_F(Remote, WhatARunnerWritesComesHomeInLines) {
  const Daemon daemon;
  auto worker = parent();
  ASSERT_TRUE(worker->add_remote_worker(daemon.spec(0)).ok());
  ASSERT_TRUE(worker->init().ok());
  const std::string prefix = "[L4/0 " + daemon.endpoint() + " pid " +
                             std::to_string(worker->next_level_children()[0].pid) + "] ";
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  EXPECT_TRUE(run(*worker, far(*worker, "far_print")).ok());
  const Result<void> failed = run(*worker, far(*worker, "far_complain"));
  for (const char* piece : {"thrown after words", "words before the end"}) {
    expect_error(failed, Code::kTaskFailed, piece);
  }
  EXPECT_TRUE(worker->close().ok());  // no line is lost by it
  const std::string out = testing::internal::GetCapturedStdout();
  const std::string err = testing::internal::GetCapturedStderr();
  EXPECT_NE(out.find(prefix + "a line from far away\n"), std::string::npos) << out;
  EXPECT_NE(err.find(prefix + "words before the end\n"), std::string::npos) << err;
}

TEST_F(Remote, AFailedTaskNamesHostPathPidAndCallable) {
  const Daemon daemon;
  auto worker = parent();
  ASSERT_TRUE(worker->add_remote_worker(daemon.spec()).ok());
  ASSERT_TRUE(worker->init().ok());
  const auto thrown = far(*worker, "far_throw");
  const Result<void> failed = run(*worker, thrown);
  for (const char* piece : {"thrown far away", "L4/0", "far_throw", "127.0.0.1:", "pid"}) {
    expect_error(failed, Code::kTaskFailed, piece);
  }
  // By a helper of the remote Worker: what its orchestration function calls is registered there.
  const auto inner = worker->register_inner(NativeImport{"libnative_far.so", "far_throw"});
  ASSERT_TRUE(inner.ok()) << inner.error().to_string();
  const Result<void> below = run(*worker, far(*worker, "far_below"));
  for (const char* piece : {"thrown far away", "L4/0/0"}) {
    expect_error(below, Code::kTaskFailed, piece);
  }
  EXPECT_TRUE(run(*worker, far(*worker, "far_nothing")).ok()) << "the Worker goes on";
  EXPECT_TRUE(worker->close().ok());
}

TEST_F(Remote, WhatIsNotThereIsRefusedWithTheReason) {
  const Daemon daemon;
  auto worker = parent();
  ASSERT_TRUE(worker->add_remote_worker(daemon.spec(0)).ok());
  ASSERT_TRUE(worker->init().ok());
  expect_error(worker->register_callable(NativeImport{"libno_such_thing.so", "f"}), Code::kNotFound,
               "libno_such_thing.so");
  expect_error(worker->register_callable(local_function<nothing>("nothing"), {0}),
               Code::kUnsupported, "LOCAL_FUNCTION");
  const auto sum = far(*worker, "far_sum");
  Buffer buffer = worker->create_buffer(128 << 10).value();
  expect_error(run(*worker, sum, TaskArgs().add_tensor(buffer.tensor<int64_t>({8}), INOUT)),
               Code::kInvalidArgument, "set_result");
  expect_error(run(*worker, sum, TaskArgs().add_tensor(buffer.tensor<int64_t>({16 << 10}), INPUT)),
               Code::kInvalidArgument, "65536 bytes");
  EXPECT_TRUE(worker->unregister_callable(sum).ok());
  EXPECT_TRUE(worker->close().ok());
}

TEST_F(Remote, SpecsThatCannotBeAreRefusedByName) {
  auto worker = parent();
  RemoteWorkerSpec spec;
  const auto refused = [&](Code code, std::string_view piece) {
    expect_error(worker->add_remote_worker(spec), code, piece);
  };
  refused(Code::kInvalidArgument, "HOST:PORT");
  spec.endpoint = "127.0.0.1:1";
  for (const char* name : {"roce", "hccs", "ub"}) {
    spec.transport = name;
    refused(Code::kUnsupported, name);
  }
  spec.transport = "pigeon";
  refused(Code::kInvalidArgument, "pigeon");
  spec.transport = "tcp";
  spec.level = 4;
  refused(Code::kInvalidArgument, "level");
  spec.level = 3;
  spec.platform = "cuda";
  refused(Code::kUnsupported, "cuda");
  spec.platform = "cpu";
  spec.runtime = "other";
  refused(Code::kUnsupported, "tensormap_and_ringbuffer");
  spec.runtime = "tensormap_and_ringbuffer";
  spec.endpoint = "192.0.2.7:7411";
  refused(Code::kInvalidArgument, "key_file");
}

TEST_F(Remote, ADaemonThatIsLateToExistIsTriedAgainAndOneThatNeverIsAnErrorInTime) {
  auto worker = parent();
  ASSERT_TRUE(worker->init().ok());
  RemoteWorkerSpec nobody;
  nobody.endpoint = "127.0.0.1:1";
  nobody.session.start_ms = 200;
  expect_error(worker->add_remote_worker(nobody), Code::kEndpointFailed, "127.0.0.1:1");
  // A port that is free now, and a daemon's a little later.
  std::string endpoint;
  {
    const Daemon first;
    endpoint = first.endpoint();
  }
  RemoteWorkerSpec spec;
  spec.endpoint = endpoint;
  spec.limits.heap_bytes = 64 << 20;
  Result<int> added = -1;
  std::thread other([&] { added = worker->add_remote_worker(spec); });
  ::poll(nullptr, 0, 100);
  const Daemon late({}, endpoint);
  other.join();
  EXPECT_TRUE(added.ok()) << (added ? "" : added.error().to_string());
  EXPECT_TRUE(worker->close().ok());
}

// ---------------------------------------------------------------- what goes wrong

// One session, with a task that stays.
class RemoteFailure : public Remote {
 protected:
  void SetUp() override { open(daemon_.spec(1)); }
  void open(RemoteWorkerSpec spec) {
    worker_ = parent();
    worker_->add_remote_worker(std::move(spec)).value();
    const auto begun = worker_->init();
    ASSERT_TRUE(begun.ok()) << begun.error().to_string();
    stay_ = far(*worker_, "far_stay");
    pid_ = worker_->next_level_children()[0].pid;
  }
  void TearDown() override {
    if (worker_) static_cast<void>(worker_->close());
  }
  RunHandle stay(int64_t ms, const CallConfig& config = {}) {
    return worker_
        ->submit([&](Orchestrator& orch) {
          orch.submit_next_level(stay_, TaskArgs().add_scalar(ms), config).value();
        })
        .value();
  }
  bool runner_gone() const {
    const char state = state_and_parent(pid_).first;
    return state == 'X' || state == 'Z';
  }

  Daemon daemon_;
  std::unique_ptr<Worker> worker_;
  CallableHandle stay_;
  int pid_ = 0;
};

TEST_F(RemoteFailure, ARunnerThatIsKilledIsToldWithinASecondAndAnotherWorkerGoesOn) {
  auto run = stay(60'000);
  const Pidfd runner(pid_);
  ::poll(nullptr, 0, 50);
  const base::Instant begun = os::monotonic_now();
  ASSERT_EQ(::kill(pid_, SIGKILL), 0);
  const Result<void> failed = run.wait();
  EXPECT_LT(seconds_since(begun), 1.0);
  for (const char* piece : {"may have run", "L4/0", "far_stay", "127.0.0.1:"}) {
    expect_error(failed, Code::kEndpointFailed, piece);
  }
  EXPECT_EQ(worker_->next_level_children()[0].state, ChildState::kDead);
  ASSERT_EQ(worker_->add_remote_worker(daemon_.spec(0)).value(), 1);
  EXPECT_TRUE(Remote::run(*worker_, far(*worker_, "far_nothing")).ok());
}

TEST_F(RemoteFailure, TheEndOfTheDaemonEndsNoSession) {
  daemon_.stop(SIGKILL);
  EXPECT_TRUE(Remote::run(*worker_, far(*worker_, "far_nothing")).ok());
  EXPECT_TRUE(stay(100).wait().ok());
  EXPECT_TRUE(worker_->close().ok());
  EXPECT_TRUE(await([&] { return runner_gone(); }, kLossBound));
}

TEST_F(RemoteFailure, ARunnerThatIsFrozenIsToldBySilence) {
  worker_.reset();
  RemoteWorkerSpec spec = daemon_.spec(0);
  spec.session.beat_ms = 50;
  spec.session.hold_ms = 300;
  spec.session.verdict_ms = 600;
  open(spec);
  auto run = stay(60'000);
  ::poll(nullptr, 0, 50);
  const base::Instant begun = os::monotonic_now();
  ASSERT_EQ(::kill(pid_, SIGSTOP), 0);
  const Result<void> failed = run.wait();
  EXPECT_LT(seconds_since(begun), 2.0);
  expect_error(failed, Code::kEndpointFailed, "beat");
  ::kill(pid_, SIGCONT);
  // Its lanes are closed: it ends itself.
  EXPECT_TRUE(await([&] { return runner_gone(); }, kLossBound));
}

TEST_F(RemoteFailure, AHealthyTaskOfAnyLengthDoesNotFailForItsLength) {
  worker_.reset();
  RemoteWorkerSpec spec = daemon_.spec(0);
  spec.session.beat_ms = 20;
  spec.session.hold_ms = 100;
  spec.session.verdict_ms = 200;
  spec.session.orphan_ms = 200;
  open(spec);
  EXPECT_TRUE(stay(1'000).wait().ok());
}

TEST_F(RemoteFailure, ATaskPastItsDeadlineIsToldAndIfItDoesNotEndItsSessionIsAborted) {
  CallConfig config;
  config.deadline_ms = 50;
  expect_error(stay(60'000, config).wait(), Code::kDeadline, "50 ms");
  EXPECT_TRUE(Remote::run(*worker_, far(*worker_, "far_nothing")).ok()) << "it goes on";
}

TEST_F(RemoteFailure, ATaskThatDoesNotHearItsDeadlineIsEndedWithItsSession) {
  worker_.reset();
  RemoteWorkerSpec spec = daemon_.spec(0);
  spec.session.beat_ms = 50;
  worker_ = [&] {
    WorkerSpec top = spec_of(StartMethod::kFork, 0);
    top.level = 4;
    top.timeouts.deadline_grace_ms = 100;
    return Worker::create(top).value();
  }();
  worker_->add_remote_worker(spec).value();
  ASSERT_TRUE(worker_->init().ok());
  stay_ = far(*worker_, "far_deaf");
  pid_ = worker_->next_level_children()[0].pid;
  CallConfig config;
  config.deadline_ms = 50;
  const base::Instant begun = os::monotonic_now();
  expect_error(stay(60'000, config).wait(), Code::kDeadline, "50 ms");
  EXPECT_LT(seconds_since(begun), 3.0);
  EXPECT_TRUE(await([&] { return runner_gone(); }, kLossBound));
}

TEST_F(RemoteFailure, WhatARunnerCannotStartWithIsTold) {
  RemoteWorkerSpec spec = daemon_.spec(0);
  spec.cwd = "no/such/folder";
  expect_error(worker_->add_remote_worker(spec), Code::kEndpointFailed, "no/such/folder");
}

TEST_F(RemoteFailure, ACancelReachesWhatRunsAndWhatWaits) {
  auto run = worker_
                 ->submit([&](Orchestrator& orch) {
                   for (int i = 0; i < 5; ++i) {
                     orch.submit_next_level(stay_, TaskArgs().add_scalar(int64_t{60'000})).value();
                   }
                 })
                 .value();
  ::poll(nullptr, 0, 50);
  const base::Instant begun = os::monotonic_now();
  run.cancel();
  EXPECT_FALSE(run.wait().ok());
  EXPECT_LT(seconds_since(begun), 2.0);
  EXPECT_TRUE(Remote::run(*worker_, far(*worker_, "far_nothing")).ok()) << "it goes on";
}

TEST_F(RemoteFailure, CloseLeavesNoProcessAndSoDoesARemovedWorker) {
  ASSERT_EQ(worker_->add_remote_worker(daemon_.spec(1)).value(), 1);
  const int second = worker_->next_level_children()[1].pid;
  const std::set<int> below = descendants(second);
  const Result<void> removed = worker_->remove_remote_worker(1);
  EXPECT_TRUE(removed.ok()) << removed.error().to_string();
  EXPECT_TRUE(await([&] { return state_and_parent(second).first == 'X'; }, kLossBound));
  for (const int pid : below) EXPECT_EQ(state_and_parent(pid).first, 'X');
  EXPECT_TRUE(Remote::run(*worker_, far(*worker_, "far_nothing")).ok());
  EXPECT_TRUE(worker_->close().ok());
  EXPECT_TRUE(await([&] { return descendants(daemon_.pid()).empty(); }, kLossBound));
}

TEST_F(RemoteFailure, AParentThatIsKilledTakesRunnerAndSubtreeWithIt) {
  if (kThreadSanitizer) {
    GTEST_SKIP() << "the sanitizer allows no threads in a fork of a process that has some";
  }
  // A parent of its own, in another process.
  int pipe[2];
  ASSERT_EQ(::pipe2(pipe, O_CLOEXEC), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    WorkerSpec spec = spec_of(StartMethod::kExec, 0);
    spec.level = 4;
    spec.allow_threads = true;
    auto worker = Worker::create(spec).value();
    int pid = 0;
    if (worker->init().ok() && worker->add_remote_worker(daemon_.spec(2)).ok()) {
      pid = worker->next_level_children()[0].pid;
    }
    static_cast<void>(::write(pipe[1], &pid, sizeof pid));
    for (;;) ::pause();
  }
  ::close(pipe[1]);
  int pid = 0;
  ASSERT_EQ(::read(pipe[0], &pid, sizeof pid), static_cast<ssize_t>(sizeof pid));
  ASSERT_NE(pid, 0);
  const std::set<int> below = descendants(pid);
  EXPECT_GE(below.size(), 2u);
  const base::Instant begun = os::monotonic_now();
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  const auto gone = [](int one) {
    const char state = state_and_parent(one).first;
    return state == 'X' || state == 'Z';
  };
  EXPECT_TRUE(await([&] { return gone(pid); }, kLossBound));
  for (const int one : below) EXPECT_TRUE(await([&] { return gone(one); }, kLossBound));
  EXPECT_LT(seconds_since(begun), 1.5);
  ::waitpid(child, nullptr, 0);
  ::close(pipe[0]);
}

// ---------------------------------------------------------------- keys

std::string new_key(const std::string& name) {
  const std::string file = testing::TempDir() + name + std::to_string(::getpid());
  ::unlink(file.c_str());
  const std::string command = std::string(STRATA_TEST_COMMAND) + " key new " + file + " >/dev/null";
  EXPECT_EQ(std::system(command.c_str()), 0);
  return file;
}

TEST_F(Remote, WithAKeyTasksRunOverTlsAndAnotherKeyIsRefused) {
  const std::string key = new_key("remote_key"), other = new_key("remote_other_key");
  const Daemon daemon({"--key", key});
  auto worker = parent();
  RemoteWorkerSpec spec = daemon.spec(0);
  spec.key_file = key;
  ASSERT_TRUE(worker->add_remote_worker(spec).ok());
  const auto begun = worker->init();
  ASSERT_TRUE(begun.ok()) << begun.error().to_string();
  const std::string text = "over TLS";
  TaskArgs args;
  args.set_inline(bytes_of(text));
  TaskRef task;
  std::unique_ptr<RunHandle> handle;
  ASSERT_TRUE(run(*worker, far(*worker, "far_echo"), args, &task, &handle).ok());
  const std::vector<std::byte> echo = handle->result(task).value();
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(echo.data()), echo.size()), text);
  spec.key_file = other;
  const base::Instant tried = os::monotonic_now();
  expect_error(worker->add_remote_worker(spec), Code::kEndpointFailed, "key");
  EXPECT_LT(seconds_since(tried), 1.0);
  spec.key_file.clear();
  EXPECT_FALSE(worker->add_remote_worker(spec).ok()) << "in clear to a daemon with keys";
  EXPECT_TRUE(run(*worker, far(*worker, "far_nothing")).ok());
  EXPECT_TRUE(worker->close().ok());
  ::unlink(key.c_str());
  ::unlink(other.c_str());
}

}  // namespace
}  // namespace strata
