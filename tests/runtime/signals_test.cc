// SIGINT and SIGTERM to real programs that drain: to the process, to its group, at every stage.
#include "strata/signals.h"

#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <optional>

#include "os/shared_region.h"
#include "tests/runtime/worker_test_util.h"

namespace strata::test {
namespace {

// What a program under test says of itself, in memory that the test shares with it.
enum Word : uint32_t { kStage, kRunOk, kRefused, kCloseOk, kLate, kWords };

// A program of its own, in a process group of its own. Its last task stands at a gate whose words
// are shared with the test, as a file descriptor's mapping is.
class Program {
 public:
  using Body = int (*)(Program& self);
  explicit Program(Body body) : shared_(os::SharedRegion::create("signals-test", 4096).value()) {
    pid_ = ::fork();
    if (pid_ == 0) {
      ::setpgid(0, 0);
      ::signal(SIGINT, SIG_DFL);
      const int status = body(*this);
      std::fflush(nullptr);
      ::_exit(status);
    }
    ::setpgid(pid_, pid_);
  }
  ~Program() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  std::atomic_ref<uint32_t> operator[](Word word) {
    return std::atomic_ref<uint32_t>(reinterpret_cast<uint32_t*>(shared_.data())[word]);
  }
  // Pid of a process of its tree, written by tasks.
  std::atomic_ref<uint32_t> open() {
    return std::atomic_ref<uint32_t>(reinterpret_cast<uint32_t*>(shared_.data())[kWords]);
  }
  std::atomic_ref<uint32_t> task_pid() {
    return std::atomic_ref<uint32_t>(reinterpret_cast<uint32_t*>(shared_.data())[kWords + 1]);
  }
  void send(int number) const { ASSERT_EQ(::kill(pid_, number), 0); }
  void send_to_group(int number) const { ASSERT_EQ(::kill(-pid_, number), 0); }
  int pid() const { return pid_; }
  int fd() const { return shared_.fd(); }
  // The status, or minus the signal.
  int wait() {
    int status = 0;
    EXPECT_EQ(::waitpid(pid_, &status, 0), pid_);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  os::SharedRegion shared_;
  int pid_ = -1;
};

// Tasks reach the words by the descriptor that the children inherit; scalar 0 is its number.
void stand_at_shared_gate(Call& call) {
  auto region = os::SharedRegion::adopt(os::Fd(::dup(call.scalar<int>(0))), 4096).value();
  auto* const words = reinterpret_cast<uint32_t*>(region.data());
  const auto at = [words](uint32_t i) { return std::atomic_ref<uint32_t>(words[i]); };
  at(kWords + 1) = static_cast<uint32_t>(::getpid());
  at(kStage) = 2;
  while (at(kWords) == 0) ::poll(nullptr, 0, 1);
}

// One run that stands at the gate, then one more that must be refused once a signal has come.
int drain_while_a_task_runs(Program& self) {
  auto spec = spec_of(StartMethod::kFork, 2);
  spec.inherit_fds = {self.fd()};
  auto worker = Worker::create(spec).value();
  auto signals = drain_on_signals(*worker).value();
  const auto stand = registered<stand_at_shared_gate>(*worker, "stand");
  worker->init().value();
  self[kStage] = 1;
  const auto one = [&](Orchestrator& orch) {
    orch.submit_sub(stand, TaskArgs().add_scalar(self.fd())).value();
  };
  self[kRunOk] = worker->run(one).ok() ? 1 : 0;
  const Result<void> late = worker->run(one);
  self[kRefused] = !late && late.error().code() == Code::kCancelled ? 1 : 0;
  self[kCloseOk] = worker->close().ok() ? 1 : 0;
  return signals.exit_code(3);
}

class DrainBySignal : public ::testing::TestWithParam<int> {
 protected:
  int number() const { return GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Both, DrainBySignal, ::testing::Values(SIGINT, SIGTERM),
                         [](const auto& instance) {
                           return instance.param == SIGINT ? "Int" : "Term";
                         });

TEST_P(DrainBySignal, TheFirstLetsRunsEndRefusesNewOnesAndClosesWell) {
  Program program(&drain_while_a_task_runs);
  ASSERT_TRUE(await([&] { return program[kStage] == 2; }));
  program.send(number());
  // The task goes on: it is not told.
  ::poll(nullptr, 0, 50);
  EXPECT_NE(state_and_parent(static_cast<int>(program.task_pid())).first, 'X');
  program.open() = 1;
  EXPECT_EQ(program.wait(), 128 + number());
  EXPECT_EQ(program[kRunOk], 1u);
  EXPECT_EQ(program[kRefused], 1u);
  EXPECT_EQ(program[kCloseOk], 1u);
}

TEST_P(DrainBySignal, TheSecondEndsTheProgramAndItsChildrenAtOnce) {
  Program program(&drain_while_a_task_runs);
  ASSERT_TRUE(await([&] { return program[kStage] == 2; }));
  const std::set<int> tree = descendants(program.pid());
  EXPECT_GE(tree.size(), 4u);  // two servers, two helpers
  program.send(SIGTERM);
  ::poll(nullptr, 0, 20);
  program.send(number());
  EXPECT_EQ(program.wait(), 128 + number());
  EXPECT_TRUE(await([&] {
    return std::all_of(tree.begin(), tree.end(), [](int pid) {
      return state_and_parent(pid).first == 'X' || state_and_parent(pid).first == 'Z';
    });
  }));
  EXPECT_EQ(program[kCloseOk], 0u);
}

// What a terminal sends at Ctrl-C, and what also reaches the children by name.
TEST_P(DrainBySignal, SentToTheGroupAndToEveryChildIsTheProgramsAlone) {
  Program program(&drain_while_a_task_runs);
  ASSERT_TRUE(await([&] { return program[kStage] == 2; }));
  for (const int pid : descendants(program.pid())) ::kill(pid, number());
  program.send_to_group(number());
  program.open() = 1;
  EXPECT_EQ(program.wait(), 128 + number());
  EXPECT_EQ(program[kRunOk], 1u);
  EXPECT_EQ(program[kRefused], 1u);
  EXPECT_EQ(program[kCloseOk], 1u);
}

TEST_P(DrainBySignal, AStoppedChildHoldsUpTheFirstAndNotTheSecond) {
  Program program(&drain_while_a_task_runs);
  ASSERT_TRUE(await([&] { return program[kStage] == 2; }));
  const int child = static_cast<int>(program.task_pid());
  ASSERT_EQ(::kill(child, SIGSTOP), 0);
  ASSERT_TRUE(await([&] { return state_and_parent(child).first == 'T'; }));
  program.open() = 1;
  program.send(number());
  ::poll(nullptr, 0, 50);
  EXPECT_EQ(program[kRunOk], 0u);
  program.send(number());
  EXPECT_EQ(program.wait(), 128 + number());
  EXPECT_TRUE(await([&] {
    const char state = state_and_parent(child).first;
    return state == 'X' || state == 'Z';
  }));
}

// Its child never gets ready: a library's constructor does not return.
int drain_in_init(Program& self) {
  auto spec = spec_of(StartMethod::kFork, 1);
  spec.timeouts.exit_ms = 100;
  spec.library_path = {STRATA_TEST_LIBRARIES};
  auto worker = Worker::create(spec).value();
  auto signals = drain_on_signals(*worker).value();
  worker->register_callable(NativeImport{"libnative_slow.so", "native_slow"}).value();
  self[kStage] = 1;
  const Result<void> up = worker->init();
  self[kRefused] = !up && up.error().code() == Code::kCancelled ? 1 : 0;
  self[kCloseOk] = worker->close().ok() ? 1 : 0;
  return signals.exit_code(3);
}

TEST_P(DrainBySignal, DuringInitEndsIt) {
  Program program(&drain_in_init);
  ASSERT_TRUE(
      await([&] { return program[kStage] == 1 && descendants(program.pid()).size() == 3; }));
  const std::set<int> tree = descendants(program.pid());
  program.send(number());
  EXPECT_EQ(program.wait(), 128 + number());
  EXPECT_EQ(program[kRefused], 1u);
  EXPECT_EQ(program[kCloseOk], 1u);
  EXPECT_TRUE(await([&] {
    return std::all_of(tree.begin(), tree.end(), [](int pid) {
      const char state = state_and_parent(pid).first;
      return state == 'X' || state == 'Z';
    });
  }));
}

int drain_in_close(Program& self) {
  auto spec = spec_of(StartMethod::kFork, 1);
  spec.inherit_fds = {self.fd()};
  auto worker = Worker::create(spec).value();
  auto signals = drain_on_signals(*worker).value();
  const auto stand = registered<stand_at_shared_gate>(*worker, "stand");
  worker->init().value();
  auto handle = worker
                    ->submit([&](Orchestrator& orch) {
                      orch.submit_sub(stand, TaskArgs().add_scalar(self.fd())).value();
                    })
                    .value();
  self[kLate] = 1;
  self[kCloseOk] = worker->close().ok() ? 1 : 0;
  self[kRunOk] = handle.wait().ok() ? 1 : 0;
  return signals.exit_code(3);
}

TEST_P(DrainBySignal, DuringCloseChangesNothingButTheStatus) {
  Program program(&drain_in_close);
  ASSERT_TRUE(await([&] { return program[kLate] == 1 && program[kStage] == 2; }));
  program.send(number());
  ::poll(nullptr, 0, 20);
  program.open() = 1;
  EXPECT_EQ(program.wait(), 128 + number());
  EXPECT_EQ(program[kCloseOk], 1u);
  EXPECT_EQ(program[kRunOk], 1u);
}

// ---------------------------------------------------------------- what was not asked for

int do_not_drain(Program& self) {
  auto spec = spec_of(StartMethod::kFork, 1);
  spec.inherit_fds = {self.fd()};
  auto worker = Worker::create(spec).value();
  const auto stand = registered<stand_at_shared_gate>(*worker, "stand");
  worker->init().value();
  static_cast<void>(worker->run([&](Orchestrator& orch) {
    orch.submit_sub(stand, TaskArgs().add_scalar(self.fd())).value();
  }));
  return 3;
}

TEST_P(DrainBySignal, NotAskedForEndsTheProgramAsEver) {
  Program program(&do_not_drain);
  ASSERT_TRUE(await([&] { return program[kStage] == 2; }));
  const int child = static_cast<int>(program.task_pid());
  program.send(number());
  EXPECT_EQ(program.wait(), -number());
  EXPECT_TRUE(await([&] {
    const char state = state_and_parent(child).first;
    return state == 'X' || state == 'Z';
  }));
}

TEST(SignalDrain, GivesBackTheHandlersThatWereThereWithTheLast) {
  const auto mine = [](int) {};
  struct sigaction before {};
  ASSERT_EQ(::sigaction(SIGINT, nullptr, &before), 0);
  ::signal(SIGINT, mine);
  ::signal(SIGTERM, SIG_IGN);
  const auto handler = [](int number) {
    struct sigaction now {};
    ::sigaction(number, nullptr, &now);
    return now.sa_handler;
  };
  {
    auto one = Worker::create(spec_of(StartMethod::kInline, 1)).value();
    auto two = Worker::create(spec_of(StartMethod::kInline, 1)).value();
    auto of_one = std::make_optional(drain_on_signals(*one).value());
    auto of_two = std::make_optional(drain_on_signals(*two).value());
    EXPECT_NE(handler(SIGINT), static_cast<sighandler_t>(mine));
    EXPECT_EQ(handler(SIGTERM), SIG_IGN) << "what is ignored stays so";
    of_one.reset();
    EXPECT_NE(handler(SIGINT), static_cast<sighandler_t>(mine));
    EXPECT_EQ(of_two->exit_code(7), 7);
    ::raise(SIGINT);
    EXPECT_EQ(of_two->signal_number(), SIGINT);
    EXPECT_EQ(of_two->exit_code(7), 130);
    const auto late = drain_on_signals(*one).value();
    EXPECT_EQ(late.signal_number(), SIGINT) << "a signal that came before this Worker was known";
    expect_error(one->init(), Code::kCancelled, "SIGINT");
  }
  EXPECT_EQ(handler(SIGINT), static_cast<sighandler_t>(mine));
  ::sigaction(SIGINT, &before, nullptr);
  ::signal(SIGTERM, SIG_DFL);
}

TEST(SignalDrain, MoreThan64AreRefused) {
  const auto worker = Worker::create(spec_of(StartMethod::kInline, 1)).value();
  std::vector<SignalDrain> drains;
  for (int i = 0; i < 64; ++i) drains.push_back(drain_on_signals(*worker).value());
  expect_error(drain_on_signals(*worker), Code::kResourceExhausted, "64");
  drains.pop_back();
  EXPECT_TRUE(drain_on_signals(*worker).ok());
}

}  // namespace
}  // namespace strata::test
