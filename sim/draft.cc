#include "sim/draft.h"

#include <algorithm>

#include "sim/strided.h"
#include "sim/task_code.h"

namespace strata::sim {
namespace {

// Far below the time after which a wait is said to have stalled, for all tasks together.
constexpr uint64_t kLongNsMax = 5'000'000;
// Longer than any wait may take.
constexpr uint64_t kHangNs = 60'000'000'000;

constexpr uint32_t kNoBuffer = ~uint32_t{0};

constexpr DType kTypes[] = {DType::kU8, DType::kU16, DType::kF32, DType::kF64};

Tensor base_of(const SimBuffer& buffer, DType dtype) {
  Tensor tensor;
  tensor.uid = buffer.made.uid;
  tensor.buffer_index = buffer.made.index;
  tensor.dtype = dtype;
  return tensor;
}

// A dense or pitched matrix of bytes: rows of `pitch`, a block of it.
Tensor block_of(base::Prng& prng, const SimBuffer& buffer, DType dtype) {
  const uint64_t element = size_of(dtype);
  const uint64_t elements = buffer.made.bytes / element;
  const uint64_t columns = std::min<uint64_t>(elements, 4u << prng.below(3));
  const uint64_t rows = elements / columns;
  Tensor tensor = base_of(buffer, dtype);
  tensor.rank = 2;
  const uint64_t row = prng.below(rows);
  const uint64_t column = prng.below(columns);
  tensor.offset = (row * columns + column) * element;
  tensor.shape = {1 + prng.below(rows - row), 1 + prng.below(columns - column)};
  tensor.stride = {static_cast<int64_t>(columns), 1};
  return tensor;
}

// The dimensions in another order, or one of them backwards: the same bytes.
void turn(base::Prng& prng, Tensor& tensor) {
  if (tensor.rank == 2 && prng.chance(1, 2)) {
    std::swap(tensor.shape[0], tensor.shape[1]);
    std::swap(tensor.stride[0], tensor.stride[1]);
  }
  for (int d = 0; d < tensor.rank; ++d) {
    if (!prng.chance(1, 4)) continue;
    const int64_t reach = static_cast<int64_t>(tensor.shape[d] - 1) * tensor.stride[d];
    tensor.offset += static_cast<uint64_t>(reach) * size_of(tensor.dtype);
    tensor.stride[d] = -tensor.stride[d];
  }
}

// One of four tiles that all tasks agree on, so that the same region comes again.
constexpr uint64_t kTiles = 4;
Tensor grid_tile(const SimBuffer& buffer, uint64_t tile) {
  Tensor tensor = base_of(buffer, DType::kU8);
  tensor.rank = 2;
  const uint64_t columns = 16;
  const uint64_t rows = buffer.made.bytes / columns;
  tensor.shape = {rows / 2, columns / 2};
  tensor.stride = {static_cast<int64_t>(columns), 1};
  tensor.offset = tile / 2 * (rows / 2) * columns + tile % 2 * (columns / 2);
  return tensor;
}

// Column c, c + k, c + 2k, ...
Tensor columns_of(base::Prng& prng, const SimBuffer& buffer) {
  Tensor tensor = base_of(buffer, DType::kU8);
  const uint64_t pitch = 2 + prng.below(6);
  const uint64_t first = prng.below(pitch);
  tensor.rank = 1;
  tensor.offset = first;
  tensor.shape[0] = 1 + (buffer.made.bytes - 1 - first) / pitch;
  tensor.stride[0] = static_cast<int64_t>(pitch);
  return tensor;
}

// Three strides that make neither a range nor a rectangle.
Tensor cover_of(base::Prng& prng, const SimBuffer& buffer) {
  Tensor tensor = base_of(buffer, DType::kU8);
  tensor.rank = 3;
  tensor.shape = {2, 2, 1 + prng.below(3)};
  tensor.stride = {static_cast<int64_t>(17 + prng.below(8)),
                   static_cast<int64_t>(5 + prng.below(4)),
                   1 + static_cast<int64_t>(prng.below(2))};
  tensor.offset = prng.below(buffer.made.bytes - 40);
  return tensor;
}

Tensor odd_of(base::Prng& prng, const SimBuffer& buffer) {
  Tensor tensor = base_of(buffer, DType::kU8);
  switch (prng.below(3)) {
    case 0:  // no byte at all
      tensor.rank = 2;
      tensor.shape = {3, 0};
      tensor.stride = {4, 1};
      tensor.offset = prng.below(buffer.made.bytes);
      break;
    case 1:  // one element
      tensor.rank = 0;
      tensor.offset = prng.below(buffer.made.bytes);
      break;
    default:  // the same bytes again and again
      tensor.rank = 2;
      tensor.shape = {3, 8};
      tensor.stride = {0, 1};
      tensor.offset = prng.below(buffer.made.bytes - 8);
  }
  return tensor;
}

TensorArgType draw_tag(base::Prng& prng, const Options& options) {
  if (prng.chance(options.no_dep, 1000)) return NO_DEP;
  if (prng.chance(options.inout, 1000)) return INOUT;
  switch (prng.below(5)) {
    case 0:
    case 1:
      return INPUT;
    case 2:
      return OUTPUT_EXISTING;
    default:
      return OUTPUT;
  }
}

Oracle::Access access_of(uint32_t buffer, const Tensor& view, TensorArgType tag) {
  Oracle::Access access;
  access.buffer = buffer;
  access.offset = view.offset;
  access.element_bytes = size_of(view.dtype);
  access.shape.assign(view.shape.begin(), view.shape.begin() + view.rank);
  access.stride.assign(view.stride.begin(), view.stride.begin() + view.rank);
  access.reads = reads(tag);
  access.writes = writes(tag);
  return access;
}

void add_access(Draft& draft, size_t part, const std::shared_ptr<SimBuffer>& buffer,
                const Tensor& view, TensorArgType tag) {
  draft.members[part].add_tensor(view, tag);
  draft.buffers.push_back(buffer);
  draft.inout = draft.inout || tag == INOUT;
  draft.task.parts[part].accesses.push_back(access_of(buffer->oracle, view, tag));
}

// The oracle's buffer is known once it is there.
void add_storage(Draft& draft, size_t part, base::Prng& prng, uint64_t bytes) {
  const Tensor view = prng.chance(1, 2) ? Tensor::without_storage(DType::kU8, {bytes / 16, 16})
                                        : Tensor::without_storage(DType::kF32, {bytes / 4});
  draft.members[part].add_tensor(view, OUTPUT);
  draft.wants_storage = true;
  draft.task.parts[part].accesses.push_back(access_of(kNoBuffer, view, OUTPUT));
}

void add_orders(Draft& draft, size_t part, const TaskOrders& orders) {
  for (const uint64_t scalar : orders.encode()) draft.members[part].add_scalar(scalar);
  draft.task.parts[part].will_fail = orders.fails;
  draft.task.parts[part].heeds_cancel = orders.heeds_cancel;
  draft.task.parts[part].result_bytes = orders.result_bytes;
}

// What hangs must have a deadline, and nothing ends a call in this process.
uint32_t draw_deadline(base::Prng& prng, const Options& options, bool calm) {
  if (calm || options.deadline == 0 || !prng.chance(options.deadline, 1000)) return 0;
  return static_cast<uint32_t>(prng.between(1, options.deadline_ms_max));
}

void maybe_hang(base::Prng& prng, const Options& options, uint32_t deadline_ms,
                TaskOrders* orders) {
  if (deadline_ms == 0 || options.inline_workers > 0) return;
  if (prng.chance(options.hang, 1000)) orders->ns = kHangNs;
}

TaskOrders draw_orders(base::Prng& prng, const Options& options, uint32_t task, bool calm) {
  TaskOrders orders;
  orders.task = task;
  orders.fails = !calm && prng.chance(options.fail_task, 1000);
  orders.heeds_cancel = prng.chance(1, 2);
  orders.ns = prng.below(static_cast<uint64_t>(2 * options.task_ns));
  if (!calm && prng.chance(options.long_task, 1000))
    orders.ns = std::min(orders.ns * 1000, kLongNsMax);
  if (prng.chance(1, 8)) orders.result_bytes = 8;
  if (prng.chance(options.big_result, 1000)) {
    orders.result_bytes = static_cast<uint32_t>(prng.between(20'000, 64 * 1024));
  }
  return orders;
}

}  // namespace

Tensor whole_of(const SimBuffer& buffer) {
  Tensor tensor = base_of(buffer, DType::kU8);
  tensor.rank = 1;
  tensor.shape[0] = buffer.made.bytes;
  tensor.stride[0] = 1;
  return tensor;
}

Tensor draw_view(base::Prng& prng, const Options& options, const SimBuffer& buffer,
                 bool* overlaps) {
  if (prng.chance(options.cover_views, 1000)) {
    *overlaps = true;
    return cover_of(prng, buffer);
  }
  if (!prng.chance(options.overlap_views, 1000)) {
    return prng.chance(1, 8) ? whole_of(buffer) : grid_tile(buffer, prng.below(kTiles));
  }
  *overlaps = true;
  const uint64_t kind = prng.below(12);
  if (kind == 0) return odd_of(prng, buffer);
  if (kind <= 2) return whole_of(buffer);
  if (kind <= 4) return columns_of(prng, buffer);
  Tensor tensor = block_of(prng, buffer, kTypes[prng.below(std::size(kTypes))]);
  turn(prng, tensor);
  return tensor;
}

Draft draw_task(base::Prng& prng, const Shared& shared,
                std::span<const std::shared_ptr<SimBuffer>> buffers, uint32_t run, uint32_t task) {
  const Options& options = shared.options;
  Draft draft;
  draft.task.run = run;
  draft.task.parts.resize(1);
  draft.members.resize(1);
  const uint64_t count = prng.chance(1, 50) ? 0 : prng.between(1, options.accesses);
  for (uint64_t i = 0; i < count; ++i) {
    const std::shared_ptr<SimBuffer>& buffer = buffers[prng.below(buffers.size())];
    if (prng.chance(options.storage, 1000)) {
      add_storage(draft, 0, prng, options.buffer_bytes);
      continue;
    }
    const Tensor view = draw_view(prng, options, *buffer, &draft.overlaps);
    add_access(draft, 0, buffer, view, draw_tag(prng, options));
  }
  if (!draft.buffers.empty() && prng.chance(options.bad_submit, 1000)) {
    Tensor view = whole_of(*draft.buffers[0]);
    view.offset = 1 + prng.below(1000);
    draft.members[0].add_tensor(view, INPUT);
    draft.buffers.push_back(draft.buffers[0]);
    draft.invalid = true;
  }
  TaskOrders orders = draw_orders(prng, options, task, shared.calm);
  draft.deadline_ms = draw_deadline(prng, options, shared.calm);
  maybe_hang(prng, options, draft.deadline_ms, &orders);
  add_orders(draft, 0, orders);
  if (prng.chance(options.big_args, 1000)) {
    const std::vector<std::byte> bytes(prng.between(1000, TaskArgs::kInlineBytesMax));
    draft.members[0].set_inline(bytes);
  }
  return draft;
}

// ---------------------------------------------------------------- groups

namespace {

struct Range {
  uint64_t begin = ~uint64_t{0};
  uint64_t end = 0;
};
Range cover_of(const Oracle::Access& access) {
  Range out;
  for_each_byte(access.shape, access.stride, access.element_bytes, [&](int64_t at) {
    const uint64_t byte = access.offset + static_cast<uint64_t>(at);
    out.begin = std::min(out.begin, byte);
    out.end = std::max(out.end, byte + 1);
  });
  return out;
}

// Whether another member names some of these bytes in a way that needs an order; by covers, which
// is more than what must be refused.
bool disturbs(const Draft& draft, size_t part, const Oracle::Access& access) {
  if (!access.reads && !access.writes) return false;
  const Range mine = cover_of(access);
  for (size_t p = 0; p < draft.task.parts.size(); ++p) {
    if (p == part) continue;
    for (const Oracle::Access& other : draft.task.parts[p].accesses) {
      if (other.buffer != access.buffer || (!other.writes && !access.writes)) continue;
      if (!other.reads && !other.writes) continue;
      const Range range = cover_of(other);
      if (mine.begin < range.end && range.begin < mine.end) return true;
    }
  }
  return false;
}

// One member writes what another names.
void make_conflict(Draft& draft) {
  for (const Oracle::Access& access : draft.task.parts[0].accesses) {
    const Range range = cover_of(access);
    const size_t argument = static_cast<size_t>(&access - draft.task.parts[0].accesses.data());
    if (!access.writes || range.begin >= range.end || access.buffer == kNoBuffer) continue;
    draft.members[1].add_tensor(draft.members[0].tensor(argument), INPUT);
    draft.invalid = true;
    return;
  }
}

}  // namespace

Draft draw_group(base::Prng& prng, const Shared& shared,
                 std::span<const std::shared_ptr<SimBuffer>> buffers, uint32_t run, uint32_t task,
                 uint32_t members) {
  const Options& options = shared.options;
  Draft draft;
  draft.task.run = run;
  draft.task.is_group = true;
  draft.task.parts.resize(members);
  draft.members.resize(members);
  // Tiles of one buffer, which differ although their covers meet.
  const std::shared_ptr<SimBuffer>& tiled = buffers[prng.below(buffers.size())];
  if (members <= kTiles && prng.chance(1, 2)) {
    const uint64_t first = prng.below(kTiles);
    for (uint32_t part = 0; part < members; ++part) {
      const TensorArgType tag = prng.chance(options.inout, 1000) ? INOUT : OUTPUT_EXISTING;
      add_access(draft, part, tiled, grid_tile(*tiled, (first + part) % kTiles), tag);
    }
  }
  // What all of them read.
  if (prng.chance(1, 2)) {
    const std::shared_ptr<SimBuffer>& buffer = buffers[prng.below(buffers.size())];
    const Tensor view = draw_view(prng, options, *buffer, &draft.overlaps);
    for (uint32_t part = 0; part < members; ++part) {
      const bool alone = disturbs(draft, part, access_of(buffer->oracle, view, INPUT));
      add_access(draft, part, buffer, view, alone ? NO_DEP : INPUT);
    }
  }
  for (uint32_t part = 0; part < members; ++part) {
    for (uint64_t n = prng.below(options.accesses + 1); n > 0; --n) {
      const std::shared_ptr<SimBuffer>& buffer = buffers[prng.below(buffers.size())];
      if (prng.chance(options.storage, 1000)) {
        add_storage(draft, part, prng, options.buffer_bytes);
        continue;
      }
      const Tensor view = draw_view(prng, options, *buffer, &draft.overlaps);
      TensorArgType tag = draw_tag(prng, options);
      if (disturbs(draft, part, access_of(buffer->oracle, view, tag))) tag = NO_DEP;
      add_access(draft, part, buffer, view, tag);
    }
  }
  if (members > 1 && prng.chance(options.bad_submit, 1000)) make_conflict(draft);
  draft.deadline_ms = draw_deadline(prng, options, shared.calm);
  for (uint32_t part = 0; part < members; ++part) {
    TaskOrders orders = draw_orders(prng, options, task, shared.calm);
    maybe_hang(prng, options, draft.deadline_ms, &orders);
    orders.part = part;
    add_orders(draft, part, orders);
    if (!prng.chance(options.big_args, 4000)) continue;
    const std::vector<std::byte> bytes(prng.between(1000, TaskArgs::kInlineBytesMax));
    draft.members[part].set_inline(bytes);
  }
  return draft;
}

Draft probe(const std::shared_ptr<SimBuffer>& buffer, const Tensor& view, TensorArgType tag,
            uint32_t run, uint32_t task) {
  Draft draft;
  draft.task.run = run;
  draft.task.parts.resize(1);
  draft.members.resize(1);
  add_access(draft, 0, buffer, view, tag);
  TaskOrders orders;
  orders.task = task;
  orders.ns = 100;
  add_orders(draft, 0, orders);
  return draft;
}

// ---------------------------------------------------------------- where to

Target draw_target(base::Prng& prng, const Level& level,
                   const std::shared_ptr<SimCallable>& callable) {
  Target target;
  target.callable = callable;
  const auto gather = [&](engine::Pool pool) {
    target.pool = pool;
    target.up.clear();
    for (const uint32_t worker : level.pool_workers(pool)) {
      if (level.is_up(worker) && has_callable(*callable, worker)) target.up.push_back(worker);
    }
  };
  const bool next_first = prng.chance(1, 2);
  gather(next_first ? engine::Pool::kNext : engine::Pool::kSub);
  const bool fits = !level.pool_workers(target.pool).empty() &&
                    (callable->workers.empty() || !target.up.empty() || prng.chance(1, 20));
  if (!fits) gather(next_first ? engine::Pool::kSub : engine::Pool::kNext);
  if (level.pool_workers(target.pool).empty()) gather(engine::Pool::kNext);
  return target;
}

void aim(base::Prng& prng, const Level& level, const Target& target, Draft* draft) {
  const Options& options = level.options();
  draft->callable = target.callable;
  draft->pool = target.pool;
  std::vector<uint32_t> up = target.up;
  for (size_t i = up.size(); i > 1; --i) std::swap(up[i - 1], up[prng.below(i)]);
  const uint32_t share = draft->task.is_group ? options.directed_member : options.directed;
  if (share > 0 && prng.chance(share, 1000)) {
    draft->workers.assign(draft->members.size(), -1);
    for (size_t i = 0; i < draft->workers.size() && i < up.size(); ++i) {
      if (!draft->task.is_group || prng.chance(share, 1000)) {
        draft->workers[i] = static_cast<int32_t>(up[i]);
      }
    }
  }
  if (draft->workers.empty() || !prng.chance(options.bad_submit, 1000)) return;
  // To one that is of the other pool, lost or not there at all; or two members to one worker.
  if (draft->workers.size() > 1 && prng.chance(1, 2)) {
    draft->workers[0] = draft->workers[1];
  } else {
    draft->workers[0] = static_cast<int32_t>(prng.below(level.worker_count() + 1));
  }
}

}  // namespace strata::sim
