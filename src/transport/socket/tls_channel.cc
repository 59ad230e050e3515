#include "transport/socket/tls_channel.h"

#include <fmt/format.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <climits>

#include "base/check.h"
#include "base/result.h"

namespace strata::transport {
namespace {

constexpr unsigned char kSessionContext[] = "strata 1";

}  // namespace

// OpenSSL's socket BIO writes with SIGPIPE and knows no decorators; this one calls the channel.
struct ChannelBio {
  static TlsChannel* self(BIO* bio) { return static_cast<TlsChannel*>(BIO_get_data(bio)); }

  static int read(BIO* bio, char* out, size_t bytes, size_t* got) {
    TlsChannel* const channel = self(bio);
    BIO_clear_retry_flags(bio);
    *got = 0;
    const bool early = channel->phase_ < env::ByteChannel::Phase::kOpen;
    if (early && channel->raw_read_ >= TlsChannel::kHandshakeBytesMax) {
      channel->inner_error_ = channel->refused("the peer has sent 16 KiB and no key",
                                               "something else than Strata speaks there");
      return 0;
    }
    if (early) bytes = std::min(bytes, TlsChannel::kHandshakeBytesMax - channel->raw_read_);
    Result<size_t> n = channel->inner_->read({reinterpret_cast<std::byte*>(out), bytes});
    if (!n) {
      channel->inner_error_ = std::move(n).error();
      return 0;
    }
    if (*n == 0) {
      BIO_set_retry_read(bio);
      return 0;
    }
    if (early) {
      channel->raw_read_ += *n;
      channel->phase_ = env::ByteChannel::Phase::kHandshake;
    }
    *got = *n;
    return 1;
  }

  static int write(BIO* bio, const char* bytes, size_t count, size_t* taken) {
    TlsChannel* const channel = self(bio);
    BIO_clear_retry_flags(bio);
    *taken = 0;
    Result<size_t> n = channel->inner_->write({reinterpret_cast<const std::byte*>(bytes), count});
    if (!n) {
      channel->inner_error_ = std::move(n).error();
      return 0;
    }
    if (*n == 0) {
      BIO_set_retry_write(bio);
      return 0;
    }
    *taken = *n;
    return 1;
  }

  static long control(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

  // Made once and kept for the process's life, as OpenSSL's own are.
  static const BIO_METHOD* method() {
    static const BIO_METHOD* const made = [] {
      BIO_METHOD* out = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "strata channel");
      if (out == nullptr) return out;
      BIO_meth_set_read_ex(out, &read);
      BIO_meth_set_write_ex(out, &write);
      BIO_meth_set_ctrl(out, &control);
      return out;
    }();
    return made;
  }
};

Result<std::unique_ptr<TlsChannel>> TlsChannel::create(std::unique_ptr<env::ByteChannel> inner,
                                                       const TlsContext& context) {
  std::unique_ptr<TlsChannel> out(new TlsChannel(std::move(inner), context));
  const BIO_METHOD* const method = ChannelBio::method();
  BIO* const bio = method != nullptr ? BIO_new(method) : nullptr;
  out->ssl_ = bio != nullptr ? SSL_new(context.context_) : nullptr;
  if (out->ssl_ == nullptr) {
    BIO_free(bio);
    ERR_clear_error();
    return Error(Code::kResourceExhausted, Scope::kSession, "no memory for a TLS connection");
  }
  BIO_set_data(bio, out.get());
  BIO_set_init(bio, 1);
  SSL_set_bio(out->ssl_, bio, bio);
  SSL_set_app_data(out->ssl_, out.get());
  // One call for what is there, instead of two a record.
  SSL_set_read_ahead(out->ssl_, 1);
  if (context.side() == TlsSide::kClient) {
    SSL_set_connect_state(out->ssl_);
    return out;
  }
  SSL_set_accept_state(out->ssl_);
  // A server that verifies must have one; a client that has one refuses its own key.
  if (SSL_set_session_id_context(out->ssl_, kSessionContext, sizeof kSessionContext) != 1) {
    ERR_clear_error();
    return Error(Code::kSystem, Scope::kSession, "TLS in key mode: no session context");
  }
  return out;
}

TlsChannel::~TlsChannel() {
  SSL_free(ssl_);
}

int TlsChannel::use_session(SSL* ssl, const EVP_MD*, const unsigned char** id, size_t* id_bytes,
                            SSL_SESSION** session) {
  auto* const channel = static_cast<TlsChannel*>(SSL_get_app_data(ssl));
  const TlsContext::Psk& key = channel->context_.keys_.front();
  // A copy: a connection that fails marks its session as of no use.
  *session = SSL_SESSION_dup(key.session);
  *id = reinterpret_cast<const unsigned char*>(key.id.data());
  *id_bytes = key.id.size();
  channel->key_id_ = key.id;
  return *session != nullptr ? 1 : 0;
}

int TlsChannel::find_session(SSL* ssl, const unsigned char* id, size_t id_bytes,
                             SSL_SESSION** session) {
  auto* const channel = static_cast<TlsChannel*>(SSL_get_app_data(ssl));
  const std::string_view name(reinterpret_cast<const char*>(id), id_bytes);
  *session = nullptr;
  const TlsContext::Psk* const key = channel->context_.find(name);
  if (key != nullptr) {
    *session = SSL_SESSION_dup(key->session);
    channel->key_id_ = key->id;
    return *session != nullptr ? 1 : 0;
  }
  const bool plain = id_bytes == kKeyIdBytes &&
                     name.find_first_not_of("0123456789abcdef") == std::string_view::npos;
  channel->unknown_id_ = plain ? std::string(name) : fmt::format("of {} bytes", id_bytes);
  // With no session the handshake goes on without a key and finds no certificate: its end.
  return 1;
}

Error TlsChannel::fail(Error error) {
  phase_ = Phase::kClosed;
  error_ = std::move(error);
  return *error_;
}

Error TlsChannel::refused(std::string_view why, std::string_view advice) {
  return Error(Code::kInvalidArgument, Scope::kSession,
               fmt::format("TLS with {} (role {}): {}; {}", peer(), context_.role(), why, advice));
}

// What the other end, or this one, did not like, in words that name the key and never the secret.
Error TlsChannel::explain_handshake(unsigned long code) {
  const int reason = ERR_GET_LIB(code) == ERR_LIB_SSL ? ERR_GET_REASON(code) : 0;
  const char* const text = ERR_reason_error_string(code);
  const std::string said = text != nullptr ? text : "no reason given";
  const bool client = context_.side() == TlsSide::kClient;
  switch (reason) {
    case SSL_R_WRONG_VERSION_NUMBER:
    case SSL_R_HTTP_REQUEST:
    case SSL_R_HTTPS_PROXY_REQUEST:
    case SSL_R_BAD_RECORD_TYPE:
      return refused(
          "the peer does not speak TLS",
          client ? "start it with --key, or connect without a key" : "it must connect with a key");
    case SSL_R_BINDER_DOES_NOT_VERIFY:
      return refused(fmt::format("the peer names the key {} but has another secret, or is here for "
                                 "another role",
                                 key_id_),
                     "both sides need the same key file");
    default:
      break;
  }
  if (!unknown_id_.empty()) {
    return refused(fmt::format("the peer's key {} is not known here, where {} is", unknown_id_,
                               context_.ids()),
                   "give both sides the same key file");
  }
  if (client && reason >= SSL_AD_REASON_OFFSET) {
    return refused(fmt::format("the peer has refused the key {} ({})", key_id_, said),
                   "both sides need the same key file");
  }
  return refused(fmt::format("no agreement ({})", said),
                 "both sides need Strata with a key of `strata key new`");
}

Error TlsChannel::explain(int outcome) {
  const int why = SSL_get_error(ssl_, outcome);
  const unsigned long code = ERR_peek_error();
  ERR_clear_error();
  if (phase_ < Phase::kOpen) {
    if (!inner_error_) return explain_handshake(code);
    if (inner_error_->code() == Code::kInvalidArgument) return *inner_error_;
    return Error(inner_error_->code(), inner_error_->scope(),
                 fmt::format("{}, during the TLS handshake", inner_error_->message()));
  }
  if (why == SSL_ERROR_ZERO_RETURN) {
    return Error(Code::kEndpointFailed, Scope::kSession,
                 fmt::format("{} has closed the connection", peer()));
  }
  if (inner_error_) return *inner_error_;
  const char* const text = ERR_reason_error_string(code);
  return Error(Code::kCorrupt, Scope::kSession,
               fmt::format("TLS with {}: {}", peer(), text != nullptr ? text : "lost"));
}

Result<void> TlsChannel::check_outcome() {
  const SSL_CIPHER* const suite = SSL_get_current_cipher(ssl_);
  if (SSL_session_reused(ssl_) != 1 || SSL_get0_peer_certificate(ssl_) != nullptr) {
    return refused("the handshake ended without a key", "both sides need the same key file");
  }
  if (SSL_version(ssl_) != TLS1_3_VERSION || suite == nullptr ||
      SSL_CIPHER_get_protocol_id(suite) != 0x1301) {
    return refused("another version or suite", "both sides need this version of Strata");
  }
  return {};
}

Result<void> TlsChannel::handshake() {
  ERR_clear_error();
  const int outcome = SSL_do_handshake(ssl_);
  blocked_ = false;
  if (outcome == 1) {
    if (Result<void> checked = check_outcome(); !checked) return fail(std::move(checked).error());
    phase_ = Phase::kOpen;
    return {};
  }
  switch (SSL_get_error(ssl_, outcome)) {
    case SSL_ERROR_WANT_READ:
      return {};
    case SSL_ERROR_WANT_WRITE:
      blocked_ = true;
      return {};
    default:
      return fail(explain(outcome));
  }
}

Result<env::ByteChannel::Phase> TlsChannel::advance() {
  if (error_) return *error_;
  if (phase_ >= Phase::kOpen) return phase_;
  if (phase_ == Phase::kConnecting) {
    Result<Phase> inner = inner_->advance();
    if (!inner) return fail(std::move(inner).error());
    if (*inner == Phase::kConnecting) return phase_;
    phase_ = Phase::kSilent;
  }
  STRATA_TRY(handshake());
  return phase_;
}

Result<size_t> TlsChannel::read(std::span<std::byte> out) {
  STRATA_ASSIGN(const Phase now, advance());
  if (now < Phase::kOpen || out.empty()) return size_t{0};
  ERR_clear_error();
  size_t got = 0;
  const int outcome = SSL_read_ex(ssl_, out.data(), out.size(), &got);
  if (outcome == 1) {
    phase_ = Phase::kHeard;
    return got;
  }
  const int why = SSL_get_error(ssl_, outcome);
  if (why == SSL_ERROR_WANT_READ) return size_t{0};
  if (why == SSL_ERROR_WANT_WRITE) {
    blocked_ = true;
    return size_t{0};
  }
  return fail(explain(outcome));
}

Result<size_t> TlsChannel::write(std::span<const std::byte> bytes) {
  STRATA_ASSIGN(const Phase now, advance());
  if (!bytes.empty()) early_ = now < Phase::kOpen;
  if (now < Phase::kOpen || bytes.empty()) return size_t{0};
  if (ended_) {
    return Error(Code::kWrongState, Scope::kCall, fmt::format("write to {} after its end", peer()));
  }
  size_t taken = 0;
  blocked_ = false;
  // One record holds 16 KiB; the rest goes while there is room.
  while (taken < bytes.size()) {
    ERR_clear_error();
    size_t now_taken = 0;
    const int outcome = SSL_write_ex(ssl_, bytes.data() + taken, bytes.size() - taken, &now_taken);
    if (outcome == 1) {
      taken += now_taken;
      continue;
    }
    const int why = SSL_get_error(ssl_, outcome);
    if (why != SSL_ERROR_WANT_WRITE && why != SSL_ERROR_WANT_READ) return fail(explain(outcome));
    blocked_ = true;
    break;
  }
  return taken;
}

void TlsChannel::end_writes() {
  if (ended_) return;
  ended_ = true;
  blocked_ = early_ = false;
  if (phase_ == Phase::kOpen || phase_ == Phase::kHeard) {
    ERR_clear_error();
    SSL_shutdown(ssl_);
    ERR_clear_error();
  }
  inner_->end_writes();
}

void TlsChannel::close() {
  end_writes();
  inner_->close();
  if (!error_) {
    error_ = Error(Code::kWrongState, Scope::kCall,
                   fmt::format("the connection to {} was closed by this side", peer()));
  }
  phase_ = Phase::kClosed;
}

}  // namespace strata::transport
