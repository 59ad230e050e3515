#include "transport/socket/address.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "base/check.h"
#include "transport/socket/socket_fd.h"

namespace strata::transport {
namespace {

Error bad(std::string_view text, std::string_view why) {
  return Error(Code::kInvalidArgument, Scope::kCall,
               fmt::format("address '{}': {}; write HOST:PORT, 10.0.0.1:PORT or [::1]:PORT",
                           text.substr(0, 300), why));
}

bool is_printable_host(std::string_view host) {
  return std::all_of(host.begin(), host.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '-' || c == '_' || c == ':' || c == '%';
  });
}

}  // namespace

Error socket_error(std::string_view what, int error_number) {
  Code code = Code::kSystem;
  switch (error_number) {
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case ENOBUFS:
      code = Code::kResourceExhausted;
      break;
    case ECONNREFUSED:
    case ECONNRESET:
    case ECONNABORTED:
    case EPIPE:
    case ETIMEDOUT:
    case EHOSTUNREACH:
    case EHOSTDOWN:
    case ENETUNREACH:
    case ENETDOWN:
    case ENETRESET:
      code = Code::kEndpointFailed;
      break;
    default:
      break;
  }
  return Error(code, Scope::kSession,
               fmt::format("{}: {} (errno {})", what, std::strerror(error_number), error_number));
}

std::string HostPort::to_string() const {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port)
                                             : fmt::format("[{}]:{}", host, port);
}

Result<HostPort> parse_host_port(std::string_view text) {
  HostPort out;
  std::string_view host, port;
  if (!text.empty() && text.front() == '[') {
    const size_t end = text.find(']');
    if (end == std::string_view::npos) return bad(text, "the bracket is not closed");
    host = text.substr(1, end - 1);
    if (host.find(':') == std::string_view::npos) return bad(text, "no IPv6 address in brackets");
    if (text.substr(end + 1, 1) != ":") return bad(text, "it has no port");
    port = text.substr(end + 2);
  } else {
    const size_t colon = text.rfind(':');
    if (colon == std::string_view::npos) return bad(text, "it has no port");
    host = text.substr(0, colon);
    port = text.substr(colon + 1);
    if (host.find(':') != std::string_view::npos) {
      return bad(text, "an IPv6 address stands in brackets");
    }
  }
  if (host.empty()) return bad(text, "it has no host");
  if (host.size() > kHostBytesMax) return bad(text, "the host is longer than 255 characters");
  if (!is_printable_host(host)) return bad(text, "the host has a character that no name has");
  unsigned number = 0;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  if (error != std::errc() || end != port.data() + port.size() || number > 65535) {
    return bad(text, "the port is no number from 0 to 65535");
  }
  out.host = host;
  out.port = static_cast<uint16_t>(number);
  return out;
}

Address::Address(const sockaddr* address, socklen_t bytes) : bytes_(bytes) {
  STRATA_CHECK(bytes <= sizeof storage_);
  std::memcpy(&storage_, address, bytes);
}

Result<Address> Address::local_of(int fd) {
  sockaddr_storage storage{};
  socklen_t bytes = sizeof storage;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &bytes) != 0) {
    return socket_error("getsockname", errno);
  }
  return Address(reinterpret_cast<const sockaddr*>(&storage), bytes);
}

uint16_t Address::port() const {
  if (family() == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in*>(&storage_)->sin_port);
  if (family() == AF_INET6) {
    return ntohs(reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_port);
  }
  return 0;
}

bool Address::is_loopback() const {
  if (family() == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(&storage_);
    return (ntohl(v4->sin_addr.s_addr) >> 24) == 127;
  }
  if (family() == AF_INET6) {
    return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_addr);
  }
  return false;
}

std::string Address::to_string() const {
  char text[INET6_ADDRSTRLEN] = "?";
  if (family() == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(&storage_);
    ::inet_ntop(AF_INET, &v4->sin_addr, text, sizeof text);
  } else if (family() == AF_INET6) {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&storage_);
    ::inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof text);
  }
  return HostPort{.host = text, .port = port()}.to_string();
}

Result<std::vector<Address>> resolve(const HostPort& where) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const std::string port = std::to_string(where.port);
  const int error = ::getaddrinfo(where.host.c_str(), port.c_str(), &hints, &list);
  if (error != 0) {
    const char* why = error == EAI_SYSTEM ? std::strerror(errno) : ::gai_strerror(error);
    return Error(error == EAI_AGAIN ? Code::kEndpointFailed : Code::kNotFound, Scope::kSession,
                 fmt::format("look up host '{}': {}", where.host, why));
  }
  std::vector<Address> out;
  for (const addrinfo* each = list; each != nullptr && out.size() < kAddressesMax;
       each = each->ai_next) {
    if (each->ai_family == AF_INET || each->ai_family == AF_INET6) {
      out.emplace_back(each->ai_addr, each->ai_addrlen);
    }
  }
  ::freeaddrinfo(list);
  if (!out.empty()) return out;
  return Error(Code::kNotFound, Scope::kSession,
               fmt::format("look up host '{}': it has no IPv4 or IPv6 address", where.host));
}

}  // namespace strata::transport
