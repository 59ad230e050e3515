#include "device/transfers.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/result.h"
#include "device/device_memory.h"

namespace strata::device {
namespace {

constexpr uint64_t kAlign = DeviceMemory::kAlignBytes;
// A view of many short runs is read with its gaps where they are at most three times its bytes.
constexpr uint64_t kRunsMany = 8;
constexpr uint64_t kGapsMost = 4;

Error failed(Code code, std::string text) {
  return Error(code, Scope::kTask, std::move(text));
}

}  // namespace

Transfers::~Transfers() {
  for (const auto& [key, mapping] : mappings_) backend_.unmap(mapping.range, mapping.at);
}

Result<void> Transfers::begin(const model::ArgsDecoder& args, std::vector<strata_tensor>* tensors) {
  ++task_;
  views_.clear();
  spans_.clear();
  tensors->assign(args.tensors().begin(), args.tensors().end());
  for (size_t i = 0; i < tensors->size(); ++i) {
    strata_tensor& tensor = (*tensors)[i];
    tensor.data = nullptr;
    if (tensor.nbytes == 0) continue;
    if (i >= args.refs().size()) {
      return failed(Code::kCorrupt, fmt::format("tensor {} names no buffer", i));
    }
    STRATA_TRY(tensor.transfer == model::kTransferCopy ? add_copy(tensor, i, args.refs()[i])
                                                       : add_map(&tensor, i, args.refs()[i]));
  }
  STRATA_TRY(make_spans());
  for (const View& view : views_) {
    (*tensors)[view.tensor].data = device_of(view, view.first);
    if (reads(view.tag)) STRATA_TRY(read(view));
  }
  return {};
}

// ---------------------------------------------------------------- copies

Result<void> Transfers::add_copy(const strata_tensor& tensor, size_t index,
                                 const model::DecodedRef& ref) {
  const auto tag = static_cast<TensorArgType>(tensor.tag);
  if (!reads(tag) && !writes(tag)) {
    return failed(Code::kInvalidArgument,
                  fmt::format("tensor {} has no tag that says what to copy", index));
  }
  const uint64_t first = ref.buffer_offset + ref.offset;
  views_.push_back({index, ref.segment, first, Runs(tensor, first), tag, 0});
  return {};
}

Result<void> Transfers::make_spans() {
  std::sort(views_.begin(), views_.end(), [](const View& a, const View& b) {
    return std::pair(a.segment, a.runs.begin()) < std::pair(b.segment, b.runs.begin());
  });
  for (View& view : views_) {
    // From a multiple of the alignment on, so that an element is aligned as it is on the host.
    const uint64_t begin = view.runs.begin() / kAlign * kAlign;
    const uint64_t end = view.runs.begin() + view.runs.extent();
    if (spans_.empty() || spans_.back().segment != view.segment || spans_.back().end <= begin) {
      spans_.push_back({view.segment, begin, end, nullptr});
    }
    spans_.back().end = std::max(spans_.back().end, end);
    view.span = spans_.size() - 1;
  }
  for (Span& span : spans_) {
    STRATA_ASSIGN(span.device, backend_.allocate(span.end - span.begin));
  }
  return {};
}

std::byte* Transfers::device_of(const View& view, uint64_t offset) const {
  const Span& span = spans_[view.span];
  return span.device + (offset - span.begin);
}

Result<void> Transfers::read(const View& view) {
  const Runs& runs = view.runs;
  if (runs.count() > kRunsMany && runs.extent() / kGapsMost <= runs.count() * runs.run_bytes()) {
    return backend_.copy_in({view.segment, runs.begin(), runs.extent()},
                            device_of(view, runs.begin()));
  }
  Result<void> done;
  runs.for_each([&](uint64_t offset) {
    done = backend_.copy_in({view.segment, offset, runs.run_bytes()}, device_of(view, offset));
    return done.ok();
  });
  return done;
}

Result<void> Transfers::write_back() {
  for (const View& view : views_) {
    if (!writes(view.tag)) continue;
    Result<void> done;
    view.runs.for_each([&](uint64_t offset) {
      done =
          backend_.copy_out(device_of(view, offset), {view.segment, offset, view.runs.run_bytes()});
      return done.ok();
    });
    STRATA_TRY(done);
  }
  return {};
}

void Transfers::end() {
  for (const Span& span : spans_) {
    if (span.device != nullptr) backend_.free(span.device);
  }
  views_.clear();
  spans_.clear();
}

// ---------------------------------------------------------------- maps

Result<void> Transfers::add_map(strata_tensor* tensor, size_t index, const model::DecodedRef& ref) {
  const auto tag = static_cast<TensorArgType>(tensor->tag);
  if (writes(tag) && ref.read_only) {
    return failed(Code::kInvalidArgument,
                  fmt::format("tensor {} is to be mapped for writing and is read-only", index));
  }
  // A tensor without a tag keeps the rights of its buffer.
  const bool writable = writes(tag) || (!reads(tag) && !ref.read_only);
  STRATA_ASSIGN(Mapping* const found, mapping({ref.uid.high, ref.uid.low, writable},
                                              {ref.segment, ref.buffer_offset, ref.buffer_bytes}));
  tensor->data = found->at + ref.offset;
  return {};
}

Result<Transfers::Mapping*> Transfers::mapping(const MapKey& key, const HostRange& range) {
  if (const auto known = mappings_.find(key); known != mappings_.end()) {
    known->second.used_at = task_;
    return &known->second;
  }
  if (mappings_.size() >= kMappingsMax) forget_oldest();
  STRATA_ASSIGN(std::byte* const at, backend_.map(range, std::get<2>(key)));
  return &mappings_.emplace(key, Mapping{range, at, task_}).first->second;
}

void Transfers::forget_oldest() {
  const auto oldest = std::min_element(
      mappings_.begin(), mappings_.end(),
      [](const auto& a, const auto& b) { return a.second.used_at < b.second.used_at; });
  // A task has fewer tensors than there are mappings, so this is none of its own.
  static_assert(TaskArgs::kTensorsMax < kMappingsMax);
  STRATA_CHECK(oldest->second.used_at < task_);
  backend_.unmap(oldest->second.range, oldest->second.at);
  mappings_.erase(oldest);
}

void Transfers::drop(Uid buffer) {
  for (const bool writable : {false, true}) {
    const auto found = mappings_.find({buffer.high, buffer.low, writable});
    if (found == mappings_.end()) continue;
    backend_.unmap(found->second.range, found->second.at);
    mappings_.erase(found);
  }
}

}  // namespace strata::device
