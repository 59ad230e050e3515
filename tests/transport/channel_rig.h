// Helpers of the tests of channels: connected pairs over the loopback interface, and waiting for
// what a channel wants. A deadline here only ends a test that has failed already. One thread.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "env/byte_channel.h"
#include "transport/socket/connect.h"
#include "transport/socket/listener.h"
#include "transport/socket/socket_channel.h"
#include "transport/socket/tls_channel.h"

namespace strata::transport {

inline constexpr int kTestDeadlineMs = 60'000;
using Phase = env::ByteChannel::Phase;
using Channel = std::unique_ptr<env::ByteChannel>;

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

inline Address loopback() {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return Address(reinterpret_cast<const sockaddr*>(&address), sizeof address);
}

// A key whose bytes say which one it is.
inline ClusterKey key_of(unsigned char fill, std::string id = {}) {
  ClusterKey key;
  key.id = id.empty() ? fmt::format("{:016x}", fill) : std::move(id);
  for (std::byte& byte : key.secret.bytes()) byte = std::byte{fill};
  return key;
}
inline KeyRing ring_of(std::vector<ClusterKey> keys) {
  return KeyRing::of(std::move(keys)).value();
}
inline KeyRing ring_of(unsigned char fill) {
  std::vector<ClusterKey> keys;
  keys.push_back(key_of(fill));
  return ring_of(std::move(keys));
}

// Two sockets that are connected, none of which blocks.
struct Sockets {
  SocketFd client, server;
};
inline Sockets connected_sockets() {
  Listener listener = Listener::listen(loopback(), {}).value();
  SocketFd client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const Address& to = listener.address();
  EXPECT_EQ(::connect(client.get(), to.data(), to.size()), 0);
  pollfd wait{.fd = listener.descriptor(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&wait, 1, kTestDeadlineMs), 1);
  std::optional<Accepted> accepted = listener.accept().value();
  if (!accepted) return {std::move(client), SocketFd()};
  return {std::move(client), std::move(accepted->fd)};
}

inline Channel adopted(SocketFd fd, const std::string& peer, const TlsContext* tls) {
  return adopt(std::move(fd), peer, tls).value();
}

// Waits until one of them has something to do, by what it says it wants and nothing else.
inline bool wait_for(std::vector<const env::ByteChannel*> channels) {
  std::vector<pollfd> polled;
  for (const env::ByteChannel* channel : channels) {
    if (channel->descriptor() < 0) continue;
    const int events =
        (channel->wants_read() ? POLLIN : 0) | (channel->wants_write() ? POLLOUT : 0);
    polled.push_back({channel->descriptor(), static_cast<short>(events), 0});
  }
  return ::poll(polled.data(), polled.size(), kTestDeadlineMs) > 0;
}

// Advances both until both are open, or one gives an Error, which comes back.
inline Result<void> shake_hands(env::ByteChannel& a, env::ByteChannel& b) {
  for (;;) {
    Result<Phase> of_a = a.advance();
    Result<Phase> of_b = b.advance();
    if (!of_a) return std::move(of_a).error();
    if (!of_b) return std::move(of_b).error();
    if (*of_a >= Phase::kOpen && *of_b >= Phase::kOpen) return {};
    if (!wait_for({&a, &b})) {
      return Error(Code::kDeadline, Scope::kCall, "the handshake does not end");
    }
  }
}

// Reads until an Error comes, which is given; advances the other one meanwhile.
inline Error read_to_error(env::ByteChannel& channel, env::ByteChannel* other = nullptr) {
  std::array<std::byte, 4096> buffer;
  for (;;) {
    Result<size_t> n = channel.read(buffer);
    if (!n) return std::move(n).error();
    if (other != nullptr) (void)other->advance();
    if (*n == 0 && !wait_for({&channel})) {
      return Error(Code::kDeadline, Scope::kCall, "no error comes");
    }
  }
}

// What `from` takes of `text` comes out of `to`, whole and in order.
inline void expect_carried(env::ByteChannel& from, env::ByteChannel& to, std::string_view text) {
  std::string got;
  size_t sent = 0;
  std::array<char, 7000> buffer;
  while (got.size() < text.size()) {
    bool idle = true;
    if (sent < text.size()) {
      Result<size_t> n = from.write(bytes_of(text.substr(sent)));
      ASSERT_TRUE(n) << n.error().to_string();
      sent += *n;
      idle = *n == 0;
    }
    Result<size_t> n = to.read(std::as_writable_bytes(std::span(buffer)));
    ASSERT_TRUE(n) << n.error().to_string();
    got.append(buffer.data(), *n);
    if (idle && *n == 0) {
      ASSERT_TRUE(wait_for({&from, &to})) << got.size() << " came";
    }
  }
  EXPECT_EQ(got.size(), text.size());
  EXPECT_TRUE(got == text);
}

// Bytes that do not repeat with any small period.
inline std::string pattern(size_t bytes, uint64_t seed) {
  std::string out(bytes, '\0');
  uint64_t state = seed * 0x9e3779b97f4a7c15ull + 1;
  for (char& c : out) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    c = static_cast<char>(state >> 32);
  }
  return out;
}

}  // namespace strata::transport
