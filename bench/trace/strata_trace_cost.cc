// What the timeline costs: one event, and tasks of a Worker with it and without.
//
//   strata_trace_cost event | off | on
//
// `event` writes to rings whose pages are touched for the first time, as they are in use, and takes
// the time from the thread's CPU clock: a batch is long enough for others to come between.
#include <strata/strata.h>
#include <sys/mman.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bench/figure.h"
#include "os/clock.h"
#include "os/shared_region.h"
#include "runtime/task_trace.h"
#include "trace/ring.h"

namespace {

using namespace strata::bench;
using strata::Orchestrator;
using strata::TaskArgs;
using strata::Worker;
namespace trace = strata::trace;

constexpr double kLimitMs = 5'000;
constexpr int kTasks = 10'000;

[[noreturn]] void fail(std::string_view what, std::string_view why) {
  std::fprintf(stderr, "strata_trace_cost: %.*s: %.*s\n", static_cast<int>(what.size()),
               what.data(), static_cast<int>(why.size()), why.data());
  std::fflush(nullptr);
  _exit(1);
}

template <class T>
T need(strata::Result<T> result, std::string_view what) {
  if (!result) fail(what, result.error().to_string());
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

// ---------------------------------------------------------------- one event

uint64_t counter_ticks(void*) {
  return strata::os::cycle_counter();
}
void touch_pages(void* at, size_t bytes) {
  static_cast<void>(madvise(at, bytes, MADV_POPULATE_WRITE));
}
uint64_t clock_ticks(void*) {
  return static_cast<uint64_t>(strata::os::monotonic_now().ns);
}

double used_us() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_nsec) * 1e-3;
}

// Fresh rings, each filled once: nanoseconds an event, in the median ring.
template <class Write>
double ns_an_event(trace::Host host, Write&& write) {
  const trace::Shape shape{.rings = 1, .events = 1u << 16, .names_bytes = 4096};
  const auto timed = [&] {
    const strata::os::SharedRegion memory = need(
        strata::os::SharedRegion::create("strata-bench", trace::Region::bytes(shape)), "memory");
    const trace::Region region =
        trace::Region::format(memory.bytes(), shape, trace::ClockKind::kCounter);
    auto recorder = std::make_unique<trace::Recorder>(
        region, host, trace::Recorder::Who{1, trace::Role::kSub, "L3/0"});
    strata::runtime::TaskTrace tasks(std::move(recorder));
    const double begun = used_us();
    for (uint32_t i = 0; i < shape.events; ++i) write(tasks, i);
    const double took = used_us() - begun;
    if (region.rings()[0].events != shape.events) fail("event", "a ring is not full");
    return took * 1e3 / shape.events;
  };
  return median_of(scaled(100, 30), kLimitMs, timed);
}

void event_figures(const std::string& suffix, trace::Host host) {
  constexpr int kReads = 1'000'000;
  const auto read = [&] {
    uint64_t sum = 0;
    const double begun = used_us();
    for (int i = 0; i < kReads; ++i) sum += host.ticks(host.context);
    const double took = used_us() - begun;
    if (sum == 0) fail("clock", "it stands still");
    return took * 1e3 / kReads;
  };
  figure("trace.clock" + suffix, median_of(scaled(20, 5), kLimitMs, read), "ns");
  figure("trace.event.instant" + suffix,
         ns_an_event(host,
                     [](auto& tasks, uint32_t i) {
                       trace::Event event;
                       event.kind = trace::Kind::kSubmit;
                       event.task = i;
                       tasks.recorder().mark(event);
                     }),
         "ns/event");
  figure("trace.event.task" + suffix,
         ns_an_event(host,
                     [](auto& tasks, uint32_t i) {
                       tasks.begin(i, 0);
                       tasks.end(false);
                     }),
         "ns/event");
}

void event_group() {
  if (strata::os::cycle_counter_is_sound()) {
    event_figures(".counter", {&counter_ticks, &touch_pages, nullptr});
  } else {
    std::printf("# the processor's counter is not sound here: the clock is used\n");
  }
  event_figures(".monotonic", {&clock_ticks, &touch_pages, nullptr});
}

// ---------------------------------------------------------------- tasks

void empty(strata::Call&) {}

double throughput(Worker& worker, const strata::CallableHandle& task,
                  const std::vector<strata::Tensor>& tensors, size_t stride) {
  const double begun = now_us();
  need(worker.run([&](Orchestrator& orch) {
    TaskArgs args;
    for (size_t i = 0; i < kTasks; ++i) {
      args.clear();
      args.add_tensor(tensors[i * stride], strata::INOUT);
      if (auto ref = orch.submit_sub(task, args); !ref) fail("submit", ref.error().to_string());
    }
  }),
       "run");
  return (now_us() - begun) / kTasks;
}

// Each figure has a Worker of its own, so that its rings are not full: 7 batches are 70,000 tasks.
void task_group(bool on) {
  const std::string suffix = on ? ".on" : ".off";
  const std::string file = "/tmp/strata_trace_cost." + std::to_string(getpid()) + ".json";
  const auto with_worker = [&](auto&& measure) {
    strata::WorkerSpec spec;
    spec.sub_workers = 1;
    spec.limits.slots = 65'536;
    if (on) spec.timeline = file;
    auto worker = need(Worker::create(std::move(spec)), "create");
    const auto task =
        need(worker->register_callable(strata::local_function<empty>("empty")), "register");
    const auto buffer = need(worker->create_buffer(kTasks * 64), "buffer");
    std::vector<strata::Tensor> tensors;
    for (uint64_t i = 0; i < kTasks; ++i) tensors.push_back(buffer.tensor<double>({8}, i * 64));
    need(worker->init(), "init");
    measure(*worker, task, tensors);
    const double begun = now_us();
    need(worker->close(), "close");
    return now_us() - begun;
  };
  const int batches = scaled(6, 3);
  with_worker([&](Worker& worker, const auto& task, const auto& tensors) {
    throughput(worker, task, tensors, 0);
    figure("trace.chain" + suffix,
           median_of(batches, kLimitMs, [&] { return throughput(worker, task, tensors, 0); }),
           "us/task");
  });
  const double close_us = with_worker([&](Worker& worker, const auto& task, const auto& tensors) {
    throughput(worker, task, tensors, 1);
    figure("trace.independent" + suffix,
           median_of(batches, kLimitMs, [&] { return throughput(worker, task, tensors, 1); }),
           "us/task");
  });
  figure("trace.close" + suffix, close_us * 1e-3, "ms");
  with_worker([&](Worker& worker, const auto& task, const auto&) {
    const TaskArgs args;
    const auto trip = [&] {
      const double begun = now_us();
      need(worker.run([&](Orchestrator& orch) {
        if (auto ref = orch.submit_sub(task, args); !ref) fail("submit", ref.error().to_string());
      }),
           "run");
      return now_us() - begun;
    };
    figure("trace.run" + suffix, median_of(scaled(10'000, 3'000), kLimitMs, trip), "us");
  });
  if (on) unlink(file.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view group = argc == 2 ? argv[1] : "";
  if (group == "event") {
    event_group();
  } else if (group == "off" || group == "on") {
    task_group(group == "on");
  } else {
    fail("usage", "event | off | on");
  }
  return 0;
}
