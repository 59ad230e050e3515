#include "sim/task_code.h"

#include <fmt/format.h>

#include <algorithm>

#include "sim/level_world.h"
#include "sim/shared.h"
#include "sim/strided.h"

namespace strata::sim {
namespace {

// It looks at least that often whether it is cancelled.
constexpr uint64_t kPieceNs = 500'000;

std::span<const uint64_t> shape_of(const strata_tensor& tensor) {
  return {tensor.shape, tensor.rank};
}
std::span<const int64_t> stride_of(const strata_tensor& tensor) {
  return {tensor.stride, tensor.rank};
}
uint64_t element_bytes(const strata_tensor& tensor) {
  return size_of(static_cast<DType>(tensor.dtype));
}

}  // namespace

std::vector<std::byte> result_of(Checks::Name name, uint32_t bytes) {
  std::vector<std::byte> out(bytes);
  for (uint32_t i = 0; i < bytes; ++i) {
    out[i] = static_cast<std::byte>(written_byte(name.task, 0x726573 + name.part, i));
  }
  return out;
}

std::string failure_of(Checks::Name name) {
  return fmt::format("{} was told to fail", name_of(name));
}

Checks::Ranges TaskCode::ranges(bool reading, bool writing) const {
  Checks::Ranges out;
  for (const strata_tensor& tensor : decoder_.tensors()) {
    const TensorArgType tag = static_cast<TensorArgType>(tensor.tag);
    if (!(reading && reads(tag)) && !(writing && writes(tag))) continue;
    const uint64_t first =
        static_cast<uint64_t>(static_cast<const std::byte*>(tensor.data) - shared_->heap);
    for_each_byte(shape_of(tensor), stride_of(tensor), element_bytes(tensor), [&](int64_t byte) {
      const uint64_t at = first + static_cast<uint64_t>(byte);
      if (!out.empty() && out.back().second == at) {
        ++out.back().second;
      } else {
        out.emplace_back(at, at + 1);
      }
    });
  }
  return joined(std::move(out));
}

uint64_t TaskCode::read_inputs(Checks::Name name) {
  uint64_t hash = Oracle::input_start(name.task, name.part);
  for (const strata_tensor& tensor : decoder_.tensors()) {
    if (!reads(static_cast<TensorArgType>(tensor.tag))) continue;
    const uint8_t* const data = static_cast<const uint8_t*>(tensor.data);
    for_each_byte(shape_of(tensor), stride_of(tensor), element_bytes(tensor),
                  [&](int64_t byte) { hash = mix(hash, data[byte]); });
    if (shared_->chance(300)) delay_(20);
  }
  return hash;
}

void TaskCode::write_outputs(uint64_t hash, bool garbage) {
  const std::span<const strata_tensor> tensors = decoder_.tensors();
  for (size_t t = 0; t < tensors.size(); ++t) {
    if (!writes(static_cast<TensorArgType>(tensors[t].tag))) continue;
    if (garbage && shared_->chance(300)) continue;
    uint8_t* const data = static_cast<uint8_t*>(tensors[t].data);
    uint64_t ordinal = 0;
    const uint64_t key = garbage ? ~hash : hash;
    for_each_byte(shape_of(tensors[t]), stride_of(tensors[t]), element_bytes(tensors[t]),
                  [&](int64_t byte) { data[byte] = written_byte(key, t, ordinal++); });
    if (shared_->chance(300)) delay_(20);
  }
}

// Whether what the last output wrote is still there: nobody else writes meanwhile.
bool TaskCode::outputs_stand(uint64_t hash) {
  const std::span<const strata_tensor> tensors = decoder_.tensors();
  for (size_t t = tensors.size(); t > 0; --t) {
    const strata_tensor& tensor = tensors[t - 1];
    if (!writes(static_cast<TensorArgType>(tensor.tag))) continue;
    const uint8_t* const data = static_cast<const uint8_t*>(tensor.data);
    bool same = true;
    bool repeats = false;
    for (size_t d = 0; d < tensor.rank; ++d) repeats = repeats || tensor.stride[d] == 0;
    uint64_t ordinal = 0;
    for_each_byte(shape_of(tensor), stride_of(tensor), element_bytes(tensor), [&](int64_t byte) {
      same = same && data[byte] == written_byte(hash, t - 1, ordinal);
      ++ordinal;
    });
    return same || repeats;
  }
  return true;
}

TaskCode::End TaskCode::run(const mailbox::TaskView& view, const std::function<bool()>& cancelled) {
  began_ns_ = view.started_ns;
  End end = run(view.args, cancelled);
  began_ns_ = 0;
  return end;
}

TaskCode::End TaskCode::run(std::span<const std::byte> args,
                            const std::function<bool()>& cancelled) {
  End end;
  const Result<void> decoded = decoder_.decode(args, [this](uint32_t segment) {
    return segment == 0 ? model::MappedSegment{shared_->heap, shared_->options.heap_bytes}
                        : model::MappedSegment{};
  });
  if (!decoded || decoder_.scalars().size() != TaskOrders::kScalars) {
    shared_->checks.fail(Verdict::kCorrectness,
                         fmt::format("worker {} cannot read a task's arguments: {}", worker_,
                                     decoded ? "scalars" : decoded.error().message()));
    end.outcome = mailbox::Outcome::kTaskFailed;
    return end;
  }
  const TaskOrders orders = TaskOrders::decode(decoder_.scalars());
  shared_->note(name_, EventKind::kTaskStart, orders.task, worker_);
  shared_->checks.on_start(worker_, orders.name(), ranges(true, false), ranges(false, true));
  shared_->placement.on_start(worker_, orders.name());
  if (began_ns_ != 0) shared_->overdue.on_start(worker_, orders.name(), began_ns_);
  const uint64_t hash = read_inputs(orders.name());
  bool stopped = false;
  for (uint64_t left = orders.ns; left > 0 && !stopped;) {
    const uint64_t piece = std::min({left, 1 + orders.ns / 2, kPieceNs});
    delay_(piece);
    left -= piece;
    stopped = orders.heeds_cancel && cancelled();
  }
  if (read_inputs(orders.name()) != hash) {
    shared_->checks.fail(Verdict::kCorrectness, fmt::format("the inputs of {} changed while it ran",
                                                            name_of(orders.name())));
  }
  const bool fails = orders.fails || stopped;
  write_outputs(hash, fails);
  if (!fails && !outputs_stand(hash)) {
    shared_->checks.fail(Verdict::kCorrectness, fmt::format("an output of {} changed while it ran",
                                                            name_of(orders.name())));
  }
  shared_->checks.on_end(worker_, orders.name(), hash, fails);
  shared_->placement.on_end(worker_, orders.name());
  // No time passes until the loop asks for the time of the end.
  shared_->overdue.on_end(worker_, orders.name(), shared_->level->now().ns);
  shared_->note(name_, EventKind::kTaskEnd, orders.task, fails);
  if (fails) {
    ++shared_->faults.task_failures;
    end.outcome = mailbox::Outcome::kTaskFailed;
    end.code = 7;
    if (orders.task % 4 != 0) end.text = failure_of(orders.name());
  } else {
    end.result = result_of(orders.name(), orders.result_bytes);
  }
  return end;
}

}  // namespace strata::sim
