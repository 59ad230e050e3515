// How children come to be: by fork, by exec, or as the machine decides. This program's main begins
// with child_entry, so it is its own child server unless the tests name another.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "os/fork_server.h"
#include "runtime/child_server.h"
#include "runtime/context.h"
#include "tests/runtime/chip_test_util.h"
#include "tests/runtime/nested_util.h"

namespace strata {
namespace {

using namespace test;  // NOLINT

#ifdef STRATA_TEST_COMMAND
constexpr const char* kCommand = STRATA_TEST_COMMAND;
#endif

// Whatever the environment makes of spec_of(kFork).
WorkerSpec plain_spec(StartMethod start, int children) {
  WorkerSpec spec = spec_of(StartMethod::kInline, children);
  spec.start = start;
  return spec;
}
WorkerSpec exec_spec(int children) {
  return plain_spec(StartMethod::kExec, children);
}

// Other tests of this program count what is left: the server by exec goes with the test.
class StartByExec : public ::testing::Test {
 protected:
  void TearDown() override { runtime::end_context(); }
};

// Runs `body` in a forked process, which has made no server yet. Its status is what `body` gives.
template <class F>
int in_fresh_process(F&& body) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    const int status = body();
    std::fflush(nullptr);
    ::_exit(status);
  }
  int status = -1;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

// One task in a child gives its pid; 0 where it fails.
int64_t pid_of_a_task(Worker& worker) {
  auto callable = worker.register_callable(local_function<result_pid>("result_pid"));
  if (!callable) return 0;
  TaskRef task;
  auto run = worker.submit(
      [&](Orchestrator& orch) { task = orch.submit_sub(*callable, TaskArgs()).value(); });
  if (!run || !run->wait().ok()) return 0;
  const Result<int64_t> pid = run->result_as<int64_t>(task);
  return pid ? *pid : 0;
}

std::string command_line(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/cmdline");
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
  ~Variable() { ::unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

class OneThread {
 public:
  OneThread() : thread_([this] { stop_.wait(false); }) {}
  ~OneThread() {
    stop_ = true;
    stop_.notify_all();
    thread_.join();
  }

 private:
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// ---------------------------------------------------------------- exec

TEST_F(StartByExec, RunsLocalFunctionsOfThisProgram) {
  auto worker = started(exec_spec(2));
  const int64_t pid = pid_of_a_task(*worker);
  EXPECT_TRUE(pid == worker->sub_children()[0].pid || pid == worker->sub_children()[1].pid);
  const StartReport report = worker->start_report();
  EXPECT_EQ(report.method, StartMethod::kExec);
  EXPECT_EQ(report.reason, "WorkerSpec::start asks for it");
  EXPECT_TRUE(report.local_functions);
  EXPECT_EQ(report.program, std::filesystem::read_symlink("/proc/self/exe"));
  EXPECT_EQ(state_and_parent(static_cast<int>(pid)).second, report.server_pid);
  EXPECT_TRUE(worker->close().ok());
}

TEST_F(StartByExec, ReportBeforeInitSaysWhatIsAskedFor) {
  auto worker = Worker::create(exec_spec(1)).value();
  EXPECT_EQ(worker->start_report().method, StartMethod::kExec);
  EXPECT_EQ(worker->start_report().server_pid, 0);
}

TEST_F(StartByExec, RunsNativeImportsAndSharesBuffers) {
  auto worker = started(exec_spec(1));
  Buffer buffer = worker->create_buffer(4 * sizeof(int64_t)).value();
  for (int64_t i = 0; i < 4; ++i) buffer.as<int64_t>()[static_cast<size_t>(i)] = i;
  const auto scale = registered<scale_add>(*worker, "scale_add");
  ASSERT_TRUE(worker
                  ->run([&](Orchestrator& orch) {
                    orch.submit_sub(scale, TaskArgs()
                                               .add_tensor(buffer.tensor<int64_t>({4}), INOUT)
                                               .add_scalar(int64_t{10})
                                               .add_scalar(int64_t{1}))
                        .value();
                  })
                  .ok());
  for (int64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(buffer.as<int64_t>()[static_cast<size_t>(i)], 10 * i + 1);
  }
}

TEST_F(StartByExec, WorkersBelowWorkersAndChipsTakeTheSamePath) {
  auto spec = pod(StartMethod::kExec, 2, 2);
  auto worker = started(spec);
  const auto task = worker->register_callable(local_function<scale_in_subs>("scale")).value();
  worker->register_inner(local_function<scale_add>("scale_add")).value();
  Buffer buffer = worker->create_buffer(8).value();
  buffer.as<int64_t>()[0] = 4;
  EXPECT_TRUE(run_one(*worker, task,
                      TaskArgs()
                          .add_tensor(buffer.tensor<int64_t>({1}), INOUT)
                          .add_scalar(int64_t{3})
                          .add_scalar(int64_t{2}))
                  .ok());
  EXPECT_EQ(buffer.as<int64_t>()[0], 14);
  // Each L3 is a process with a server of its own, by exec again.
  for (const Worker::Child& child : worker->next_level_children()) {
    EXPECT_EQ(descendants(child.pid).size(), 4u);
  }
  EXPECT_TRUE(worker->close().ok());

  auto chips = started(chip_spec(StartMethod::kExec, 2));
  EXPECT_TRUE(run_on_chip(*chips, loaded(*chips, "chip_pid"), TaskArgs()).ok());
  EXPECT_TRUE(Chip::open({.backend = "cpu", .memory_bytes = 1 << 20}, exec_spec(0)).ok());
}

TEST_F(StartByExec, LeavesNoDescriptorAndNoProcess) {
  { const auto first = started(exec_spec(1)); }
  const std::set<int> fds = open_fds();
  std::set<int> processes;
  await([&] { return (processes = descendants()).size() <= 2; });
  for (int i = 0; i < 10; ++i) {
    auto worker = started(exec_spec(1 + i % 3));
    EXPECT_NE(pid_of_a_task(*worker), 0);
    ASSERT_TRUE(worker->close().ok());
    worker.reset();
    ASSERT_EQ(open_fds(), fds) << "after cycle " << i;
    await([&] { return descendants() == processes; });
  }
}

TEST_F(StartByExec, TitlesSayWhichChildAProcessIs) {
  auto worker = started(exec_spec(2));
  EXPECT_TRUE(command_line(worker->sub_children()[1].pid).starts_with("strata: L3/1"));
  EXPECT_TRUE(command_line(worker->start_report().server_pid).starts_with("strata: server of "));
}

TEST_F(StartByExec, WorksFromAnotherFolder) {
  const std::filesystem::path before = std::filesystem::current_path();
  const int status = in_fresh_process([] {
    if (::chdir("/") != 0) return 2;
    auto worker = Worker::create(exec_spec(1)).value();
    return worker->init().ok() && pid_of_a_task(*worker) != 0 ? 0 : 1;
  });
  EXPECT_EQ(status, 0);
  EXPECT_EQ(std::filesystem::current_path(), before);
}

TEST_F(StartByExec, WorksWithoutStdio) {
  EXPECT_EQ(in_fresh_process([] {
              for (int fd = 0; fd <= 2; ++fd) ::close(fd);
              auto worker = Worker::create(exec_spec(2));
              if (!worker || !(*worker)->init().ok()) return 1;
              return pid_of_a_task(**worker) != 0 && (*worker)->close().ok() ? 0 : 2;
            }),
            0);
}

TEST_F(StartByExec, KilledServerOfTheProcessIsMadeAgain) {
  EXPECT_EQ(in_fresh_process([] {
              int server = 0;
              {
                auto worker = started(exec_spec(1));
                server = state_and_parent(worker->start_report().server_pid).second;
              }
              if (::kill(server, SIGKILL) != 0) return 1;
              if (!await([&] { return state_and_parent(server).first != 'S'; })) return 2;
              const OneThread other;
              auto again = Worker::create(exec_spec(1)).value();
              return again->init().ok() && pid_of_a_task(*again) != 0 ? 0 : 3;
            }),
            0);
}

// ---------------------------------------------------------------- which program serves

TEST(ChildServer, OptionThatIsNotThereIsNamed) {
  EXPECT_EQ(in_fresh_process([] {
              WorkerSpec spec = exec_spec(1);
              spec.child_server = "/nonexistent/strata";
              auto worker = Worker::create(spec).value();
              const Result<void> init = worker->init();
              expect_error(init, Code::kNotFound,
                           "WorkerSpec::child_server is "
                           "'/nonexistent/strata': No such file");
              return testing::Test::HasFailure() ? 1 : 0;
            }),
            0);
}

TEST(ChildServer, ProgramThatIsNoServerIsToldWithItsEnd) {
  EXPECT_EQ(in_fresh_process([] {
              WorkerSpec spec = exec_spec(1);
              spec.child_server = "/bin/true";
              auto worker = Worker::create(spec).value();
              expect_error(worker->init(), Code::kSystem, "'/bin/true'");
              return testing::Test::HasFailure() ? 1 : 0;
            }),
            0);
}

TEST(ChildServer, ProgramThatDoesNotServeCannotStartServersWithoutEnd) {
  EXPECT_EQ(in_fresh_process([] {
              const Variable mark("STRATA_STARTED_AS_CHILD_SERVER", "1");
              auto worker = Worker::create(exec_spec(1)).value();
              expect_error(worker->init(), Code::kWrongState, "does not begin with");
              return testing::Test::HasFailure() ? 1 : 0;
            }),
            0);
}

TEST_F(StartByExec, AnotherServerThanTheFirstWorkersIsRefused) {
  const auto first = started(exec_spec(1));
  WorkerSpec spec = exec_spec(1);
  spec.child_server = "/bin/true";
  expect_error(Worker::create(spec).value()->init(), Code::kUnsupported, "share the child server");
}

#ifdef STRATA_TEST_COMMAND
TEST(ChildServer, TheCommandServesAllButLocalFunctions) {
  EXPECT_EQ(in_fresh_process([] {
              WorkerSpec spec = exec_spec(1);
              spec.child_server = kCommand;
              spec.library_path = {STRATA_TEST_LIBRARIES};
              auto worker = Worker::create(spec).value();
              const auto good =
                  worker->register_callable(NativeImport{"libnative_good.so", "native_add"});
              if (!good) return 1;
              if (const auto init = worker->init(); !init) {
                ADD_FAILURE() << init.error().to_string();
                return 2;
              }
              if (worker->start_report().local_functions) return 3;
              expect_error(worker->register_callable(local_function<nothing>("nothing")),
                           Code::kUnsupported, "strata::child_entry");
              expect_error(worker->register_callable(local_function<nothing>("nothing")),
                           Code::kUnsupported, "WorkerSpec::start asks for it");
              return testing::Test::HasFailure() || !worker->close().ok() ? 4 : 0;
            }),
            0);
}

TEST(ChildServer, LocalFunctionRegisteredBeforeInitFailsInitWithTheReason) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer has a thread of its own, which these tests must allow";
#endif
  EXPECT_EQ(in_fresh_process([] {
              const OneThread other;
              WorkerSpec spec = plain_spec(StartMethod::kAuto, 1);
              spec.allow_threads = false;
              spec.child_server = kCommand;
              auto worker = Worker::create(spec).value();
              const auto gone =
                  worker->register_callable(local_function<fill>("unregistered")).value();
              registered<nothing>(*worker, "nothing");
              worker->unregister_callable(gone).value();
              const Result<void> init = worker->init();
              expect_error(init, Code::kUnsupported, "'nothing' is a LocalFunction");
              expect_error(init, Code::kUnsupported, "1 other thread");
              return testing::Test::HasFailure() ? 1 : 0;
            }),
            0);
}

TEST(ChildServer, TheEnvironmentNamesItWhereTheProgramDoesNotServe) {
  const Variable server("STRATA_CHILD_SERVER", kCommand);
  // This program serves, so it is taken; where none is named but that one, it would be.
  EXPECT_EQ(runtime::find_child_server("").value().path, "/proc/self/exe");
  EXPECT_EQ(runtime::find_child_server(kCommand).value().path, kCommand);
}
#endif

// ---------------------------------------------------------------- auto

TEST(StartByAuto, ForksWhereThatIsSafe) {
  EXPECT_EQ(in_fresh_process([] {
              auto worker = started(plain_spec(StartMethod::kAuto, 1));
              EXPECT_EQ(worker->start_report().method, StartMethod::kFork);
              EXPECT_NE(worker->start_report().reason.find("one thread"), std::string::npos);
              EXPECT_NE(pid_of_a_task(*worker), 0);
              // The engine's thread is Strata's own.
              auto second = started(plain_spec(StartMethod::kAuto, 1));
              EXPECT_EQ(second->start_report().method, StartMethod::kFork);
              EXPECT_EQ(second->start_report().reason, "this process has its fork server already");
              return testing::Test::HasFailure() ? 1 : 0;
            }),
            0);
}

TEST(StartByAuto, TakesExecInAProgramWithThreadsAndSaysWhy) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer has a thread of its own, which these tests must allow";
#endif
  EXPECT_EQ(in_fresh_process([] {
              const OneThread other;
              WorkerSpec spec = plain_spec(StartMethod::kAuto, 2);
              spec.allow_threads = false;
              testing::internal::CaptureStderr();
              auto worker = started(spec);
              const std::string said = testing::internal::GetCapturedStderr();
              EXPECT_EQ(worker->start_report().method, StartMethod::kExec);
              EXPECT_NE(worker->start_report().reason.find("1 other thread"), std::string::npos);
              EXPECT_NE(said.find("L3: children start by exec of"), std::string::npos) << said;
              EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1);
              EXPECT_NE(pid_of_a_task(*worker), 0);
              return testing::Test::HasFailure() ? 1 : 0;
            }),
            0);
}

TEST(StartByAuto, ForkIsStillRefusedByNameWhereItIsAskedFor) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer has a thread of its own, which these tests must allow";
#endif
  EXPECT_EQ(in_fresh_process([] {
              const OneThread other;
              WorkerSpec spec = plain_spec(StartMethod::kFork, 1);
              spec.allow_threads = false;
              expect_error(Worker::create(spec).value()->init(), Code::kWrongState,
                           "1 other thread");
              return testing::Test::HasFailure() ? 1 : 0;
            }),
            0);
}

TEST(TwoStartMethods, StandBesideEachOtherInOneProcess) {
  EXPECT_EQ(in_fresh_process([] {
              auto forked = started(plain_spec(StartMethod::kFork, 1));
              auto executed = started(exec_spec(1));
              auto again = started(plain_spec(StartMethod::kFork, 1));
              EXPECT_EQ(forked->start_report().method, StartMethod::kFork);
              EXPECT_EQ(executed->start_report().method, StartMethod::kExec);
              for (Worker* each : {forked.get(), executed.get(), again.get()}) {
                EXPECT_NE(pid_of_a_task(*each), 0);
                EXPECT_TRUE(each->close().ok());
              }
              return testing::Test::HasFailure() ? 1 : 0;
            }),
            0);
}

// ---------------------------------------------------------------- what goes wrong on the way

#ifdef STRATA_FAULTS
class StartKilledAt : public ::testing::TestWithParam<std::tuple<StartMethod, const char*>> {};
INSTANTIATE_TEST_SUITE_P(
    Step, StartKilledAt,
    ::testing::Combine(::testing::Values(StartMethod::kFork, StartMethod::kExec),
                       ::testing::Values("entered", "greeted", "settled", "hello", "sub-server",
                                         "sub-settled", "sub-hello", "spawn")));

TEST_P(StartKilledAt, FailsInitOrHarmsNothingAndLeavesNothing) {
  const auto [method, step] = GetParam();
  const Variable at("STRATA_TEST_KILL_AT", step);
  EXPECT_EQ(in_fresh_process([method = method] {
              const std::set<int> before = open_fds();
              {
                auto worker = Worker::create(plain_spec(method, 2)).value();
                const Result<void> init = worker->init();
                if (init && pid_of_a_task(*worker) == 0) return 1;
                if (!init && init.error().message().empty()) return 2;
                static_cast<void>(worker->close());
              }
              // But the server of the process, where it stands: its socket and its pidfd.
              EXPECT_LE(open_fds().size(), before.size() + 2);
              return testing::Test::HasFailure() ? 3 : 0;
            }),
            0);
}
#endif

class StartStarved : public ::testing::TestWithParam<StartMethod> {};
INSTANTIATE_TEST_SUITE_P(Method, StartStarved,
                         ::testing::Values(StartMethod::kFork, StartMethod::kExec));

// Each descriptor that create, init and a run take is missing once.
TEST_P(StartStarved, EachDescriptorThatCannotBeHadIsAnErrorAndLeavesNothing) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer looks at an object's type through a pipe of its own: without "
                  "descriptors it finds every type wrong";
#endif
  EXPECT_EQ(in_fresh_process([method = GetParam()] {
              // The server of the process is made below the limit, once.
              { const auto first = started(plain_spec(method, 1)); }
              const std::set<int> before = open_fds();
              const int free = ::dup(0);
              ::close(free);
              rlimit whole{};
              ::getrlimit(RLIMIT_NOFILE, &whole);
              int failures = 0;
              for (rlim_t more = 0; more < 64; ++more) {
                const rlimit low{static_cast<rlim_t>(free) + more, whole.rlim_max};
                ::setrlimit(RLIMIT_NOFILE, &low);
                bool done = false;
                {
                  auto worker = Worker::create(plain_spec(method, 2));
                  done = worker && (*worker)->init().ok();
                  if (done) done = pid_of_a_task(**worker) != 0;
                }
                ::setrlimit(RLIMIT_NOFILE, &whole);
                EXPECT_EQ(open_fds(), before) << more;
                if (testing::Test::HasFailure()) return 1;
                if (done) return failures >= 5 ? 0 : 2;
                ++failures;
              }
              return 3;
            }),
            0);
}

}  // namespace
}  // namespace strata

int main(int argc, char** argv) {
  strata::child_entry(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
