#include "buffer/buffer_table.h"

#include <fmt/format.h>

#include <limits>

namespace strata::buffer {

Result<void> BufferTable::check_room() const {
  if (used_ < buffers_max_) return {};
  return Error(Code::kResourceExhausted, Scope::kCall,
               fmt::format("{} buffers and temporaries are in use, which is the limit; raise "
                           "Limits::buffers",
                           used_));
}

Result<uint32_t> BufferTable::create(const Place& place) {
  Result<uint32_t> index = take({uid_high_, uid_low_ + 1}, place, kOwn);
  if (index) ++uid_low_;
  return index;
}

Result<uint32_t> BufferTable::create_import(const Uid& uid, const Place& place, uint32_t import) {
  STRATA_CHECK(import != kOwn);
  if (uid.high == uid_high_ || uid == Uid{}) {
    return Error(Code::kInvalidArgument, Scope::kBuffer,
                 fmt::format("an import of buffer {:016x}-{}, which is this Worker's own or none",
                             uid.high, uid.low));
  }
  return take(uid, place, import);
}

Result<uint32_t> BufferTable::take(const Uid& uid, const Place& place, uint32_t import) {
  if (Result<void> room = check_room(); !room.ok()) return std::move(room).error();
  uint32_t index = 0;
  if (free_.empty()) {
    index = static_cast<uint32_t>(entries_.size());
    entries_.emplace_back();
  } else {
    index = free_.back();
    free_.pop_back();
  }
  Entry& entry = entries_[index];
  entry.uid = uid;
  entry.bytes = place.bytes;
  entry.segment = place.segment;
  entry.segment_offset = place.segment_offset;
  entry.import = import;
  entry.read_only = false;
  entry.mapped = false;
  ++entry.generation;
  entry.references = 0;
  entry.state = State::kLive;
  ++used_;
  bytes_used_ += place.bytes;
  return index;
}

void BufferTable::free_entry(uint32_t index) {
  Entry& entry = entries_[index];
  STRATA_CHECK(entry.state == State::kReleasing && entry.references == 0);
  entry.state = State::kFreed;
  --used_;
  bytes_used_ -= entry.bytes;
  freed_.push_back({index, entry.segment, entry.segment_offset, entry.bytes, entry.import != kOwn,
                    entry.mapped, entry.uid});
  // An index whose generations are used up is never given again.
  if (entry.generation < std::numeric_limits<uint32_t>::max()) free_.push_back(index);
}

Result<const BufferTable::Entry*> BufferTable::resolve(const Tensor& tensor) const {
  const Entry* entry = find(tensor);
  if (entry == nullptr) return why_not(tensor);
  return entry;
}

Error BufferTable::why_not(const Tensor& tensor) const {
  const auto refused = [](Code code, std::string text) {
    return Error(code, Scope::kBuffer, std::move(text));
  };
  if (tensor.wants_storage()) {
    return refused(
        Code::kInvalidArgument,
        "a tensor without storage: only an OUTPUT gets some, of arguments that submit may "
        "change (a TaskArgs that is not const)");
  }
  if (tensor.uid == Uid{}) return refused(Code::kInvalidArgument, "a tensor without a buffer");
  if (tensor.uid.high != uid_high_) {
    return refused(Code::kNotFound,
                   fmt::format("a tensor of buffer {:016x}-{}, which this Worker never had, or had "
                               "only as an argument of a task that has ended",
                               tensor.uid.high, tensor.uid.low));
  }
  const bool given = tensor.uid.high == uid_high_ && tensor.uid.low - 1 < uid_low_ &&
                     tensor.buffer_index < entries_.size();
  if (!given) {
    return refused(Code::kNotFound, fmt::format("a tensor of buffer {:016x}-{}, which this Worker "
                                                "never had",
                                                tensor.uid.high, tensor.uid.low));
  }
  const Entry& entry = entries_[tensor.buffer_index];
  if (entry.uid != tensor.uid && entry.import != kOwn) {
    return refused(Code::kNotFound,
                   fmt::format("a stale tensor: its buffer {} was freed", tensor.uid.low));
  }
  if (entry.uid != tensor.uid) {
    if (entry.uid.low < tensor.uid.low) {
      return refused(Code::kInvalidArgument,
                     fmt::format("a tensor of buffer {} names place {}, where that buffer never "
                                 "was",
                                 tensor.uid.low, tensor.buffer_index));
    }
    return refused(Code::kNotFound,
                   fmt::format("a stale tensor: its buffer {} was freed, and its place is that of "
                               "buffer {} now",
                               tensor.uid.low, entry.uid.low));
  }
  if (entry.state == State::kReleasing) {
    return refused(Code::kNotFound,
                   fmt::format("buffer {} was freed by its owner; {} references of tasks still "
                               "hold its memory, but nothing new may use it",
                               entry.uid.low, entry.references));
  }
  return refused(Code::kNotFound, fmt::format("buffer {} was freed", entry.uid.low));
}

}  // namespace strata::buffer
