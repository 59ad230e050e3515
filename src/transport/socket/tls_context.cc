#include "transport/socket/tls_context.h"

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include <optional>

#include "base/result.h"
#include "transport/socket/tls_channel.h"

namespace strata::transport {
namespace {

constexpr unsigned char kSuiteId[] = {0x13, 0x01};

Error no_tls(std::string_view what) {
  const unsigned long code = ERR_peek_last_error();
  const char* reason = code != 0 ? ERR_reason_error_string(code) : nullptr;
  ERR_clear_error();
  return Error(Code::kUnsupported, Scope::kProcess,
               fmt::format("TLS in key mode: {}: {}", what,
                           reason != nullptr ? reason : "OpenSSL gives no reason"));
}

// Both ends of every connection. It knows no key, changes never, and takes milliseconds to make, so
// a process makes it once and keeps it, as OpenSSL does with its own tables.
struct Common {
  SSL_CTX* context = nullptr;
  const SSL_CIPHER* suite = nullptr;
  std::optional<Error> error;
};

Result<void> set_up(SSL_CTX* context) {
  // What the machine's OpenSSL configuration says of versions, suites and tickets does not count.
  if (SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_ciphersuites(context, TlsContext::kSuite.data()) != 1 ||
      SSL_CTX_set1_groups_list(context, "X25519") != 1 ||
      SSL_CTX_set_num_tickets(context, 0) != 1) {
    return no_tls("its one suite cannot be set");
  }
  SSL_CTX_clear_options(context, SSL_OP_ALLOW_NO_DHE_KEX | SSL_OP_IGNORE_UNEXPECTED_EOF);
  SSL_CTX_set_options(context, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  // There is nobody whose certificate would be good, so a peer that shows one is refused.
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  SSL_CTX_set_max_cert_list(context, 4096);
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_clear_mode(context, SSL_MODE_AUTO_RETRY);
  // A record's header and bytes come by one system call; with room for a whole record of 16 KiB.
  SSL_CTX_set_read_ahead(context, 1);
  SSL_CTX_set_default_read_buffer_len(context, 17 << 10);
  return {};
}

}  // namespace

struct TlsContext::Shared {
  static Common make() {
    Common out;
    ERR_clear_error();
    out.context = SSL_CTX_new(TLS_method());
    if (out.context == nullptr) {
      out.error = no_tls("no context");
      return out;
    }
    Result<void> done = set_up(out.context);
    if (!done) out.error = std::move(done).error();
    SSL_CTX_set_psk_use_session_callback(out.context, &TlsChannel::use_session);
    SSL_CTX_set_psk_find_session_callback(out.context, &TlsChannel::find_session);
    // A suite is looked up by a connection, and is the same for all.
    const std::unique_ptr<SSL, decltype(&SSL_free)> look(SSL_new(out.context), &SSL_free);
    out.suite = look ? SSL_CIPHER_find(look.get(), kSuiteId) : nullptr;
    if (out.suite == nullptr && !out.error) out.error = no_tls("its one suite is not there");
    return out;
  }
  static const Common& get() {
    static const Common made = make();
    return made;
  }
};

Result<std::unique_ptr<TlsContext>> TlsContext::create(const KeyRing& ring, std::string_view role,
                                                       TlsSide side) {
  std::unique_ptr<TlsContext> out(new TlsContext(role, side));
  STRATA_TRY(out->build(ring));
  return out;
}

TlsContext::~TlsContext() {
  for (const Psk& key : keys_) SSL_SESSION_free(key.session);
}

Result<void> TlsContext::build(const KeyRing& ring) {
  const Common& common = Shared::get();
  if (common.error) return *common.error;
  context_ = common.context;
  for (const ClusterKey& key : ring.keys()) {
    STRATA_TRY(add_key(key, common.suite));
    if (side_ == TlsSide::kClient) break;  // it shows the first
  }
  ids_ = side_ == TlsSide::kClient ? ring.keys().front().id : ring.ids();
  return {};
}

Result<void> TlsContext::add_key(const ClusterKey& key, const SSL_CIPHER* suite) {
  STRATA_ASSIGN(const Secret secret, derive(key.secret, role_));
  SSL_SESSION* const session = SSL_SESSION_new();
  if (session != nullptr) keys_.push_back({key.id, session});
  if (session == nullptr ||
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
