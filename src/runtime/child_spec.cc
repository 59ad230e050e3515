#include "runtime/child_spec.h"

#include "base/bytes.h"

namespace strata::runtime {
namespace {

constexpr uint32_t kPathBytesMax = 4096;
constexpr uint32_t kListMax = 1024;
constexpr int kDepthMax = 4;

void put_chip(base::ByteWriter& out, const ChipSpec& chip) {
  out.put_string(chip.backend);
  out.put(chip.memory_bytes);
}

ChipSpec get_chip(base::ByteReader& in) {
  ChipSpec chip;
  chip.backend = in.get_string(kPathBytesMax);
  chip.memory_bytes = in.get<uint64_t>();
  return chip;
}

void put_worker(base::ByteWriter& out, const WorkerSpec& spec) {
  out.put(spec.level);
  out.put(spec.sub_workers);
  out.put(spec.chips);
  put_chip(out, spec.chip);
  out.put(static_cast<uint8_t>(spec.start));
  out.put(static_cast<uint8_t>(spec.allow_threads));
  out.put(static_cast<uint8_t>(spec.restart));
  out.put(spec.restart_limit);
  out.put(static_cast<uint32_t>(spec.library_path.size()));
  for (const std::string& folder : spec.library_path) out.put_string(folder);
  out.put(static_cast<uint32_t>(spec.inherit_fds.size()));
  for (const int fd : spec.inherit_fds) out.put(fd);
  out.put(spec.limits.slots);
  out.put(spec.limits.depth);
  out.put(spec.limits.buffers);
  out.put(spec.limits.callables);
  out.put(spec.limits.heap_bytes);
  out.put(spec.timeouts.child_ready_ms);
  out.put(spec.timeouts.building_turn_ms);
  out.put(spec.timeouts.control_ms);
  out.put(spec.timeouts.close_ms);
  out.put(spec.timeouts.exit_ms);
  out.put(spec.timeouts.stall_report_ms);
  out.put(spec.timeouts.deadline_grace_ms);
  out.put(static_cast<uint8_t>(spec.output.mode));
  out.put(spec.output.lines_per_second);
  out.put(static_cast<uint32_t>(spec.workers.size()));
  for (const WorkerSpec& worker : spec.workers) put_worker(out, worker);
}

// The length of a list; 0, and the reader is not ok, where it cannot be one.
uint32_t get_count(base::ByteReader& in, bool* ok) {
  const uint32_t count = in.get<uint32_t>();
  if (in.ok() && count <= kListMax) return count;
  *ok = false;
  return 0;
}

WorkerSpec get_worker(base::ByteReader& in, int depth, bool* ok) {
  WorkerSpec spec;
  spec.level = in.get<int>();
  spec.sub_workers = in.get<int>();
  spec.chips = in.get<int>();
  spec.chip = get_chip(in);
  spec.start = static_cast<StartMethod>(in.get<uint8_t>());
  spec.allow_threads = in.get<uint8_t>() != 0;
  spec.restart = static_cast<Restart>(in.get<uint8_t>());
  spec.restart_limit = in.get<uint32_t>();
  for (uint32_t left = get_count(in, ok); left > 0 && in.ok(); --left) {
    spec.library_path.emplace_back(in.get_string(kPathBytesMax));
  }
  for (uint32_t left = get_count(in, ok); left > 0 && in.ok(); --left) {
    spec.inherit_fds.push_back(in.get<int>());
  }
  spec.limits.slots = in.get<uint32_t>();
  spec.limits.depth = in.get<uint32_t>();
  spec.limits.buffers = in.get<uint32_t>();
  spec.limits.callables = in.get<uint32_t>();
  spec.limits.heap_bytes = in.get<uint64_t>();
  spec.timeouts.child_ready_ms = in.get<uint32_t>();
  spec.timeouts.building_turn_ms = in.get<uint32_t>();
  spec.timeouts.control_ms = in.get<uint32_t>();
  spec.timeouts.close_ms = in.get<uint32_t>();
  spec.timeouts.exit_ms = in.get<uint32_t>();
  spec.timeouts.stall_report_ms = in.get<uint32_t>();
  spec.timeouts.deadline_grace_ms = in.get<uint32_t>();
  spec.output.mode = static_cast<OutputMode>(in.get<uint8_t>());
  spec.output.lines_per_second = in.get<uint32_t>();
  const uint32_t workers = get_count(in, ok);
  if (workers > 0 && depth >= kDepthMax) *ok = false;
  for (uint32_t left = workers; left > 0 && in.ok() && *ok; --left) {
    spec.workers.push_back(get_worker(in, depth + 1, ok));
  }
  return spec;
}

}  // namespace

std::vector<std::byte> encode(const ChildOrder& order) {
  base::ByteWriter out;
  out.put(order.first);
  out.put(static_cast<uint32_t>(order.path.size()));
  for (const uint32_t worker : order.path) out.put(worker);
  out.put(order.helpers);
  out.put(static_cast<uint8_t>(order.worker.has_value()));
  if (order.worker) put_worker(out, *order.worker);
  return std::move(out).take();
}

Result<ChildOrder> decode_child_order(std::span<const std::byte> bytes) {
  base::ByteReader in(bytes);
  bool ok = true;
  ChildOrder order;
  order.first = in.get<uint32_t>();
  for (uint32_t left = get_count(in, &ok); left > 0 && in.ok(); --left) {
    order.path.push_back(in.get<uint32_t>());
  }
  order.helpers = in.get<uint32_t>();
  const uint8_t is_worker = in.get<uint8_t>();
  if (is_worker == 1 && ok && in.ok()) {
    order.worker = get_worker(in, 1, &ok);
  } else if (is_worker != 0) {
    ok = false;
  }
  if (!ok || !in.ok() || in.left() != 0 || (order.worker && order.helpers > 0)) {
    return Error(Code::kCorrupt, Scope::kCall, "an order of children does not decode");
  }
  return order;
}

std::vector<std::byte> encode(const ChildSpec& spec) {
  base::ByteWriter out;
  out.put_string(spec.path);
  out.put(static_cast<uint32_t>(spec.heap_bytes.size()));
  for (const uint64_t bytes : spec.heap_bytes) out.put(bytes);
  out.put(spec.spin.free_spin_ns);
  out.put(spec.spin.linger_ns);
  out.put(spec.spin.polls_without_pause);
  out.put(spec.timeline_bytes);
  out.put(static_cast<uint8_t>(spec.output));
  out.put(static_cast<uint8_t>(spec.worker.has_value()));
  if (spec.worker) put_worker(out, *spec.worker);
  out.put(static_cast<uint8_t>(spec.chip.has_value()));
  if (spec.chip) put_chip(out, *spec.chip);
  return std::move(out).take();
}

Result<ChildSpec> decode_child_spec(std::span<const std::byte> bytes) {
  base::ByteReader in(bytes);
  bool ok = true;
  ChildSpec spec;
  spec.path = in.get_string(kPathBytesMax);
  const uint32_t heaps = get_count(in, &ok);
  if (heaps < 1 || heaps > kHeapsMax) ok = false;
  for (uint32_t left = ok ? heaps : 0; left > 0; --left) {
    spec.heap_bytes.push_back(in.get<uint64_t>());
  }
  spec.spin.free_spin_ns = in.get<int64_t>();
  spec.spin.linger_ns = in.get<int64_t>();
  spec.spin.polls_without_pause = in.get<int>();
  spec.timeline_bytes = in.get<uint64_t>();
  spec.output = in.get<uint8_t>() != 0;
  const uint8_t is_worker = in.get<uint8_t>();
  if (is_worker == 1 && ok && in.ok()) {
    spec.worker = get_worker(in, 1, &ok);
  } else if (is_worker != 0) {
    ok = false;
  }
  const uint8_t is_chip = in.get<uint8_t>();
  if (is_chip == 1 && is_worker == 0) {
    spec.chip = get_chip(in);
  } else if (is_chip != 0) {
    ok = false;
  }
  if (!ok || !in.ok() || in.left() != 0) {
    return Error(Code::kCorrupt, Scope::kProcess, "the spec of a child does not decode");
  }
  return spec;
}

}  // namespace strata::runtime
