#include "trace/ring.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/text.h"

namespace strata::trace {
namespace {

using layout::RegionHeader;
using layout::RingHeader;

constexpr uint64_t kMagic = 0x31656e696c656d54ull;  // "Tmeline1"
constexpr uint32_t kVersion = 1;
constexpr size_t kPage = 4096;
// 20 pages: a stretch that is a whole number of pages and of events, and is soon done.
constexpr uint64_t kEventsTouched = 2048;
static_assert(kEventsTouched * sizeof(Event) % kPage == 0);

// What a header may say, so that sizes cannot overflow.
constexpr uint32_t kRingsMax = 1u << 16;
constexpr uint32_t kEventsMax = 1u << 24;
constexpr uint32_t kNamesBytesMax = 1u << 24;

constexpr size_t pages(size_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}
// The header is in the first page, with the beginning of the names.
size_t names_at() {
  return sizeof(RingHeader);
}
size_t events_at(const Shape& shape) {
  return pages(sizeof(RingHeader) + shape.names_bytes);
}
size_t ring_bytes(const Shape& shape) {
  return events_at(shape) + pages(size_t{shape.events} * sizeof(Event));
}
bool possible(const Shape& shape) {
  return shape.rings >= 1 && shape.rings <= kRingsMax && shape.events >= 1 &&
         shape.events <= kEventsMax && shape.names_bytes <= kNamesBytesMax;
}

template <class T>
std::atomic_ref<T> word(T& at) {
  return std::atomic_ref<T>(at);
}

// A name in the table: its length in one byte, then its bytes. Empty ones do not occur.
template <class Fn>
void for_each_name(const std::byte* table, uint32_t bytes, Fn&& fn) {
  for (uint32_t at = 0; at < bytes;) {
    const auto length = static_cast<uint32_t>(table[at]);
    ++at;
    if (length == 0 || length > bytes - at) return;
    fn(std::string_view(reinterpret_cast<const char*>(table + at), length));
    at += length;
  }
}

}  // namespace

// ---------------------------------------------------------------- the region

size_t Region::bytes(const Shape& shape) {
  STRATA_CHECK(possible(shape));
  return kPage + size_t{shape.rings} * ring_bytes(shape);
}

std::byte* Region::ring_at(uint32_t ring) const {
  STRATA_DCHECK(ring < shape_.rings);
  return bytes_.data() + kPage + size_t{ring} * ring_bytes(shape_);
}

Region Region::format(std::span<std::byte> bytes, const Shape& shape, ClockKind clock) {
  STRATA_CHECK(bytes.size() == Region::bytes(shape));
  Region region(bytes, shape, clock);
  RegionHeader* const header = region.header();
  header->version = kVersion;
  header->clock = static_cast<uint32_t>(clock);
  header->shape = shape;
  word(header->magic).store(kMagic, std::memory_order_release);
  return region;
}

Result<Region> Region::attach(std::span<std::byte> bytes) {
  const auto corrupt = [](std::string text) {
    return Error(Code::kCorrupt, Scope::kProcess, "the timeline's memory " + std::move(text));
  };
  if (bytes.size() < kPage) return corrupt("is too small");
  RegionHeader* const header = reinterpret_cast<RegionHeader*>(bytes.data());
  if (word(header->magic).load(std::memory_order_acquire) != kMagic) {
    return corrupt("is not formatted");
  }
  if (header->version != kVersion) {
    return corrupt(fmt::format("is of version {}, not {}", header->version, kVersion));
  }
  const Shape shape = header->shape;
  const uint32_t clock = header->clock;
  if (!possible(shape) || bytes.size() != Region::bytes(shape)) {
    return corrupt(fmt::format("has {} bytes, which is not what its header says", bytes.size()));
  }
  if (clock != static_cast<uint32_t>(ClockKind::kNanoseconds) &&
      clock != static_cast<uint32_t>(ClockKind::kCounter)) {
    return corrupt(fmt::format("has a clock of unknown kind {}", clock));
  }
  return Region(bytes, shape, static_cast<ClockKind>(clock));
}

// ---------------------------------------------------------------- reading

uint32_t Region::refused() const {
  const uint32_t claimed = word(header()->claimed).load(std::memory_order_acquire);
  return claimed > shape_.rings ? claimed - shape_.rings : 0;
}

std::vector<Region::RingInfo> Region::rings() const {
  std::vector<RingInfo> out;
  const uint32_t claimed =
      std::min(word(header()->claimed).load(std::memory_order_acquire), shape_.rings);
  for (uint32_t ring = 0; ring < claimed; ++ring) {
    RingHeader& header = *reinterpret_cast<RingHeader*>(ring_at(ring));
    if (word(header.ready).load(std::memory_order_acquire) != 1) continue;
    RingInfo info;
    info.ring = ring;
    info.pid = header.pid;
    const uint32_t role = header.role;
    if (role < static_cast<uint32_t>(Role::kParent) || role > static_cast<uint32_t>(Role::kInline))
      continue;
    info.role = static_cast<Role>(role);
    info.path.assign(header.path, std::min(word(header.path_bytes).load(std::memory_order_relaxed),
                                           layout::kPathBytesMax));
    // acquire: the events below the count are whole.
    info.events = static_cast<uint32_t>(
        std::min<uint64_t>(word(header.count).load(std::memory_order_acquire), shape_.events));
    info.dropped = word(header.dropped).load(std::memory_order_relaxed);
    info.names_dropped = word(header.names_dropped).load(std::memory_order_relaxed);
    out.push_back(std::move(info));
  }
  return out;
}

Event Region::event(uint32_t ring, uint32_t index) const {
  STRATA_DCHECK(index < shape_.events);
  Event out;
  std::memcpy(&out, ring_at(ring) + events_at(shape_) + size_t{index} * sizeof out, sizeof out);
  return out;
}

std::vector<Event> Region::open_spans(uint32_t ring) const {
  std::vector<Event> out;
  RingHeader& header = *reinterpret_cast<RingHeader*>(ring_at(ring));
  for (layout::OpenSpan& open : header.open) {
    const uint64_t state = word(open.state).load(std::memory_order_acquire);
    if (state == 0) continue;
    Event event;
    std::memcpy(&event, &open.event, sizeof event);
    std::atomic_thread_fence(std::memory_order_acquire);
    // Else its writer lives, and is about to replace it.
    if (word(open.state).load(std::memory_order_relaxed) != state) continue;
    event.end = event.start;
    out.push_back(event);
  }
  return out;
}

std::vector<std::string> Region::names(uint32_t ring) const {
  std::vector<std::string> out{""};
  const std::byte* const at = ring_at(ring);
  RingHeader& header = *reinterpret_cast<RingHeader*>(ring_at(ring));
  const uint32_t bytes =
      std::min(word(header.names_bytes).load(std::memory_order_acquire), shape_.names_bytes);
  for_each_name(at + names_at(), bytes, [&](std::string_view name) { out.emplace_back(name); });
  return out;
}

// ---------------------------------------------------------------- writing

Recorder::Recorder(const Region& region, Host host, const Who& who) : host_(host) {
  const uint32_t ring = word(region.header()->claimed).fetch_add(1, std::memory_order_acq_rel);
  if (ring >= region.shape_.rings) return;
  std::byte* const at = region.ring_at(ring);
  header_ = reinterpret_cast<RingHeader*>(at);
  names_ = at + names_at();
  events_ = reinterpret_cast<Event*>(at + events_at(region.shape_));
  capacity_ = region.shape_.events;
  names_max_ = region.shape_.names_bytes;
  header_->pid = who.pid;
  header_->role = static_cast<uint32_t>(who.role);
  const std::string_view path = base::cut_text(who.path, layout::kPathBytesMax);
  path.copy(header_->path, path.size());
  header_->path_bytes = static_cast<uint32_t>(path.size());
  word(header_->ready).store(1, std::memory_order_release);
}

bool Recorder::make_ready() {
  if (header_ == nullptr) return false;
  if (count_ == capacity_) {
    word(header_->dropped).store(++dropped_, std::memory_order_relaxed);
    return false;
  }
  const uint64_t more = std::min(kEventsTouched, capacity_ - ready_);
  if (host_.touch != nullptr) host_.touch(events_ + ready_, more * sizeof(Event));
  ready_ += more;
  return true;
}

uint32_t Recorder::name(std::string_view text) {
  if (header_ == nullptr || text.empty()) return 0;
  text = base::cut_text(text, layout::kNameBytesMax);
  if (text.empty()) return 0;
  uint32_t at = 0;
  uint32_t found = 0;
  for_each_name(names_, names_bytes_, [&](std::string_view known) {
    ++at;
    if (found == 0 && known == text) found = at;
  });
  if (found != 0) return found;
  if (names_max_ - names_bytes_ < 1 + text.size()) {
    word(header_->names_dropped).store(++names_dropped_, std::memory_order_relaxed);
    return 0;
  }
  names_[names_bytes_] = static_cast<std::byte>(text.size());
  std::memcpy(names_ + names_bytes_ + 1, text.data(), text.size());
  names_bytes_ += static_cast<uint32_t>(1 + text.size());
  word(header_->names_bytes).store(names_bytes_, std::memory_order_release);
  return ++names_count_;
}

}  // namespace strata::trace
