// FaultChannel: another ByteChannel with faults put in, the same ones for the same seed. For tests
// and for trials on a real network; it is nowhere in a product's path. One thread at a time.
//
// Places are counted in bytes from the beginning, each direction by itself.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "base/prng.h"
#include "env/byte_channel.h"

namespace strata::transport {

struct FaultPlan {
  static constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();
  struct Direction {
    uint64_t reset_at = kNever;    // the connection is reset, not closed, once so many went through
    uint64_t stall_at = kNever;    // nothing more goes through, and nothing tells
    uint64_t garbage_at = kNever;  // this byte and those after it are random
    uint64_t garbage_bytes = 1;    // so many
    size_t chunk_bytes_max = 0;    // of one call, at random from 1 on; 0: no limit
    // So many calls, at random, give 0 before one goes through. Only below TLS: above it bytes may
    // wait inside while nothing says that the descriptor can be read.
    uint32_t delay_calls_max = 0;
  };
  uint64_t seed = 1;
  Direction read;
  Direction write;
};

class FaultChannel final : public env::ByteChannel {
 public:
  FaultChannel(std::unique_ptr<env::ByteChannel> inner, const FaultPlan& plan)
      : inner_(std::move(inner)), prng_(plan.seed), read_{plan.read}, write_{plan.write} {}

  Result<Phase> advance() override;
  Result<size_t> read(std::span<std::byte> out) override;
  Result<size_t> write(std::span<const std::byte> bytes) override;
  void end_writes() override { inner_->end_writes(); }
  void close() override { inner_->close(); }
  Phase phase() const override { return error_ ? Phase::kClosed : inner_->phase(); }
  bool wants_read() const override { return inner_->wants_read(); }
  bool wants_write() const override { return cut_ || inner_->wants_write(); }
  int descriptor() const override { return inner_->descriptor(); }
  const std::string& peer() const override { return inner_->peer(); }

 private:
  struct Side {
    FaultPlan::Direction plan;
    uint64_t done = 0;
    uint32_t delay = 0;  // calls to go
  };
  // How many bytes may go now; 0: none.
  Result<size_t> allowed(Side* side, size_t bytes);
  void spoil(const Side& side, std::span<std::byte> bytes);

  std::unique_ptr<env::ByteChannel> inner_;
  base::Prng prng_;
  Side read_;
  Side write_;
  size_t owed_ = 0;   // bytes that the inner channel has seen and not taken: it must see them again
  bool cut_ = false;  // the last write took less than there was room for
  std::vector<std::byte> copy_;
  std::optional<Error> error_;
};

}  // namespace strata::transport
