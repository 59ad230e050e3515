// Each check with probes that say what a sick machine would; the guard; and the probes' own work.
#include "tools/doctor.h"

#include <gtest/gtest.h>
#include <strata/strata.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "os/pid_fd.h"
#include "tools/doctor_checks.h"
#include "tools/doctor_trials.h"

namespace strata::tools {
namespace {

Error broken(const char* text) {
  return Error(Code::kSystem, Scope::kProcess, text);
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// A machine on which nothing is wrong.
class Doctor : public testing::Test {
 protected:
  Doctor() {
    facts_.memory.available = 8ull << 30;
    facts_.kernel.clock_source = "tsc";
    facts_.kernel.shm_huge_pages = "advise";
    facts_.nofile = 1024;
    facts_.nofile_hard = 4096;
    facts_.cores = 4;
    facts_.shm = os::FileSystemSpace{.total = 100, .free = 60};
    probes_.facts = [this] { return facts_; };
    probes_.sealed_memory = [] { return Result<void>(); };
    probes_.pidfd = [] { return Result<void>(); };
    probes_.system_calls = [this] { return calls_; };
    probes_.fork_hazards = [this] { return Result<os::ForkHazards>(hazards_); };
    probes_.fork_server = [] { return Result<ServerTimes>(ServerTimes{1, 2, 3}); };
    probes_.worker = [] { return Result<WorkerTimes>(WorkerTimes{1, 2, 3, 4}); };
    probes_.futex = [this] { return Result<Latency>(futex_); };
    probes_.eventfd = [this] { return Result<Latency>(eventfd_); };
    probes_.noise = [this] { return noise_; };
    probes_.clock = [this] { return clock_; };
    probes_.map_heap = [](uint64_t) { return Result<void>(); };
    probes_.strata_processes = [this] { return processes_; };
    probes_.timeline_folder = "/some/folder";
    probes_.write_file = [](const std::string&) { return Result<void>(); };
    probes_.program_libraries = [this](const std::string&) {
      return Result<ProgramLibraries>(program_);
    };
    probes_.threads_of = [this](const std::vector<std::string>& paths) {
      asked_ = paths;
      return threads_;
    };
  }

  // The level and a part of what was found; what is not ok has a meaning and an advice.
  static void expect(const Finding& finding, Level level, const std::string& found) {
    EXPECT_EQ(finding.level, level) << finding.found;
    EXPECT_TRUE(has(finding.found, found)) << finding.found;
    EXPECT_FALSE(finding.meaning.empty()) << finding.found;
    EXPECT_EQ(finding.advice.empty(), level == Level::kOk) << finding.advice;
  }

  Facts facts_;
  std::vector<SystemCall> calls_ = {{"pidfd_open", 0}, {"epoll_pwait2", 0}};
  os::ForkHazards hazards_;
  Latency futex_{10, 20}, eventfd_{12, 24};
  Noise noise_{0.001, 50};
  ClockFacts clock_{true, 25};
  std::vector<StrataProcess> processes_ = {
      {.pid = 7, .parent = 5, .name = "strata-forksrv", .parent_name = "app"}};
  ProgramLibraries program_{{{"libm.so.6", "/lib/libm.so.6", "app"}}, true};
  Result<std::vector<int>> threads_ = std::vector<int>{0};
  std::vector<std::string> asked_;
  Probes probes_;
};

TEST_F(Doctor, FindsAHealthyMachineHealthy) {
  probes_.program = "app";
  for (const Check& check : all_checks()) {
    const Finding finding = check.judge(probes_);
    EXPECT_EQ(finding.level, Level::kOk) << check.name << ": " << finding.found;
    EXPECT_FALSE(finding.found.empty()) << check.name;
    EXPECT_FALSE(finding.meaning.empty()) << check.name;
    EXPECT_TRUE(finding.advice.empty()) << check.name;
  }
}

TEST_F(Doctor, WhatMustWorkAndDoesNotIsAProblemInItsOwnWords) {
  probes_.sealed_memory = [] { return Result<void>(broken("no memfd")); };
  expect(check_memory_files(probes_), Level::kProblem, "no memfd");
  probes_.pidfd = [] { return Result<void>(broken("no pidfd")); };
  expect(check_pidfd(probes_), Level::kProblem, "no pidfd");
  probes_.fork_server = [] { return Result<ServerTimes>(broken("no server")); };
  expect(check_fork_server(probes_), Level::kProblem, "no server");
  probes_.worker = [] { return Result<WorkerTimes>(broken("no worker")); };
  expect(check_worker(probes_), Level::kProblem, "no worker");
  probes_.futex = [] { return Result<Latency>(broken("no futex")); };
  expect(check_wakeups(probes_), Level::kProblem, "no futex");
  probes_.fork_hazards = [] { return Result<os::ForkHazards>(broken("no /proc")); };
  expect(check_fork(probes_), Level::kProblem, "no /proc");
}

TEST_F(Doctor, ARefusedSystemCallIsNamedAndAFilterIsToldFromAnOldKernel) {
  calls_ = {{"pidfd_open", EPERM}, {"epoll_pwait2", ENOSYS}};
  expect(check_system_calls(probes_), Level::kProblem, "pidfd_open");
  EXPECT_FALSE(has(check_system_calls(probes_).found, "epoll_pwait2"));
  EXPECT_TRUE(has(check_system_calls(probes_).advice, "kernel"));
  facts_.kernel.seccomp = 2;
  EXPECT_TRUE(has(check_system_calls(probes_).advice, "seccomp"));
}

TEST_F(Doctor, ThreadsThatEveryProgramHasAreAHazard) {
  hazards_.other_threads = 2;
  expect(check_fork(probes_), Level::kProblem, "2 other threads");
}

TEST_F(Doctor, AnAddressSpaceLimitNamesTheOptionThatAvoidsIt) {
  uint64_t asked = 0;
  probes_.map_heap = [&asked](uint64_t bytes) {
    asked = bytes;
    return Result<void>(broken("cannot be mapped"));
  };
  facts_.address_space = 1ull << 30;
  const Finding finding = check_heap(probes_);
  expect(finding, Level::kProblem, "cannot be mapped");
  EXPECT_TRUE(has(finding.advice, "heap_bytes") && has(finding.advice, "ulimit -v"));
  EXPECT_FALSE(has(finding.advice, "ulimit -f"));
  EXPECT_EQ(asked, 128ull << 30);
}

TEST_F(Doctor, AKernelThatDoesNotOvercommitIsAWarning) {
  facts_.kernel.overcommit_memory = 2;
  expect(check_heap(probes_), Level::kWarning, "overcommit");
}

TEST_F(Doctor, SlowWakeUpsNoiseAndASlowClockAreWarnings) {
  eventfd_ = {900, 2000};
  expect(check_wakeups(probes_), Level::kWarning, "900.0 us by eventfd");
  noise_ = {0.3, 100};
  expect(check_noise(probes_), Level::kWarning, "30.0 %");
  noise_ = {0.0, 20'000};
  facts_.kernel.is_virtual = true;
  expect(check_noise(probes_), Level::kWarning, "virtual machine");
  facts_.kernel.clock_source = "hpet";
  clock_ = {false, 900};
  expect(check_clock(probes_), Level::kWarning, "hpet");
}

TEST_F(Doctor, LimitsOfCoresAndTimeAreJudged) {
  facts_.cgroup.cpus = 4.0;
  expect(check_quota(probes_), Level::kOk, "4.00 cores");
  facts_.cgroup.cpus = 3.5;
  expect(check_quota(probes_), Level::kWarning, "3.50 cores, 4 in the affinity mask");
  facts_.cgroup.cpus = 0.5;
  expect(check_quota(probes_), Level::kProblem, "0.50 cores");
  facts_.cores = 1;
  expect(check_cores(probes_), Level::kWarning, "1 core in");
}

TEST_F(Doctor, TooFewDescriptorsNameTheHardLimit) {
  facts_.nofile = 64;
  expect(check_descriptors(probes_), Level::kWarning, "room for 12 children");
  EXPECT_TRUE(has(check_descriptors(probes_).advice, "4096"));
  facts_.nofile = 14;
  expect(check_descriptors(probes_), Level::kProblem, "room for 0 children");
}

TEST_F(Doctor, TooFewProcessesAndTooLittleMemoryAreJudged) {
  facts_.processes = {.machine = 100, .user = 90};
  facts_.nproc = 100;
  expect(check_processes(probes_), Level::kWarning, "10 more");
  facts_.nproc = 91;
  expect(check_processes(probes_), Level::kProblem, "1 more");
  facts_.memory.available = 100 << 20;
  expect(check_memory(probes_), Level::kWarning, "100 MiB");
  facts_.cgroup.memory_bytes = 10 << 20;
  expect(check_memory(probes_), Level::kProblem, "control group");
}

TEST_F(Doctor, HugePagesThatSwellASparseHeapAreAWarningAndFullShmIsNone) {
  facts_.kernel.shm_huge_pages = "always";
  expect(check_huge_pages(probes_), Level::kWarning, "always");
  facts_.shm = os::FileSystemSpace{.total = 100, .free = 1};
  expect(check_shm(probes_), Level::kOk, "99 %");
  facts_.shm.reset();
  expect(check_shm(probes_), Level::kOk, "not there");
  facts_.kernel.ptrace_scope = 3;
  expect(check_ptrace(probes_), Level::kOk, "ptrace_scope is 3");
}

TEST_F(Doctor, LeftoversAreNamedWithTheirParents) {
  processes_.push_back(
      {.pid = 41, .parent = 1, .name = "strata-child", .parent_name = "init", .is_orphan = true});
  const Finding finding = check_leftovers(probes_);
  expect(finding, Level::kWarning, "strata-child 41 (parent 1 init)");
  EXPECT_FALSE(has(finding.found, "forksrv"));
  processes_.back().is_orphan = false;
  processes_.back().state = 'T';
  expect(check_leftovers(probes_), Level::kWarning, "stopped: strata-child 41");
}

TEST_F(Doctor, ATimelineThatIsAskedForMustBeWritable) {
  probes_.write_file = [](const std::string& folder) {
    return Result<void>(Error(Code::kSystem, Scope::kCall, folder + " is read-only"));
  };
  expect(check_timeline(probes_), Level::kWarning, "/some/folder is read-only");
  probes_.timeline_asked = true;
  expect(check_timeline(probes_), Level::kProblem, "/some/folder is read-only");
}

TEST_F(Doctor, ALibraryThatWasSeenToStartThreadsMeansThatForkIsRefused) {
  probes_.program = "app";
  program_.libraries = {{"libapp.so", "/lib/libapp.so", "app"},
                        {"libopenblas.so.0", "/lib/libopenblas.so.0", "libapp.so"},
                        {"libc.so.6", "/lib/libc.so.6", "app"}};
  threads_ = std::vector<int>{3, 0};
  expect(check_program(probes_), Level::kProblem,
         "fork will be refused: libopenblas.so.0 (needed by libapp.so) starts 3 threads");
  // What others need is loaded first, and the C library not again.
  EXPECT_EQ(asked_, (std::vector<std::string>{"/lib/libopenblas.so.0", "/lib/libapp.so"}));
  threads_ = std::vector<int>{0, 0};
  expect(check_program(probes_), Level::kWarning, "though none was seen");
  threads_ = broken("crashed");
  expect(check_program(probes_), Level::kProblem, "libopenblas.so.0 (needed by libapp.so) starts");
}

TEST_F(Doctor, OtherTroublesOfAProgramAreTold) {
  probes_.program = "app";
  threads_ = std::vector<int>{0};
  program_.libraries = {{"libpython3.11.so.1.0", "/lib/libpython3.11.so.1.0", "app"}};
  expect(check_program(probes_), Level::kProblem, "libpython3.11.so.1.0");
  program_.libraries = {{"libgomp.so.1", "/lib/libgomp.so.1", "app"}};
  expect(check_program(probes_), Level::kWarning, "first parallel region");
  program_.libraries = {{"libgone.so", "", "app"}};
  expect(check_program(probes_), Level::kProblem, "libgone.so (needed by app)");
  program_ = {{{"libm.so.6", "/lib/libm.so.6", "app"}}, false};
  expect(check_program(probes_), Level::kWarning, "no build id");
  program_.has_build_id = true;
  threads_ = broken("it crashed");
  expect(check_program(probes_), Level::kWarning, "it crashed");
  probes_.program_libraries = [](const std::string&) {
    return Result<ProgramLibraries>(broken("not a program"));
  };
  expect(check_program(probes_), Level::kProblem, "not a program");
}

// The checks that the guard is tried with.
Finding hangs(const Probes&) {
  for (;;) ::pause();
}
Finding crashes(const Probes&) {
  std::signal(SIGSEGV, SIG_DFL);
  ::raise(SIGSEGV);
  return {};
}
Finding leaves_a_process(const Probes& probes) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    for (;;) ::pause();
  }
  std::ofstream(probes.program) << pid;
  return {.level = Level::kWarning, .found = "\xff odd \x04 text", .meaning = "m", .advice = "a"};
}

TEST(Guard, ACheckThatHangsIsEndedAtItsDeadline) {
  const Finding finding = guarded({"hang", "a thing", hangs}, {}, base::Duration::from_ms(50));
  EXPECT_EQ(finding.check, "hang");
  EXPECT_EQ(finding.level, Level::kProblem);
  EXPECT_TRUE(has(finding.found, "no answer within 0.05 s")) << finding.found;
  EXPECT_TRUE(has(finding.meaning, "a thing"));
  EXPECT_GE(finding.ms, 50);
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);  // and it is reaped
}

TEST(Guard, ACheckThatCrashesIsAProblemWithItsSignal) {
  const Finding finding = guarded({"crash", "a thing", crashes}, {}, base::Duration::from_s(60));
  EXPECT_EQ(finding.level, Level::kProblem);
  EXPECT_TRUE(has(finding.found, "killed by signal 11")) << finding.found;
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);
}

TEST(Guard, WhatACheckLeavesRunningIsEndedAndItsFindingArrives) {
  std::string file = (std::filesystem::temp_directory_path() / "strata_guard_XXXXXX").string();
  ::close(::mkstemp(file.data()));
  Probes probes;
  probes.program = file;
  const Finding finding =
      guarded({"leave", "a thing", leaves_a_process}, probes, base::Duration::from_s(60));
  EXPECT_EQ(finding.level, Level::kWarning);
  EXPECT_TRUE(has(finding.found, " odd \x04 text")) << finding.found;
  EXPECT_EQ(finding.advice, "a");
  pid_t pid = 0;
  std::ifstream(file) >> pid;
  std::filesystem::remove(file);
  ASSERT_GT(pid, 0);
  // Gone already, or it dies of the signal that it has been sent.
  const auto process = os::PidFd::open(pid);
  EXPECT_TRUE(!process.ok() || process->wait_ended(base::Duration::from_s(60)).value());
}

TEST(Guard, AnAnswerOverTheLimitIsAnError) {
  const auto answer =
      call_in_process([] { return std::string(kAnswerBytesMax, 'x'); }, base::Duration::from_s(60));
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().code(), Code::kResourceExhausted);
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);
}

TEST(Guard, LongAnswersArriveWhole) {
  const auto answer =
      call_in_process([] { return std::string(300'000, 'x'); }, base::Duration::from_s(60));
  ASSERT_TRUE(answer.ok()) << answer.error().to_string();
  EXPECT_EQ(answer->size(), 300'000u);
  const auto ended = call_in_process(
      [] {
        ::_exit(3);
        return std::string();
      },
      base::Duration::from_s(60));
  ASSERT_FALSE(ended.ok());
  EXPECT_EQ(ended.error().code(), Code::kEndpointFailed);
  EXPECT_TRUE(has(ended.error().message(), "exit status 3"));
}

TEST(Finding, TextTellsTheMeaningOfWhatIsNotOkAlone) {
  Finding finding{.check = "x", .found = "f", .meaning = "why", .advice = "how"};
  EXPECT_FALSE(has(to_text(finding, false), "why"));
  EXPECT_TRUE(has(to_text(finding, true), "means: why"));
  finding.level = Level::kProblem;
  EXPECT_TRUE(has(to_text(finding, false), "do: how"));
  EXPECT_EQ(to_text(finding, false).find("problem"), 0u);
  EXPECT_EQ(to_json(finding)["level"], "problem");
}

// The real probes, each in a process of its own: a Worker may have started none before.
class Trials : public testing::Test {
 protected:
  static std::string in_process(const std::function<Result<void>()>& trial) {
    const auto answer = call_in_process(
        [&] {
          const Result<void> result = trial();
          return result.ok() ? std::string("ok") : result.error().to_string();
        },
        base::Duration::from_s(60));
    return answer.ok() ? *answer : answer.error().to_string();
  }
  template <class T>
  static Result<void> outcome(const Result<T>& result) {
    if (result.ok()) return {};
    return result.error();
  }
};

TEST_F(Trials, MemoryPidfdFilesAndCallsWorkHere) {
  EXPECT_EQ(in_process(try_sealed_memory), "ok");
  EXPECT_EQ(in_process(try_pidfd), "ok");
  EXPECT_EQ(in_process([] { return try_heap(1ull << 30); }), "ok");
  EXPECT_EQ(in_process([] { return try_file(std::filesystem::temp_directory_path()); }), "ok");
  EXPECT_NE(in_process([] { return try_file("/nowhere"); }), "ok");
  for (const SystemCall& call : try_system_calls()) EXPECT_EQ(call.error, 0) << call.name;
}

TEST_F(Trials, AnAddressSpaceThatIsTooSmallIsSeen) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer needs the address space itself";
#endif
  const auto trial = [] {
    const rlimit low{4ull << 30, 4ull << 30};
    ::setrlimit(RLIMIT_AS, &low);
    return try_heap(8ull << 30);
  };
  EXPECT_TRUE(has(in_process(trial), "map a shared region")) << in_process(trial);
}

TEST_F(Trials, TheForkServerAndAWorkerPassTheirTrials) {
  EXPECT_EQ(in_process([] { return outcome(try_fork_server()); }), "ok");
  EXPECT_EQ(in_process([] { return outcome(try_worker()); }), "ok");
}

TEST_F(Trials, AWorkerTakesNoMoreDescriptorsThanAreCountedForIt) {
  constexpr int kChildren = 6;
  const auto trial = []() -> Result<void> {
    const auto count = [] {
      const auto folder = std::filesystem::directory_iterator("/proc/self/fd");
      return static_cast<uint64_t>(std::distance(begin(folder), end(folder)));
    };
    const uint64_t before = count();
    WorkerSpec spec;
    spec.sub_workers = kChildren;
    auto worker = Worker::create(spec);
    if (!worker.ok()) return worker.error();
    if (auto started = (*worker)->init(); !started.ok()) return started.error();
    const uint64_t taken = count() - before;
    if (auto closed = (*worker)->close(); !closed.ok()) return closed.error();
    if (taken <= kServerFds + kWorkerFds + kChildren * kChildFds) return {};
    return Error(Code::kCorrupt, Scope::kCall, "it takes " + std::to_string(taken));
  };
  EXPECT_EQ(in_process(trial), "ok");
}

TEST_F(Trials, RoundTripsHaveATime) {
  for (const auto& time : {time_futex, time_eventfd}) {
    const Result<Latency> latency = time();
    ASSERT_TRUE(latency.ok()) << latency.error().to_string();
    EXPECT_GT(latency->median_us, 0);
    EXPECT_GE(latency->p99_us, latency->median_us);
  }
  EXPECT_GT(time_clock().read_ns, 0);
  EXPECT_LE(watch_noise().lost, 1);
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);
}

TEST_F(Trials, AProcessWithAStrataNameAndNoServerIsALeftover) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    std::ofstream("/proc/self/comm") << "strata-child";
    (void)!::write(ends[1], "x", 1);
    for (;;) ::pause();
  }
  char ready = 0;
  ASSERT_EQ(::read(ends[0], &ready, 1), 1);
  const auto processes = find_strata_processes();
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
  ::close(ends[0]);
  ::close(ends[1]);
  const auto found = std::find_if(processes.begin(), processes.end(),
                                  [pid](const StrataProcess& p) { return p.pid == pid; });
  ASSERT_NE(found, processes.end());
  EXPECT_TRUE(found->is_orphan);
  EXPECT_EQ(found->parent, ::getpid());
}

}  // namespace
}  // namespace strata::tools
