#include "sim/level.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "sim/spied_endpoint.h"

namespace strata::sim {
namespace {

// Some lives have rings that are full soon.
constexpr uint32_t ring_events(uint64_t seed) {
  return seed % 4 == 0 ? 64 : 1u << 14;
}

engine::CoreOptions core_options(const Options& options, trace::Recorder* recorder) {
  engine::CoreOptions out;
  out.trace = recorder;
  out.limits.slots = options.slots;
  out.limits.depth = options.depth;
  out.limits.buffers = options.buffers_max;
  out.limits.callables = options.callables_max;
  out.limits.heap_bytes = options.heap_bytes;
  out.awake_max = options.awake_max;
  out.restarts = options.replacements > 0;
  out.restart_limit = options.replacements;
  out.timeouts.control_ms = options.control_ms;
  out.timeouts.deadline_grace_ms = options.deadline_grace_ms;
  out.timeouts.building_turn_ms = options.building_turn_ms;
  out.timeouts.stall_report_ms = options.stall_report_ms;
  return out;
}

}  // namespace

void Level::Waker::operator()(const uint32_t*) const {
  level->parent_->drain();
  level->shared_->note("parent", EventKind::kWake, worker);
  level->children_[worker]->wake();
}

Level::Level(Shared* shared)
    : shared_(shared),
      parent_(shared->machine->make_process()),
      heap_(shared->options.heap_bytes),
      hub_pages_(mailbox::kHubBytes),
      timeline_(shared->scheduler, ring_events(shared->options.seed)),
      memory_(parent_),
      hub_(memory_, hub_pages_.data()),
      core_(core_options(shared->options, timeline_.parent())),
      world_(shared->machine, parent_, &hub_, shared->options, shared->log, hooks()),
      front_(world_, core_),
      late_left_(shared->options.late_workers) {
  shared->level = &world_;
  shared->timeline = &timeline_;
  shared->heap = heap_.data();
  shared->hub = hub_pages_.data();
  shared->overdue.init(shared->options.deadline_grace_ms);
  shared->placement.init(&shared->checks, [this](uint32_t task) { return known(task); });
}

Level::~Level() = default;

LevelWorld::Hooks Level::hooks() {
  LevelWorld::Hooks out;
  out.arrived = [this](engine::Core& core, const LevelWorld::Arrival& arrival) {
    arrived(core, arrival);
  };
  out.kill = [this](engine::Core& core, const engine::Kill& kill) { end_by_engine(core, kill); };
  out.endpoint = [this](uint32_t worker) { return make_endpoint(worker); };
  out.spawn = [this](engine::Core& core, uint32_t worker) { return spawn(core, worker); };
  out.punch = [this](uint64_t offset, uint64_t bytes) {
    shared_->checks.on_reuse(offset, offset + bytes, "a segment that goes back");
    std::memset(heap_.data() + offset, 0, bytes);
  };
  out.stalled = [this](const char* what, base::Duration since) {
    shared_->checks.fail(Verdict::kLiveness, fmt::format("a thread has waited {} ms for {}",
                                                         since.ns / 1'000'000, what));
  };
  out.busy_loop = [this] {
    shared_->checks.fail(Verdict::kLiveness,
                         "a leader finds news again and again, and nothing comes of them");
  };
  return out;
}

// The engine ends a child that answers too late or refuses what is registered: only where a fault
// made it so.
void Level::end_by_engine(engine::Core& core, const engine::Kill& kill) {
  if (kill.incarnation != core.incarnation(kill.worker)) return;
  shared_->note("parent", EventKind::kKill, kill.worker);
  if (ended_overdue(kill)) return;
  const FaultCounts& faults = shared_->faults;
  const bool late = kill.reason.find("did not answer a control") != std::string::npos;
  const bool explained = late
                             ? faults.pauses > 0 || shared_->late || shared_->options.slow_child > 0
                             : faults.refusals > 0;
  // Dead already, and nobody has collected that yet.
  if (children_[kill.worker] != nullptr && !children_[kill.worker]->alive()) return;
  if (!explained || children_[kill.worker] == nullptr) {
    shared_->checks.fail(
        Verdict::kCorrectness,
        fmt::format("the engine ends worker {} without need: {}", kill.worker, kill.reason));
    return;
  }
  shared_->faults.deadlines += late;
  children_[kill.worker]->kill(kill.reason);
}

// It ends one too for a task past its deadline, or for a cancelled run past its grace: only then.
bool Level::ended_overdue(const engine::Kill& kill) {
  const bool deadline = kill.reason.starts_with("DEADLINE");
  if (!deadline && !kill.reason.starts_with("CANCELLED")) return false;
  Child* const child = children_[kill.worker].get();
  std::string why = child == nullptr ? "it is inline" : "";
  if (deadline && why.empty())
    why = shared_->overdue.why_not(kill.worker, child->alive(), world_.now());
  if (!deadline && why.empty()) {
    const bool due = std::any_of(runs_.begin(), runs_.end(), [&](const auto& run) {
      return run->cancelled && run->kill_at <= world_.now();
    });
    if (!due) why = "no cancelled run is past its grace";
  }
  if (!why.empty()) {
    shared_->checks.fail(Verdict::kCorrectness, fmt::format("the engine ends worker {} for {}: {}",
                                                            kill.worker, kill.reason, why));
    return true;
  }
  if (!child->alive()) return true;
  ++(deadline ? shared_->faults.deadlines : shared_->faults.cancels);
  child->kill(kill.reason);
  return true;
}

// ---------------------------------------------------------------- workers

void Level::add_first_workers() {
  hub_.format();
  parent_->drain();
  front_.call([&](engine::Core& core) {
    for (uint32_t i = 0; i < shared_->options.inline_workers; ++i) add_inline(core);
    for (uint32_t i = 0; i < shared_->options.workers; ++i) {
      add_child(core, i < shared_->options.next_workers ? engine::Pool::kNext : engine::Pool::kSub);
    }
  });
}

void Level::add_late_worker() {
  front_.call([&](engine::Core& core) {
    if (late_left_ == 0 || no_more_) return;
    --late_left_;
    const bool next = shared_->options.next_workers > 0 && shared_->chance(500);
    add_child(core, next ? engine::Pool::kNext : engine::Pool::kSub);
  });
}

std::unique_ptr<engine::WorkerEndpoint> Level::make_endpoint(uint32_t worker) {
  std::byte* const region =
      regions_.emplace_back(std::make_unique<Pages>(mailbox::kRegionBytes))->data();
  auto endpoint = std::make_unique<Endpoint>(memory_, region, Waker{this, worker});
  endpoint->set_where(fmt::format("pid {}", 1000 + regions_.size()));
  parent_->drain();
  if (worker >= mailboxes_.size()) mailboxes_.resize(worker + 1);
  mailboxes_[worker] = region;
  return std::make_unique<SpiedEndpoint>(
      std::move(endpoint), shared_, worker,
      model::MappedSegment{heap_.data(), shared_->options.heap_bytes});
}

bool Level::spawn(engine::Core& core, uint32_t worker) {
  if (worker >= children_.size()) children_.resize(worker + 1);
  if (children_[worker] != nullptr) past_.push_back(std::move(children_[worker]));
  children_[worker] =
      std::make_unique<Child>(shared_, worker, core.incarnation(worker), mailboxes_[worker]);
  // The first ones always come to be.
  if (core.incarnation(worker) > 1 && shared_->fault(shared_->options.spawn_fails)) {
    ++shared_->faults.spawns;
    return false;
  }
  children_[worker]->start();
  return true;
}

uint32_t Level::add_child(engine::Core& core, engine::Pool pool) {
  const uint32_t worker = core.worker_count();
  shared_->placement.add_worker(worker, static_cast<uint32_t>(pool), false);
  STRATA_CHECK(core.add_worker(make_endpoint(worker), {.pool = pool}) == worker);
  spawn(core, worker);
  return worker;
}

void Level::add_inline(engine::Core& core) {
  const uint32_t worker = core.worker_count();
  const auto delay = [this](uint64_t ns) {
    shared_->scheduler->block(shared_->scheduler->now() + base::Duration{static_cast<int64_t>(ns)});
  };
  inline_code_.push_back(std::make_unique<TaskCode>(shared_, worker, "inline", delay));
  TaskCode* const code = inline_code_.back().get();
  engine::InlineEndpoint::Runner runner;
  runner.task = [code](const mailbox::TaskPost&, std::span<const std::byte> args,
                       const std::atomic<bool>& cancelled) {
    TaskCode::End end = code->run(args, [&] { return cancelled.load(); });
    return engine::InlineOutcome{end.outcome, end.code, std::move(end.result), std::move(end.text)};
  };
  runner.control = [this, worker, delay](uint32_t command, std::span<const std::byte>) {
    shared_->note("inline", EventKind::kControl, worker, command);
    if (shared_->chance(300)) delay(1'000);
    // What it may not refuse is to forget: nothing would ever end this worker.
    const uint32_t in_thousand = command == static_cast<uint32_t>(engine::Command::kPrepare)
                                     ? shared_->options.refuse_prepare
                                 : command == static_cast<uint32_t>(engine::Command::kCommit)
                                     ? shared_->options.refuse_commit
                                     : 0;
    const bool refuse = shared_->fault(in_thousand);
    shared_->faults.refusals += refuse;
    shared_->note("inline", EventKind::kReply, worker, refuse);
    return std::pair<uint32_t, std::vector<std::byte>>(
        refuse ? static_cast<uint32_t>(Code::kUnsupported) : 0, {});
  };
  children_.push_back(nullptr);
  shared_->placement.add_worker(worker, static_cast<uint32_t>(engine::Pool::kSub), true);
  STRATA_CHECK(core.add_worker(std::make_unique<engine::InlineEndpoint>(std::move(runner))) ==
               worker);
  world_.arrive({worker, 1, true, {}});
}

void Level::arrived(engine::Core& core, const LevelWorld::Arrival& arrival) {
  const uint32_t worker = arrival.worker;
  if (arrival.incarnation != core.incarnation(worker)) {
    shared_->checks.fail(Verdict::kCorrectness, "an incarnation ends after the next has begun");
  }
  if (arrival.started) {
    if (core.worker_state(worker) == engine::Core::WorkerState::kLost) return;
    core.start_worker(worker, world_.now());
    await_settled();
  } else {
    core.lose_worker(worker, arrival.reason);
    shared_->registrations.on_lost(worker);
    shared_->note("parent", EventKind::kWorkerLost, worker, core.wants_replacement(worker));
    if (core.wants_replacement(worker)) await_settled();
  }
  update_expectations(core);
}

// Nothing arrives when the last worker becomes ready, and then no other is to come.
void Level::await_settled() {
  if (std::exchange(awaits_settled_, true)) return;
  shared_->scheduler->spawn("settler", [this] {
    while (!all_workers_settled()) {
      shared_->scheduler->block(shared_->scheduler->now() + base::Duration::from_us(20));
    }
    awaits_settled_ = false;
    if (!no_more_) front_.call([this](engine::Core& core) { update_expectations(core); });
  });
}

bool Level::all_workers_settled() const {
  for (uint32_t worker = 0; worker < core_.worker_count(); ++worker) {
    const auto state = core_.worker_state(worker);
    if (state == engine::Core::WorkerState::kAdded ||
        state == engine::Core::WorkerState::kGreeted ||
        state == engine::Core::WorkerState::kReplaced ||
        state == engine::Core::WorkerState::kReplaying) {
      return false;
    }
  }
  return true;
}

void Level::update_expectations(engine::Core& core) {
  if (!no_more_ && late_left_ == 0 && all_workers_settled()) {
    no_more_ = true;
    core.expect_no_more_workers();
  }
  note_fewest();
}

void Level::note_fewest() {
  if (!no_more_) return;
  std::array<uint32_t, 2> now{};
  for (uint32_t worker = 0; worker < core_.worker_count(); ++worker) {
    if (core_.worker_state(worker) == engine::Core::WorkerState::kLost) continue;
    ++now[shared_->placement.pool_of(worker)];
  }
  for (size_t pool = 0; pool < now.size(); ++pool) {
    shared_->fewest[pool] = std::min(shared_->fewest[pool], now[pool]);
  }
}

bool Level::is_up(uint32_t worker) const {
  if (core_.worker_state(worker) != engine::Core::WorkerState::kReady) return false;
  return children_[worker] == nullptr || children_[worker]->alive();
}

std::vector<uint32_t> Level::pool_workers(engine::Pool pool) const {
  std::vector<uint32_t> out;
  for (uint32_t worker = 0; worker < children_.size(); ++worker) {
    if (shared_->placement.pool_of(worker) == static_cast<uint32_t>(pool)) out.push_back(worker);
  }
  return out;
}

void Level::expect_no_more() {
  front_.call([&](engine::Core& core) {
    no_more_ = true;
    late_left_ = 0;
    core.expect_no_more_workers();
    note_fewest();
  });
}

bool Level::all_children_lost() const {
  for (uint32_t worker = 0; worker < core_.worker_count(); ++worker) {
    if (children_[worker] == nullptr) continue;
    if (core_.worker_state(worker) != engine::Core::WorkerState::kLost) return false;
  }
  return true;
}

// ---------------------------------------------------------------- buffers

std::shared_ptr<SimBuffer> Level::adopt(const engine::Core::NewBuffer& made, bool temporary) {
  auto buffer = std::make_shared<SimBuffer>();
  std::byte* const bytes = heap_.data() + made.heap_offset;
  shared_->checks.on_reuse(made.heap_offset, made.heap_offset + made.bytes, "a new buffer");
  if (made.dirty) {
    std::memset(bytes, 0, made.bytes);
  } else if (std::any_of(bytes, bytes + made.bytes, [](std::byte b) { return b != std::byte{}; })) {
    shared_->checks.fail(Verdict::kCorrectness,
                         "a new buffer that is said to be zeroed has other bytes");
  }
  buffer->oracle = shared_->oracle.add_buffer(made.bytes <= kUsedBytesMax ? made.bytes : 0, true);
  buffer->made = made;
  buffer->temporary = temporary;
  shared_->note("parent", EventKind::kBufferNew, buffer->oracle, made.heap_offset);
  return buffer;
}

void Level::check_refusal(const Error& error) {
  ++shared_->faults.full;
  if (error.code() == Code::kResourceExhausted) return;
  shared_->checks.fail(Verdict::kCorrectness, error.to_string());
}

std::shared_ptr<SimBuffer> Level::create_buffer(uint64_t bytes) {
  return front_.call([&](engine::Core& core) -> std::shared_ptr<SimBuffer> {
    const auto made = core.create_buffer(bytes);
    if (!made) return check_refusal(made.error()), nullptr;
    buffers_.push_back(adopt(*made, false));
    return buffers_.back();
  });
}

std::shared_ptr<SimBuffer> Level::create_temporary(uint64_t bytes) {
  using Made = Result<std::shared_ptr<SimBuffer>>;
  Made out = front_.with_memory([&](engine::Core& core) -> Made {
    STRATA_ASSIGN(const auto made, core.create_temporary(bytes));
    return adopt(made, true);
  });
  if (out) return *std::move(out);
  check_refusal(out.error());
  return nullptr;
}

void Level::release_buffer(SimBuffer& buffer) {
  front_.call([&](engine::Core& core) {
    if (!std::exchange(buffer.live, false)) return;
    shared_->note("parent", EventKind::kBufferDrop, buffer.oracle);
    core.release_buffer(buffer.made.index);
    std::erase_if(buffers_, [&](const auto& other) { return other.get() == &buffer; });
  });
}

void Level::clear_error(SimBuffer& buffer) {
  front_.call([&](engine::Core& core) {
    if (!buffer.live) return;
    std::vector<bool> ended(shared_->oracle.task_count());
    for (uint32_t task = 0; task < ended.size(); ++task) ended[task] = terminal(task);
    shared_->note("parent", EventKind::kClearError, buffer.oracle);
    core.clear_error(buffer.made.index);
    shared_->oracle.clear_error(buffer.oracle, std::move(ended));
  });
}

bool Level::give_storage(TaskArgs& args, std::vector<Storage>* given) {
  const Result<void> out = front_.with_memory([&](engine::Core& core) -> Result<void> {
    std::vector<size_t> arguments;
    const Result<void> got = core.give_storage(args, &arguments);
    if (!got) {
      if (!arguments.empty()) {
        shared_->checks.fail(Verdict::kCorrectness, "a part of the storage was given");
      }
      return got;
    }
    for (const size_t argument : arguments) {
      const Tensor& tensor = args.tensor(argument);
      auto buffer = std::make_shared<SimBuffer>();
      buffer->made.index = tensor.buffer_index;
      buffer->made.uid = tensor.uid;
      buffer->made.bytes = core.buffers().at(tensor.buffer_index).bytes;
      // Whatever was there before: a task writes it before any may read it.
      buffer->oracle = shared_->oracle.add_buffer(buffer->made.bytes, false);
      buffer->temporary = true;
      shared_->note("parent", EventKind::kBufferNew, buffer->oracle, argument);
      given->push_back({argument, std::move(buffer)});
    }
    return {};
  });
  if (!out) check_refusal(out.error());
  return out.ok();
}

void Level::take_storage(TaskArgs& args, std::span<const Storage> given) {
  front_.call([&](engine::Core& core) {
    std::vector<size_t> arguments;
    for (const Storage& one : given) {
      arguments.push_back(one.argument);
      one.buffer->live = false;
    }
    core.take_storage(args, arguments);
  });
}

// ---------------------------------------------------------------- callables

std::optional<uint64_t> Level::callable_on(uint32_t which) const {
  const Options& options = shared_->options;
  base::Prng prng(options.seed * 0x9e3779b97f4a7c15ull + which);
  // One is always on all.
  if (which == 0 || !prng.chance(options.listed, 1000)) return std::nullopt;
  const uint32_t workers = options.inline_workers + options.workers;
  if (workers == 0) return std::nullopt;
  uint64_t on = uint64_t{1} << prng.below(workers);
  for (uint32_t worker = 0; worker < workers; ++worker) {
    if (prng.chance(1, 2)) on |= uint64_t{1} << worker;
  }
  return on;
}

bool Level::register_callable(uint32_t which) {
  registry::PreparePayload payload;
  payload.name = fmt::format("f{}", which);
  payload.descriptor =
      model::NativeImportDescriptor{"libsimulated.so", fmt::format("function_{}", which)};
  auto callable = std::make_shared<SimCallable>();
  callable->which = which;
  if (const std::optional<uint64_t> on = callable_on(which)) {
    for (uint32_t worker = 0; worker < children_.size(); ++worker) {
      if ((*on >> worker & 1) == 0 || !is_up(worker)) continue;
      if (shared_->chance(750)) callable->workers.push_back(worker);
    }
    if (callable->workers.empty()) return false;
  }
  const uint32_t deaths = shared_->deaths;
  const Result<registry::EntryRef> registered =
      front_.register_callable(payload, callable->workers);
  if (registered) {
    shared_->note("parent", EventKind::kRegister, registered->index, registered->generation);
    callable->ref = *registered;
    callables_.push_back(std::move(callable));
    return true;
  }
  const Code code = registered.error().code();
  shared_->note("parent", EventKind::kRegister, which, 1000 + static_cast<uint64_t>(code));
  const bool expected = (code == Code::kEndpointFailed && shared_->deaths > 0) ||
                        (code == Code::kUnsupported && shared_->faults.refusals > 0) ||
                        // One that was listed is gone by now.
                        (code == Code::kNotFound && shared_->deaths > deaths) ||
                        code == Code::kWrongState || code == Code::kResourceExhausted;
  if (!expected) shared_->checks.fail(Verdict::kCorrectness, registered.error().to_string());
  return false;
}

void Level::unregister_callable(SimCallable& callable) {
  front_.call([&](engine::Core& core) {
    if (!std::exchange(callable.live, false)) return;
    const registry::EntryRef ref = callable.ref;
    // Gone from the list before anyone else runs; it may end here with it.
    std::erase_if(callables_, [&](const auto& other) { return other.get() == &callable; });
    shared_->note("parent", EventKind::kUnregister, ref.index, ref.generation);
    const Result<void> done = core.unregister(ref, world_.now());
    if (!done) shared_->checks.fail(Verdict::kCorrectness, done.error().to_string());
  });
}

// ---------------------------------------------------------------- runs

SimRun* Level::open_run() {
  Result<std::shared_ptr<engine::RunRecord>> opened = front_.open_run();
  if (!opened) {
    shared_->checks.fail(Verdict::kLiveness, opened.error().to_string());
    return nullptr;
  }
  SimRun* const run = runs_.emplace_back(std::make_unique<SimRun>()).get();
  run->record = *std::move(opened);
  run->number = static_cast<uint32_t>(runs_.size() - 1);
  if (run->record->id != runs_.size()) {
    shared_->checks.fail(Verdict::kCorrectness, "a run has another number than its place");
  }
  shared_->note("parent", EventKind::kRunOpen, run->number);
  return run;
}

void Level::cancel(SimRun& run) {
  base::Instant kill_at = base::Instant::never();
  if (shared_->chance(shared_->options.cancel_grace)) {
    kill_at = world_.now() + base::Duration{static_cast<int64_t>(shared_->prng().below(2'000'000))};
  }
  front_.call([&](engine::Core& core) {
    if (run.record->done) return;
    shared_->note("parent", EventKind::kRunCancel, run.number);
    run.cancelled = true;
    run.kill_at = std::min(run.kill_at, kill_at);
    core.cancel_run(*run.record, kill_at);
  });
}

void Level::note_task(SimRun& run, Oracle::Task task, PlaceRule rule, uint32_t deadline_ms) {
  shared_->overdue.add_task(deadline_ms);
  shared_->placement.add_task(task, std::move(rule));
  run.tasks.push_back(shared_->oracle.add_task(std::move(task)));
  tasks_.emplace_back(&run, static_cast<uint32_t>(run.tasks.size() - 1));
}

void Level::withdraw_task(SimRun& run) {
  shared_->overdue.withdraw_task();
  shared_->placement.withdraw_task();
  shared_->oracle.withdraw_task();
  run.tasks.pop_back();
  tasks_.pop_back();
}

Placement::Known Level::known(uint32_t task) const {
  if (task >= tasks_.size()) return Placement::Known::kUnknown;
  const auto& [run, number] = tasks_[task];
  if (number >= run->record->tasks.size()) return Placement::Known::kUnknown;
  switch (run->record->tasks[number]) {
    case engine::TaskState::kLive:
      return Placement::Known::kLive;
    case engine::TaskState::kOk:
      return Placement::Known::kOk;
    default:
      return Placement::Known::kBad;
  }
}

bool Level::terminal(uint32_t task) const {
  const Placement::Known state = known(task);
  return state == Placement::Known::kOk || state == Placement::Known::kBad;
}

// Nothing is registered any more, and no control is on its way: what a child has still, it was told
// to forget and refused to.
void Level::check_forgotten() {
  for (const auto& child : children_) {
    if (child == nullptr || !child->alive()) continue;
    for (const uint32_t index : child->callables()) {
      if (core_.registry().uncertain(index, child->worker())) continue;
      shared_->checks.fail(Verdict::kCorrectness,
                           fmt::format("{} still has callable {}, which nobody has registered",
                                       child->name(), index));
    }
  }
}

// ---------------------------------------------------------------- the end

void Level::check_quiet() {
  const auto need = [&](bool held, std::string_view what) {
    if (!held) shared_->checks.fail(Verdict::kCorrectness, fmt::format("at the end, {}", what));
  };
  parent_->drain();
  need(core_.idle(), "the core is not idle");
  need(core_.scheduler().live() == 0, "a slot is in use");
  need(core_.buffers().used() == 0, "a buffer is in use");
  need(core_.buffers().bytes_used() == 0, "bytes of buffers are in use");
  need(core_.registry().used() == 0, "a callable is in use");
  need(!core_.has_news(), "there is news that nobody takes");
  need(!core_.has_wakes() && !core_.has_chores(), "something is left to be carried out");
  const auto* const hub = reinterpret_cast<const mailbox::HubLayout*>(hub_pages_.data());
  need(hub->parent_sleep.asleep == 0, "the parent is said to be asleep");
  for (const auto& child : children_) {
    need(child == nullptr || !child->alive(), "a child is alive");
  }
  for (const auto& run : runs_) need(run->record->done, "a run is not done");
}

}  // namespace strata::sim
