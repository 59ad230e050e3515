// BufferTable: identity and life of the host buffers of one Worker, and of those that it has from a
// Worker above: imports, which keep their uid.
//
// live -> releasing (owner gone, tasks hold it) -> freed; an index is reused only with a larger
// generation and a new uid. Not the memory: the caller allocates before create and takes freed
// ranges back by take_freed. One thread at a time; the caller locks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "strata/result.h"
#include "strata/tensor.h"

namespace strata::buffer {

inline constexpr uint32_t kNoSegment = ~uint32_t{0};

class BufferTable {
 public:
  enum class State : uint8_t { kLive, kReleasing, kFreed };

  static constexpr uint32_t kOwn = ~uint32_t{0};

  struct Entry {
    Uid uid;
    uint64_t bytes = 0;           // that the user asked for
    uint64_t segment_offset = 0;  // of the first byte in its segment
    uint32_t segment = 0;
    uint32_t generation = 0;
    uint32_t references = 0;  // of submitted tasks
    State state = State::kFreed;
    // kOwn, or the caller's number of this import; segment and segment_offset are of the memory
    // above then.
    uint32_t import = kOwn;
    bool read_only = false;  // no task may write it any more
    bool mapped = false;     // a task had it mapped by a worker that may keep the mapping
  };

  struct Freed {
    uint32_t index;
    uint32_t segment;
    uint64_t segment_offset;
    uint64_t bytes;
    bool import;  // its memory is not this Worker's
    bool mapped;
    Uid uid;
  };

  struct Place {
    uint64_t bytes = 0;
    uint32_t segment = 0;
    uint64_t segment_offset = 0;
  };

  // `uid_high`: 64 random bits of this process; not 0.
  BufferTable(uint64_t uid_high, uint32_t buffers_max)
      : uid_high_(uid_high), buffers_max_(buffers_max) {}
  BufferTable(const BufferTable&) = delete;
  BufferTable& operator=(const BufferTable&) = delete;

  // kResourceExhausted where the next create would be refused: ask before memory is taken.
  Result<void> check_room() const;
  // Returns the index of a live entry without references.
  Result<uint32_t> create(const Place& place);
  // The same for memory of a Worker above, by its uid; `import` is the caller's number, not kOwn.
  // Ended by release_owner. kInvalidArgument for a uid of this Worker's own.
  Result<uint32_t> create_import(const Uid& uid, const Place& place, uint32_t import);

  // The live entry that `tensor` names; null where there is none (see why_not).
  const Entry* find(const Tensor& tensor) const {
    if (tensor.buffer_index >= entries_.size()) return nullptr;
    const Entry& entry = entries_[tensor.buffer_index];
    return entry.uid == tensor.uid && entry.state == State::kLive ? &entry : nullptr;
  }
  // The same with an Error: no buffer, never known here, being freed, freed, or stale (freed, and
  // its place taken by another).
  Result<const Entry*> resolve(const Tensor& tensor) const;
  Error why_not(const Tensor& tensor) const;

  const Entry& at(uint32_t index) const {
    STRATA_DCHECK(index < entries_.size());
    return entries_[index];
  }
  uint32_t end_index() const { return static_cast<uint32_t>(entries_.size()); }

  // Of a live entry.
  void make_read_only(uint32_t index) { entries_[index].read_only = true; }
  void note_mapped(uint32_t index) { entries_[index].mapped = true; }

  // Of a task, from its submit until it is terminal. Only a live entry gains references.
  void acquire(uint32_t index) {
    STRATA_CHECK(index < entries_.size() && entries_[index].state == State::kLive);
    ++entries_[index].references;
  }
  void release(uint32_t index) {
    STRATA_CHECK(index < entries_.size() && entries_[index].references > 0);
    Entry& entry = entries_[index];
    if (--entry.references != 0 || entry.state != State::kReleasing) return;
    --releasing_;
    free_entry(index);
  }
  // The owner lets go: no new use; freed with the last reference, which may be now.
  void release_owner(uint32_t index) {
    STRATA_CHECK(index < entries_.size() && entries_[index].state == State::kLive);
    Entry& entry = entries_[index];
    entry.state = State::kReleasing;
    if (entry.references != 0) {
      ++releasing_;
    } else {
      free_entry(index);
    }
  }

  // Only for a deliberate fault: its memory was given away.
  void detach_place(uint32_t index) { entries_[index].segment = kNoSegment; }

  bool has_freed() const { return !freed_.empty(); }
  // Appends what was freed since the last call: its memory is the caller's again.
  void take_freed(std::vector<Freed>* out) {
    out->insert(out->end(), freed_.begin(), freed_.end());
    freed_.clear();
  }

  uint32_t used() const { return used_; }  // live and releasing
  // Without an owner: freed when the tasks that name them are terminal.
  uint32_t releasing() const { return releasing_; }
  uint64_t bytes_used() const { return bytes_used_; }  // the same, as asked for

 private:
  Result<uint32_t> take(const Uid& uid, const Place& place, uint32_t import);
  void free_entry(uint32_t index);

  uint64_t uid_high_;
  uint64_t uid_low_ = 0;  // the last one given
  uint32_t buffers_max_;
  uint32_t used_ = 0;
  uint32_t releasing_ = 0;
  uint64_t bytes_used_ = 0;
  std::vector<Entry> entries_;
  std::vector<uint32_t> free_;  // indices of freed entries, the last freed on top
  std::vector<Freed> freed_;
};

}  // namespace strata::buffer
