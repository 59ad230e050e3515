// TlsChannel: TLS in key mode over another ByteChannel. The handshake ends well only where both
// ends have used a key of theirs; anything else, however good TLS itself finds it, is an Error with
// what is wrong and what to do. One thread at a time.
//
// kInvalidArgument: trying again is of no use (another key, another role, no TLS there).
// kEndpointFailed: the connection was lost.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "env/byte_channel.h"
#include "transport/socket/tls_context.h"

struct evp_md_st;

namespace strata::transport {

class TlsChannel final : public env::ByteChannel {
 public:
  // Bytes that a peer may send before it has shown its key; a handshake takes less than 1 KiB.
  static constexpr size_t kHandshakeBytesMax = 16 << 10;

  // The context must outlive the channel.
  static Result<std::unique_ptr<TlsChannel>> create(std::unique_ptr<env::ByteChannel> inner,
                                                    const TlsContext& context);
  ~TlsChannel() override;

  Result<Phase> advance() override;
  Result<size_t> read(std::span<std::byte> out) override;
  Result<size_t> write(std::span<const std::byte> bytes) override;
  void end_writes() override;
  void close() override;
  Phase phase() const override { return phase_; }
  bool wants_read() const override { return inner_->wants_read(); }
  bool wants_write() const override {
    const bool late = early_ && phase_ >= Phase::kOpen;
    return phase_ != Phase::kClosed && (blocked_ || late || inner_->wants_write());
  }
  int descriptor() const override { return inner_->descriptor(); }
  const std::string& peer() const override { return inner_->peer(); }
  // The id of the key that both ends used; empty before kOpen.
  const std::string& key_id() const { return key_id_; }

 private:
  friend class TlsContext;
  TlsChannel(std::unique_ptr<env::ByteChannel> inner, const TlsContext& context)
      : inner_(std::move(inner)), context_(context) {}

  static int use_session(ssl_st* ssl, const evp_md_st* digest, const unsigned char** id,
                         size_t* id_bytes, ssl_session_st** session);
  static int find_session(ssl_st* ssl, const unsigned char* id, size_t id_bytes,
                          ssl_session_st** session);
  // The inner channel as OpenSSL sees it.
  friend struct ChannelBio;

  Result<void> handshake();
  Result<void> check_outcome();
  Error fail(Error error);
  Error explain(int outcome);
  Error explain_handshake(unsigned long code);
  Error refused(std::string_view why, std::string_view advice);

  std::unique_ptr<env::ByteChannel> inner_;
  const TlsContext& context_;
  ssl_st* ssl_ = nullptr;
  Phase phase_ = Phase::kConnecting;
  bool blocked_ = false;
  bool early_ = false;  // the last write came before it was open
  bool ended_ = false;
  size_t raw_read_ = 0;  // bytes of the peer's so far, while the handshake lasts
  std::string key_id_;
  std::string unknown_id_;  // that the peer has named
  std::optional<Error> inner_error_;
  std::optional<Error> error_;
};

}  // namespace strata::transport
