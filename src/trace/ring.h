// Rings of events in memory that all processes of a Worker's tree share: the region, and a
// Recorder for each process (or thread) that writes.
//
// Not a log and not a file: report.h makes one of it. A ring is filled once, from its beginning; a
// full one drops new events and counts them. Whoever is killed at any instant leaves whole events
// only: an event counts once the ring's count, stored after it, has passed it. What runs at that
// instant stands beside the ring as an open span.
//
// One thread at a time writes through a Recorder. Any process may read; what it reads was written
// by others and is checked by the reader.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "strata/result.h"
#include "trace/event.h"

namespace strata::trace {

// What the ticks of a region are. Who makes the region decides for all who write to it.
enum class ClockKind : uint32_t {
  kNanoseconds = 1,  // of the monotonic clock, or of a simulation
  kCounter = 2,      // of the processor
};

enum class Role : uint32_t {
  kParent = 1,  // a Worker's engine
  kSub = 2,
  kWorker = 3,  // the child's side of a Worker that is itself a child
  kChip = 4,
  kInline = 5,  // tasks that are calls in the parent's process
};

struct Shape {
  uint32_t rings = 1024;
  uint32_t events = 1u << 18;         // of a ring
  uint32_t names_bytes = 64u * 1024;  // of a ring
};

namespace layout {

inline constexpr uint32_t kPathBytesMax = 256;
inline constexpr uint32_t kNameBytesMax = 255;
inline constexpr uint32_t kOpenMax = 4;

struct RegionHeader {
  uint64_t magic;
  uint32_t version;
  uint32_t clock;
  Shape shape;
  uint32_t claimed;  // rings asked for; may pass `shape.rings`
};

// An event without its end. `state`: 0 while it is none.
struct OpenSpan {
  uint64_t state;
  Event event;
};

struct RingHeader {
  uint32_t ready;  // 1 once the four below are there
  uint32_t pid;
  uint32_t role;
  uint32_t path_bytes;
  char path[kPathBytesMax];
  alignas(64) uint64_t count;  // whole events
  uint64_t dropped;
  uint32_t names_bytes;  // whole names
  uint32_t names_dropped;
  alignas(64) OpenSpan open[kOpenMax];
};

}  // namespace layout

// A view of the bytes of a region; whoever maps them keeps them.
class Region {
 public:
  static size_t bytes(const Shape& shape);
  // Of zeroed bytes, exactly as many as bytes(shape).
  static Region format(std::span<std::byte> bytes, const Shape& shape, ClockKind clock);
  // kCorrupt where another has not formatted these bytes, or did so by another version.
  static Result<Region> attach(std::span<std::byte> bytes);

  ClockKind clock() const { return clock_; }
  const Shape& shape() const { return shape_; }

  // --- Reading. The numbers are what a writer says, within the bounds of the shape.
  struct RingInfo {
    uint32_t ring = 0;
    uint32_t pid = 0;
    Role role = Role::kParent;
    std::string path = {};
    uint32_t events = 0;
    uint64_t dropped = 0;
    uint32_t names_dropped = 0;
  };
  // Of all rings that are in use, in the order in which they were claimed.
  std::vector<RingInfo> rings() const;
  // Processes that wanted a ring when none was left.
  uint32_t refused() const;
  // A copy; `index` is below RingInfo::events. Its fields are as they were found.
  Event event(uint32_t ring, uint32_t index) const;
  // What was open when its writer was last seen; the end of each is its start.
  std::vector<Event> open_spans(uint32_t ring) const;
  // By Event::name, the first is for 0. As many as hold together.
  std::vector<std::string> names(uint32_t ring) const;

 private:
  friend class Recorder;
  Region(std::span<std::byte> bytes, const Shape& shape, ClockKind clock)
      : bytes_(bytes), shape_(shape), clock_(clock) {}
  layout::RegionHeader* header() const {
    return reinterpret_cast<layout::RegionHeader*>(bytes_.data());
  }
  std::byte* ring_at(uint32_t ring) const;

  // What others may have overwritten in the region is not read again.
  std::span<std::byte> bytes_;
  Shape shape_;
  ClockKind clock_;
};

// What the writer's process brings.
struct Host {
  // A clock, as cheap as can be and of the region's kind.
  uint64_t (*ticks)(void* context) = nullptr;
  // These pages will be written soon: one call for many costs less than a fault for each. May be
  // null.
  void (*touch)(void* at, size_t bytes) = nullptr;
  void* context = nullptr;
};

class Recorder {
 public:
  struct Who {
    uint32_t pid = 0;
    Role role = Role::kParent;
    std::string_view path = {};  // "L3/0"
  };
  // Claims a ring; `region` outlives this.
  Recorder(const Region& region, Host host, const Who& who);
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  // False: no ring was left, and nothing is kept.
  bool on() const { return header_ != nullptr; }
  uint64_t now() const { return host_.ticks(host_.context); }

  // A full ring drops the event: what is kept is the beginning.
  void push(const Event& event) {
    if (count_ == ready_) [[unlikely]] {
      if (!make_ready()) return;
    }
    events_[count_] = event;
    ++count_;
    // release: who sees this count sees the event.
    std::atomic_ref(header_->count).store(count_, std::memory_order_release);
  }
  // An instant, now.
  void mark(Event event) {
    event.start = event.end = now();
    push(event);
  }

  // A span that is worth knowing of although its writer may not live to its end. `place` is one of
  // layout::kOpenMax; `end` pushes the event.
  void begin(uint32_t place, const Event& event) {
    if (header_ == nullptr) return;
    layout::OpenSpan& open = header_->open[place];
    std::atomic_ref(open.state).store(0, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    open.event = event;
    std::atomic_ref(open.state).store(++opened_, std::memory_order_release);
  }
  void end(uint32_t place, const Event& event) {
    push(event);
    if (header_ == nullptr) return;
    // A kill in between leaves both: the reader knows the open one by its start.
    std::atomic_ref(header_->open[place].state).store(0, std::memory_order_release);
  }

  // For Event::name: the same number for the same text, cut to kNameBytesMax; 0 where the table is
  // full. Slow: for names that are kept.
  uint32_t name(std::string_view text);

 private:
  // Room for one more event; else it is dropped.
  bool make_ready();

  Host host_;
  layout::RingHeader* header_ = nullptr;
  std::byte* names_ = nullptr;
  Event* events_ = nullptr;
  // Of this writer, not of the memory: others cannot make it write elsewhere.
  uint64_t count_ = 0;
  uint64_t ready_ = 0;  // events up to here have been touched
  uint64_t capacity_ = 0;
  uint64_t dropped_ = 0;
  uint64_t opened_ = 0;
  uint32_t names_bytes_ = 0;
  uint32_t names_max_ = 0;
  uint32_t names_count_ = 0;
  uint32_t names_dropped_ = 0;
};

}  // namespace strata::trace
