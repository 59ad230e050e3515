// What children write: where it comes out, how much of it, and at the end of whose Error.
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <mutex>

#include "os/shared_region.h"
#include "tests/runtime/nested_util.h"
#include "tests/runtime/worker_test_util.h"

namespace strata::test {
namespace {

// ---------------------------------------------------------------- tasks

std::string text_of(Call& call) {
  const auto text = call.inline_bytes();
  return {reinterpret_cast<const char*>(text.data()), text.size()};
}

void put(int fd, std::string_view text) {
  if (::write(fd, text.data(), text.size()) != static_cast<ssize_t>(text.size())) ::_exit(77);
}

void print_all_ways(Call& call) {
  std::printf("by printf\n");
  std::cout << "by cout\n";
  std::cerr << "by cerr\n";
  std::fprintf(stderr, "by stderr\n");
  put(1, "by write\n");
  call.log(3, "by log");
  if (std::system("echo by a program; echo by a program to stderr 1>&2") != 0) ::_exit(77);
  std::printf("without an end");
}
void print(Call& call) {
  std::printf("%s\n", text_of(call).c_str());
}
void print_and_fail(Call& call) {
  std::printf("%s\n", text_of(call).c_str());
  std::fprintf(stderr, "to stderr: %s\n", text_of(call).c_str());
  throw std::runtime_error("as asked");
}
void fail(Call&) {
  throw std::runtime_error("as asked");
}
void print_and_die(Call& call) {
  std::printf("%s\n", text_of(call).c_str());
  ::raise(SIGSEGV);
}
void print_lines(Call& call) {
  const int n = call.scalar<int>(0);
  for (int i = 0; i < n; ++i) std::printf("line %d\n", i);
}
void print_and_stand_at_gate(Call& call) {
  std::printf("before the gate\n");
  stand_at_gate(call);
}
void print_for_ever(Call&) {
  for (;;) put(1, "again and again and again and again and again and again and again and again\n");
}

TaskArgs with_text(std::string_view text) {
  TaskArgs args;
  args.set_inline(bytes_of(text));
  return args;
}

// ---------------------------------------------------------------- rig

struct Line {
  std::string path;
  int pid;
  bool is_stderr;
  std::string text;
};

// Lines that a Worker's callback got.
class Lines {
 public:
  void put_into(WorkerSpec* spec) {
    spec->output.on_line = [this](const OutputLine& line) {
      const std::lock_guard lock(mutex_);
      lines_.push_back({std::string(line.path), line.pid, line.is_stderr, std::string(line.text)});
    };
  }
  std::vector<Line> all() const {
    const std::lock_guard lock(mutex_);
    return lines_;
  }
  bool has(std::string_view text) const {
    const std::vector<Line> lines = all();
    return std::any_of(lines.begin(), lines.end(), [&](const Line& l) { return l.text == text; });
  }

 private:
  mutable std::mutex mutex_;
  std::vector<Line> lines_;
};

Result<void> run_sub(Worker& worker, const CallableHandle& callable, const TaskArgs& args) {
  return worker.run([&](Orchestrator& orch) -> Result<void> {
    return orch.submit_sub(callable, args).ok() ? Result<void>()
                                                : Error(Code::kWrongState, Scope::kCall, "submit");
  });
}

std::string read_file(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Runs `body` in a process of its own, whose stdout and stderr are files; gives both.
struct Captured {
  int status = -1;
  std::string out;
  std::string err;
};
template <class Body>
Captured in_a_process(Body&& body) {
  const std::string base = ::testing::TempDir() + "output_test." + std::to_string(::getpid());
  const std::string out = base + ".out";
  const std::string err = base + ".err";
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::dup2(::open(out.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_APPEND, 0600), 1);
    ::dup2(::open(err.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_APPEND, 0600), 2);
    body();
    std::fflush(nullptr);
    ::_exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  Captured captured;
  int status = 0;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  captured.status = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  captured.out = read_file(out);
  captured.err = read_file(err);
  ::unlink(out.c_str());
  ::unlink(err.c_str());
  return captured;
}

// ---------------------------------------------------------------- forwarding

TEST(Output, OfEveryKindComesWithPathAndPidToTheSameStream) {
  int child = 0;
  const Captured captured = in_a_process([&] {
    const auto worker = started(StartMethod::kFork, 1);
    const auto all = registered<print_all_ways>(*worker, "all");
    run_sub(*worker, all, TaskArgs()).value();
    child = worker->sub_children()[0].pid;
    worker->close().value();
    std::printf("child %d\n", child);
  });
  ASSERT_EQ(captured.status, 0) << captured.err;
  const size_t at = captured.out.rfind("child ");
  ASSERT_NE(at, std::string::npos);
  const std::string prefix =
      "[L3/0 pid " + std::to_string(std::atoi(captured.out.c_str() + at + 6)) + "] ";
  std::string out;
  for (const char* text : {"by printf", "by cout", "by write", "by a program", "without an end"}) {
    out += prefix + text + "\n";
  }
  EXPECT_EQ(captured.out.substr(0, at), out);
  std::string err;
  for (const char* text : {"by cerr", "by stderr", "warning: by log", "by a program to stderr"}) {
    err += prefix + text + "\n";
  }
  EXPECT_EQ(captured.err, err);
}

TEST(Output, OfATaskThatStillRunsIsShownMeanwhile) {
  Lines lines;
  auto spec = spec_of(StartMethod::kFork, 1);
  lines.put_into(&spec);
  const auto worker = started(spec);
  const auto at_gate = registered<print_and_stand_at_gate>(*worker, "gate");
  Gate gate(*worker);
  auto handle =
      worker->submit([&](Orchestrator& orch) { orch.submit_sub(at_gate, gate.args()).value(); });
  EXPECT_TRUE(await([&] { return lines.has("before the gate"); }));
  gate.open();
  EXPECT_TRUE(handle->wait().ok());
  EXPECT_TRUE(worker->close().ok());
  ASSERT_EQ(lines.all().size(), 1u);
  EXPECT_EQ(lines.all()[0].path, "L3/0");
  EXPECT_FALSE(lines.all()[0].is_stderr);
}

TEST(Output, ThatIsInheritedHasNoPrefixAndErrorsHaveNoLines) {
  const Captured captured = in_a_process([&] {
    auto spec = spec_of(StartMethod::kFork, 1);
    spec.output.mode = OutputMode::kInherit;
    const auto worker = started(spec);
    const auto bad = registered<print_and_fail>(*worker, "bad");
    const Result<void> ran = run_sub(*worker, bad, with_text("words"));
    EXPECT_FALSE(ran.ok());
    EXPECT_EQ(ran.error().message().find("words"), std::string::npos) << ran.error().message();
    worker->close().value();
  });
  EXPECT_EQ(captured.status, 0);
  EXPECT_EQ(captured.err, "to stderr: words\n");
  EXPECT_EQ(captured.out, "words\n");
}

TEST(Output, ThatIsDiscardedStillEndsErrors) {
  const Captured captured = in_a_process([&] {
    auto spec = spec_of(StartMethod::kFork, 1);
    spec.output.mode = OutputMode::kDiscard;
    const auto worker = started(spec);
    const auto bad = registered<print_and_fail>(*worker, "bad");
    expect_error(run_sub(*worker, bad, with_text("words")), Code::kTaskFailed, "stdout:\n  words");
    worker->close().value();
  });
  EXPECT_EQ(captured.status, 0);
  EXPECT_EQ(captured.err + captured.out, "");
}

TEST(Output, BeyondTheRateIsDroppedCountedAndTold) {
  Lines lines;
  auto spec = spec_of(StartMethod::kFork, 1);
  spec.output.lines_per_second = 50;
  lines.put_into(&spec);
  const auto worker = started(spec);
  const auto many = registered<print_lines>(*worker, "many");
  constexpr int kLines = 100'000;
  EXPECT_TRUE(run_sub(*worker, many, TaskArgs().add_scalar(kLines)).ok());
  EXPECT_TRUE(worker->close().ok());
  uint64_t shown = 0;
  uint64_t dropped = 0;
  for (const Line& line : lines.all()) {
    const unsigned long long n = std::strtoull(line.text.c_str() + 8, nullptr, 10);
    if (line.text.starts_with("strata: ")) {
      dropped += n;
      EXPECT_NE(line.text.find("lines_per_second is 50"), std::string::npos) << line.text;
    } else {
      ++shown;
    }
  }
  EXPECT_GE(shown, 50u);
  EXPECT_GT(dropped, kLines / 2);
  EXPECT_EQ(shown + dropped, static_cast<uint64_t>(kLines));
}

TEST(Output, WithoutALimitLosesNoLine) {
  Lines lines;
  auto spec = spec_of(StartMethod::kFork, 2);
  spec.output.lines_per_second = 0;
  lines.put_into(&spec);
  const auto worker = started(spec);
  const auto many = registered<print_lines>(*worker, "many");
  EXPECT_TRUE(worker
                  ->run([&](Orchestrator& orch) {
                    for (int i = 0; i < 4; ++i) {
                      orch.submit_sub(many, TaskArgs().add_scalar(20'000)).value();
                    }
                  })
                  .ok());
  EXPECT_TRUE(worker->close().ok());
  EXPECT_EQ(lines.all().size(), 80'000u);
}

TEST(Output, OfManyWritersIsMadeOfWholeLines) {
  const Captured captured = in_a_process([&] {
    auto spec = spec_of(StartMethod::kFork, 3);
    spec.output.lines_per_second = 0;
    const auto worker = started(spec);
    const auto many = registered<print_lines>(*worker, "many");
    worker
        ->run([&](Orchestrator& orch) {
          for (int i = 0; i < 9; ++i) orch.submit_sub(many, TaskArgs().add_scalar(1000)).value();
        })
        .value();
    worker->close().value();
  });
  EXPECT_EQ(captured.status, 0) << captured.err;
  std::istringstream in(captured.out);
  std::string line;
  int count = 0;
  while (std::getline(in, line)) {
    ++count;
    EXPECT_TRUE(line.starts_with("[L3/") && line.find("] line ") != std::string::npos) << line;
    EXPECT_EQ(line.find('[', 1), std::string::npos) << line;
  }
  EXPECT_EQ(count, 9000);
}

// ---------------------------------------------------------------- nobody waits

// The pipe behind stdout takes nothing: tasks end, and the Worker closes.
TEST(Output, ForAProgramWhoseStdoutTakesNothingHoldsNobodyUp) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const Captured captured = in_a_process([&] {
    ::dup2(ends[1], 1);
    auto spec = spec_of(StartMethod::kFork, 1);
    spec.output.lines_per_second = 0;
    const auto worker = started(spec);
    const auto many = registered<print_lines>(*worker, "many");
    run_sub(*worker, many, TaskArgs().add_scalar(200'000)).value();
    worker->close().value();
  });
  EXPECT_EQ(captured.status, 0) << captured.err;
  EXPECT_NE(captured.err.find(" lines were dropped"), std::string::npos) << captured.err;
  ::close(ends[0]);
  ::close(ends[1]);
}

// Its reader has gone: that is the program's to see, not a SIGPIPE from a thread of Strata's.
TEST(Output, ForAProgramWhoseStdoutIsClosedEndsNobody) {
  const Captured captured = in_a_process([&] {
    int ends[2];
    if (::pipe(ends) != 0) ::_exit(77);
    ::close(ends[0]);
    ::dup2(ends[1], 1);
    const auto worker = started(StartMethod::kFork, 1);
    const auto say = registered<print>(*worker, "say");
    run_sub(*worker, say, with_text("to nobody")).value();
    worker->close().value();
  });
  EXPECT_EQ(captured.status, 0) << captured.err;
}

TEST(Output, OfATaskThatPrintsForEverIsReadWhileItIsKilled) {
  Lines lines;
  auto spec = spec_of(StartMethod::kFork, 1);
  spec.output.lines_per_second = 100;
  spec.timeouts.close_ms = 300;
  spec.timeouts.exit_ms = 100;
  lines.put_into(&spec);
  const auto worker = started(spec);
  const auto endless = registered<print_for_ever>(*worker, "endless");
  auto handle =
      worker->submit([&](Orchestrator& orch) { orch.submit_sub(endless, TaskArgs()).value(); });
  EXPECT_TRUE(await([&] { return !lines.all().empty(); }));
  expect_error(worker->close(), Code::kDeadline, "close_ms");
  const std::vector<Line> all = lines.all();
  EXPECT_TRUE(std::any_of(all.begin(), all.end(), [](const Line& l) {
    return l.text.find("lines were dropped") != std::string::npos;
  }));
}

// ---------------------------------------------------------------- last lines

TEST(Output, OfAFailedTaskEndsItsErrorAndThatOfEarlierTasksDoesNot) {
  auto spec = spec_of(StartMethod::kFork, 1);
  spec.output.mode = OutputMode::kDiscard;
  const auto worker = started(spec);
  const auto say = registered<print>(*worker, "say");
  const auto bad = registered<print_and_fail>(*worker, "bad");
  const auto quiet = registered<fail>(*worker, "quiet");
  for (int round = 0; round < 50; ++round) {
    std::optional<RunHandle> handle;
    TaskRef loud;
    TaskRef silent;
    handle.emplace(worker
                       ->submit([&](Orchestrator& orch) {
                         orch.submit_sub(say, with_text("before")).value();
                         loud = orch.submit_sub(bad, with_text("mine")).value();
                         orch.submit_sub(say, with_text("between")).value();
                         silent = orch.submit_sub(quiet, TaskArgs()).value();
                         orch.submit_sub(say, with_text("after")).value();
                       })
                       .value());
    const Result<void> ran = handle->wait();
    ASSERT_FALSE(ran.ok());
    EXPECT_TRUE(
        ran.error().message().ends_with("as asked\nlast lines of its stdout:\n  mine\nlast lines "
                                        "of its stderr:\n  to stderr: mine"))
        << ran.error().message();
    const auto of_silent = handle->result(silent);
    ASSERT_FALSE(of_silent.ok());
    EXPECT_TRUE(of_silent.error().message().ends_with("as asked")) << of_silent.error().message();
  }
  EXPECT_TRUE(worker->close().ok());
}

TEST(Output, OfManyLinesIsCutInTheErrorToTheLastTen) {
  const auto worker = started([] {
    auto spec = spec_of(StartMethod::kFork, 1);
    spec.output.mode = OutputMode::kDiscard;
    return spec;
  }());
  const auto bad = registered<print_and_fail>(*worker, "bad");
  std::string text = std::string(60'000, 'x');
  for (int i = 0; i < 40; ++i) text += "\nline " + std::to_string(i);
  const Result<void> ran = run_sub(*worker, bad, with_text(text));
  expect_error(ran, Code::kTaskFailed, "as asked");
  EXPECT_LT(ran.error().message().size(), 4096u);
  EXPECT_NE(ran.error().message().find("stdout:\n  line 35\n"), std::string::npos)
      << ran.error().message();
}

TEST(Output, OfACrashedTaskEndsTheErrorAndIsShown) {
  Lines lines;
  auto spec = spec_of(StartMethod::kFork, 1);
  lines.put_into(&spec);
  const auto worker = started(spec);
  const auto say = registered<print>(*worker, "say");
  const auto dies = registered<print_and_die>(*worker, "dies");
  EXPECT_TRUE(run_sub(*worker, say, with_text("earlier")).ok());
  const Result<void> ran = run_sub(*worker, dies, with_text("last words"));
  expect_error(ran, Code::kEndpointFailed, "signal 11");
  EXPECT_TRUE(ran.error().message().ends_with(
      "it may have run in part\nlast lines of its stdout:\n  last words"))
      << ran.error().message();
  static_cast<void>(worker->close());
  EXPECT_TRUE(lines.has("last words"));
}

TEST(Output, OfAChildThatCannotStartEndsTheErrorOfInit) {
  auto spec = spec_of(StartMethod::kFork, 1);
  spec.output.mode = OutputMode::kDiscard;
  auto worker = Worker::create(spec).value();
  ASSERT_TRUE(worker->register_callable(NativeImport{"libno_such_thing.so", "f"}).ok());
  EXPECT_FALSE(worker->init().ok());
}

// ---------------------------------------------------------------- trees

// Two levels of processes: an orchestration function prints, and its inner task does.
void print_here_and_below(Call& call) {
  std::fprintf(stderr, "in the middle\n");
  InnerOrchestrator orch = call.orchestrator();
  orch.submit_sub(orch.inner_handle<print>(), TaskArgs().set_inline(call.inline_bytes()));
}
void print_here_and_fail_below(Call& call) {
  std::fprintf(stderr, "in the middle\n");
  InnerOrchestrator orch = call.orchestrator();
  orch.submit_sub(orch.inner_handle<print_and_fail>(), TaskArgs().set_inline(call.inline_bytes()));
}
void two_below(Call& call) {
  InnerOrchestrator orch = call.orchestrator();
  orch.submit_next_level(orch.inner_handle<print_here_and_fail_below>(),
                         TaskArgs().set_inline(call.inline_bytes()));
}

TEST(Output, OfATreeComesToTheTopWithThePathOfWhoWroteIt) {
  Lines lines;
  auto spec = pod(StartMethod::kFork, 2, 1);
  lines.put_into(&spec);
  auto worker = Worker::create(spec).value();
  const auto middle = registered<print_here_and_below>(*worker, "middle");
  worker->register_inner(local_function<print>("print")).value();
  worker->init().value();
  ASSERT_TRUE(worker
                  ->run([&](Orchestrator& orch) {
                    orch.submit_next_level(middle, with_text("at the bottom"), {}, 1).value();
                  })
                  .ok());
  const int pid = worker->next_level_children()[1].pid;
  ASSERT_TRUE(worker->close().ok());
  const std::vector<Line> all = lines.all();
  ASSERT_EQ(all.size(), 2u);
  const Line& bottom = all[all[0].text == "at the bottom" ? 0 : 1];
  const Line& between = all[all[0].text == "at the bottom" ? 1 : 0];
  EXPECT_EQ(between.text, "in the middle");
  EXPECT_EQ(between.path, "L4/1");
  EXPECT_EQ(between.pid, pid);
  EXPECT_TRUE(between.is_stderr);
  EXPECT_EQ(bottom.text, "at the bottom");
  EXPECT_EQ(bottom.path, "L4/1/0");
  EXPECT_NE(bottom.pid, pid);
  EXPECT_FALSE(bottom.is_stderr);
}

TEST(Output, OfATreeComesAlsoWhenItsRunHasEnded) {
  Lines lines;
  auto spec = pod(StartMethod::kFork, 1, 1);
  lines.put_into(&spec);
  auto worker = Worker::create(spec).value();
  const auto middle = registered<print_here_and_below>(*worker, "middle");
  worker->register_inner(local_function<print>("print")).value();
  worker->init().value();
  for (int i = 0; i < 20; ++i) {
    const std::string text = "round " + std::to_string(i);
    ASSERT_TRUE(run_one(*worker, middle, with_text(text)).ok());
    // No call is made that would make anybody look.
    ASSERT_TRUE(await([&] { return lines.has(text); }));
  }
  ASSERT_TRUE(worker->close().ok());
}

TEST(Output, OfAFailureTwoLevelsBelowEndsTheErrorOnce) {
  const Captured captured = in_a_process([&] {
    auto spec = level(5, StartMethod::kFork, 0, {pod(StartMethod::kFork, 1, 1)});
    auto worker = Worker::create(spec).value();
    const auto top = registered<two_below>(*worker, "top");
    worker->register_inner(local_function<print_here_and_fail_below>("middle")).value();
    worker->register_inner(local_function<print_and_fail>("bottom")).value();
    worker->init().value();
    const Result<void> ran = run_one(*worker, top, with_text("deep words"));
    expect_error(ran, Code::kTaskFailed, "as asked");
    const std::string& text = ran.error().message();
    const size_t first = text.find("\n  deep words");
    EXPECT_NE(first, std::string::npos) << text;
    EXPECT_EQ(text.find("\n  deep words", first + 1), std::string::npos) << text;
    EXPECT_NE(text.find("\n  in the middle"), std::string::npos) << text;
    worker->close().value();
  });
  EXPECT_EQ(captured.status, 0) << captured.err;
  EXPECT_TRUE(captured.out.starts_with("[L5/0/0/0 pid ")) << captured.out;
  EXPECT_TRUE(captured.out.ends_with("] deep words\n")) << captured.out;
  EXPECT_NE(captured.err.find("[L5/0/0 pid "), std::string::npos) << captured.err;
}

// ---------------------------------------------------------------- where it cannot be had

// With each number of descriptors init works, or is an Error that leaves nothing.
TEST(Output, InitWithTooFewDescriptorsIsAnErrorThatLeavesNothing) {
  const Captured captured = in_a_process([&] {
    { const auto first = started(StartMethod::kFork, 1); }
    const std::set<int> fds = open_fds();
    rlimit before{};
    ::getrlimit(RLIMIT_NOFILE, &before);
    int refused = 0;
    for (rlim_t limit = fds.size();; ++limit) {
      auto worker = Worker::create(spec_of(StartMethod::kFork, 3));
      const rlimit few{limit, before.rlim_max};
      ::setrlimit(RLIMIT_NOFILE, &few);
      const Result<void> up = worker ? (*worker)->init() : Result<void>(worker.error());
      ::setrlimit(RLIMIT_NOFILE, &before);
      if (up) break;
      ++refused;
      EXPECT_TRUE(up.error().code() == Code::kResourceExhausted ||
                  up.error().code() == Code::kEndpointFailed)
          << up.error().to_string();
      if (worker) worker->reset();
      EXPECT_EQ(open_fds(), fds) << "limit " << limit;
    }
    EXPECT_GT(refused, 10);
    EXPECT_EQ(open_fds(), fds);
  });
  EXPECT_EQ(captured.status, 0) << captured.out << captured.err;
}

TEST(Output, UnderALimitOnTheSizeOfFilesIsInheritedAndThatIsTold) {
  const Captured captured = in_a_process([&] {
    const rlimit some{1 << 30, 1 << 30};
    ::setrlimit(RLIMIT_FSIZE, &some);
    const auto worker = started(StartMethod::kFork, 1);
    const auto say = registered<print>(*worker, "say");
    run_sub(*worker, say, with_text("plain")).value();
    worker->close().value();
  });
  EXPECT_EQ(captured.status, 0) << captured.err;
  EXPECT_EQ(captured.out, "plain\n");
  EXPECT_NE(captured.err.find("ulimit -f"), std::string::npos) << captured.err;
}

// ---------------------------------------------------------------- options

TEST(Output, OptionsThatCannotBeAreRefused) {
  auto spec = spec_of(StartMethod::kFork, 1);
  spec.output.mode = static_cast<OutputMode>(9);
  expect_error(Worker::create(spec), Code::kInvalidArgument, "output.mode");
  spec.output.mode = OutputMode::kDiscard;
  spec.output.on_line = [](const OutputLine&) {};
  expect_error(Worker::create(spec), Code::kInvalidArgument, "on_line");
  auto top = spec_of(StartMethod::kFork, 0);
  top.level = 4;
  auto below = spec_of(StartMethod::kFork, 1);
  below.output.on_line = [](const OutputLine&) {};
  top.workers = {below};
  expect_error(Worker::create(top), Code::kInvalidArgument, "topmost");
}

TEST(Output, ACallbackMayThrowAndMayNotCloseTheWorker) {
  std::unique_ptr<Worker> worker;
  std::atomic<int> calls = 0;
  std::optional<Result<void>> closed;
  auto spec = spec_of(StartMethod::kFork, 1);
  spec.output.on_line = [&](const OutputLine&) {
    if (calls == 0) closed = worker->close();
    ++calls;
    throw std::runtime_error("no");
  };
  worker = started(spec);
  const auto say = registered<print>(*worker, "say");
  EXPECT_TRUE(run_sub(*worker, say, with_text("one")).ok());
  EXPECT_TRUE(run_sub(*worker, say, with_text("two")).ok());
  EXPECT_TRUE(worker->close().ok());
  EXPECT_EQ(calls, 2);
  ASSERT_TRUE(closed.has_value());
  expect_error(*closed, Code::kWrongState, "on_line");
}

}  // namespace
}  // namespace strata::test
