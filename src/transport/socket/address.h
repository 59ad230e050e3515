// Address: where a socket is, IPv4 or IPv6 with a port; and HostPort, the text that users write.
// Values; any thread. Only resolve() asks the system, and may block as long as the resolver takes
// where the host is a name.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "strata/result.h"

namespace strata::transport {

inline constexpr size_t kHostBytesMax = 255;
inline constexpr size_t kAddressesMax = 16;  // of one name

struct HostPort {
  std::string host;  // a name, IPv4 or IPv6 without brackets
  uint16_t port = 0;
  // "host:port", "[::1]:port".
  std::string to_string() const;
};

// "host:port", "1.2.3.4:port", "[::1]:port". kInvalidArgument with what is wrong.
Result<HostPort> parse_host_port(std::string_view text);

class Address {
 public:
  Address() = default;
  Address(const sockaddr* address, socklen_t bytes);
  // What the socket is bound to, or connected to.
  static Result<Address> local_of(int fd);

  uint16_t port() const;
  // 127.0.0.0/8 or ::1.
  bool is_loopback() const;
  std::string to_string() const;
  int family() const { return storage_.ss_family; }
  const sockaddr* data() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  socklen_t size() const { return bytes_; }

 private:
  sockaddr_storage storage_{};
  socklen_t bytes_ = 0;
};

// All addresses of that host, at most kAddressesMax, in the resolver's order. Never empty.
Result<std::vector<Address>> resolve(const HostPort& where);

}  // namespace strata::transport
