// TlsContext: one role's half of TLS in key mode. TLS 1.3 with one suite; both ends know a key of
// the ring, and nothing else lets anyone in: no certificate, no ticket, no session cache, no other
// version. Not a connection: TlsChannel is. Made once for each role and side, then only read: any
// thread. The first of a process takes milliseconds, further ones a few microseconds.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "strata/result.h"
#include "transport/socket/key_ring.h"

struct ssl_cipher_st;
struct ssl_ctx_st;
struct ssl_session_st;
struct ssl_st;

namespace strata::transport {

enum class TlsSide { kClient, kServer };

class TlsContext {
 public:
  static constexpr std::string_view kSuite = "TLS_AES_128_GCM_SHA256";

  // `role` is what the connection is for. Both ends name the same one, or do not come together.
  static Result<std::unique_ptr<TlsContext>> create(const KeyRing& ring, std::string_view role,
                                                    TlsSide side);
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

  TlsSide side() const { return side_; }
  const std::string& role() const { return role_; }
  // Of the key that a client shows; of those that a server takes: "a and b".
  const std::string& ids() const { return ids_; }

 private:
  friend class TlsChannel;
  struct Shared;
  struct Psk {
    std::string id;
    ssl_session_st* session;
  };
  TlsContext(std::string_view role, TlsSide side) : role_(role), side_(side) {}
  Result<void> build(const KeyRing& ring);
  Result<void> add_key(const ClusterKey& key, const ssl_cipher_st* suite);
  const Psk* find(std::string_view id) const;

  std::string role_;
  TlsSide side_;
  std::string ids_;
  ssl_ctx_st* context_ = nullptr;  // of the whole process
  std::vector<Psk> keys_;
};

}  // namespace strata::transport
