#include "buffer/arena.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>

#include "base/check.h"

namespace strata::buffer {
namespace {

constexpr uint64_t kPlacesMax = Arena::kRunBytes / Arena::kAlignBytes;
constexpr uint32_t kNoClass = std::numeric_limits<uint32_t>::max();

constexpr uint64_t round_up(uint64_t n, uint64_t unit) {
  return (n + unit - 1) / unit * unit;
}

// The sizes of shared ranges: multiples of 64 up to 256, then four steps a doubling up to 32 KiB,
// then doublings, because a run is not long enough for finer steps. From 4096 on multiples of it.
constexpr auto make_classes() {
  std::array<uint64_t, 64> out{};
  size_t n = 0;
  uint64_t size = 64;
  while (size <= Arena::kRunBytes) {
    out[n++] = size;
    const uint64_t power = std::bit_floor(size);
    uint64_t step = std::max(power / 4, Arena::kAlignBytes);
    if (size >= 4096) step = std::max(step, Arena::kPageBytes);
    if (size >= 32 * 1024) step = power;
    size += step;
  }
  out[n] = 0;
  return out;
}
constexpr std::array<uint64_t, 64> kClasses = make_classes();
constexpr uint32_t kClassCount = [] {
  uint32_t n = 0;
  while (kClasses[n] != 0) ++n;
  return n;
}();
static_assert(kClasses[kClassCount - 1] == Arena::kRunBytes);

uint32_t class_of(uint64_t bytes) {
  const auto* end = kClasses.data() + kClassCount;
  return static_cast<uint32_t>(std::lower_bound(kClasses.data(), end, bytes) - kClasses.data());
}

}  // namespace

// 256 KiB of a slab, cut into places of one class.
struct Arena::Run {
  uint32_t size_class = kNoClass;
  uint32_t places = 0;
  uint32_t live = 0;
  uint32_t hint = 0;        // no free place in the words before
  uint32_t list_index = 0;  // in partial_[size_class] or idle_runs_, where it is in one
  bool listed = false;
  std::array<uint64_t, kPlacesMax / 64> taken{};  // bit = place; bits past `places` are set
};

struct Arena::Segment {
  uint64_t bytes = 0;
  uint64_t large_bytes = 0;  // a large segment: of its range; 0: waits for one, or is a slab
  uint32_t live_runs = 0;    // of a slab: runs of a class
  std::vector<Run> runs;     // of a slab; empty: a large segment
};

Arena::Arena(uint64_t heap_bytes_max)
    : heap_bytes_max_(heap_bytes_max), partial_(kClassCount), empty_(kClassCount) {}
Arena::~Arena() = default;

uint64_t Arena::rounded(uint64_t bytes) {
  if (bytes == 0) return 0;
  if (bytes <= kRunBytes) return kClasses[class_of(bytes)];
  return round_up(bytes, kPageBytes);
}

Result<Arena::Allocation> Arena::allocate(uint64_t bytes) {
  if (bytes == 0) {
    return Error(Code::kInvalidArgument, Scope::kCall, "a buffer of 0 bytes");
  }
  const auto full = [&] {
    return Error(Code::kResourceExhausted, Scope::kCall,
                 fmt::format("no room for a buffer of {} bytes: {} of {} bytes of shared memory "
                             "are taken, {} of them in use; raise Limits::heap_bytes",
                             bytes, segment_bytes_, heap_bytes_max_, used_bytes_));
  };
  if (bytes > heap_bytes_max_ || bytes > std::numeric_limits<uint64_t>::max() - kPageBytes) {
    return full();
  }
  const uint64_t size = rounded(bytes);
  const bool large = size > kRunBytes;
  Allocation out;
  if (large ? take_large(size, &out.range) : take_small(size, &out.range)) {
    used_bytes_ += out.range.bytes;
    return out;
  }
  // The least that serves; a slab is smaller than usual where the heap is nearly full.
  const uint64_t least = large ? size : kRunBytes;
  if (heap_bytes_max_ < segment_bytes_ + least) trim();
  if (heap_bytes_max_ < segment_bytes_ + least) return full();
  const uint64_t room = heap_bytes_max_ - segment_bytes_;
  out.needs_segment = true;
  out.segment_bytes = large ? size : std::min(kSlabBytes, room / kRunBytes * kRunBytes);
  return out;
}

void Arena::add_segment(uint32_t index, uint64_t bytes) {
  STRATA_CHECK(bytes > 0 && bytes % kPageBytes == 0);
  if (index >= segments_.size()) segments_.resize(index + 1);
  STRATA_CHECK(segments_[index] == nullptr);
  segments_[index] = std::make_unique<Segment>();
  segments_[index]->bytes = bytes;
  segment_bytes_ += bytes;
  waiting_.push_back(index);
}

// A new segment becomes a slab or a large range only when a request takes it.
bool Arena::take_large(uint64_t size, Range* out) {
  for (size_t i = 0; i < waiting_.size(); ++i) {
    const uint32_t index = waiting_[i];
    Segment& segment = *segments_[index];
    if (segment.bytes != size) continue;
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
    segment.large_bytes = size;
    *out = {index, 0, size, true};
    return true;
  }
  return false;
}

void Arena::list(std::vector<RunId>& where, RunId id) {
  Run& run = run_of(id);
  STRATA_DCHECK(!run.listed);
  run.listed = true;
  run.list_index = static_cast<uint32_t>(where.size());
  where.push_back(id);
}

void Arena::unlist(std::vector<RunId>& where, RunId id) {
  Run& run = run_of(id);
  STRATA_DCHECK(run.listed);
  run.listed = false;
  const RunId last = where.back();
  where[run.list_index] = last;
  run_of(last).list_index = run.list_index;
  where.pop_back();
}

Arena::Run& Arena::run_of(RunId id) {
  return segments_[id.segment]->runs[id.run];
}

bool Arena::make_slab() {
  for (size_t i = 0; i < waiting_.size(); ++i) {
    const uint32_t index = waiting_[i];
    Segment& segment = *segments_[index];
    if (segment.bytes > kSlabBytes || segment.bytes % kRunBytes != 0) continue;
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
    segment.runs.resize(segment.bytes / kRunBytes);
    for (uint32_t run = static_cast<uint32_t>(segment.runs.size()); run-- > 0;) {
      list(idle_runs_, {index, run});
    }
    return true;
  }
  return false;
}

bool Arena::take_small(uint64_t size, Range* out) {
  const uint32_t size_class = class_of(size);
  std::vector<RunId>& partial = partial_[size_class];
  if (partial.empty()) {
    if (idle_runs_.empty() && !make_slab() && !retire_empty_runs()) return false;
    const RunId id = idle_runs_.back();
    unlist(idle_runs_, id);
    Run& run = run_of(id);
    run.size_class = size_class;
    run.places = static_cast<uint32_t>(kRunBytes / size);
    run.live = 0;
    run.hint = 0;
    run.taken.fill(~uint64_t{0});
    for (uint32_t word = 0; word < run.places / 64; ++word) run.taken[word] = 0;
    if (run.places % 64 != 0) run.taken[run.places / 64] = ~uint64_t{0} << (run.places % 64);
    ++segments_[id.segment]->live_runs;
    list(partial, id);
  }
  const RunId id = partial.back();
  Run& run = run_of(id);
  while (run.taken[run.hint] == ~uint64_t{0}) ++run.hint;
  const uint32_t bit = static_cast<uint32_t>(std::countr_one(run.taken[run.hint]));
  run.taken[run.hint] |= uint64_t{1} << bit;
  if (run.live++ == 0) empty_[size_class].reset();
  if (run.live == run.places) unlist(partial, id);
  const uint64_t place = uint64_t{run.hint} * 64 + bit;
  *out = {id.segment, id.run * kRunBytes + place * size, size, false};
  return true;
}

void Arena::free(uint32_t index, uint64_t offset) {
  STRATA_CHECK(index < segments_.size() && segments_[index] != nullptr);
  Segment& segment = *segments_[index];
  if (segment.runs.empty()) {
    STRATA_CHECK(offset == 0 && segment.large_bytes > 0);
    used_bytes_ -= segment.large_bytes;
    drop(index);
    return;
  }
  const RunId id{index, static_cast<uint32_t>(offset / kRunBytes)};
  STRATA_CHECK(id.run < segment.runs.size());
  Run& run = segment.runs[id.run];
  STRATA_CHECK(run.size_class != kNoClass);
  const uint64_t size = kClasses[run.size_class];
  const uint64_t place = offset % kRunBytes / size;
  const uint64_t mask = uint64_t{1} << (place % 64);
  STRATA_CHECK(offset % kRunBytes % size == 0 && place < run.places &&
               (run.taken[place / 64] & mask) != 0);
  run.taken[place / 64] &= ~mask;
  run.hint = std::min(run.hint, static_cast<uint32_t>(place / 64));
  used_bytes_ -= size;
  if (run.live-- == run.places) list(partial_[run.size_class], id);
  if (run.live > 0) return;
  // The first empty run stays: a buffer that comes and goes need not set one up each time.
  if (empty_[run.size_class]) {
    retire(id);
  } else {
    empty_[run.size_class] = id;
  }
}

void Arena::retire(RunId id) {
  Run& run = run_of(id);
  unlist(partial_[run.size_class], id);
  run.size_class = kNoClass;
  --segments_[id.segment]->live_runs;
  list(idle_runs_, id);
}

// The empty runs that classes keep; false where there is none.
bool Arena::retire_empty_runs() {
  bool any = false;
  for (std::optional<RunId>& id : empty_) {
    if (!id) continue;
    retire(*id);
    id.reset();
    any = true;
  }
  return any;
}

void Arena::drop(uint32_t index) {
  segment_bytes_ -= segments_[index]->bytes;
  segments_[index].reset();
  droppable_.push_back(index);
}

void Arena::trim() {
  retire_empty_runs();
  for (uint32_t index = 0; index < segments_.size(); ++index) {
    Segment* segment = segments_[index].get();
    if (segment == nullptr || segment->runs.empty() || segment->live_runs > 0) continue;
    for (uint32_t run = 0; run < segment->runs.size(); ++run) unlist(idle_runs_, {index, run});
    drop(index);
  }
  for (const uint32_t index : waiting_) drop(index);
  waiting_.clear();
}

}  // namespace strata::buffer
