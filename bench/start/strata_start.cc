// What it costs to start the children of a Worker, and to learn of the death of one.
//
//   strata_start fork | exec | death
//
// A start is the first of its process, so each is taken in a process of its own.
#include <fcntl.h>
#include <signal.h>
#include <strata/strata.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <string_view>
#include <thread>

#include "bench/figure.h"
#include "bench/start_method.h"

namespace {

using namespace strata::bench;
using strata::StartMethod;
using strata::TaskArgs;
using strata::Worker;
using strata::WorkerSpec;

constexpr double kLimitMs = 12'000;
constexpr int64_t kSettleUs = 2'000;

[[noreturn]] void fail(std::string_view what, std::string_view why) {
  std::fprintf(stderr, "strata_start: %.*s: %.*s\n", static_cast<int>(what.size()), what.data(),
               static_cast<int>(why.size()), why.data());
  std::fflush(nullptr);
  _exit(1);
}

template <class T>
T need(strata::Result<T> result, std::string_view what) {
  if (!result) fail(what, result.error().to_string());
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

// An L4 over two L3s with two SUB children each: with servers twelve processes.
WorkerSpec tree(StartMethod start, int hosts = 2, int leaves = 2) {
  WorkerSpec host;
  host.start = start;
  host.sub_workers = leaves;
  WorkerSpec pod;
  pod.level = 4;
  pod.start = start;
  pod.workers.assign(static_cast<size_t>(hosts), host);
  return pod;
}

// ---------------------------------------------------------------- init

// From init() to ready, in milliseconds; written to `to` by a process that then ends.
void time_init(StartMethod start, int to) {
  auto worker = need(Worker::create(tree(start)), "create");
  const double begun = now_us();
  need(worker->init(), "init");
  const double took = (now_us() - begun) / 1e3;
  if (worker->start_report().method != start) fail("init", "it took another start method");
  need(worker->close(), "close");
  if (write(to, &took, sizeof took) != sizeof took) _exit(1);
}

double init_once(StartMethod start) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) fail("pipe", "none to be had");
  const pid_t pid = fork();
  if (pid < 0) fail("fork", "no process to be had");
  if (pid == 0) {
    time_init(start, ends[1]);
    std::exit(0);  // as a program ends: the server of the process goes with it
  }
  close(ends[1]);
  double took = 0;
  const bool told = read(ends[0], &took, sizeof took) == sizeof took;
  close(ends[0]);
  int status = -1;
  waitpid(pid, &status, 0);
  if (!told || status != 0) fail("init", "the process that timed it failed");
  return took;
}

void init_group(const char* name, StartMethod start) {
  figure(name, median_of(scaled(30, 8), kLimitMs, [&] { return init_once(start); }), "ms");
}

// ---------------------------------------------------------------- death

// Says in word 0 that it runs, with its pid, and stays.
void stay(strata::Call& call) {
  const auto word = call.tensor<uint32_t>(0);
  std::atomic_ref<uint32_t>(word.data()[0]).store(static_cast<uint32_t>(getpid()));
  for (;;) pause();
}

void stay_below(strata::Call& call) {
  strata::InnerOrchestrator orch = call.orchestrator();
  orch.submit_sub(orch.inner_handle<stay>(), TaskArgs().add_tensor(call.ref(0), strata::NO_DEP));
}

// Kills the leaf that runs the task, once the caller waits; when that was, in `killed_at`.
void kill_leaf(std::atomic_ref<uint32_t> pid, std::atomic<double>* killed_at) {
  while (pid.load() == 0) sleep_us(100);
  sleep_us(kSettleUs);
  killed_at->store(now_us());
  kill(static_cast<pid_t>(pid.load()), SIGKILL);
}

double death_of_a_leaf(bool below) {
  WorkerSpec spec = tree(start_method(), 1, 1);
  if (!below) {
    spec = spec.workers[0];
    spec.start = start_method();
  }
  auto worker = need(Worker::create(spec), "create");
  const auto task =
      need(below ? worker->register_callable(strata::local_function<stay_below>("stay_below"))
                 : worker->register_callable(strata::local_function<stay>("stay")),
           "register");
  if (below) need(worker->register_inner(strata::local_function<stay>("stay")), "register_inner");
  strata::Buffer buffer = need(worker->create_buffer(sizeof(uint32_t)), "buffer");
  need(worker->init(), "init");
  std::atomic<double> killed_at{0};
  std::thread killer(
      [&] { kill_leaf(std::atomic_ref<uint32_t>(buffer.as<uint32_t>()[0]), &killed_at); });
  const TaskArgs args = TaskArgs().add_tensor(buffer.tensor<uint32_t>({1}), strata::NO_DEP);
  const auto outcome = worker->run([&](strata::Orchestrator& orch) {
    need(below ? orch.submit_next_level(task, args) : orch.submit_sub(task, args), "submit");
  });
  const double took = (now_us() - killed_at.load()) / 1e3;
  killer.join();
  if (outcome.ok()) fail("death", "the run of the killed leaf succeeded");
  need(worker->close(), "close");
  return took;
}

// SIGKILL of an idle leaf to the moment when its replacement is ready.
double replacement() {
  WorkerSpec spec;
  spec.start = start_method();
  spec.sub_workers = 1;
  spec.restart = strata::Restart::kOnFailure;
  auto worker = need(Worker::create(spec), "create");
  need(worker->init(), "init");
  sleep_us(kSettleUs);
  const double begun = now_us();
  kill(worker->sub_children()[0].pid, SIGKILL);
  for (;;) {
    const Worker::Child child = worker->sub_children()[0];
    if (child.incarnation > 1 && child.state == strata::ChildState::kReady) break;
    if (now_us() - begun > 10e6) fail("replacement", "none within 10 s");
    sleep_us(50);
  }
  const double took = (now_us() - begun) / 1e3;
  need(worker->close(), "close");
  return took;
}

void death_group() {
  // Before this process has threads: later servers come from the first.
  need(need(Worker::create(tree(start_method(), 1, 1)), "create")->init(), "init");
  const int count = scaled(40, 12);
  figure("strata.death", median_of(count, kLimitMs, [] { return death_of_a_leaf(false); }), "ms");
  figure("strata.death.below", median_of(count, kLimitMs, [] { return death_of_a_leaf(true); }),
         "ms");
  figure("strata.replaced", median_of(count, kLimitMs, replacement), "ms");
}

}  // namespace

int main(int argc, char** argv) {
  strata::child_entry(argc, argv);
  const std::string_view group = argc == 2 ? argv[1] : "";
  if (group == "fork") {
    init_group("strata.init.fork", StartMethod::kFork);
  } else if (group == "exec") {
    init_group("strata.init.exec", StartMethod::kExec);
  } else if (group == "death") {
    death_group();
  } else {
    fail("usage", "fork | exec | death");
  }
  return 0;
}
