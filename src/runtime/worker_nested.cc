// The part of WorkerCore that is about Workers below it, and about being one.
#include <fmt/format.h>

#include <algorithm>

#include "base/result.h"
#include "model/descriptor.h"
#include "os/clock.h"
#include "os/fork_server.h"
#include "runtime/child_spec.h"
#include "runtime/spec.h"
#include "runtime/worker_core.h"

namespace strata {
namespace {

// How often a wait of an inner run looks whether its task is cancelled.
constexpr base::Duration kCancelLook = base::Duration::from_ms(20);

Error refuse(Code code, std::string text) {
  return Error(code, Scope::kCall, std::move(text));
}

}  // namespace

// ---------------------------------------------------------------- Workers below

std::vector<uint32_t> WorkerCore::workers_below() {
  return front_->look([this](const engine::Core&) {
    const bool started = roster_.size() > 0;
    std::vector<uint32_t> out;
    for (uint32_t i = 0; !started && i < next_is_remote_.size(); ++i) out.push_back(i);
    for (uint32_t i = 0; i < roster_.size(); ++i) {
      if (roster_.is_worker(i) || roster_.is_remote(i)) out.push_back(i);
    }
    return out;
  });
}

std::vector<model::MappedSegment> WorkerCore::segments() const {
  std::vector<model::MappedSegment> out = {{heap_.data(), heap_.size()}};
  for (const WorkerPlace::Heap& heap : place_.heaps) {
    out.push_back({heap.bytes.data(), heap.bytes.size()});
  }
  return out;
}

engine::WorkerCaps WorkerCore::caps_of(uint32_t worker) const {
  constexpr uint32_t kPlain = 1u << static_cast<uint32_t>(CallableKind::kNativeImport) |
                              1u << static_cast<uint32_t>(CallableKind::kLocalFunction);
  const runtime::RosterEntry& entry = roster_.at(worker);
  if (entry.kind == runtime::RosterEntry::Kind::kChip) {
    return {engine::Pool::kNext, 1u << static_cast<uint32_t>(CallableKind::kChipCallable), false,
            engine::kCanCopy | engine::kCanMap};
  }
  if (entry.kind == runtime::RosterEntry::Kind::kRemote) {
    return {.pool = engine::Pool::kNext,
            .kinds = 1u << static_cast<uint32_t>(CallableKind::kNativeImport),
            .nested = true,
            // The session's own limit comes first.
            .control_more_ms = remotes_.at(worker)->control_ms(),
            .remote = true};
  }
  if (!entry.spec) return {engine::Pool::kSub, kPlain};
  return {.pool = engine::Pool::kNext,
          .kinds = kPlain,
          .nested = true,
          .control_more_ms = runtime::control_below_ms(*entry.spec),
          .greeting_ms = runtime::ready_limit_ms(*entry.spec)};
}

runtime::ChildSpec WorkerCore::child_spec(const engine::Core& core, uint32_t worker) const {
  const runtime::RosterEntry& entry = roster_.at(worker);
  runtime::ChildSpec out;
  out.path = fmt::format("{}/{}", path_, worker);
  if (core.incarnation(worker) > 1) out.path += fmt::format("#{}", core.incarnation(worker));
  out.heap_bytes.push_back(heap_.size());
  for (const WorkerPlace::Heap& heap : place_.heaps) out.heap_bytes.push_back(heap.bytes.size());
  out.spin = world_->waiter_options();
  out.output = output_ != nullptr;
  out.huge_pages = spec_.limits.huge_pages == HugePages::kTransparent;
  if (entry.kind == runtime::RosterEntry::Kind::kChip) out.chip = spec_.chip;
  if (place_.timeline != nullptr) out.timeline_bytes = place_.timeline->bytes();
  if (entry.spec) {
    out.worker = entry.spec;
    out.worker->allow_threads |= spec_.allow_threads;
    if (out.worker->child_server.empty()) out.worker->child_server = spec_.child_server;
    out.worker->output = {spec_.output.mode, spec_.output.lines_per_second};
  }
  out.cpus = entry.cpus;
  // The process of a Worker below is bound itself; that of the program is not.
  if (out.cpus.empty() && place_.path.empty()) out.cpus = spec_.cpus;
  return out;
}

Result<void> WorkerCore::add_inline_workers() {
  for (const WorkerSpec& child : spec_.workers) {
    WorkerSpec spec = child;
    spec.start = StartMethod::kInline;
    WorkerPlace place{fmt::format("{}/{}", path_, inline_workers_.size()),
                      {{heap_.fd(), heap_.bytes()}},
                      place_.timeline};
    place.heaps.insert(place.heaps.end(), place_.heaps.begin(), place_.heaps.end());
    STRATA_ASSIGN(std::shared_ptr<WorkerCore> core,
                  WorkerCore::create(std::move(spec), std::move(place)));
    STRATA_TRY(core->init());
    auto inner = std::make_unique<runtime::InnerWorker>(*core);
    inline_workers_.push_back({std::move(core), std::move(inner)});
    add_inline_endpoint(inline_workers_.back().inner.get());
  }
  return {};
}

// ---------------------------------------------------------------- inner callables

Result<InnerReceipt> WorkerCore::register_inner(const Callable& callable,
                                                const std::vector<int>& workers) {
  STRATA_TRY(must_be_home("register_inner"));
  if (life_ == Life::kClosed || life_ == Life::kClosing) {
    return refuse(Code::kWrongState, "register_inner of a closed Worker");
  }
  const std::vector<uint32_t> below = workers_below();
  if (below.empty()) {
    return refuse(Code::kWrongState,
                  "register_inner of a Worker without Workers below it: add_worker comes first");
  }
  std::vector<uint32_t> only;
  for (const int worker : workers) {
    if (worker < 0 ||
        std::find(below.begin(), below.end(), static_cast<uint32_t>(worker)) == below.end()) {
      return refuse(Code::kInvalidArgument,
                    fmt::format("worker {} is no Worker below {}, whose child Workers are {}",
                                worker, path_, fmt::join(below, ", ")));
    }
    const auto number = static_cast<uint32_t>(worker);
    if (std::find(only.begin(), only.end(), number) != only.end()) {
      return refuse(Code::kInvalidArgument, fmt::format("worker {} is listed twice", worker));
    }
    only.push_back(number);
  }
  STRATA_ASSIGN(registry::PreparePayload payload, payload_of(callable));
  payload.inner = true;
  STRATA_TRY(may_register(payload));
  STRATA_ASSIGN(const registry::EntryRef entry, register_with_blob(callable, payload, only));
  note_local_function(payload, entry);
  return InnerReceipt{
      model::hashid_of(model::digest_of(model::descriptor_bytes(payload.descriptor))),
      payload.name,
      model::kind_of(payload.descriptor),
      uid_high(),
      entry.index,
      entry.generation};
}

Result<void> WorkerCore::unregister_inner(const InnerReceipt& receipt) {
  STRATA_TRY(must_be_home("unregister_inner"));
  if (receipt.worker != uid_high()) {
    return refuse(Code::kInvalidArgument,
                  "an InnerReceipt that another Worker gave, or an empty "
                  "one");
  }
  const registry::EntryRef entry{receipt.index, receipt.generation};
  return front_->call(
      [&](engine::Core& core) { return core.unregister(entry, os::monotonic_now()); });
}

// ---------------------------------------------------------------- for the Worker above

Result<registry::EntryRef> WorkerCore::register_payload(registry::PreparePayload payload) {
  // The heaps of the Workers above come after this one's.
  if (payload.blob_bytes > 0) ++payload.blob_segment;
  return front_->register_callable(payload);
}

Result<void> WorkerCore::activate_and_wait(registry::EntryRef entry) {
  STRATA_ASSIGN(std::vector<uint64_t> asked, front_->call([&](engine::Core& core) {
    return core.activate(entry, os::monotonic_now());
  }));
  Result<void> first;
  front_->wait("the answers to an activation", base::Instant::never(), [&](engine::Core& core) {
    std::erase_if(asked, [&](uint64_t id) {
      const auto answer = core.take_answer(id);
      if (!answer) return false;
      // One that is lost has nothing that could be used; what takes its place has it active.
      const bool lost = !answer->ok() && answer->error().code() == Code::kEndpointFailed;
      if (first && !answer->ok() && !lost) first = answer->error();
      return true;
    });
    return asked.empty();
  });
  return first;
}

Result<void> WorkerCore::unregister_and_wait(registry::EntryRef entry) {
  STRATA_TRY(front_->call(
      [&](engine::Core& core) { return core.unregister(entry, os::monotonic_now()); }));
  bool gone = false;
  front_->wait("the answers to an unregistration", base::Instant::never(), [&](engine::Core& core) {
    gone = core.registry().gone(entry);
    return gone || core.registry().settled(entry);
  });
  if (gone) return {};
  return Error(Code::kWrongState, Scope::kCall,
               "not every worker confirmed that it has forgotten a callable", path_);
}

// Whatever the task of the Worker above waits for: its inner run is cancelled with it.
void WorkerCore::heed_cancel() {
  if (place_.heaps.empty()) return;
  front_->poll_while_waiting(kCancelLook, [this](engine::Core& core) {
    if (!inner_run_ || inner_run_->cancelled) return;
    if (inner_cancelled_.ask(inner_cancelled_.context)) core.cancel_run(*inner_run_);
  });
}

Result<std::shared_ptr<engine::RunRecord>> WorkerCore::begin_inner_run(
    std::span<const engine::ImportedArg> args, std::vector<uint32_t>* indices,
    runtime::Cancelled cancelled) {
  STRATA_TRY(must_run("a task"));
  inner_cancelled_ = cancelled;
  if (output_) output_->watch();
  STRATA_ASSIGN(std::shared_ptr<engine::RunRecord> run, front_->open_run());
  inner_run_ = building_ = run;
  const Result<void> begun =
      front_->call([&](engine::Core& core) { return core.begin_imports(args, indices); });
  if (begun) return run;
  static_cast<void>(end_inner_run(*run));
  return begun.error();
}

Result<void> WorkerCore::end_inner_run(engine::RunRecord& run) {
  building_.reset();
  front_->seal_run(run, std::nullopt);
  Result<void> outcome = front_->wait_run(run, base::Instant::never());
  inner_run_.reset();
  front_->call([](engine::Core& core) { core.end_imports(); });
  return outcome;
}

}  // namespace strata
