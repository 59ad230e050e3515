// Key mode against peers that are everything but what it asks for.
#include <fcntl.h>
#include <gtest/gtest.h>

#include "base/text.h"
#include "tests/transport/raw_tls.h"
#include "transport/fault/fault_channel.h"

namespace strata::transport {
namespace {

constexpr std::string_view kRole = "command";

class KeyMode : public testing::Test {
 protected:
  KeyMode() : sockets_(connected_sockets()) {}

  Channel ours(SocketFd fd, const KeyRing& ring, std::string_view role, TlsSide side) {
    contexts_.push_back(TlsContext::create(ring, role, side).value());
    return adopted(std::move(fd), "peer:7000", contexts_.back().get());
  }
  Channel our_server() {
    return ours(std::move(sockets_.server), ring_of(1), kRole, TlsSide::kServer);
  }
  Channel our_client() {
    return ours(std::move(sockets_.client), ring_of(1), kRole, TlsSide::kClient);
  }

  // The Error with which ours refuses the raw peer. Nothing of the peer's own may ever come out,
  // and no text has anything of the key.
  static void expect_refused(env::ByteChannel& channel, RawTls& raw, const char* part) {
    for (int i = 0; i < 100'000; ++i) {
      Result<Phase> phase = channel.advance();
      if (!phase) {
        const Error& error = phase.error();
        EXPECT_EQ(error.code(), Code::kInvalidArgument) << error.to_string();
        EXPECT_NE(error.message().find(part), std::string::npos) << error.message();
        EXPECT_NE(error.message().find("peer:7000"), std::string::npos) << error.message();
        EXPECT_EQ(error.message().find("0101010101010101"), std::string::npos) << error.message();
        EXPECT_EQ(channel.phase(), Phase::kClosed);
        return;
      }
      ASSERT_LT(*phase, Phase::kOpen) << "it was let in";
      raw.step();
    }
    FAIL() << "neither refused nor let in";
  }
  // Both ours; the error of the one that gives one first.
  static Error refusal(env::ByteChannel& a, env::ByteChannel& b) {
    Result<void> opened = shake_hands(a, b);
    EXPECT_FALSE(opened);
    return opened ? Error(Code::kNotFound, Scope::kCall, "let in") : opened.error();
  }

  Sockets sockets_;
  std::vector<std::unique_ptr<TlsContext>> contexts_;
};

TEST_F(KeyMode, WithTheSameKeyAndRoleBothEndsOpen) {
  Channel client = our_client();
  Channel server = our_server();
  ASSERT_TRUE(shake_hands(*client, *server));
  EXPECT_EQ(static_cast<TlsChannel&>(*client).key_id(), key_of(1).id);
  EXPECT_EQ(static_cast<TlsChannel&>(*server).key_id(), key_of(1).id);
  expect_carried(*client, *server, "hello");
}

TEST_F(KeyMode, APeerWithoutAKeyIsRefused) {
  Channel server = our_server();
  const Context context = raw_context(TLS_client_method());
  RawTls raw(context.get(), std::move(sockets_.client), true);
  expect_refused(*server, raw, "key of `strata key new`");
}

TEST_F(KeyMode, APeerWithACertificateAndNoKeyIsRefused) {
  Channel server = our_server();
  const Context context = raw_context(TLS_client_method());
  give_certificate(context.get());
  RawTls raw(context.get(), std::move(sockets_.client), true);
  expect_refused(*server, raw, "key of `strata key new`");
}

TEST_F(KeyMode, AServerWithACertificateInsteadOfTheKeyIsRefused) {
  Channel client = our_client();
  const Context context = raw_context(TLS_server_method());
  give_certificate(context.get());
  RawTls raw(context.get(), std::move(sockets_.server), false);
  expect_refused(*client, raw, "certificate");
}

TEST_F(KeyMode, AServerWithACertificateThatKnowsAnotherKeyIsRefused) {
  Channel client = our_client();
  const Context context = raw_context(TLS_server_method());
  give_certificate(context.get());
  RawTls raw(context.get(), std::move(sockets_.server), false);
  raw.use_key(key_of(2), kRole);
  expect_refused(*client, raw, "certificate");
  EXPECT_EQ(raw.offered(), key_of(1).id);
}

TEST_F(KeyMode, Tls12IsRefusedByTheServer) {
  Channel server = our_server();
  const Context context = raw_context(TLS_client_method());
  SSL_CTX_set_max_proto_version(context.get(), TLS1_2_VERSION);
  RawTls raw(context.get(), std::move(sockets_.client), true);
  expect_refused(*server, raw, "unsupported protocol");
}

TEST_F(KeyMode, Tls12IsRefusedByTheClient) {
  Channel client = our_client();
  const Context context = raw_context(TLS_server_method());
  give_certificate(context.get());
  SSL_CTX_set_max_proto_version(context.get(), TLS1_2_VERSION);
  RawTls raw(context.get(), std::move(sockets_.server), false);
  expect_refused(*client, raw, "protocol version");
}

TEST_F(KeyMode, AnotherSuiteIsRefusedByTheServer) {
  for (const char* suite : {"TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"}) {
    sockets_ = connected_sockets();
    Channel server = our_server();
    const Context context = raw_context(TLS_client_method());
    SSL_CTX_set_ciphersuites(context.get(), suite);
    RawTls raw(context.get(), std::move(sockets_.client), true);
    raw.use_key(key_of(1), kRole, suite[4] == 'A' ? 0x1302 : 0x1303);
    expect_refused(*server, raw, "no shared cipher");
  }
}

TEST_F(KeyMode, AnotherSuiteIsRefusedByTheClient) {
  Channel client = our_client();
  const Context context = raw_context(TLS_server_method());
  SSL_CTX_set_ciphersuites(context.get(), "TLS_AES_256_GCM_SHA384");
  give_certificate(context.get());
  RawTls raw(context.get(), std::move(sockets_.server), false);
  expect_refused(*client, raw, "both sides need the same key file");
}

TEST_F(KeyMode, AnUnknownIdIsNamedByTheServer) {
  Channel client = ours(std::move(sockets_.client), ring_of(2), kRole, TlsSide::kClient);
  Channel server = our_server();
  for (;;) {
    (void)client->advance();
    Result<Phase> phase = server->advance();
    if (phase) continue;
    EXPECT_NE(phase.error().message().find(key_of(2).id), std::string::npos);
    EXPECT_NE(phase.error().message().find(key_of(1).id), std::string::npos);
    break;
  }
  const Error error = read_to_error(*client);
  EXPECT_EQ(error.code(), Code::kInvalidArgument) << error.message();
  EXPECT_NE(error.message().find("refused the key " + key_of(2).id), std::string::npos)
      << error.message();
}

TEST_F(KeyMode, AnIdThatIsNoneIsNotRepeatedInTheText) {
  Channel server = our_server();
  const Context context = raw_context(TLS_client_method());
  RawTls raw(context.get(), std::move(sockets_.client), true);
  raw.use_key(key_of(1, "line\nbreak"), kRole);
  expect_refused(*server, raw, "key of 10 bytes");
}

TEST_F(KeyMode, AnotherSecretUnderTheSameIdIsRefused) {
  std::vector<ClusterKey> keys;
  keys.push_back(key_of(9, key_of(1).id));
  Channel client = ours(std::move(sockets_.client), ring_of(keys), kRole, TlsSide::kClient);
  Channel server = our_server();
  const Error error = refusal(*server, *client);
  EXPECT_EQ(error.code(), Code::kInvalidArgument);
  EXPECT_NE(error.message().find("another secret"), std::string::npos) << error.message();
}

TEST_F(KeyMode, TheRightKeyInAnotherRoleIsRefused) {
  for (const char* role : {"bootstrap", "data", "peer", "", "command "}) {
    sockets_ = connected_sockets();
    Channel client = ours(std::move(sockets_.client), ring_of(1), role, TlsSide::kClient);
    Channel server = our_server();
    const Error error = refusal(*server, *client);
    EXPECT_EQ(error.code(), Code::kInvalidArgument);
    EXPECT_NE(error.message().find("another role"), std::string::npos) << error.message();
    EXPECT_EQ(read_to_error(*client).code(), Code::kInvalidArgument);
  }
}

TEST_F(KeyMode, EitherOfTwoKeysLetsIn) {
  for (const unsigned char mine : {1, 2}) {
    sockets_ = connected_sockets();
    std::vector<ClusterKey> both;
    both.push_back(key_of(1));
    both.push_back(key_of(2));
    Channel client = ours(std::move(sockets_.client), ring_of(mine), kRole, TlsSide::kClient);
    Channel server = ours(std::move(sockets_.server), ring_of(both), kRole, TlsSide::kServer);
    ASSERT_TRUE(shake_hands(*client, *server));
    EXPECT_EQ(static_cast<TlsChannel&>(*server).key_id(), key_of(mine).id);
  }
  // Who connects shows the first.
  sockets_ = connected_sockets();
  std::vector<ClusterKey> both;
  both.push_back(key_of(3));
  both.push_back(key_of(1));
  Channel client = ours(std::move(sockets_.client), ring_of(both), kRole, TlsSide::kClient);
  Channel server = our_server();
  EXPECT_NE(refusal(*server, *client).message().find(key_of(3).id), std::string::npos);
}

SSL_SESSION* kept_ticket = nullptr;
int keep_ticket(SSL*, SSL_SESSION* session) {
  if (kept_ticket != nullptr) SSL_SESSION_free(kept_ticket);
  kept_ticket = session;
  return 1;
}

// A ticket that some server has made for a client that it let in by certificate.
Session foreign_ticket() {
  const Context server_context = raw_context(TLS_server_method());
  give_certificate(server_context.get());
  SSL_CTX_set_ciphersuites(server_context.get(), TlsContext::kSuite.data());
  const Context client_context = raw_context(TLS_client_method());
  SSL_CTX_set_session_cache_mode(client_context.get(),
                                 SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL_STORE);
  SSL_CTX_sess_set_new_cb(client_context.get(), &keep_ticket);
  Sockets sockets = connected_sockets();
  RawTls client(client_context.get(), std::move(sockets.client), true);
  RawTls server(server_context.get(), std::move(sockets.server), false);
  for (int i = 0; i < 100'000 && kept_ticket == nullptr; ++i) {
    const bool both = client.step() & server.step();
    if (both) client.read();
  }
  // A session that ends without a word is of no use any more.
  SSL_set_shutdown(client.ssl(), SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);
  return Session(std::exchange(kept_ticket, nullptr), &SSL_SESSION_free);
}

TEST_F(KeyMode, AResumedTicketIsRefused) {
  const Session ticket = foreign_ticket();
  ASSERT_NE(ticket, nullptr);
  Channel server = our_server();
  const Context context = raw_context(TLS_client_method());
  RawTls raw(context.get(), std::move(sockets_.client), true);
  ASSERT_EQ(SSL_SESSION_is_resumable(ticket.get()), 1);
  ASSERT_EQ(SSL_set_session(raw.ssl(), ticket.get()), 1);
  expect_refused(*server, raw, "is not known here");
}

TEST_F(KeyMode, TheServerGivesNoTicketAndHasNoCache) {
  Channel server = our_server();
  const Context context = raw_context(TLS_client_method());
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_CLIENT);
  SSL_CTX_sess_set_new_cb(context.get(), &keep_ticket);
  RawTls raw(context.get(), std::move(sockets_.client), true);
  raw.use_key(key_of(1), kRole);
  bool done = false;
  while (!done || server->advance().value() < Phase::kOpen) {
    done = raw.step();
    ASSERT_TRUE(server->advance());
  }
  EXPECT_EQ(SSL_session_reused(raw.ssl()), 1);
  ASSERT_EQ(server->write(bytes_of("first")).value(), 5u);
  std::string got;
  while (got.empty()) got = raw.read();
  EXPECT_EQ(got, "first");
  EXPECT_EQ(kept_ticket, nullptr);
}

TEST_F(KeyMode, TheClientTakesNoTicketOfAServersAndShowsItsKeyAgain) {
  const auto context = TlsContext::create(ring_of(1), kRole, TlsSide::kClient).value();
  const Context server_context = raw_context(TLS_server_method());
  give_certificate(server_context.get());
  SSL_CTX_set_num_tickets(server_context.get(), 2);
  for (int connection = 0; connection < 2; ++connection) {
    sockets_ = connected_sockets();
    Channel client = adopted(std::move(sockets_.client), "peer:7000", context.get());
    RawTls raw(server_context.get(), std::move(sockets_.server), false);
    raw.use_key(key_of(1), kRole);
    bool done = false;
    while (!done || client->advance().value() < Phase::kOpen) {
      ASSERT_TRUE(client->advance());
      done = raw.step();
    }
    raw.write("x");
    std::array<std::byte, 8> buffer;
    while (client->read(buffer).value() == 0) ASSERT_TRUE(wait_for({client.get()}));
    EXPECT_EQ(raw.offered(), key_of(1).id);
  }
}

TEST_F(KeyMode, ALaneOfAServerThatEndsAfterTheHandshakeIsNeverHeard) {
  Channel client = our_client();
  const Context context = raw_context(TLS_server_method());
  RawTls raw(context.get(), std::move(sockets_.server), false);
  raw.use_key(key_of(1), kRole);
  bool done = false;
  while (!done || client->advance().value() < Phase::kOpen) {
    ASSERT_TRUE(client->advance());
    done = raw.step();
  }
  EXPECT_EQ(client->phase(), Phase::kOpen);
  raw.close();
  const Error error = read_to_error(*client);
  EXPECT_EQ(error.code(), Code::kEndpointFailed);
  EXPECT_EQ(client->phase(), Phase::kClosed);
}

TEST_F(KeyMode, PlainTextToATlsPortIsRefusedByItsFirstBytes) {
  Channel server = our_server();
  Channel plain = adopted(std::move(sockets_.client), "peer:1", nullptr);
  ASSERT_EQ(plain->write(bytes_of("STRA and what follows it")).value(), 24u);
  const Error error = read_to_error(*server);
  EXPECT_EQ(error.code(), Code::kInvalidArgument);
  EXPECT_NE(error.message().find("does not speak TLS"), std::string::npos) << error.message();
}

TEST_F(KeyMode, APlainAnswerToTlsIsRefusedByItsFirstBytes) {
  Channel client = our_client();
  Channel plain = adopted(std::move(sockets_.server), "peer:1", nullptr);
  ASSERT_TRUE(client->advance());
  ASSERT_EQ(plain->write(bytes_of("STRA and what follows it")).value(), 24u);
  const Error error = read_to_error(*client);
  EXPECT_EQ(error.code(), Code::kInvalidArgument);
  EXPECT_NE(error.message().find("does not speak TLS"), std::string::npos) << error.message();
}

TEST_F(KeyMode, TheHandshakeBeginsWithThePeersFirstByte) {
  Channel server = our_server();
  ASSERT_EQ(server->advance().value(), Phase::kSilent);
  ASSERT_EQ(server->advance().value(), Phase::kSilent);
  Channel plain = adopted(std::move(sockets_.client), "peer:1", nullptr);
  ASSERT_EQ(plain->write(bytes_of("\x16")).value(), 1u);
  ASSERT_TRUE(wait_for({server.get()}));
  EXPECT_EQ(server->advance().value(), Phase::kHandshake);
}

TEST_F(KeyMode, APeerThatSendsMuchBeforeItShowsAKeyIsRefused) {
  Channel server = our_server();
  Channel plain = adopted(std::move(sockets_.client), "peer:1", nullptr);
  // Records of a first message that says of itself that it has 128,000 bytes.
  std::string record = {0x16, 3, 1, 0x40, 0};
  record += std::string(16384, '\0');
  record[5] = 1;
  record[7] = static_cast<char>(0x01);
  record[8] = static_cast<char>(0xf4);
  size_t sent = 0;
  for (;;) {
    Result<size_t> n =
        plain->write(bytes_of(std::string_view(record).substr(sent % record.size())));
    if (n) sent += *n;
    Result<Phase> phase = server->advance();
    if (phase) {
      ASSERT_LT(sent, size_t{1} << 20);
      continue;
    }
    EXPECT_EQ(phase.error().code(), Code::kInvalidArgument) << phase.error().to_string();
    break;
  }
}

TEST_F(KeyMode, ABrokenRecordAfterTheHandshakeIsAnErrorOfTheSession) {
  const auto client_tls = TlsContext::create(ring_of(1), kRole, TlsSide::kClient).value();
  FaultPlan plan;
  plan.write.garbage_at = 1000;
  plan.write.garbage_bytes = 1;
  Channel client =
      TlsChannel::create(
          std::make_unique<FaultChannel>(adopted(std::move(sockets_.client), "p:1", nullptr), plan),
          *client_tls)
          .value();
  Channel server = our_server();
  ASSERT_TRUE(shake_hands(*client, *server));
  ASSERT_EQ(client->write(bytes_of(pattern(5000, 1))).value(), 5000u);
  const Error error = read_to_error(*server);
  EXPECT_EQ(error.code(), Code::kCorrupt) << error.to_string();
}

}  // namespace
}  // namespace strata::transport
