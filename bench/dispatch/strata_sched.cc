// What a step of the engine costs with few workers and with many: a Core over workers that are
// counters in this process and note their news, as workers of other hosts do. Each iteration makes
// one completion available at a random worker, steps, and submits a task in place of it.
//
//   strata_sched                                  figures
//   strata_sched any|directed WORKERS STEPS       that many iterations, for a profiler: in the
//                                                 function strata_sched_steps
#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "bench/figure.h"
#include "engine/core.h"

namespace {

using namespace strata::bench;
using strata::engine::Core;

constexpr double kLimitMs = 2'000;
constexpr uint32_t kTasksEach = 3;
constexpr uint32_t kDepth = 4;
constexpr uint32_t kFew = 10, kMany = 10'000;

[[noreturn]] void fail(std::string_view what, std::string_view why) {
  std::fprintf(stderr, "strata_sched: %.*s: %.*s\n", static_cast<int>(what.size()), what.data(),
               static_cast<int>(why.size()), why.data());
  std::exit(1);
}

// A worker whose tasks end when the program says so, oldest first; a control is answered at once.
class Counter final : public strata::engine::WorkerEndpoint {
 public:
  std::optional<uint64_t> dispatch(const strata::mailbox::TaskPost& post,
                                   std::span<const std::byte>) override {
    if (!has_room()) return std::nullopt;
    tasks_[pushed_ % kDepth] = post.task;
    return ++pushed_;
  }
  bool has_room() override { return pushed_ - polled_ < kDepth; }
  bool revoke(uint64_t) override { return false; }
  void cancel_through(uint64_t) override {}
  strata::Result<void> control(uint32_t command, std::span<const std::byte>) override {
    reply_ = command;
    return {};
  }
  bool control_outstanding() const override { return reply_.has_value(); }
  bool needs_wake() override { return false; }
  void wake() override {}
  bool has_news() const override { return polled_ != done_ || reply_.has_value(); }
  bool has_news_ahead(uint32_t) const override { return has_news(); }
  strata::Result<void> poll(strata::engine::EndpointSink& sink) override {
    while (polled_ != done_) {
      strata::mailbox::Completion completion;
      completion.task = tasks_[polled_ % kDepth];
      completion.ticket = ++polled_;
      completion.outcome = strata::mailbox::Outcome::kOk;
      sink.on_completion(completion);
    }
    if (reply_) sink.on_reply(*std::exchange(reply_, std::nullopt), 0, {});
    return {};
  }
  void abandon(strata::engine::EndpointSink&) override {}
  const std::string& where() const override {
    static const std::string name = "a counter";
    return name;
  }

  // False where nothing runs.
  bool complete_one() {
    if (done_ == pushed_) return false;
    ++done_;
    return true;
  }

 private:
  uint64_t pushed_ = 0, done_ = 0, polled_ = 0;
  std::array<uint64_t, kDepth> tasks_{};
  std::optional<uint32_t> reply_;
};

class Level {
 public:
  Level(uint32_t workers, bool directed) : directed_(directed), core_(options()) {
    for (uint32_t i = 0; i < workers; ++i) {
      auto counter = std::make_unique<Counter>();
      counters_.push_back(counter.get());
      core_.add_worker(std::move(counter), {.notes_news = true});
      core_.start_worker(i, now_);
    }
    answer_all();
    const strata::registry::PreparePayload payload{
        "task", strata::model::NativeImportDescriptor{"libtasks.so", "task"}, {}};
    if (auto begun = core_.begin_register(payload, now_); !begun) {
      fail("register", begun.error().to_string());
    }
    answer_all();
    auto outcome = core_.take_register_outcome();
    if (!outcome || !outcome->ok()) fail("register", "some worker did not answer");
    callable_ = outcome->value();
    run_ = core_.open_run();
    for (uint32_t i = 0; i < workers * kTasksEach; ++i) submit(i % workers);
    core_.step({});
  }

  void iterate() {
    const uint32_t worker = random_busy();
    core_.news().note(worker);
    core_.step({});
    submit(worker);
  }
  // Nothing is lost: each worker's share is in flight still.
  void check() {
    core_.step({});
    if (core_.scheduler().live() != counters_.size() * kTasksEach) fail("check", "tasks are lost");
    if (core_.scheduler().has_ready()) fail("check", "a task waits although there is room");
  }

 private:
  static ::strata::engine::CoreOptions options() {
    ::strata::engine::CoreOptions options;
    options.limits.slots = 65'536;
    options.limits.depth = kDepth;
    options.awake_max = ~0u;
    return options;
  }

  // Every control that is posted, and those that follow on its answer.
  void answer_all() {
    while (core_.wants_time()) {
      for (uint32_t i = 0; i < counters_.size(); ++i) {
        if (counters_[i]->has_news()) core_.news().note(i);
      }
      core_.step(now_);
    }
  }

  uint32_t random_busy() {
    for (;;) {
      random_ ^= random_ << 13, random_ ^= random_ >> 7, random_ ^= random_ << 17;
      const auto worker = static_cast<uint32_t>((random_ >> 32) * counters_.size() >> 32);
      if (counters_[worker]->complete_one()) return worker;
    }
  }

  void submit(uint32_t worker) {
    const strata::engine::Where where{.worker = directed_ ? static_cast<int32_t>(worker) : -1};
    strata::TaskRef ref;
    std::optional<strata::Error> error;
    if (core_.submit(*run_, {callable_, where, {}}, no_args_, &ref, &error) !=
        Core::Submitted::kDone) {
      fail("submit", error ? error->to_string() : "no room");
    }
  }

  bool directed_;
  Core core_;
  const strata::base::Instant now_{1'000'000'000};
  std::vector<Counter*> counters_;
  strata::registry::EntryRef callable_;
  std::shared_ptr<strata::engine::RunRecord> run_;
  strata::TaskArgs no_args_;
  uint64_t random_ = 0x9e3779b97f4a7c15u;
};

}  // namespace

extern "C" __attribute__((noinline)) void strata_sched_steps(void* level, int count) {
  for (int i = 0; i < count; ++i) static_cast<Level*>(level)->iterate();
}

namespace {

double step_ns(uint32_t workers, bool directed) {
  Level level(workers, directed);
  const int steps = 20'000;
  const auto timed = [&] {
    const double begun = now_us();
    strata_sched_steps(&level, steps);
    return (now_us() - begun) * 1e3 / steps;
  };
  const double ns = median_of(scaled(40, 10), kLimitMs, timed);
  level.check();
  return ns;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 4) {
    Level level(static_cast<uint32_t>(std::atoi(argv[2])), std::strcmp(argv[1], "directed") == 0);
    strata_sched_steps(&level, std::atoi(argv[3]));
    level.check();
    return 0;
  }
  if (argc != 1) fail("usage", "[any|directed WORKERS STEPS]");
  for (const bool directed : {false, true}) {
    const std::string name = directed ? "strata.sched.directed." : "strata.sched.";
    for (const uint32_t workers : {kFew, kMany}) {
      figure(name + std::to_string(workers), step_ns(workers, directed), "ns");
    }
  }
  return 0;
}
