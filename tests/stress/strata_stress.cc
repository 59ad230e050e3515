// Random Workers, graphs, deaths, cancels and closes for a given time, each checked against a
// serial computation, and everything counted: processes, descriptors, mappings, memory.
//
//   strata_stress MINUTES [SEED]
//
// Every wait that lasts longer than kStuckS ends the program with the seed and where it stood. The
// exit status is 0 where nothing was wrong.
#include <dirent.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/prng.h"
#include "os/clock.h"
#include "strata/strata.h"

namespace {

using namespace strata;  // NOLINT

constexpr int kStuckS = 60;
constexpr int kBuffers = 4;
constexpr uint64_t kElements = 256;
constexpr int kRoundsBeforeCounting = 20;

std::atomic<uint64_t> round_seed{0};
std::atomic<int64_t> alive_ns{0};
std::atomic<const char*> doing{"starting"};

[[noreturn]] void fail(const std::string& what) {
  fmt::print(stderr, "strata_stress: round {}: {} (it was {})\n", round_seed.load(), what,
             doing.load());
  std::_Exit(1);
}

void now_doing(const char* what) {
  doing = what;
  alive_ns = os::monotonic_now().ns;
}

// ---------------------------------------------------------------- what there is

std::map<int, int> parents_of_all() {
  std::map<int, int> out;
  DIR* const folder = ::opendir("/proc");
  while (const dirent* entry = ::readdir(folder)) {
    const int pid = std::atoi(entry->d_name);
    if (pid <= 0) continue;
    std::ifstream file(fmt::format("/proc/{}/stat", pid));
    std::string text;
    std::getline(file, text);
    const size_t end = text.rfind(')');
    if (end != std::string::npos && end + 4 < text.size()) {
      out[pid] = std::atoi(text.c_str() + end + 4);
    }
  }
  ::closedir(folder);
  return out;
}

std::set<int> descendants() {
  const std::map<int, int> parents = parents_of_all();
  std::set<int> out;
  for (const auto& [pid, parent] : parents) {
    for (int up = parent; up > 1; up = parents.contains(up) ? parents.at(up) : 0) {
      if (up != ::getpid()) continue;
      out.insert(pid);
      break;
    }
  }
  return out;
}

size_t entries_of(const char* path) {
  size_t n = 0;
  DIR* const folder = ::opendir(path);
  while (::readdir(folder) != nullptr) ++n;
  ::closedir(folder);
  return n;
}

struct Held {
  size_t processes = 0;
  size_t descriptors = 0;
  size_t mappings = 0;
  uint64_t memory_kib = 0;  // resident, without shared pages
};

Held look() {
  Held held;
  held.processes = descendants().size();
  held.descriptors = entries_of("/proc/self/fd");
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) ++held.mappings;
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssAnon:")) {
      held.memory_kib = static_cast<uint64_t>(std::atoll(line.c_str() + 8));
    }
  }
  return held;
}

// ---------------------------------------------------------------- the tasks

// x = 3 x + y + c over a part of two buffers.
void mix_in(Call& call) {
  const auto x = call.tensor<int64_t>(0);
  const auto y = call.tensor<int64_t>(1);
  const auto c = call.scalar<int64_t>(0);
  for (uint64_t i = 0; i < x.size(); ++i) x(i) = 3 * x(i) + y(i) + c;
}
void throws(Call&) {
  throw std::runtime_error("as it should");
}
// Until it is cancelled, or a while.
void lingers(Call& call) {
  for (int64_t i = 0; i < call.scalar<int64_t>(0) && !call.cancelled(); ++i) {
    ::poll(nullptr, 0, 1);
  }
}
// Of a child Worker: mix_in, on a SUB child of it.
void outer(Call& call) {
  const InnerOrchestrator orch = call.orchestrator();
  TaskArgs args;
  args.add_tensor(call.ref(0), INOUT).add_tensor(call.ref(1), INPUT);
  args.add_scalar(call.scalar<int64_t>(0));
  orch.submit_sub(orch.inner_handle<mix_in>(), args);
}

// ---------------------------------------------------------------- one round

class Round {
 public:
  explicit Round(uint64_t seed) : prng_(seed) {}

  void run() {
    start();
    const bool kills = prng_.chance(1, 2);
    std::thread killer;
    if (kills) killer = std::thread([this, seed = prng_.next()] { kill_some(seed); });
    const uint64_t runs = prng_.between(1, 30);
    for (uint64_t i = 0; i < runs && usable_; ++i) one_run();
    stop_ = true;
    if (killer.joinable()) killer.join();
    now_doing("closing");
    const Result<void> closed = prng_.chance(1, 8) ? Result<void>() : worker_->close();
    if (!closed && !kills) fail("close: " + closed.error().to_string());
    for (Buffer& buffer : buffers_) buffer = Buffer();
    worker_.reset();
  }

  static std::atomic<uint64_t> tasks, kills_done, failed_runs, runs_done;

 private:
  void start() {
    now_doing("starting a Worker");
    WorkerSpec spec;
    spec.limits.heap_bytes = 64 << 20;
    spec.limits.depth = static_cast<uint32_t>(prng_.between(1, 16));
    spec.timeouts.close_ms = 5'000;
    spec.timeouts.exit_ms = 2'000;
    spec.output.mode = OutputMode::kDiscard;
    nested_ = prng_.chance(1, 3);
    spec.sub_workers = static_cast<int>(prng_.between(1, 3));
    if (nested_) {
      spec.level = 4;
      WorkerSpec below;
      below.limits.heap_bytes = 64 << 20;
      below.sub_workers = static_cast<int>(prng_.between(1, 2));
      spec.workers.assign(prng_.between(1, 2), below);
    }
    worker_ = Worker::create(spec).value();
    mix_in_ = worker_->register_callable(local_function<mix_in>("mix_in")).value();
    throws_ = worker_->register_callable(local_function<throws>("throws")).value();
    lingers_ = worker_->register_callable(local_function<lingers>("lingers")).value();
    if (nested_) {
      outer_ = worker_->register_callable(local_function<outer>("outer")).value();
      worker_->register_inner(local_function<mix_in>("mix_in")).value();
    }
    if (const auto ready = worker_->init(); !ready) fail("init: " + ready.error().to_string());
    for (int i = 0; i < kBuffers; ++i) {
      buffers_.push_back(worker_->create_buffer(kElements * 8).value());
      expected_.emplace_back(kElements, 0);
    }
  }

  void submit_one(Orchestrator& orch, std::vector<std::vector<int64_t>>* after) {
    const uint64_t kind = prng_.below(200);
    Result<TaskRef> ref;
    if (kind == 0) {
      ref = orch.submit_sub(throws_, TaskArgs().add_tensor(view(0, 0, 8), OUTPUT));
      wrong_ = true;
    } else if (kind == 1) {
      ref = orch.submit_sub(lingers_, TaskArgs().add_scalar(int64_t{5}));
    } else {
      const uint64_t to = prng_.below(kBuffers),
                     from = (to + 1 + prng_.below(kBuffers - 1)) % kBuffers;
      const uint64_t begin = prng_.below(kElements - 1);
      const uint64_t count = prng_.between(1, kElements - begin);
      const auto c = static_cast<int64_t>(prng_.below(1000));
      TaskArgs args;
      args.add_tensor(view(to, begin, count), INOUT).add_tensor(view(from, begin, count), INPUT);
      args.add_scalar(c);
      ref = nested_ && prng_.chance(1, 2) ? orch.submit_next_level(outer_, args)
                                          : orch.submit_sub(mix_in_, args);
      for (uint64_t i = begin; ref && i < begin + count; ++i) {
        int64_t& x = (*after)[to][i];
        x = static_cast<int64_t>(3 * static_cast<uint64_t>(x) +
                                 static_cast<uint64_t>((*after)[from][i]) +
                                 static_cast<uint64_t>(c));
      }
    }
    if (!ref) wrong_ = true;
    ++tasks;
  }

  Tensor view(uint64_t buffer, uint64_t begin, uint64_t count) {
    return buffers_[buffer].tensor<int64_t>({count}, begin * 8);
  }

  void one_run() {
    now_doing("in a run");
    wrong_ = false;
    std::vector<std::vector<int64_t>> after = expected_;
    const uint64_t count = prng_.between(1, 60);
    Result<RunHandle> run = worker_->submit([&](Orchestrator& orch) {
      for (uint64_t i = 0; i < count; ++i) submit_one(orch, &after);
    });
    ++runs_done;
    if (!run) return lost(run.error());
    if (prng_.chance(1, 20)) run->cancel();  // where all had ended, the run is well
    const Result<void> outcome = run->wait();
    if (!outcome) return lost(outcome.error());
    if (wrong_) fail("a run with a task that fails went well");
    for (int b = 0; b < kBuffers; ++b) {
      const std::span<int64_t> found = buffers_[b].as<int64_t>();
      if (!std::equal(found.begin(), found.end(), after[b].begin())) {
        fail(fmt::format("buffer {} differs from the serial computation", b));
      }
    }
    expected_ = std::move(after);
  }

  // What a failed run left in the buffers is where the next one begins.
  void lost(const Error& error) {
    ++failed_runs;
    switch (error.code()) {
      case Code::kNoWorker:
        usable_ = false;
        break;
      case Code::kTaskFailed:
      case Code::kEndpointFailed:
      case Code::kSkipped:
      case Code::kCancelled:
        break;
      default:
        fail("a run's error: " + error.to_string());
    }
    for (int b = 0; b < kBuffers; ++b) {
      worker_->clear_error(buffers_[b]).value();
      const std::span<int64_t> found = buffers_[b].as<int64_t>();
      expected_[b].assign(found.begin(), found.end());
    }
  }

  void kill_some(uint64_t seed) {
    base::Prng prng(seed);
    for (uint64_t n = prng.between(1, 3); n > 0 && !stop_; --n) {
      ::poll(nullptr, 0, static_cast<int>(prng.below(20)));
      std::vector<int> pids;
      for (const auto& child : worker_->sub_children()) {
        if (child.alive) pids.push_back(child.pid);
      }
      for (const auto& child : worker_->next_level_children()) {
        if (child.alive) pids.push_back(child.pid);
      }
      if (pids.empty()) return;
      ::kill(pids[prng.below(pids.size())], SIGKILL);
      ++kills_done;
    }
  }

  base::Prng prng_;
  bool nested_ = false;
  bool wrong_ = false;  // a task of the run fails
  bool usable_ = true;
  std::atomic<bool> stop_{false};
  std::unique_ptr<Worker> worker_;
  CallableHandle mix_in_, throws_, lingers_, outer_;
  std::vector<Buffer> buffers_;
  std::vector<std::vector<int64_t>> expected_;
};

std::atomic<uint64_t> Round::tasks{0}, Round::kills_done{0}, Round::failed_runs{0},
    Round::runs_done{0};

// ---------------------------------------------------------------- all rounds

void watch() {
  for (;;) {
    ::poll(nullptr, 0, 1000);
    if (os::monotonic_now().ns - alive_ns > int64_t{kStuckS} * 1'000'000'000) {
      fail(fmt::format("nothing has moved for {} s", kStuckS));
    }
  }
}

void check_counts(const Held& first, int rounds) {
  Held held;
  for (int i = 0; i < 2000; ++i) {  // a server reaps a moment later
    held = look();
    if (held.processes <= first.processes) break;
    ::poll(nullptr, 0, 1);
  }
  const auto grown = [&](const char* what, size_t now, size_t before, size_t more) {
    if (now <= before + more) return;
    fail(fmt::format("after {} rounds {} {}, {} at the start", rounds, now, what, before));
  };
  grown("processes", held.processes, first.processes, 0);
  grown("descriptors", held.descriptors, first.descriptors, 0);
  grown("mappings", held.mappings, first.mappings, 64);
  grown("KiB of memory", held.memory_kib, first.memory_kib, 32 << 10);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3 || std::atof(argv[1]) <= 0) {
    fmt::print(stderr, "usage: strata_stress MINUTES [SEED]\n");
    return 2;
  }
  const base::Instant end =
      os::monotonic_now() +
      base::Duration::from_ms(static_cast<int64_t>(std::atof(argv[1]) * 60e3));
  uint64_t seed = argc == 3 ? std::strtoull(argv[2], nullptr, 0)
                            : static_cast<uint64_t>(os::monotonic_now().ns);
  fmt::print("strata_stress: from seed {}\n", seed);
  std::fflush(stdout);
  alive_ns = os::monotonic_now().ns;
  // The first Worker makes the process's server while there is one thread.
  round_seed = seed;
  Round(seed).run();
  std::thread(watch).detach();
  Held first;
  int rounds = 1;
  for (; os::monotonic_now() < end; ++rounds) {
    round_seed = ++seed;
    Round(seed).run();
    now_doing("counting");
    if (rounds == kRoundsBeforeCounting) first = look();
    if (rounds > kRoundsBeforeCounting && rounds % 10 == 0) check_counts(first, rounds);
  }
  if (rounds > kRoundsBeforeCounting) check_counts(first, rounds);
  fmt::print(
      "strata_stress: {} rounds, {} runs of which {} failed as they should, {} tasks, {} children "
      "killed; nothing wrong, nothing left\n",
      rounds, Round::runs_done.load(), Round::failed_runs.load(), Round::tasks.load(),
      Round::kills_done.load());
  std::fflush(stdout);
  std::_Exit(0);
}
