// SocketChannel: a ByteChannel over one TCP socket, in clear. Not the one that connects or accepts:
// connect.h and listener.h give it a socket. One thread at a time.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "env/byte_channel.h"
#include "transport/socket/socket_fd.h"

namespace strata::transport {

class SocketChannel final : public env::ByteChannel {
 public:
  // A socket that does not block. `connected` false: a connect is under way. `prefix` goes out
  // before anything else; the channel is kConnecting until it has.
  SocketChannel(SocketFd fd, std::string peer, bool connected, std::vector<std::byte> prefix = {});

  Result<Phase> advance() override;
  Result<size_t> read(std::span<std::byte> out) override;
  Result<size_t> write(std::span<const std::byte> bytes) override;
  void end_writes() override;
  void close() override;
  Phase phase() const override { return phase_; }
  bool wants_read() const override { return connected_ && phase_ != Phase::kClosed; }
  bool wants_write() const override {
    return phase_ != Phase::kClosed && (phase_ == Phase::kConnecting || blocked_);
  }
  int descriptor() const override { return fd_.get(); }
  const std::string& peer() const override { return peer_; }

 private:
  Error fail(Error error);
  Error fail_errno(std::string_view what, int error_number);
  // How many the kernel took.
  Result<size_t> send(std::span<const std::byte> bytes);

  SocketFd fd_;
  std::string peer_;
  std::vector<std::byte> prefix_;
  size_t prefix_sent_ = 0;
  bool connected_;
  bool blocked_ = false;
  bool ended_ = false;  // end_writes()
  Phase phase_;
  std::optional<Error> error_;
};

}  // namespace strata::transport
