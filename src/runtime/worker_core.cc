#include "runtime/worker_core_inl.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <cstring>
#include <system_error>

#include "base/result.h"
#include "os/build_id.h"
#include "os/clock.h"
#include "os/cores.h"
#include "os/machine.h"
#include "os/process.h"
#include "os/system_error.h"
#include "runtime/spec.h"
#include "runtime/worker_core_inl.h"

namespace strata {
namespace {

Error refuse(Code code, std::string text) {
  return Error(code, Scope::kCall, std::move(text));
}

std::string path_of(const WorkerSpec& spec, const WorkerPlace& place) {
  if (!place.path.empty()) return place.path;
  return place.root_path.empty() ? fmt::format("L{}", spec.level) : place.root_path;
}

Result<os::SharedRegion> make_heap(const Limits& limits, const std::string& path) {
  const uint64_t bytes = engine::heap_address_bytes(limits);
  if (limits.huge_pages == HugePages::kExplicit) {
    return os::SharedRegion::create_huge("strata-heap", bytes);
  }
  STRATA_ASSIGN(os::SharedRegion heap, os::SharedRegion::create("strata-heap", bytes));
  if (limits.huge_pages == HugePages::kTransparent) {
    const std::string given = os::kernel_settings().shm_huge_pages;
    const bool none = given.empty() || given == "never" || given == "deny";
    const Result<void> asked = none ? Result<void>() : heap.ask_for_huge_pages();
    if (none || !asked) {
      fmt::print(stderr,
                 "strata: {}: ordinary pages serve for Limits::huge_pages kTransparent: {}\n", path,
                 none ? "/sys/kernel/mm/transparent_hugepage/shmem_enabled is " +
                            (given.empty() ? "not there" : given)
                      : asked.error().message());
    }
  }
  return heap;
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
  // Else shared memory would be what the program prints to.
  if (!os::fill_closed_stdio()) {
    return refuse(Code::kSystem, "stdin, stdout or stderr is closed, and /dev/null does not open");
  }
  const uint64_t page = runtime::heap_page_bytes(spec.limits);
  spec.limits.heap_bytes = (spec.limits.heap_bytes + page - 1) / page * page;
  STRATA_ASSIGN(os::SharedRegion heap, make_heap(spec.limits, path_of(spec, place)));
  STRATA_ASSIGN(os::SharedRegion hub, os::SharedRegion::create("strata-hub", mailbox::kHubBytes));
  std::unique_ptr<runtime::Timeline> timeline;
  if (place.path.empty()) {
    STRATA_ASSIGN(timeline, runtime::Timeline::create(spec));
  }
  std::shared_ptr<WorkerCore> core(new WorkerCore(
      std::move(spec), std::move(place), std::move(heap), std::move(hub), std::move(timeline)));
  STRATA_ASSIGN(core->world_, runtime::ThreadWorld::create(core->hub_, core->heap_, core->path_));
  core->front_ = std::make_unique<engine::Front<runtime::ThreadWorld>>(*core->world_, *core->core_);
  core->heed_cancel();
  return core;
}

WorkerCore::WorkerCore(WorkerSpec spec, WorkerPlace place, os::SharedRegion heap,
                       os::SharedRegion hub, std::unique_ptr<runtime::Timeline> timeline)
    : spec_(std::move(spec)),
      place_(std::move(place)),
      path_(path_of(spec_, place_)),
      heap_(std::move(heap)),
      hub_(std::move(hub)),
      timeline_(std::move(timeline)) {
  next_is_remote_.assign(spec_.workers.size(), false);
  if (timeline_) place_.timeline = timeline_.get();
  if (place_.timeline != nullptr) {
    recorder_ = place_.timeline->recorder(trace::Role::kParent, path_);
  }
  const int cores = os::usable_cores();
  engine::CoreOptions options{path_,
                              spec_.limits,
                              spec_.timeouts,
                              random_bits(),
                              static_cast<uint32_t>(std::max(1, cores - 1)),
                              spec_.restart == Restart::kOnFailure,
                              spec_.restart_limit,
                              recorder_.get()};
  options.heap_page_bytes = runtime::heap_page_bytes(spec_.limits);
  if (runtime::reserves_memory(spec_.limits)) {
    options.reserve = [this](uint64_t offset, uint64_t bytes) { return reserve(offset, bytes); };
  }
  core_ = std::make_unique<engine::Core>(std::move(options));
}

WorkerCore::~WorkerCore() {
  STRATA_CHECK(!engine_.joinable());
}

Result<void> WorkerCore::init() {
  STRATA_TRY(must_be_home("init"));
  Life expected = Life::kCreated;
  if (!life_.compare_exchange_strong(expected, Life::kStarting)) {
    return refuse(Code::kWrongState, expected == Life::kClosed || expected == Life::kClosing
                                         ? "init of a closed Worker: create another"
                                         : "init was called before");
  }
  Result<void> started = must_not_drain("init");
  if (started) started = runtime::check_cpus(spec_, os::cores_allowed());
  if (started) started = spec_.start == StartMethod::kInline ? start_inline() : start_children();
  if (started) started = wait_ready();
  if (!started) {
    static_cast<void>(end_children());
    finish_close();
    if (timeline_) timeline_->drop_file();
    return started;
  }
  life_ = Life::kRunning;
  return {};
}

std::unique_ptr<WorkerCore::InlineTrace> WorkerCore::inline_trace(const std::string& path) const {
  if (place_.timeline == nullptr) return nullptr;
  auto recorder = place_.timeline->recorder(trace::Role::kInline, path);
  if (!recorder) return nullptr;
  return std::make_unique<InlineTrace>(InlineTrace{runtime::TaskTrace(std::move(recorder))});
}

void WorkerCore::add_inline_endpoint(runtime::InnerWorker* inner) {
  const auto number = static_cast<uint32_t>(inline_chips_.size() + inline_executors_.size());
  inline_executors_.push_back(
      std::make_unique<runtime::Executor>(segments(), fmt::format("{}/{}", path_, number), inner));
  add_inline(*inline_executors_.back(), caps_of(number));
}

Result<void> WorkerCore::start_inline() {
  set_start_report({StartMethod::kInline, "WorkerSpec::start asks for it", 0, {}, true});
  roster_ = runtime::Roster(spec_, next_is_remote_);
  STRATA_TRY(add_inline_workers());
  STRATA_TRY(add_inline_chips());
  if (spec_.sub_workers > 0) add_inline_endpoint(nullptr);
  front_->call([&](engine::Core& core) { core.expect_no_more_workers(); });
  return start_engine();
}

Result<void> WorkerCore::start_engine() {
  try {
    engine_ = std::thread([this] { front_->engine_main(); });
  } catch (const std::system_error& e) {
    return os::system_error("start the engine thread of " + path_, e.code().value());
  }
  return {};
}

// The children's stdout and stderr, where they are to be more than what this process's are.
Result<void> WorkerCore::capture_output() {
  if (spec_.output.mode == OutputMode::kInherit) return {};
  const bool below = !place_.path.empty();
  if (!os::output_files_are_possible()) {
    if (!below) {
      fmt::print(stderr,
                 "strata: {}: with a limit on the size of files (ulimit -f) the children write to "
                 "this process's stdout and stderr, and errors have no last lines\n",
                 path_);
    }
    return {};
  }
  STRATA_ASSIGN(
      output_,
      runtime::OutputReader::create({spec_.output, path_, below, place_.output_above}, [this] {
        return front_->look([](const engine::Core& core) { return !core.idle(); });
      }));
  world_->set_output(output_.get());
  return output_->start();
}

Result<void> WorkerCore::wait_ready() {
  uint32_t limit_ms = runtime::ready_limit_ms(spec_);
  for (const auto& [worker, remote] : remotes_) {
    limit_ms = std::max(limit_ms, std::min(remote->start_ms(), ~0u - 5'000) + 5'000);
  }
  std::optional<Error> lost;
  const bool ready = front_->wait(
      "its children to be ready", os::monotonic_now() + base::Duration::from_ms(limit_ms),
      [&](engine::Core& core) {
        if (draining() != 0) return true;
        bool all = true;
        for (uint32_t worker = 0; worker < core.worker_count(); ++worker) {
          const engine::Core::WorkerState state = core.worker_state(worker);
          if (state == engine::Core::WorkerState::kLost) {
            lost = Error(Code::kEndpointFailed, Scope::kProcess,
                         fmt::format("a child did not start: {}{}", core.loss_reason(worker),
                                     world_->last_lines(worker)),
                         core.worker_name(worker));
            return true;
          }
          all = all && state == engine::Core::WorkerState::kReady;
        }
        return all;
      });
  STRATA_TRY(must_not_drain("init"));
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

// Of a new segment; the Error names what it would take to have them.
Result<void> WorkerCore::reserve(uint64_t offset, uint64_t bytes) {
  const Result<void> there = heap_.reserve(offset, bytes);
  if (there) return {};
  const bool huge = spec_.limits.huge_pages == HugePages::kExplicit;
  return Error(Code::kResourceExhausted, Scope::kCall,
               fmt::format("no memory for {} bytes of the shared heap: {}. {}", bytes,
                           there.error().message(),
                           huge ? "vm.nr_hugepages enlarges the pool that "
                                  "Limits::huge_pages kExplicit takes from"
                                : "Limits::reserve_memory asked for it to be there at once: free "
                                  "some, or take smaller buffers"),
               path_);
}

// ---------------------------------------------------------------- close

Result<void> WorkerCore::close() {
  STRATA_TRY(must_be_home("close"));
  if (std::optional<Error> no = front_->why_no_wait("close")) return *std::move(no);
  if (output_ && output_->is_this_thread()) {
    return refuse(Code::kWrongState,
                  "close inside WorkerSpec::output.on_line: return from it first");
  }
  if (front_->is_building()) {
    return refuse(
        Code::kWrongState,
        "close inside an orchestration function of the same Worker: return from it first");
  }
  Life expected = Life::kRunning;
  if (!life_.compare_exchange_strong(expected, Life::kClosing)) {
    if (expected == Life::kCreated && life_.compare_exchange_strong(expected, Life::kClosed)) {
      if (timeline_) timeline_->drop_file();
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
  const Result<void> written = write_timeline();
  if (!error && !ended) error = std::move(ended).error();
  if (!error) return written;
  if (!written) fmt::print(stderr, "strata: {}\n", written.error().to_string());
  return *std::move(error);
}

// Asks the children to end, and kills those that do not.
Result<void> WorkerCore::end_children() {
  Result<void> inlined;
  for (const InlineWorker& worker : inline_workers_) {
    if (Result<void> closed = worker.core->close(); inlined && !closed) inlined = std::move(closed);
  }
  if (!server_) return inlined;
  front_->call([](engine::Core& core) { core.ask_exit(os::monotonic_now()); });
  const base::Duration grace = base::Duration::from_ms(front_->look(
      [this](const engine::Core&) { return runtime::exit_grace_ms(roster_.with_workers(spec_)); }));
  const bool in_time =
      front_->wait("its children to exit", os::monotonic_now() + grace,
                   [this](engine::Core&) { return world_->children_alive() == 0; });
  if (remote_service_) remote_service_->stop();
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

Result<void> WorkerCore::write_timeline() {
  return timeline_ ? timeline_->write() : Result<void>();
}

void WorkerCore::finish_close() {
  front_->stop();
  if (engine_.joinable()) engine_.join();
  front_->finish_calls();
  if (output_) output_->stop();
  life_ = Life::kClosed;
}

}  // namespace strata
