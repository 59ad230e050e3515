#include "transport/socket/tls_context.h"

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include "base/result.h"
#include "transport/socket/tls_channel.h"

namespace strata::transport {
namespace {

constexpr unsigned char kSuiteId[] = {0x13, 0x01};
constexpr unsigned char kSessionContext[] = "strata 1";

Error no_tls(std::string_view what) {
  const unsigned long code = ERR_peek_last_error();
  const char* reason = code != 0 ? ERR_reason_error_string(code) : nullptr;
  ERR_clear_error();
  return Error(Code::kUnsupported, Scope::kProcess,
               fmt::format("TLS in key mode: {}: {}", what,
                           reason != nullptr ? reason : "OpenSSL gives no reason"));
}

}  // namespace

Result<std::unique_ptr<TlsContext>> TlsContext::create(const KeyRing& ring, std::string_view role,
                                                       TlsSide side) {
  std::unique_ptr<TlsContext> out(new TlsContext(role, side));
  STRATA_TRY(out->build(ring));
  return out;
}

TlsContext::~TlsContext() {
  for (const Psk& key : keys_) SSL_SESSION_free(key.session);
  SSL_CTX_free(context_);
}

Result<void> TlsContext::build(const KeyRing& ring) {
  ERR_clear_error();
  context_ = SSL_CTX_new(side_ == TlsSide::kClient ? TLS_client_method() : TLS_server_method());
  if (context_ == nullptr) return no_tls("no context");
  STRATA_TRY(set_up());
  for (const ClusterKey& key : ring.keys()) {
    STRATA_TRY(add_key(key));
    if (side_ == TlsSide::kClient) break;  // it shows the first
  }
  ids_ = side_ == TlsSide::kClient ? ring.keys().front().id : ring.ids();
  return {};
}

Result<void> TlsContext::set_up() {
  // What the machine's OpenSSL configuration says of versions, suites and tickets does not count.
  if (SSL_CTX_set_min_proto_version(context_, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_max_proto_version(context_, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_ciphersuites(context_, kSuite.data()) != 1 ||
      SSL_CTX_set1_groups_list(context_, "X25519") != 1 ||
      SSL_CTX_set_num_tickets(context_, 0) != 1) {
    return no_tls("its one suite cannot be set");
  }
  // A server that asks for certificates needs one; a client that has one refuses its own key.
  if (side_ == TlsSide::kServer &&
      SSL_CTX_set_session_id_context(context_, kSessionContext, sizeof kSessionContext) != 1) {
    return no_tls("no session context");
  }
  SSL_CTX_clear_options(context_, SSL_OP_ALLOW_NO_DHE_KEX | SSL_OP_IGNORE_UNEXPECTED_EOF);
  SSL_CTX_set_options(context_, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  SSL_CTX_set_session_cache_mode(context_, SSL_SESS_CACHE_OFF);
  // There is nobody whose certificate would be good, so a peer that shows one is refused.
  SSL_CTX_set_verify(context_, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  SSL_CTX_set_max_cert_list(context_, 4096);
  SSL_CTX_set_mode(context_, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_clear_mode(context_, SSL_MODE_AUTO_RETRY);
  // A record's header and bytes come by one system call; with room for a whole record of 16 KiB.
  SSL_CTX_set_read_ahead(context_, 1);
  SSL_CTX_set_default_read_buffer_len(context_, 17 << 10);
  if (side_ == TlsSide::kClient) {
    SSL_CTX_set_psk_use_session_callback(context_, &TlsChannel::use_session);
  } else {
    SSL_CTX_set_psk_find_session_callback(context_, &TlsChannel::find_session);
  }
  return {};
}

Result<void> TlsContext::add_key(const ClusterKey& key) {
  STRATA_ASSIGN(const Secret secret, derive(key.secret, role_));
  // The suite is looked up by a connection; this one is never used for anything else.
  const std::unique_ptr<SSL, decltype(&SSL_free)> look(SSL_new(context_), &SSL_free);
  const SSL_CIPHER* const suite = look ? SSL_CIPHER_find(look.get(), kSuiteId) : nullptr;
  SSL_SESSION* const session = SSL_SESSION_new();
  if (session != nullptr) keys_.push_back({key.id, session});
  if (suite == nullptr || session == nullptr ||
      SSL_SESSION_set1_master_key(session,
                                  reinterpret_cast<const unsigned char*>(secret.bytes().data()),
                                  kSecretBytes) != 1 ||
      SSL_SESSION_set_cipher(session, suite) != 1 ||
      SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) != 1) {
    return no_tls("no session from a key");
  }
  return {};
}

const TlsContext::Psk* TlsContext::find(std::string_view id) const {
  for (const Psk& key : keys_) {
    if (key.id == id) return &key;
  }
  return nullptr;
}

}  // namespace strata::transport
