#include "transport/fault/fault_channel.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>

#include "base/result.h"

namespace strata::transport {

Result<size_t> FaultChannel::allowed(Side* side, size_t bytes) {
  if (error_) return *error_;
  const FaultPlan::Direction& plan = side->plan;
  if (side->done >= plan.reset_at) {
    // With this the close that follows is a reset: the peer reads no end, and may lose what came.
    const linger now{.l_onoff = 1, .l_linger = 0};
    ::setsockopt(inner_->descriptor(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
    inner_->close();
    error_ = Error(Code::kEndpointFailed, Scope::kSession,
                   fmt::format("{}: reset after byte {} as planned", peer(), side->done));
    return *error_;
  }
  if (side->done >= plan.stall_at) return size_t{0};
  if (side->delay > 0) {
    --side->delay;
    return size_t{0};
  }
  if (plan.delay_calls_max > 0) {
    side->delay = static_cast<uint32_t>(prng_.below(plan.delay_calls_max + uint64_t{1}));
  }
  uint64_t room = std::min(plan.reset_at, plan.stall_at) - side->done;
  if (plan.chunk_bytes_max > 0) room = std::min(room, prng_.between(1, plan.chunk_bytes_max));
  return static_cast<size_t>(std::min<uint64_t>(room, bytes));
}

void FaultChannel::spoil(const Side& side, std::span<std::byte> bytes) {
  const uint64_t begin = side.plan.garbage_at;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const uint64_t at = side.done + i;
    if (at < begin || at - begin >= side.plan.garbage_bytes) continue;
    // Never the byte that it was.
    bytes[i] ^= static_cast<std::byte>(prng_.between(1, 255));
  }
}

Result<env::ByteChannel::Phase> FaultChannel::advance() {
  if (error_) return *error_;
  return inner_->advance();
}

Result<size_t> FaultChannel::read(std::span<std::byte> out) {
  if (error_) return *error_;
  STRATA_TRY(inner_->advance());
  if (out.empty()) return size_t{0};
  STRATA_ASSIGN(const size_t room, allowed(&read_, out.size()));
  if (room == 0) return size_t{0};
  STRATA_ASSIGN(const size_t got, inner_->read(out.first(room)));
  spoil(read_, out.first(got));
  read_.done += got;
  return got;
}

Result<size_t> FaultChannel::write(std::span<const std::byte> bytes) {
  if (error_) return *error_;
  STRATA_TRY(inner_->advance());
  if (bytes.empty()) return size_t{0};
  STRATA_ASSIGN(size_t room, allowed(&write_, bytes.size()));
  if (room > 0) room = std::max(room, std::min(owed_, bytes.size()));
  cut_ = room < bytes.size() && write_.done < write_.plan.stall_at;
  if (room == 0) return size_t{0};
  copy_.assign(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(room));
  spoil(write_, copy_);
  STRATA_ASSIGN(const size_t taken, inner_->write(copy_));
  owed_ = room - taken;
  write_.done += taken;
  return taken;
}

}  // namespace strata::transport
