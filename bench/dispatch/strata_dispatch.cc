// What Strata costs for each task, in the public API alone. One argument names the group of figures
// and each group is one process with one Worker, so that no figure pays for another's children.
//
//   strata_dispatch submit | run | hops3 | chain | independent.1 | independent.2 | idle | wait
#include <strata/strata.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string_view>

#include "bench/dispatch/process_tree.h"
#include "bench/figure.h"
#include "bench/start_method.h"

namespace {

using namespace strata::bench;
using strata::CallableHandle;
using strata::Orchestrator;
using strata::TaskArgs;
using strata::Tensor;
using strata::Worker;

constexpr int kTasks = 10'000;
constexpr int kBuffers = 1'024;
constexpr int kRows = kTasks / (kBuffers / 2) + 1;  // views of one buffer
constexpr uint64_t kElements = 64;                  // doubles of one view
constexpr double kLimitMs = 5'000;
constexpr int64_t kPauseUs = 2'000;
constexpr double kHoldMsMax = 20'000;

[[noreturn]] void fail(std::string_view what, std::string_view why) {
  std::fprintf(stderr, "strata_dispatch: %.*s: %.*s\n", static_cast<int>(what.size()), what.data(),
               static_cast<int>(why.size()), why.data());
  std::fflush(nullptr);
  _exit(1);
}

template <class T>
T need(strata::Result<T> result, std::string_view what) {
  if (!result) fail(what, result.error().to_string());
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

// The callables.

void empty(strata::Call&) {}

// 50 us of this child's own CPU time, so that two children on one core do not look like two cores.
void burn(strata::Call&) {
  const auto used_ns = [] {
    timespec t{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<int64_t>(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
  };
  const int64_t end = used_ns() + 50'000;
  while (used_ns() < end) {
  }
}

void doze(strata::Call& call) {
  sleep_us(call.scalar<int64_t>(0));
}

// Keeps its child busy at no cost until the gate opens. The gate: word 0 "a child is held", word 1
// "go on". It ends by itself if nobody opens it.
void hold(strata::Call& call) {
  uint32_t* gate = call.tensor<uint32_t>(0).data();
  std::atomic_ref<uint32_t>(gate[0]).store(1, std::memory_order_release);
  const double end = now_us() + kHoldMsMax * 1e3;
  while (std::atomic_ref<uint32_t>(gate[1]).load(std::memory_order_acquire) == 0) {
    if (call.cancelled() || now_us() > end) return;
    sleep_us(200);
  }
}

std::unique_ptr<Worker> worker_with(int children) {
  strata::WorkerSpec spec;
  spec.sub_workers = children;
  spec.start = start_method();
  spec.limits.slots = 65'536;
  return need(Worker::create(std::move(spec)), "create");
}

template <void (*fn)(strata::Call&)>
CallableHandle callable(Worker& worker, const char* name) {
  return need(worker.register_callable(strata::local_function<fn>(name)), name);
}

void submit(Orchestrator& orch, const CallableHandle& task, const TaskArgs& args) {
  if (auto ref = orch.submit_sub(task, args); !ref) fail("submit", ref.error().to_string());
}

// Submission alone.

class Submits {
 public:
  explicit Submits(Worker& worker)
      : worker_(worker),
        empty_(callable<empty>(worker, "empty")),
        hold_(callable<hold>(worker, "hold")),
        gate_(need(worker.create_buffer(2 * sizeof(uint32_t)), "gate")) {
    const uint64_t row_bytes = kElements * sizeof(double);
    for (int i = 0; i < kBuffers; ++i) {
      buffers_.push_back(need(worker.create_buffer(kRows * row_bytes), "buffer"));
    }
    for (int row = 0; row < kRows; ++row) {
      for (const strata::Buffer& buffer : buffers_) {
        const uint64_t offset = static_cast<uint64_t>(row) * row_bytes;
        views_.push_back(buffer.tensor<double>({kElements}, offset));
      }
    }
  }

  // One batch; `arguments(i, args)` adds the tensors of task i. Microseconds a task. Where the
  // child is held, nothing but the holder runs until all are submitted.
  template <class F>
  double batch(bool held, F&& arguments) {
    gate_.as<uint32_t>()[0] = gate_.as<uint32_t>()[1] = 0;
    double took = 0;
    need(worker_.run([&](Orchestrator& orch) {
      if (held) hold_child(orch);
      TaskArgs args;
      const double begun = now_us();
      for (int i = 0; i < kTasks; ++i) {
        args.clear();
        arguments(i, args);
        submit(orch, empty_, args);
      }
      took = now_us() - begun;
      std::atomic_ref<uint32_t>(gate_.as<uint32_t>()[1]).store(1, std::memory_order_release);
    }),
         "run");
    return took / kTasks;
  }

  const Tensor& view(int buffer, int row = 0) const {
    return views_[static_cast<size_t>(row * kBuffers + buffer)];
  }

 private:
  void hold_child(Orchestrator& orch) {
    submit(orch, hold_, TaskArgs().add_tensor(gate_.tensor<uint32_t>({2}), strata::NO_DEP));
    const double end = now_us() + kHoldMsMax * 1e3;
    std::atomic_ref<uint32_t> held(gate_.as<uint32_t>()[0]);
    while (held.load(std::memory_order_acquire) == 0) {
      if (now_us() > end) fail("hold", "the child did not start its task");
      sleep_us(100);
    }
  }

  Worker& worker_;
  CallableHandle empty_;
  CallableHandle hold_;
  strata::Buffer gate_;
  std::vector<strata::Buffer> buffers_;
  std::vector<Tensor> views_;
};

void submit_group() {
  auto worker = worker_with(1);
  {
    Submits submits(*worker);
    need(worker->init(), "init");
    // Half of the buffers are written, half read; a task waits for its predecessor on the same two.
    const auto pairs = [&](int i, TaskArgs& args) {
      const int pair = i % (kBuffers / 2);
      args.add_tensor(submits.view(pair), strata::INOUT)
          .add_tensor(submits.view(kBuffers / 2 + pair), strata::INPUT);
    };
    // Each reads the buffer that the next one writes: one long chain, up to three dependencies a
    // task.
    const auto crossing = [&](int i, TaskArgs& args) {
      args.add_tensor(submits.view(i % kBuffers), strata::INOUT)
          .add_tensor(submits.view((i + 1) % kBuffers), strata::INPUT);
    };
    // Each writes a view of its own and reads one that nobody writes: no dependency.
    const auto distinct = [&](int i, TaskArgs& args) {
      const int pair = i % (kBuffers / 2);
      args.add_tensor(submits.view(pair, i / (kBuffers / 2)), strata::OUTPUT)
          .add_tensor(submits.view(kBuffers / 2 + pair), strata::INPUT);
    };
    const int batches = scaled(7, 3);
    const auto take = [&](const char* name, bool held, const auto& arguments) {
      submits.batch(held, arguments);  // first touch of the engine's tables
      const auto timed = [&] { return submits.batch(held, arguments); };
      figure(name, median_of(batches, kLimitMs, timed), "us/task");
    };
    take("strata.submit", true, pairs);
    take("strata.submit.crossing", true, crossing);
    take("strata.submit.distinct", true, distinct);
    take("strata.submit.running", false, pairs);
  }
  need(worker->close(), "close");
}

// One task at a time: submit, run, wait.

// NAME.awake: back to back; NAME.asleep: after a pause each, so that all processes sleep.
template <class Build>
void one_at_a_time(const std::string& name, Worker& worker, Build&& build) {
  const auto trip = [&] {
    const double begun = now_us();
    need(worker.run(build), "run");
    return now_us() - begun;
  };
  figure(name + ".awake", median_of(scaled(10'000, 3'000), kLimitMs, trip), "us");
  const auto rested = [&] {
    sleep_us(kPauseUs);
    return trip();
  };
  figure(name + ".asleep", median_of(scaled(300, 100), kLimitMs, rested), "us");
}

void run_group() {
  auto worker = worker_with(1);
  const CallableHandle task = callable<empty>(*worker, "empty");
  need(worker->init(), "init");
  const TaskArgs args;
  one_at_a_time("strata.run", *worker, [&](Orchestrator& orch) { submit(orch, task, args); });
  need(worker->close(), "close");
}

// A task of the Worker below: one SUB task of its own.
void hop(strata::Call& call) {
  const strata::InnerOrchestrator orch = call.orchestrator();
  orch.submit_sub(orch.inner_handle<empty>(), TaskArgs());
}

// L4, L3 and one SUB child of that: three processes, four messages.
void hops3_group() {
  strata::WorkerSpec middle;
  middle.sub_workers = 1;
  middle.start = start_method();
  strata::WorkerSpec top;
  top.level = 4;
  top.start = start_method();
  auto worker = need(Worker::create(std::move(top)), "create");
  need(worker->add_worker(std::move(middle)), "add_worker");
  const CallableHandle task = callable<hop>(*worker, "hop");
  need(worker->register_inner(strata::local_function<empty>("empty")), "register_inner");
  need(worker->init(), "init");
  const TaskArgs args;
  one_at_a_time("strata.hops3", *worker, [&](Orchestrator& orch) {
    if (auto ref = orch.submit_next_level(task, args); !ref) {
      fail("submit_next_level", ref.error().to_string());
    }
  });
  need(worker->close(), "close");
}

// Throughput: from the first submit to the end of the wait.

// Microseconds a task for `count` tasks on one tensor each: the same one where `stride` is 0, one
// of its own each where it is 1.
double throughput(Worker& worker, const CallableHandle& task, const std::vector<Tensor>& tensors,
                  int count, int stride) {
  const double begun = now_us();
  need(worker.run([&](Orchestrator& orch) {
    TaskArgs args;
    for (int i = 0; i < count; ++i) {
      args.clear();
      args.add_tensor(tensors[static_cast<size_t>(i * stride)], strata::INOUT);
      submit(orch, task, args);
    }
  }),
       "run");
  return (now_us() - begun) / count;
}

std::vector<Tensor> tensors_of(const strata::Buffer& buffer, int count) {
  std::vector<Tensor> tensors;
  for (int i = 0; i < count; ++i) {
    tensors.push_back(buffer.tensor<double>({8}, static_cast<uint64_t>(i) * 8 * sizeof(double)));
  }
  return tensors;
}

void chain_group() {
  auto worker = worker_with(1);
  const CallableHandle task = callable<empty>(*worker, "empty");
  const auto buffer = need(worker->create_buffer(8 * sizeof(double)), "buffer");
  need(worker->init(), "init");
  const auto tensors = tensors_of(buffer, 1);
  const auto timed = [&] { return throughput(*worker, task, tensors, kTasks, 0); };
  timed();
  figure("strata.chain", median_of(scaled(7, 3), kLimitMs, timed), "us/task");
  need(worker->close(), "close");
}

void independent_group(int children) {
  auto worker = worker_with(children);
  const CallableHandle nothing = callable<empty>(*worker, "empty");
  const CallableHandle busy = callable<burn>(*worker, "burn");
  const auto buffer = need(worker->create_buffer(kTasks * 8 * sizeof(double)), "buffer");
  need(worker->init(), "init");
  const auto tensors = tensors_of(buffer, kTasks);
  const std::string suffix = "." + std::to_string(children);
  const auto timed = [&] { return throughput(*worker, nothing, tensors, kTasks, 1); };
  timed();
  figure("strata.independent" + suffix, median_of(scaled(7, 3), kLimitMs, timed), "us/task");
  const int burns = scaled(4'000, 2'000);
  const auto burning = [&] { return throughput(*worker, busy, tensors, burns, 1); };
  figure("strata.independent.50us" + suffix, median_of(scaled(5, 3), kLimitMs, burning), "us/task");
  need(worker->close(), "close");
}

// CPU time while nothing happens.

CpuMeter meter_of(const Worker& worker) {
  std::set<int> pids = tree_of(getpid());
  for (const Worker::Child& child : worker.sub_children()) {
    pids.insert(child.pid);
    pids.merge(tree_of(child.pid));
  }
  return CpuMeter(std::move(pids));
}

void print_percent(const char* name, const CpuMeter& meter) {
  const double percent = meter.percent();
  if (percent < 0) fail(name, "a process of the tree ended meanwhile");
  std::printf("# %s: %zu processes\n", name, meter.processes());
  figure(name, percent, "%");
}

void idle_group() {
  auto worker = worker_with(2);
  const CallableHandle task = callable<empty>(*worker, "empty");
  need(worker->init(), "init");
  for (int i = 0; i < 100; ++i) {
    need(worker->run([&](Orchestrator& orch) { submit(orch, task, TaskArgs()); }), "run");
  }
  sleep_us(100'000);  // whatever spins after work has given up by then
  const CpuMeter meter = meter_of(*worker);
  sleep_us(1'500'000);
  print_percent("strata.idle_child.cpu_percent", meter);
  need(worker->close(), "close");
}

void wait_group() {
  auto worker = worker_with(1);
  const CallableHandle nothing = callable<empty>(*worker, "empty");
  const CallableHandle sleeper = callable<doze>(*worker, "doze");
  need(worker->init(), "init");
  need(worker->run([&](Orchestrator& orch) { submit(orch, nothing, TaskArgs()); }), "run");
  const TaskArgs args = TaskArgs().add_scalar<int64_t>(scaled(2'000'000, 1'000'000));
  const CpuMeter meter = meter_of(*worker);
  need(worker->run([&](Orchestrator& orch) { submit(orch, sleeper, args); }), "run");
  print_percent("strata.wait2s.cpu_percent", meter);
  need(worker->close(), "close");
}

}  // namespace

int main(int argc, char** argv) {
  strata::child_entry(argc, argv);
  const std::string_view group = argc == 2 ? argv[1] : "";
  if (group == "submit") {
    submit_group();
  } else if (group == "run") {
    run_group();
  } else if (group == "hops3") {
    hops3_group();
  } else if (group == "chain") {
    chain_group();
  } else if (group == "independent.1") {
    independent_group(1);
  } else if (group == "independent.2") {
    independent_group(2);
  } else if (group == "idle") {
    idle_group();
  } else if (group == "wait") {
    wait_group();
  } else {
    fail("usage", "submit | run | hops3 | chain | independent.1 | independent.2 | idle | wait");
  }
  return 0;
}
