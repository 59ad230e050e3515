#include "sim/draft.h"

#include <algorithm>

#include "sim/task_code.h"

namespace strata::sim {
namespace {

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

// One of a few tiles that all tasks agree on, so that the same region comes again.
Tensor grid_tile(base::Prng& prng, const SimBuffer& buffer) {
  Tensor tensor = base_of(buffer, DType::kU8);
  tensor.rank = 2;
  const uint64_t columns = 16;
  const uint64_t rows = buffer.made.bytes / columns;
  const uint64_t down = std::min<uint64_t>(2, rows);
  tensor.shape = {rows / down, columns / 2};
  tensor.stride = {static_cast<int64_t>(columns), 1};
  tensor.offset = prng.below(down) * (rows / down) * columns + prng.below(2) * (columns / 2);
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

void add_access(Draft& draft, const std::shared_ptr<SimBuffer>& buffer, const Tensor& view,
                TensorArgType tag) {
  draft.args.add_tensor(view, tag);
  draft.buffers.push_back(buffer);
  draft.inout = draft.inout || tag == INOUT;
  Oracle::Access access;
  access.buffer = buffer->oracle;
  access.offset = view.offset;
  access.element_bytes = size_of(view.dtype);
  access.shape.assign(view.shape.begin(), view.shape.begin() + view.rank);
  access.stride.assign(view.stride.begin(), view.stride.begin() + view.rank);
  access.reads = reads(tag);
  access.writes = writes(tag);
  draft.task.accesses.push_back(std::move(access));
}

void add_orders(Draft& draft, const TaskOrders& orders) {
  for (const uint64_t scalar : orders.encode()) draft.args.add_scalar(scalar);
  draft.task.will_fail = orders.fails;
  draft.task.heeds_cancel = orders.heeds_cancel;
  draft.result_bytes = orders.result_bytes;
}

TaskOrders draw_orders(base::Prng& prng, const Options& options, uint32_t task, bool calm) {
  TaskOrders orders;
  orders.task = task;
  orders.fails = !calm && prng.chance(options.fail_task, 1000);
  orders.heeds_cancel = prng.chance(1, 2);
  orders.ns = prng.below(static_cast<uint64_t>(2 * options.task_ns));
  if (!calm && prng.chance(options.long_task, 1000)) orders.ns *= 1000;
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
    return prng.chance(1, 8) ? whole_of(buffer) : grid_tile(prng, buffer);
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
  const uint64_t count = prng.chance(1, 50) ? 0 : prng.between(1, options.accesses);
  for (uint64_t i = 0; i < count; ++i) {
    const std::shared_ptr<SimBuffer>& buffer = buffers[prng.below(buffers.size())];
    const Tensor view = draw_view(prng, options, *buffer, &draft.overlaps);
    add_access(draft, buffer, view, draw_tag(prng, options));
  }
  if (count > 0 && prng.chance(options.bad_submit, 1000)) {
    Tensor view = whole_of(*draft.buffers[0]);
    view.offset = 1 + prng.below(1000);
    draft.args.add_tensor(view, INPUT);
    draft.buffers.push_back(draft.buffers[0]);
    draft.invalid = true;
  }
  add_orders(draft, draw_orders(prng, options, task, shared.calm));
  if (prng.chance(options.big_args, 1000)) {
    const std::vector<std::byte> bytes(prng.between(1000, TaskArgs::kInlineBytesMax));
    draft.args.set_inline(bytes);
  }
  return draft;
}

Draft probe(const std::shared_ptr<SimBuffer>& buffer, const Tensor& view, TensorArgType tag,
            uint32_t run, uint32_t task) {
  Draft draft;
  draft.task.run = run;
  add_access(draft, buffer, view, tag);
  TaskOrders orders;
  orders.task = task;
  orders.ns = 100;
  add_orders(draft, orders);
  return draft;
}

}  // namespace strata::sim
