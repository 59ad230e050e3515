// RawTls: the other end of a handshake, by OpenSSL itself and whatever way a test wants it. Not the
// product's channel. One thread.
#pragma once

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/transport/channel_rig.h"

namespace strata::transport {

using Context = std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)>;
using Session = std::unique_ptr<SSL_SESSION, decltype(&SSL_SESSION_free)>;

inline Context raw_context(const SSL_METHOD* method) {
  Context out(SSL_CTX_new(method), &SSL_CTX_free);
  SSL_CTX_set_verify(out.get(), SSL_VERIFY_NONE, nullptr);
  return out;
}

// A certificate that it has signed itself, as anyone can make one.
inline void give_certificate(SSL_CTX* context) {
  EVP_PKEY* const key = EVP_EC_gen("P-256");
  X509* const cert = X509_new();
  ASN1_INTEGER_set(X509_get_serialNumber(cert), 1);
  X509_gmtime_adj(X509_getm_notBefore(cert), 0);
  X509_gmtime_adj(X509_getm_notAfter(cert), 3600);
  X509_set_pubkey(cert, key);
  X509_NAME* const name = X509_get_subject_name(cert);
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>("anyone"), -1, -1, 0);
  X509_set_issuer_name(cert, name);
  X509_sign(cert, key, EVP_sha256());
  SSL_CTX_use_certificate(context, cert);
  SSL_CTX_use_PrivateKey(context, key);
  X509_free(cert);
  EVP_PKEY_free(key);
}

class RawTls {
 public:
  RawTls(SSL_CTX* context, SocketFd fd, bool client)
      : fd_(std::move(fd)), ssl_(SSL_new(context), &SSL_free) {
    const int flags = ::fcntl(fd_.get(), F_GETFL);
    ::fcntl(fd_.get(), F_SETFL, flags | O_NONBLOCK);
    SSL_set_fd(ssl_.get(), fd_.get());
    client ? SSL_set_connect_state(ssl_.get()) : SSL_set_accept_state(ssl_.get());
    SSL_set_app_data(ssl_.get(), this);
  }

  // Shows this key in that suite (two bytes of its number).
  void use_key(const ClusterKey& key, std::string_view role, uint16_t suite = 0x1301) {
    id_ = key.id;
    const Secret secret = derive(key.secret, role).value();
    const unsigned char number[] = {static_cast<unsigned char>(suite >> 8),
                                    static_cast<unsigned char>(suite)};
    session_.reset(SSL_SESSION_new());
    SSL_SESSION_set1_master_key(session_.get(),
                                reinterpret_cast<const unsigned char*>(secret.bytes().data()),
                                kSecretBytes);
    SSL_SESSION_set_cipher(session_.get(), SSL_CIPHER_find(ssl_.get(), number));
    SSL_SESSION_set_protocol_version(session_.get(), TLS1_3_VERSION);
    SSL_set_psk_use_session_callback(ssl_.get(), &RawTls::use);
    SSL_set_psk_find_session_callback(ssl_.get(), &RawTls::find);
  }

  // True when the handshake has ended well; failed() when it has not.
  bool step() {
    ERR_clear_error();
    const int outcome = SSL_do_handshake(ssl_.get());
    if (outcome == 1) return true;
    const int why = SSL_get_error(ssl_.get(), outcome);
    failed_ |= why != SSL_ERROR_WANT_READ && why != SSL_ERROR_WANT_WRITE;
    return false;
  }
  // What came, at most 100 bytes; handles what else the peer sends on the way.
  std::string read() {
    char buffer[100];
    ERR_clear_error();
    const int n = SSL_read(ssl_.get(), buffer, sizeof buffer);
    return n > 0 ? std::string(buffer, static_cast<size_t>(n)) : std::string();
  }
  void write(std::string_view text) {
    EXPECT_EQ(SSL_write(ssl_.get(), text.data(), static_cast<int>(text.size())),
              static_cast<int>(text.size()));
  }
  bool failed() const { return failed_; }
  SSL* ssl() const { return ssl_.get(); }
  const std::string& offered() const { return offered_; }
  void close() { fd_.reset(); }

 private:
  static RawTls* self(SSL* ssl) { return static_cast<RawTls*>(SSL_get_app_data(ssl)); }
  static int use(SSL* ssl, const EVP_MD*, const unsigned char** id, size_t* bytes,
                 SSL_SESSION** session) {
    RawTls* const raw = self(ssl);
    SSL_SESSION_up_ref(raw->session_.get());
    *id = reinterpret_cast<const unsigned char*>(raw->id_.data());
    *bytes = raw->id_.size();
    *session = raw->session_.get();
    return 1;
  }
  static int find(SSL* ssl, const unsigned char* id, size_t bytes, SSL_SESSION** session) {
    RawTls* const raw = self(ssl);
    raw->offered_.assign(reinterpret_cast<const char*>(id), bytes);
    *session = nullptr;
    if (raw->offered_ != raw->id_) return 1;
    SSL_SESSION_up_ref(raw->session_.get());
    *session = raw->session_.get();
    return 1;
  }

  SocketFd fd_;
  std::unique_ptr<SSL, decltype(&SSL_free)> ssl_;
  Session session_{nullptr, &SSL_SESSION_free};
  std::string id_;
  std::string offered_;
  bool failed_ = false;
};

}  // namespace strata::transport
