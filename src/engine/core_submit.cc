// The half of Core that user threads call: buffers, scopes, runs, submit.
#include <fmt/format.h>

#include <algorithm>
#include <new>

#include "base/check.h"
#include "base/fault.h"
#include "base/mark.h"
#include "engine/core_eligible.h"
#include "engine/core_overdue.h"
#include "graph/region.h"
#include "model/args.h"

namespace strata::engine {

// ---------------------------------------------------------------- buffers

Result<Core::NewBuffer> Core::create_buffer(uint64_t bytes) {
  STRATA_TRY(buffers_.check_room());
  STRATA_ASSIGN(const Heap::Range got, heap_.allocate(bytes));
  STRATA_ASSIGN(const uint32_t index, buffers_.create({.bytes = bytes,
                                                       .segment = got.segment,
                                                       .segment_offset = got.segment_offset}));
  return NewBuffer{index, buffers_.at(index).uid, got.heap_offset, bytes, got.dirty};
}

void Core::release_buffer(uint32_t index) {
  buffers_.release_owner(index);
  if (buffers_.has_freed()) collect_freed();
}

void Core::collect_freed() {
  freed_.clear();
  buffers_.take_freed(&freed_);
  for (const buffer::BufferTable::Freed& freed : freed_) {
    sched_.tensor_map().drop_buffer(freed.index);
    sched_.poison().drop_buffer(freed.index);
    if (freed.mapped) dropped_.push_back(freed.uid);
    if (freed.import || freed.segment == buffer::kNoSegment) continue;
    heap_.free(freed.segment, freed.segment_offset);
  }
  heap_.collect();
}

Result<uint64_t> Core::begin_scope() {
  if (scopes_.size() > kScopesMax) {
    return Error(Code::kResourceExhausted, Scope::kCall,
                 fmt::format("at most {} scopes nest", kScopesMax));
  }
  scopes_.push_back({++scope_ids_, {}});
  return scope_ids_;
}

void Core::end_scope(uint64_t scope) {
  const auto is_it = [scope](const OpenScope& open) { return open.id == scope; };
  if (std::none_of(scopes_.begin(), scopes_.end(), is_it)) return;
  bool last = false;
  while (!last) {
    last = is_it(scopes_.back());
    end_innermost_scope();
  }
}

void Core::end_innermost_scope() {
  // The deliberate fault 19: storage goes although tasks still name it.
  const auto give_back_early = [this](uint32_t index) {
    const buffer::BufferTable::Entry& entry = buffers_.at(index);
    if (entry.references == 0) return;
    heap_.free(entry.segment, entry.segment_offset);
    buffers_.detach_place(index);
  };
  for (const uint32_t index : scopes_.back().temporaries) {
    if (base::fault() == 19) give_back_early(index);
    buffers_.release_owner(index);
  }
  scopes_.pop_back();
  if (buffers_.has_freed()) collect_freed();
}

Result<Core::NewBuffer> Core::create_temporary(uint64_t bytes) {
  STRATA_CHECK(!scopes_.empty());
  Result<NewBuffer> made = create_buffer(bytes);
  wants_memory_ = !made && made.error().code() == Code::kResourceExhausted &&
                  bytes <= options_.limits.heap_bytes;
  if (made) scopes_.back().temporaries.push_back(made->index);
  return made;
}

Result<void> Core::give_storage(TaskArgs& args, std::vector<size_t>* given) {
  for (size_t i = 0; i < args.tensors().size(); ++i) {
    const TensorArg& arg = args.tensors()[i];
    if (arg.tag != TensorArgType::kOutput || !arg.tensor.wants_storage()) continue;
    uint64_t bytes = size_of(arg.tensor.dtype);
    bool overflows = false;
    for (int d = 0; d < arg.tensor.rank; ++d) {
      overflows = overflows || __builtin_mul_overflow(bytes, arg.tensor.shape[d], &bytes);
    }
    const Result<NewBuffer> made =
        overflows ? Result<NewBuffer>(Error(Code::kInvalidArgument, Scope::kCall,
                                            "the bytes of an OUTPUT without storage overflow"))
                  : create_temporary(bytes);
    if (!made) {
      STRATA_MARK("engine: an OUTPUT finds no storage");
      take_storage(args, *given);
      given->clear();
      return made.error();
    }
    Tensor tensor = arg.tensor;
    tensor.uid = made->uid;
    tensor.buffer_index = made->index;
    args.set_tensor(i, tensor);
    given->push_back(i);
  }
  return {};
}

// The scope has them no more; nothing else can name them.
void Core::take_storage(TaskArgs& args, std::span<const size_t> given) {
  for (const size_t i : given) {
    Tensor tensor = args.tensors()[i].tensor;
    std::erase(scopes_.back().temporaries, tensor.buffer_index);
    buffers_.release_owner(tensor.buffer_index);
    tensor.uid = {};
    tensor.buffer_index = Tensor::kWithoutStorage;
    args.set_tensor(i, tensor);
  }
  if (buffers_.has_freed()) collect_freed();
}

// ---------------------------------------------------------------- runs

std::shared_ptr<RunRecord> Core::open_run() {
  auto run = std::make_shared<RunRecord>();
  run->id = ++run_ids_;
  run->number = sched_.open_run();
  runs_[run->number % runs_.size()] = run;
  STRATA_CHECK(scopes_.empty());
  scopes_.push_back({++scope_ids_, {}});
  if (trace_.on()) [[unlikely]]
    trace_.run_opened(run->number);
  return run;
}

void Core::seal_run(RunRecord& run, std::optional<Error> build_error) {
  while (!scopes_.empty()) end_innermost_scope();
  run.build_error = std::move(build_error);
  run.progress.built = true;
  if (trace_.on()) [[unlikely]]
    trace_.run_built(run.number);
  sched_.seal_run(run.number);
  finish_runs();
  notable_ = true;
}

// Children that still run a task of it at `kill_at` are ended.
void Core::cancel_run(RunRecord& run, base::Instant kill_at) {
  if (run.done) return;
  run.kill_at = std::min(run.kill_at, kill_at);
  endings_.grace_at = std::min(endings_.grace_at, run.kill_at);
  if (std::exchange(run.cancelled, true)) return;
  if (trace_.on()) [[unlikely]]
    trace_.run_cancelled(run.number);
  const uint32_t cause = add_cause(Error(
      Code::kCancelled, Scope::kTask, fmt::format("run {} was cancelled", run.id), options_.path));
  if (cause != 0) causes_.pin(cause);
  run.cancel_cause = cause;
  sched_.cancel_run(run.number, cause);
  // Only the run that executes has entries at workers.
  for (uint32_t worker = 0; worker < workers_.size(); ++worker) {
    std::vector<uint32_t> queued;
    sched_.queues().for_each_slot(worker, [&](uint32_t slot) {
      if (sched_.slot(slot).run == run.number) queued.push_back(slot);
    });
    for (auto slot = queued.rbegin(); slot != queued.rend(); ++slot) {
      const uint64_t ticket = sched_.slot(*slot).ticket;
      if (workers_[worker].endpoint->revoke(ticket)) {
        left_worker(*slot);
        if (trace_.on()) [[unlikely]] {
          trace_.taken_back(traced(*slot), placed(worker, ticket));
        }
        if (sched_.slot(*slot).member) {
          sched_.finish(*slot, sched::Outcome::kSkipped, cause);
        } else {
          sched_.requeue(*slot);  // and so skipped: its run is cancelled
        }
      } else {
        STRATA_MARK("engine: a cancelled task runs");
        workers_[worker].endpoint->cancel_through(ticket);
        break;  // those before it have started too
      }
    }
  }
  account_terminal();
}

void Core::cancel_all() {
  for (size_t i = 0; i < runs_.size(); ++i) {
    // A copy: the run may be done, and dropped, within the call.
    const std::shared_ptr<RunRecord> run = runs_[i];
    if (run) cancel_run(*run);
  }
}

// ---------------------------------------------------------------- submit

bool Core::accesses_of(const TaskArgs& args, Pool pool, std::optional<Error>* error) {
  const size_t first = placements_.size();
  const bool in_place = pool_transfers_[static_cast<size_t>(pool)] == kInPlace;
  for (const TensorArg& arg : args.tensors()) {
    const buffer::BufferTable::Entry* entry = buffers_.find(arg.tensor);
    if (entry == nullptr) [[unlikely]] {
      *error = buffers_.why_not(arg.tensor);
      return false;
    }
    Result<graph::Region> region = graph::region_of(arg.tensor, entry->bytes);
    if (!region) [[unlikely]] {
      *error = std::move(region).error();
      return false;
    }
    accesses_.push_back({arg.tensor.buffer_index, *region, reads(arg.tag), writes(arg.tag)});
    const bool own = entry->import == buffer::BufferTable::kOwn;
    if (!own) {
      if (auto refusal = imports_.refusal(entry->import, arg.tensor, *region, arg.tag)) {
        *error = std::move(refusal);
        return false;
      }
    }
    model::Placement& place = placements_.emplace_back();
    place.segment = own ? 0 : entry->segment;
    place.offset = (own ? heap_.offset_of(entry->segment) : 0) + entry->segment_offset;
    place.buffer_bytes = entry->bytes;
    place.read_only = entry->read_only;
    if (in_place && arg.transfer == Transfer::kDefault && !entry->read_only) [[likely]]
      continue;
    const auto transfer =
        transfer_of(placements_.size() - first - 1, arg, arg.tensor.buffer_index, pool, error);
    if (!transfer) return false;
    place.transfer = *transfer;
  }
  return in_place || maps_apart(args, first, error);
}

void Core::write_payload(uint32_t index, const Job& job, const TaskArgs& args,
                         size_t first_placement) {
  std::byte* payload = sched_.payload(index).data();
  TaskHead* head = new (payload) TaskHead;
  head->callable = job.callable;
  head->post.task = uint64_t{sched_.slot(index).generation} << 32 | index;
  head->post.callable = job.callable.index;
  head->post.flags = job.config.flags & ~mailbox::kFlagTimed;
  head->post.block_dim = job.config.block_dim;
  head->post.deadline_ms = job.config.deadline_ms;
  size_t next = first_placement;
  model::encode_args(
      args, [&](const Tensor&) { return placements_[next++]; }, payload + sizeof(TaskHead),
      with_refs(job));
}

Core::Submitted Core::submit(RunRecord& run, const Job& job, const TaskArgs& args, TaskRef* out,
                             std::optional<Error>* error) {
  sched::Target target;
  if (!Eligible::is_all_of_pool(*this, job, &target) &&
      !Eligible::find(*this, job, Eligible::why_stays(*this, job, {&args, 1}), &target, error))
      [[unlikely]]
    return Submitted::kRefused;
  if (Result<void> checked = model::check_args(args); !checked) [[unlikely]] {
    *error = std::move(checked).error();
    return Submitted::kRefused;
  }
  accesses_.clear();
  placements_.clear();
  if (!accesses_of(args, job.where.pool, error)) return Submitted::kRefused;
  const size_t args_bytes = model::encoded_bytes(args, with_refs(job));
  if (!sched_.admits(accesses_, sizeof(TaskHead) + args_bytes)) {
    STRATA_MARK("engine: a submit finds no room");
    return Submitted::kFull;
  }
  STRATA_CHECK(registry_.acquire(job.callable));
  for (const sched::Access& access : accesses_) buffers_.acquire(access.buffer);
  const uint64_t edges = sched_.edges_made();
  const uint64_t cover_edges = sched_.cover_edges_made();
  const uint32_t index =
      sched_.submit(run.number, accesses_, sizeof(TaskHead) + args_bytes, target);
  write_payload(index, job, args, 0);
  run.dependencies += sched_.edges_made() - edges;
  run.cover_dependencies += sched_.cover_edges_made() - cover_edges;
  run.tasks.push_back(TaskState::kLive);
  ++run.progress.submitted;
  if (trace_.on()) [[unlikely]] {
    trace_.submitted(traced(index));
  }
  *out = {run.id, sched_.slot(index).run_task};
  return Submitted::kDone;
}

std::optional<Error> Core::stuck() const {
  if (sched_.has_ready() || !busy_.empty() || !barred_.empty()) return std::nullopt;
  // Of workers that note their news, which are in no list.
  if (sched_.queues().queued() > 0 || controls_open_ > 0) return std::nullopt;
  if (sched_.live() > 0 && sched_.queues().open_count() == 0) return std::nullopt;
  return Error(Code::kResourceExhausted, Scope::kCall,
               fmt::format("no room for another task: {} of {} slots are in use and none of them "
                           "can move; Limits::slots enlarges them",
                           sched_.live(), options_.limits.slots),
               options_.path);
}

}  // namespace strata::engine
