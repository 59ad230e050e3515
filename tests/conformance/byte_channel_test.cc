// What every ByteChannel must do, run over each that there is.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include "tests/transport/channel_rig.h"
#include "transport/fault/fault_channel.h"

namespace strata::transport {
namespace {

struct Kind {
  const char* name;
  bool tls;
  enum { kNone, kBelow, kAbove } fault;
};

class ByteChannels : public testing::TestWithParam<Kind> {
 protected:
  ByteChannels() {
    const KeyRing ring = ring_of(7);
    client_tls_ = TlsContext::create(ring, "test", TlsSide::kClient).value();
    server_tls_ = TlsContext::create(ring, "test", TlsSide::kServer).value();
    Sockets sockets = connected_sockets();
    client_fd_ = sockets.client.get();
    client_ = make(std::move(sockets.client), "server:1", *client_tls_, 1);
    server_ = make(std::move(sockets.server), "client:2", *server_tls_, 2);
  }

  static FaultPlan plan(uint64_t seed, bool delays) {
    const FaultPlan::Direction rough{.chunk_bytes_max = 700, .delay_calls_max = delays ? 2u : 0u};
    return {.seed = seed, .read = rough, .write = rough};
  }
  Channel make(SocketFd fd, const std::string& peer, const TlsContext& tls, uint64_t seed) {
    Channel out = adopted(std::move(fd), peer, nullptr);
    if (GetParam().fault == Kind::kBelow) {
      out = std::make_unique<FaultChannel>(std::move(out), plan(seed, true));
    }
    if (GetParam().tls) out = TlsChannel::create(std::move(out), tls).value();
    if (GetParam().fault == Kind::kAbove) {
      out = std::make_unique<FaultChannel>(std::move(out), plan(seed, false));
    }
    return out;
  }
  void open() {
    Result<void> opened = shake_hands(*client_, *server_);
    ASSERT_TRUE(opened) << opened.error().to_string();
  }

  std::unique_ptr<TlsContext> client_tls_, server_tls_;
  Channel client_, server_;
  int client_fd_ = -1;
};

TEST_P(ByteChannels, CarryBytesWholeAndInOrderBothWays) {
  open();
  for (const size_t bytes :
       {size_t{1}, size_t{48}, size_t{16384}, size_t{16385}, size_t{300'000}}) {
    expect_carried(*client_, *server_, pattern(bytes, bytes));
    expect_carried(*server_, *client_, pattern(bytes, bytes + 1));
  }
}

// Whoever writes too early is called for when it is open, also where a read has opened it.
TEST_P(ByteChannels, AskForTheWriteThatCameBeforeTheyWereOpen) {
  const Result<size_t> early = client_->write(bytes_of("early"));
  ASSERT_TRUE(early) << early.error().to_string();
  if (*early > 0) return;  // no handshake: it was open
  std::array<std::byte, 64> buffer;
  while (client_->phase() < Phase::kOpen) {
    ASSERT_TRUE(server_->advance());
    const Result<size_t> none = client_->read(buffer);
    ASSERT_TRUE(none) << none.error().to_string();
    ASSERT_EQ(*none, 0u);
  }
  EXPECT_TRUE(client_->wants_write());
  expect_carried(*client_, *server_, "early");
  EXPECT_FALSE(client_->wants_write());
}

TEST_P(ByteChannels, AreHeardWithThePeersFirstByteAndNotBefore) {
  open();
  EXPECT_EQ(client_->phase(), Phase::kOpen);
  EXPECT_EQ(server_->phase(), Phase::kOpen);
  expect_carried(*client_, *server_, "x");
  EXPECT_EQ(server_->phase(), Phase::kHeard);
  EXPECT_EQ(client_->phase(), Phase::kOpen);
  expect_carried(*server_, *client_, "y");
  EXPECT_EQ(client_->phase(), Phase::kHeard);
}

TEST_P(ByteChannels, TakeOnlyWhatThereIsRoomForAndLoseNothing) {
  open();
  const std::string block = pattern(1 << 16, 3);
  std::string sent, got;
  int refused = 0;
  // Nobody reads: the sockets fill up.
  while (refused < 20 && sent.size() < (64u << 20)) {
    const std::string rest = block.substr(sent.size() % block.size());
    Result<size_t> n = client_->write(bytes_of(rest));
    ASSERT_TRUE(n) << n.error().to_string();
    sent.append(rest, 0, *n);
    if (*n == 0) ++refused;
  }
  ASSERT_EQ(refused, 20);
  EXPECT_TRUE(client_->wants_write());
  std::array<char, 65536> buffer;
  while (got.size() < sent.size()) {
    Result<size_t> n = server_->read(std::as_writable_bytes(std::span(buffer)));
    ASSERT_TRUE(n) << n.error().to_string();
    got.append(buffer.data(), *n);
    if (*n > 0) continue;
    // A record that TLS could not send whole goes with the next write.
    const std::string rest = block.substr(sent.size() % block.size());
    n = client_->write(bytes_of(rest));
    ASSERT_TRUE(n) << n.error().to_string();
    sent.append(rest, 0, *n);
    if (*n == 0) {
      ASSERT_TRUE(wait_for({server_.get(), client_.get()}));
    }
  }
  EXPECT_TRUE(got == sent);
}

TEST_P(ByteChannels, NothingToReadIsZeroAndNoError) {
  open();
  std::array<std::byte, 16> buffer;
  for (int i = 0; i < 3; ++i) {
    Result<size_t> n = client_->read(buffer);
    ASSERT_TRUE(n) << n.error().to_string();
    EXPECT_EQ(*n, 0u);
  }
  EXPECT_EQ(client_->read({}).value(), 0u);
  EXPECT_EQ(client_->write({}).value(), 0u);
  EXPECT_TRUE(client_->wants_read());
}

TEST_P(ByteChannels, AReaderHasAllThatWasWrittenBeforeTheEnd) {
  open();
  const std::string text = pattern(20'000, 9);
  size_t sent = 0;
  while (sent < text.size()) {
    Result<size_t> n = client_->write(bytes_of(std::string_view(text).substr(sent)));
    ASSERT_TRUE(n) << n.error().to_string();
    sent += *n;
    if (*n == 0) {
      ASSERT_TRUE(wait_for({client_.get()}));
    }
  }
  client_->end_writes();
  std::string got;
  std::array<char, 4096> buffer;
  for (;;) {
    Result<size_t> n = server_->read(std::as_writable_bytes(std::span(buffer)));
    if (!n) {
      EXPECT_EQ(n.error().code(), Code::kEndpointFailed);
      EXPECT_NE(n.error().message().find("client:2"), std::string::npos);
      break;
    }
    got.append(buffer.data(), *n);
    if (*n == 0) {
      ASSERT_TRUE(wait_for({server_.get()}));
    }
  }
  EXPECT_TRUE(got == text);
  // The other direction goes on.
  EXPECT_EQ(client_->phase(), Phase::kOpen);
}

TEST_P(ByteChannels, WritesAfterTheEndAreRefused) {
  open();
  client_->end_writes();
  Result<size_t> n = client_->write(bytes_of("late"));
  ASSERT_FALSE(n);
  EXPECT_EQ(n.error().code(), Code::kWrongState);
}

TEST_P(ByteChannels, AClosedPeerIsAnErrorThatStays) {
  open();
  client_->close();
  const Error first = read_to_error(*server_);
  EXPECT_EQ(first.code(), Code::kEndpointFailed);
  EXPECT_EQ(server_->phase(), Phase::kClosed);
  EXPECT_FALSE(server_->wants_write());
  std::array<std::byte, 16> buffer;
  EXPECT_EQ(server_->read(buffer).error().message(), first.message());
}

TEST_P(ByteChannels, AResetIsAnErrorThatNamesThePeer) {
  open();
  const linger now{.l_onoff = 1, .l_linger = 0};
  ASSERT_EQ(::setsockopt(client_fd_, SOL_SOCKET, SO_LINGER, &now, sizeof now), 0);
  client_->close();
  const Error error = read_to_error(*server_);
  EXPECT_EQ(error.code(), Code::kEndpointFailed) << error.message();
  EXPECT_NE(error.message().find("client:2"), std::string::npos) << error.message();
}

TEST_P(ByteChannels, CloseGivesTheDescriptorBackAndMayComeTwice) {
  open();
  client_->close();
  client_->close();
  EXPECT_EQ(client_->descriptor(), -1);
  EXPECT_EQ(client_->phase(), Phase::kClosed);
  EXPECT_FALSE(client_->wants_read());
  EXPECT_FALSE(client_->wants_write());
  std::array<std::byte, 16> buffer;
  EXPECT_EQ(client_->read(buffer).error().code(), Code::kWrongState);
  EXPECT_EQ(client_->write(buffer).error().code(), Code::kWrongState);
}

TEST_P(ByteChannels, NameTheirPeer) {
  EXPECT_EQ(client_->peer(), "server:1");
  EXPECT_EQ(server_->peer(), "client:2");
}

INSTANTIATE_TEST_SUITE_P(Each, ByteChannels,
                         testing::Values(Kind{"Plain", false, Kind::kNone},
                                         Kind{"Tls", true, Kind::kNone},
                                         Kind{"FaultOverPlain", false, Kind::kAbove},
                                         Kind{"TlsOverFault", true, Kind::kBelow},
                                         Kind{"FaultOverTls", true, Kind::kAbove}),
                         [](const auto& each) { return std::string(each.param.name); });

}  // namespace
}  // namespace strata::transport
