#include "runtime/worker_core.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <cstring>

#include "base/result.h"
#include "engine/local_mailbox_endpoint.h"
#include "os/build_id.h"
#include "os/clock.h"
#include "os/futex.h"
#include "os/process.h"
#include "runtime/child_main.h"
#include "runtime/context.h"
#include "runtime/spec.h"

namespace strata {
namespace {

struct FutexWaker {
  void operator()(const uint32_t* word) const {
    os::futex_wake(reinterpret_cast<const std::atomic<uint32_t>*>(word), 1);
  }
};
using Endpoint = engine::LocalMailboxEndpoint<mailbox::PlainMemory, FutexWaker>;

Error refuse(Code code, std::string text) {
  return Error(code, Scope::kCall, std::move(text));
}

uint64_t random_bits() {
  uint64_t bits = 0;
  while (bits == 0) {
    if (::getrandom(&bits, sizeof bits, 0) != sizeof bits) bits = 0;
  }
  return bits;
}

}  // namespace

// ---------------------------------------------------------------- create, init

Result<std::shared_ptr<WorkerCore>> WorkerCore::create(WorkerSpec spec, WorkerPlace place) {
  STRATA_TRY(runtime::check_spec(spec));
  spec.limits.heap_bytes = (spec.limits.heap_bytes + 4095) / 4096 * 4096;
  STRATA_ASSIGN(os::SharedRegion heap,
                os::SharedRegion::create("strata-heap", engine::heap_address_bytes(spec.limits)));
  STRATA_ASSIGN(os::SharedRegion hub, os::SharedRegion::create("strata-hub", mailbox::kHubBytes));
  std::shared_ptr<WorkerCore> core(
      new WorkerCore(std::move(spec), std::move(place), std::move(heap), std::move(hub)));
  STRATA_ASSIGN(core->world_, runtime::ThreadWorld::create(core->hub_, core->heap_, core->path_));
  core->front_ = std::make_unique<engine::Front<runtime::ThreadWorld>>(*core->world_, *core->core_);
  core->heed_cancel();
  return core;
}

WorkerCore::WorkerCore(WorkerSpec spec, WorkerPlace place, os::SharedRegion heap,
                       os::SharedRegion hub)
    : spec_(std::move(spec)),
      place_(std::move(place)),
      path_(place_.path.empty() ? fmt::format("L{}", spec_.level) : place_.path),
      heap_(std::move(heap)),
      hub_(std::move(hub)) {
  const int cores = os::cores_in_affinity_mask();
  if (place_.permits < 0) place_.permits = cores - 1;
  core_ = std::make_unique<engine::Core>(
      engine::Core::Options{path_, spec_.limits, spec_.timeouts, random_bits(),
                            static_cast<uint32_t>(std::max(1, cores - 1))});
}

WorkerCore::~WorkerCore() {
  STRATA_CHECK(!engine_.joinable());
}

Result<void> WorkerCore::init() {
  Life expected = Life::kCreated;
  if (!life_.compare_exchange_strong(expected, Life::kStarting)) {
    return refuse(Code::kWrongState, expected == Life::kClosed || expected == Life::kClosing
                                         ? "init of a closed Worker: create another"
                                         : "init was called before");
  }
  Result<void> started = spec_.start == StartMethod::kInline ? start_inline() : start_children();
  if (started) started = wait_ready();
  if (!started) {
    static_cast<void>(end_children());
    finish_close();
    return started;
  }
  life_ = Life::kRunning;
  return {};
}

void WorkerCore::add_inline_endpoint(runtime::InnerWorker* inner) {
  const size_t number = inline_executors_.size();
  inline_executors_.push_back(
      std::make_unique<runtime::Executor>(segments(), fmt::format("{}/{}", path_, number), inner));
  runtime::Executor* const executor = inline_executors_.back().get();
  auto run = [executor](const mailbox::TaskPost& post, std::span<const std::byte> args,
                        const std::atomic<bool>& cancelled) {
    mailbox::TaskOutcome outcome;
    executor->run(
        post, args,
        {[](const void* flag) { return static_cast<const std::atomic<bool>*>(flag)->load(); },
         &cancelled},
        &outcome);
    return engine::InlineOutcome{
        outcome.outcome,
        outcome.code,
        {outcome.result.begin(), outcome.result.end()},
        {reinterpret_cast<const char*>(outcome.text.data()), outcome.text.size()}};
  };
  auto control = [executor](uint32_t command, std::span<const std::byte> request) {
    std::string text;
    uint32_t code = 0;
    if (command != mailbox::kCommandHello) code = executor->control(command, request, &text);
    const auto bytes = std::as_bytes(std::span(text));
    return std::pair(code, std::vector<std::byte>(bytes.begin(), bytes.end()));
  };
  front_->call([&](engine::Core& core) {
    const uint32_t worker = core.add_worker(
        std::make_unique<engine::InlineEndpoint>(engine::InlineEndpoint::Runner{run, control}),
        caps_of(static_cast<uint32_t>(number)));
    STRATA_CHECK(worker == number);
    core.start_worker(worker, os::monotonic_now());
  });
}

Result<void> WorkerCore::start_inline() {
  STRATA_TRY(add_inline_workers());
  if (spec_.sub_workers > 0) add_inline_endpoint(nullptr);
  front_->call([&](engine::Core& core) { core.expect_no_more_workers(); });
  engine_ = std::thread([this] { front_->engine_main(); });
  return {};
}

Result<void> WorkerCore::start_children() {
  const uint32_t count = worker_count() + static_cast<uint32_t>(spec_.sub_workers);
  if (count > 0) {
    // Else the process's server, which outlives this Worker, would keep the heap's pages with it.
    STRATA_TRY(heap_.set_inherited(false));
    STRATA_ASSIGN(server_, runtime::make_fork_server(spec_.allow_threads, spec_.inherit_fds));
    STRATA_TRY(heap_.set_inherited(true));
  }
  world_->set_permits(place_.permits - static_cast<int>(worker_count()) * permits_below());
  STRATA_TRY(add_endpoints(count));
  if (count > 0) STRATA_TRY(world_->watch_server(*server_, count));
  for (uint32_t i = 0; i < count; ++i) {
    std::vector<int> fds = {mailboxes_[i].fd(), hub_.fd(), world_->signal_fd(), heap_.fd()};
    for (const WorkerPlace::Heap& heap : place_.heaps) fds.push_back(heap.fd);
    world_->expect_child(i);
    STRATA_TRY(server_->spawn(i, runtime::encode(child_spec(i)), fds));
  }
  front_->call([](engine::Core& core) { core.expect_no_more_workers(); });
  engine_ = std::thread([this] { front_->engine_main(); });
  return {};
}

Result<void> WorkerCore::add_endpoints(uint32_t count) {
  mailboxes_.reserve(count);
  for (uint32_t i = 0; i < count; ++i) {
    STRATA_ASSIGN(os::SharedRegion region,
                  os::SharedRegion::create("strata-mailbox", mailbox::kRegionBytes));
    mailboxes_.push_back(std::move(region));
    auto endpoint =
        std::make_unique<Endpoint>(mailbox::PlainMemory{}, mailboxes_.back().data(), FutexWaker{});
    front_->call([&](engine::Core& core) {
      STRATA_CHECK(core.add_worker(std::move(endpoint), caps_of(i)) == i);
    });
  }
  return {};
}

Result<void> WorkerCore::wait_ready() {
  const uint32_t limit_ms = runtime::ready_limit_ms(spec_);
  std::optional<Error> lost;
  const bool ready = front_->wait(
      "its children to be ready", os::monotonic_now() + base::Duration::from_ms(limit_ms),
      [&](engine::Core& core) {
        bool all = true;
        for (uint32_t worker = 0; worker < core.worker_count(); ++worker) {
          const engine::Core::WorkerState state = core.worker_state(worker);
          if (state == engine::Core::WorkerState::kLost) {
            lost = Error(Code::kEndpointFailed, Scope::kProcess,
                         fmt::format("a child did not start: {}", core.loss_reason(worker)),
                         core.worker_name(worker));
            return true;
          }
          all = all && state == engine::Core::WorkerState::kReady;
        }
        return all;
      });
  if (lost) return *std::move(lost);
  if (!ready) {
    return Error(Code::kDeadline, Scope::kProcess,
                 fmt::format("not all children were ready within {} ms; "
                             "Timeouts::child_ready_ms is the limit",
                             limit_ms),
                 path_);
  }
  return {};
}

// ---------------------------------------------------------------- close

Result<void> WorkerCore::close() {
  if (front_->is_building()) {
    return refuse(
        Code::kWrongState,
        "close inside an orchestration function of the same Worker: return from it first");
  }
  Life expected = Life::kRunning;
  if (!life_.compare_exchange_strong(expected, Life::kClosing)) {
    if (expected == Life::kCreated && life_.compare_exchange_strong(expected, Life::kClosed)) {
      return {};
    }
    if (expected == Life::kClosed) return {};
    return refuse(Code::kWrongState, "another thread starts or closes this Worker");
  }
  const base::Duration limit = base::Duration::from_ms(spec_.timeouts.close_ms);
  const auto all_done = [](engine::Core& core) { return core.idle() && core.can_drain(); };
  std::optional<Error> error;
  if (!front_->wait("its runs to end", os::monotonic_now() + limit, all_done)) {
    error = Error(Code::kDeadline, Scope::kProcess,
                  fmt::format("tasks were still running {} ms after close; they were cancelled; "
                              "Timeouts::close_ms is the limit",
                              spec_.timeouts.close_ms),
                  path_);
    front_->call([](engine::Core& core) { core.cancel_all(); });
    static_cast<void>(front_->wait(
        "its cancelled tasks to end",
        os::monotonic_now() + base::Duration::from_ms(spec_.timeouts.exit_ms), all_done));
  }
  Result<void> ended = end_children();
  finish_close();
  log_unseen_errors();
  if (error) return *std::move(error);
  return ended;
}

// Asks the children to end, and kills those that do not.
Result<void> WorkerCore::end_children() {
  Result<void> inlined;
  for (const InlineWorker& worker : inline_workers_) {
    if (Result<void> closed = worker.core->close(); inlined && !closed) inlined = std::move(closed);
  }
  if (!server_) return inlined;
  front_->call([](engine::Core& core) { core.ask_exit(os::monotonic_now()); });
  const base::Duration grace = base::Duration::from_ms(runtime::exit_grace_ms(spec_));
  const bool in_time =
      front_->wait("its children to exit", os::monotonic_now() + grace,
                   [this](engine::Core&) { return world_->children_alive() == 0; });
  front_->call([this](engine::Core&) { world_->forget_server(); });
  const Result<void> down = server_->shutdown(grace);
  // Killed by their server's end; what they held is an endpoint failure.
  front_->call([](engine::Core& core) {
    for (uint32_t worker = 0; worker < core.worker_count(); ++worker) {
      core.lose_worker(worker, "the Worker was closed");
    }
  });
  if (!in_time) {
    return Error(Code::kDeadline, Scope::kProcess,
                 fmt::format("not all children had exited {} ms after they were told to; they were "
                             "killed; Timeouts::exit_ms is the limit",
                             spec_.timeouts.exit_ms),
                 path_);
  }
  return down;
}

void WorkerCore::finish_close() {
  front_->stop();
  if (engine_.joinable()) engine_.join();
  life_ = Life::kClosed;
}

std::vector<Worker::Child> WorkerCore::sub_children() {
  return children(worker_count(), worker_count() + static_cast<uint32_t>(spec_.sub_workers));
}

std::vector<Worker::Child> WorkerCore::next_level_children() {
  return children(0, worker_count());
}

std::vector<Worker::Child> WorkerCore::children(uint32_t begin, uint32_t end) {
  return front_->call([&](engine::Core& core) {
    std::vector<Worker::Child> out;
    // Until then init() is still making what is looked at here.
    const Life life = life_.load(std::memory_order_acquire);
    if (life == Life::kCreated || life == Life::kStarting || !server_) return out;
    // While nothing runs nobody listens for deaths.
    world_->collect(core, false);
    for (uint32_t worker = begin; worker < end; ++worker) {
      const runtime::ThreadWorld::Child& child = world_->child(worker);
      out.push_back({child.pid, !child.gone, core.tasks_done(worker)});
    }
    return out;
  });
}

}  // namespace strata
