#include <gtest/gtest.h>
#include <sys/resource.h>

#include "tests/transport/channel_rig.h"
#include "transport/fault/fault_channel.h"

namespace strata::transport {
namespace {

TEST(HostPort, IsReadAsUsersWriteIt) {
  struct Row {
    const char *text, *host;
    uint16_t port;
  };
  for (const Row& row :
       {Row{"node-7.rack_2:7000", "node-7.rack_2", 7000}, Row{"10.0.0.1:0", "10.0.0.1", 0},
        Row{"[::1]:65535", "::1", 65535}, Row{"[fe80::1%eth0]:80", "fe80::1%eth0", 80}}) {
    Result<HostPort> parsed = parse_host_port(row.text);
    ASSERT_TRUE(parsed) << parsed.error().to_string();
    EXPECT_EQ(parsed->host, row.host);
    EXPECT_EQ(parsed->port, row.port);
    EXPECT_EQ(parsed->to_string(), row.text);
  }
}

TEST(HostPort, ThatIsNoneIsRefusedInWords) {
  for (const char* text : {"", "host", ":7000", "host:", "host:65536", "host:-1", "host:7x", "::1",
                           "::1:7000", "[::1]", "[::1:7000", "[host]:1", "a b:1", "host\n:1"}) {
    Result<HostPort> parsed = parse_host_port(text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_EQ(parsed.error().code(), Code::kInvalidArgument);
    EXPECT_NE(parsed.error().message().find("HOST:PORT"), std::string::npos);
  }
  EXPECT_FALSE(parse_host_port(std::string(256, 'a') + ":1"));
  EXPECT_TRUE(parse_host_port(std::string(255, 'a') + ":1"));
}

TEST(Resolve, GivesNumericAddressesAsTheyAre) {
  EXPECT_EQ(resolve({"127.0.0.1", 7000}).value().at(0).to_string(), "127.0.0.1:7000");
  EXPECT_EQ(resolve({"::1", 7000}).value().at(0).to_string(), "[::1]:7000");
}

TEST(Resolve, OfANameThatIsNoneNamesIt) {
  Result<std::vector<Address>> found = resolve({"no.such.host.invalid", 1});
  ASSERT_FALSE(found);
  EXPECT_NE(found.error().message().find("no.such.host.invalid"), std::string::npos);
}

TEST(ListenerTest, BeyondTheLoopbackInterfaceNeedsAKey) {
  for (const char* host : {"0.0.0.0", "::"}) {
    const Address any = resolve({host, 0}).value().front();
    Result<Listener> open = Listener::listen(any, {.keyed = false});
    ASSERT_FALSE(open) << host;
    EXPECT_EQ(open.error().code(), Code::kInvalidArgument);
    EXPECT_NE(open.error().message().find("strata key new"), std::string::npos);
  }
  EXPECT_TRUE(Listener::listen(resolve({"0.0.0.0", 0}).value().front(), {.keyed = true}));
}

TEST(ListenerTest, APortThatIsTakenIsNamed) {
  Listener first = Listener::listen(loopback(), {}).value();
  EXPECT_GT(first.address().port(), 0);
  Result<Listener> second = Listener::listen(first.address(), {});
  ASSERT_FALSE(second);
  EXPECT_NE(second.error().message().find(first.address().to_string()), std::string::npos);
}

TEST(ListenerTest, WithNobodyWaitingGivesNone) {
  Listener listener = Listener::listen(loopback(), {}).value();
  EXPECT_FALSE(listener.accept().value());
}

TEST(ListenerTest, WithNoDescriptorLeftIsAnErrorAndTheClientStillWaits) {
  Listener listener = Listener::listen(loopback(), {}).value();
  Channel client = connect(listener.address(), {}).value();
  while (client->advance().value() != Phase::kOpen) ASSERT_TRUE(wait_for({client.get()}));
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  const SocketFd next(::dup(0));
  const rlimit low{static_cast<rlim_t>(next.get()), before.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &low);
  Result<std::optional<Accepted>> accepted = listener.accept();
  ::setrlimit(RLIMIT_NOFILE, &before);
  ASSERT_FALSE(accepted);
  EXPECT_EQ(accepted.error().code(), Code::kResourceExhausted);
  EXPECT_TRUE(listener.accept().value());
}

TEST(Connect, ToAPortThatNobodyListensAtIsTheFirstError) {
  Address gone;
  {
    Listener listener = Listener::listen(loopback(), {}).value();
    gone = listener.address();
  }
  Channel client = connect(gone, {.peer = "some-host:7000"}).value();
  const Error error = read_to_error(*client);
  EXPECT_EQ(error.code(), Code::kEndpointFailed);
  EXPECT_NE(error.message().find("connect to some-host:7000"), std::string::npos);
}

TEST(Connect, AWriteThatCameBeforeTheConnectionIsAskedForOnceItStands) {
  // With its queue full a listener lets nobody in: the kernel tries again after a second.
  SocketFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  socklen_t bytes = sizeof address;
  auto* const raw = reinterpret_cast<sockaddr*>(&address);
  ASSERT_EQ(::bind(listener.get(), loopback().data(), loopback().size()), 0);
  ASSERT_EQ(::listen(listener.get(), 0), 0);
  ASSERT_EQ(::getsockname(listener.get(), raw, &bytes), 0);
  const Channel first = connect(Address(raw, bytes), {}).value();
  Channel client = connect(Address(raw, bytes), {}).value();
  const Result<size_t> early = client->write(bytes_of("early"));
  ASSERT_TRUE(early) << early.error().to_string();
  ASSERT_EQ(*early, 0u) << "it was let in";
  std::vector<SocketFd> accepted;
  std::array<std::byte, 64> buffer;
  while (client->phase() < Phase::kOpen) {
    pollfd wait{.fd = listener.get(), .events = POLLIN, .revents = 0};
    ASSERT_EQ(::poll(&wait, 1, kTestDeadlineMs), 1);
    accepted.emplace_back(::accept(listener.get(), nullptr, nullptr));
    const Result<size_t> none = client->read(buffer);
    ASSERT_TRUE(none) << none.error().to_string();
  }
  EXPECT_TRUE(client->wants_write());
  EXPECT_EQ(client->write(bytes_of("early")).value(), 5u);
  EXPECT_FALSE(client->wants_write());
}

TEST(Connect, OverIpv6WorksAsOverIpv4) {
  Result<Listener> listener = Listener::listen(resolve({"::1", 0}).value().front(), {});
  if (!listener) GTEST_SKIP() << "NO IPv6 HERE: " << listener.error().to_string();
  Channel client = connect(listener->address(), {}).value();
  while (client->advance().value() != Phase::kOpen) ASSERT_TRUE(wait_for({client.get()}));
  std::optional<Accepted> accepted = listener->accept().value();
  ASSERT_TRUE(accepted);
  EXPECT_EQ(accepted->peer.substr(0, 6), "[::1]:");
  Channel server = adopted(std::move(accepted->fd), accepted->peer, nullptr);
  expect_carried(*client, *server, "by the other family");
}

TEST(Connect, ThePrefaceGoesInClearBeforeTls) {
  const KeyRing ring = ring_of(1);
  const auto ours = TlsContext::create(ring, "command", TlsSide::kClient).value();
  const auto theirs = TlsContext::create(ring, "command", TlsSide::kServer).value();
  Listener listener = Listener::listen(loopback(), {}).value();
  std::vector<std::byte> preface(48, std::byte{'p'});
  Channel client =
      connect(listener.address(), {.peer = "", .preface = preface, .tls = ours.get()}).value();
  while (client->advance().value() == Phase::kConnecting) ASSERT_TRUE(wait_for({client.get()}));
  EXPECT_EQ(client->phase(), Phase::kSilent);
  std::optional<Accepted> accepted = listener.accept().value();
  ASSERT_TRUE(accepted);
  std::array<char, 48> first;
  ASSERT_EQ(::recv(accepted->fd.get(), first.data(), first.size(), MSG_WAITALL), 48);
  EXPECT_EQ(std::string_view(first.data(), 48), std::string(48, 'p'));
  Channel server = adopted(std::move(accepted->fd), accepted->peer, theirs.get());
  ASSERT_TRUE(shake_hands(*client, *server));
  expect_carried(*client, *server, "behind it");
}

TEST(Connect, TlsAndThePrefaceGoThroughOneByteAtATime) {
  const KeyRing ring = ring_of(1);
  const auto ours = TlsContext::create(ring, "data", TlsSide::kClient).value();
  const auto theirs = TlsContext::create(ring, "data", TlsSide::kServer).value();
  const FaultPlan::Direction single{.chunk_bytes_max = 1};
  Sockets sockets = connected_sockets();
  auto thin = [&](SocketFd fd, const TlsContext& tls) {
    Channel below = std::make_unique<FaultChannel>(adopted(std::move(fd), "p:1", nullptr),
                                                   FaultPlan{.read = single, .write = single});
    return Channel(TlsChannel::create(std::move(below), tls).value());
  };
  Channel client = thin(std::move(sockets.client), *ours);
  Channel server = thin(std::move(sockets.server), *theirs);
  ASSERT_TRUE(shake_hands(*client, *server));
  expect_carried(*client, *server, pattern(5000, 2));
}

TEST(Fault, AResetComesAtItsByteAndThePeerReadsAReset) {
  for (const uint64_t at : {0u, 1u, 100u, 4097u}) {
    Sockets sockets = connected_sockets();
    FaultPlan plan;
    plan.write.reset_at = at;
    FaultChannel client(adopted(std::move(sockets.client), "p:1", nullptr), plan);
    Channel server = adopted(std::move(sockets.server), "p:2", nullptr);
    const std::string text = pattern(10'000, at);
    size_t sent = 0;
    for (;;) {
      Result<size_t> n = client.write(bytes_of(std::string_view(text).substr(sent)));
      if (!n) break;
      sent += *n;
    }
    EXPECT_EQ(sent, at);
    EXPECT_EQ(client.phase(), Phase::kClosed);
    EXPECT_EQ(read_to_error(*server).code(), Code::kEndpointFailed);
  }
}

TEST(Fault, GarbageIsWhereItWasPlannedAndNowhereElse) {
  Sockets sockets = connected_sockets();
  FaultPlan plan;
  plan.write.garbage_at = 10;
  plan.write.garbage_bytes = 3;
  plan.write.chunk_bytes_max = 4;
  FaultChannel client(adopted(std::move(sockets.client), "p:1", nullptr), plan);
  Channel server = adopted(std::move(sockets.server), "p:2", nullptr);
  const std::string text(40, 'a');
  std::string got;
  size_t sent = 0;
  std::array<char, 64> buffer;
  while (got.size() < text.size()) {
    if (sent < text.size()) {
      sent += client.write(bytes_of(std::string_view(text).substr(sent))).value();
    }
    got.append(buffer.data(), server->read(std::as_writable_bytes(std::span(buffer))).value());
  }
  for (size_t i = 0; i < text.size(); ++i) EXPECT_EQ(got[i] != 'a', i >= 10 && i < 13) << i;
}

TEST(Fault, AStallTakesNothingAndSaysNothing) {
  Sockets sockets = connected_sockets();
  FaultPlan plan;
  plan.write.stall_at = 5;
  plan.read.stall_at = 2;
  FaultChannel client(adopted(std::move(sockets.client), "p:1", nullptr), plan);
  Channel server = adopted(std::move(sockets.server), "p:2", nullptr);
  EXPECT_EQ(client.write(bytes_of("0123456789")).value(), 5u);
  EXPECT_EQ(client.write(bytes_of("56789")).value(), 0u);
  EXPECT_FALSE(client.wants_write());
  EXPECT_EQ(server->write(bytes_of("abcdef")).value(), 6u);
  std::array<std::byte, 16> buffer;
  size_t got = 0;
  while (got < 2) {
    got += client.read(buffer).value();
    if (got < 2) {
      ASSERT_TRUE(wait_for({&client}));
    }
  }
  EXPECT_EQ(got, 2u);
  EXPECT_EQ(client.read(buffer).value(), 0u);
}

}  // namespace
}  // namespace strata::transport
