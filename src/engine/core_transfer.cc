// The part of Core that decides how the bytes of an argument get to its worker, and tells workers
// that a buffer which they may have mapped is gone.
#include <fmt/format.h>

#include "base/bytes.h"
#include "base/mark.h"
#include "engine/core.h"

namespace strata::engine {
namespace {

Error refused(Code code, size_t number, std::string_view text) {
  return Error(code, Scope::kCall, fmt::format("tensor {} {}", number, text));
}

std::string_view children_of(Pool pool) {
  return pool == Pool::kSub ? "SUB children" : "child Workers";
}

}  // namespace

std::string kinds_text(uint32_t kinds) {
  std::string out;
  for (uint32_t kind = 1; kind <= static_cast<uint32_t>(CallableKind::kLocalFunction); ++kind) {
    if ((kinds >> kind & 1) == 0) continue;
    out += fmt::format("{}{}", out.empty() ? "" : ", ", name_of(static_cast<CallableKind>(kind)));
  }
  return out;
}

// The transfer of an argument to workers of that pool; none, and *error, where there is no way.
std::optional<uint8_t> Core::transfer_of(size_t number, const TensorArg& arg, uint32_t index,
                                         Pool pool, std::optional<Error>* error) {
  const buffer::BufferTable::Entry& entry = buffers_.at(index);
  const bool map = arg.transfer == Transfer::kMap;
  if (entry.read_only && writes(arg.tag)) {
    *error = refused(Code::kInvalidArgument, number,
                     fmt::format("is {}{}, and its buffer is read-only (Buffer::make_read_only)",
                                 name_of(arg.tag), map ? ", a map for writing" : ""));
    return std::nullopt;
  }
  const uint32_t can = pool_transfers_[static_cast<size_t>(pool)];
  if (can == kInPlace) {
    if (arg.transfer != Transfer::kCopy) return model::kTransferMap;
    *error = refused(Code::kUnsupported, number,
                     fmt::format("asks for a copy, and {} work in place: leave its transfer at the "
                                 "default",
                                 children_of(pool)));
    return std::nullopt;
  }
  if (!map) {
    if (reads(arg.tag) || writes(arg.tag)) return model::kTransferCopy;
    *error = refused(Code::kInvalidArgument, number,
                     "is NO_DEP, which says nothing of what to copy: use Transfer::kMap, or a tag");
    return std::nullopt;
  }
  if ((can & kCanMap) == 0) {
    *error = refused(Code::kUnsupported, number,
                     "is to be mapped, and its target cannot reach this host's memory: use "
                     "Transfer::kCopy");
    return std::nullopt;
  }
  if (entry.import != buffer::BufferTable::kOwn) {
    *error = refused(Code::kUnsupported, number,
                     "is to be mapped, and its buffer belongs to a Worker above: only a Worker's "
                     "own memory can be mapped; use Transfer::kCopy");
    return std::nullopt;
  }
  buffers_.note_mapped(index);
  return model::kTransferMap;
}

// What a task maps it does not copy too: both ways would write the same bytes in no order.
bool Core::maps_apart(const TaskArgs& args, size_t first, std::optional<Error>* error) const {
  const size_t n = args.tensors().size();
  for (size_t map = 0; map < n; ++map) {
    if (placements_[first + map].transfer != model::kTransferMap) continue;
    for (size_t copy = 0; copy < n; ++copy) {
      if (placements_[first + copy].transfer != model::kTransferCopy) continue;
      const sched::Access& a = accesses_[first + map];
      const sched::Access& b = accesses_[first + copy];
      if (a.buffer != b.buffer || !graph::overlap(a.region, b.region)) continue;
      *error = refused(
          Code::kInvalidArgument, map,
          fmt::format("maps bytes that tensor {} copies: give both the same transfer", copy));
      return false;
    }
  }
  return true;
}

// The workers of the pool cannot run such a callable, wherever it is registered.
std::optional<Error> Core::wrong_kind(const Job& job) const {
  const auto info = registry_.info(job.callable.index);
  const uint32_t can = pool_kinds_[static_cast<size_t>(job.where.pool)];
  if (!info || !registry_.visible(job.callable)) return std::nullopt;
  if (can == 0 || (can >> static_cast<uint32_t>(info->kind) & 1) != 0) return std::nullopt;
  const bool chips = job.where.pool == Pool::kNext && (can >> 1 & 1) != 0;
  return Error(Code::kUnsupported, Scope::kCall,
               fmt::format("callable '{}' is a {}, and {} run: {}", info->name, name_of(info->kind),
                           chips ? "chips" : children_of(job.where.pool), kinds_text(can)),
               options_.path);
}

void Core::drop_mappings(base::Instant now) {
  for (const Uid& uid : dropped_) {
    for (uint32_t worker = 0; worker < workers_.size(); ++worker) {
      WorkerEntry& entry = workers_[worker];
      // One that is not ready has run no task, and so has mapped nothing.
      if ((entry.caps.transfers & kCanMap) == 0 || entry.state != WorkerState::kReady) continue;
      STRATA_MARK("engine: a chip is told of a buffer that is gone");
      entry.rest->controls.push_back({{}, uid});
      ++controls_open_;
      post_controls(worker, now);
    }
  }
  dropped_.clear();
}

}  // namespace strata::engine
