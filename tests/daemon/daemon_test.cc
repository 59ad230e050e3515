// A daemon with real processes: what it lets in, what it refuses and how, and what its end means.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>

#include "base/text.h"
#include "tests/daemon/daemon_fixture.h"
#include "tests/daemon/test_runner.h"

namespace strata::runtime {
namespace {

class DaemonTest : public DaemonFixture {};
INSTANTIATE_TEST_SUITE_P(Each, DaemonTest, testing::Bool(),
                         [](const auto& each) { return each.param ? "Keyed" : "Plain"; });

TEST_P(DaemonTest, StartsARunnerAndHandsItsLanesOver) {
  DaemonProcess daemon(options("echo"));
  const TestParent parent(daemon, ring());
  TestClient bootstrap = parent.bootstrap();
  const wire::BootstrapReply reply = ask(bootstrap, test_manifest(77));
  ASSERT_EQ(reply.code, 0u) << reply.text;
  EXPECT_TRUE(alive(reply.pid));
  EXPECT_NE(reply.command, reply.data);
  EXPECT_NE(reply.data, reply.health);
  EXPECT_NE(reply.command, wire::Token{});
  std::vector<TestClient> lanes = parent.lanes(77, reply);
  for (TestClient& lane : lanes) ASSERT_TRUE(lane.open());
  for (TestClient& lane : lanes) EXPECT_EQ(text_of(lane.receive()), "ready");
  // The bootstrap connection ends with READY, without another word.
  EXPECT_EQ(bootstrap.receive_end().code(), Code::kEndpointFailed);
  EXPECT_NE(daemon.line_with("is ready after"), "");
  ASSERT_TRUE(lanes[0].send(std::as_bytes(std::span("to and fro"))));
  EXPECT_EQ(text_of(lanes[0].receive()), std::string("to and fro", 11));
  lanes[0].channel().close();
  const std::string line = daemon.line_with("has ended");
  EXPECT_NE(line.find("session 000000000000004d (L4/0/3, level 3)"), std::string::npos) << line;
  EXPECT_NE(line.find("exit status 0"), std::string::npos) << line;
}

TEST_P(DaemonTest, ASilentClientHarmsOnlyItself) {
  DaemonOptions fast = options("echo");
  fast.limits.preamble = base::Duration::from_ms(50);
  DaemonProcess daemon(fast);
  const TestParent parent(daemon, ring());
  TestClient silent(daemon.address(), {});
  ASSERT_TRUE(silent.open());
  TestClient bootstrap = parent.bootstrap();
  EXPECT_EQ(ask(bootstrap, test_manifest(1)).code, 0u);
  EXPECT_EQ(silent.receive_end().code(), Code::kEndpointFailed);
  EXPECT_NE(daemon.line_with("0 of 48 bytes of a preamble"), "");
}

TEST_P(DaemonTest, AClientThatSendsByteByByteIsServedWithinItsDeadline) {
  DaemonProcess daemon(options("echo"));
  const TestParent parent(daemon, ring());
  TestClient slow = parent.bootstrap();
  const std::vector<std::byte> frame = bootstrap_of(test_manifest(5));
  for (const std::byte& byte : frame) ASSERT_TRUE(slow.send({&byte, 1}));
  const Result<wire::BootstrapReply> reply = slow.receive_reply();
  ASSERT_TRUE(reply) << reply.error().to_string();
  EXPECT_EQ(reply->code, 0u) << reply->text;
}

TEST_P(DaemonTest, AClientThatStopsInItsBootstrapIsToldAndDropped) {
  DaemonOptions fast = options("echo");
  fast.limits.bootstrap = base::Duration::from_ms(50);
  DaemonProcess daemon(fast);
  const TestParent parent(daemon, ring());
  TestClient slow = parent.bootstrap();
  const std::vector<std::byte> frame = bootstrap_of(test_manifest(5));
  ASSERT_TRUE(slow.send(std::span(frame).first(100)));
  const Result<wire::BootstrapReply> reply = slow.receive_reply();
  ASSERT_TRUE(reply) << reply.error().to_string();
  EXPECT_EQ(reply->code, static_cast<uint32_t>(Code::kDeadline)) << reply->text;
  EXPECT_EQ(slow.receive_end().code(), Code::kEndpointFailed);
}

TEST_P(DaemonTest, AClientThatStopsAfterItsPreambleIsDropped) {
  DaemonOptions fast = options("echo");
  fast.limits.handshake = base::Duration::from_ms(50);
  DaemonProcess daemon(fast);
  TestClient silent(daemon.address(), preface_of({}));
  EXPECT_EQ(silent.receive_end().code(), Code::kEndpointFailed);
  EXPECT_NE(daemon.line_with("no handshake in"), "");
}

TEST_P(DaemonTest, ManySilentClientsKeepNobodyOut) {
  DaemonOptions small = options("echo");
  small.limits.clients_max = 16;
  DaemonProcess daemon(small);
  const TestParent parent(daemon, ring());
  std::vector<TestClient> silent;
  for (int i = 0; i < 100; ++i) {
    silent.emplace_back(daemon.address(), std::vector<std::byte>{});
    ASSERT_TRUE(silent.back().open());
  }
  TestClient bootstrap = parent.bootstrap();
  EXPECT_EQ(ask(bootstrap, test_manifest(1)).code, 0u);
  EXPECT_NE(daemon.line_with("the oldest of 16 clients at once"), "");
  // The oldest made way.
  EXPECT_EQ(silent.front().receive_end().code(), Code::kEndpointFailed);
}

TEST_P(DaemonTest, ManyParentsAtOnceEachGetTheirOwnRunner) {
  DaemonProcess daemon(options("echo"));
  const TestParent parent(daemon, ring());
  constexpr uint64_t kParents = 12;
  std::vector<TestClient> bootstraps;
  for (uint64_t i = 0; i < kParents; ++i) bootstraps.push_back(parent.bootstrap());
  for (uint64_t i = 0; i < kParents; ++i) {
    ASSERT_TRUE(bootstraps[i].send(bootstrap_of(test_manifest(100 + i))));
  }
  std::vector<std::vector<TestClient>> lanes;
  for (uint64_t i = 0; i < kParents; ++i) {
    const Result<wire::BootstrapReply> reply = bootstraps[i].receive_reply();
    ASSERT_TRUE(reply) << reply.error().to_string();
    ASSERT_EQ(reply->code, 0u) << reply->text;
    lanes.push_back(parent.lanes(100 + i, *reply));
    for (TestClient& lane : lanes.back()) ASSERT_TRUE(lane.open());
  }
  for (uint64_t i = 0; i < kParents; ++i) {
    const std::string text = fmt::format("number {}", i);
    EXPECT_EQ(text_of(lanes[i][0].receive()), "ready");
    ASSERT_TRUE(lanes[i][0].send(std::as_bytes(std::span(text))));
    EXPECT_EQ(text_of(lanes[i][0].receive()), text);
  }
}

TEST_P(DaemonTest, GarbageInThePreambleIsClosedWithoutAnAnswer) {
  DaemonProcess daemon(options("echo"));
  std::vector<std::byte> garbage(48, std::byte{0xaa});
  TestClient client(daemon.address(), garbage);
  const Result<std::string> got = client.receive();
  ASSERT_FALSE(got) << "it answers";
  EXPECT_EQ(got.error().code(), Code::kEndpointFailed);
  EXPECT_NE(daemon.line_with("preamble"), "");
}

TEST_P(DaemonTest, GarbageInTheBootstrapIsRefusedInWords) {
  DaemonProcess daemon(options("echo"));
  const TestParent parent(daemon, ring());
  std::vector<std::byte> frame = bootstrap_of(test_manifest(5));
  for (const size_t at : {size_t{0}, size_t{7}, size_t{30}, size_t{41}, size_t{60}}) {
    TestClient client = parent.bootstrap();
    std::vector<std::byte> broken = frame;
    broken[at] ^= std::byte{0x55};
    ASSERT_TRUE(client.send(broken));
    const Result<wire::BootstrapReply> reply = client.receive_reply();
    ASSERT_TRUE(reply) << at << ": " << reply.error().to_string();
    EXPECT_NE(reply->code, 0u) << at;
    EXPECT_NE(reply->text, "") << at;
    EXPECT_EQ(client.receive_end().code(), Code::kEndpointFailed);
  }
}

TEST_P(DaemonTest, AManifestThatIsNoneIsRefusedInWords) {
  DaemonProcess daemon(options("echo"));
  const TestParent parent(daemon, ring());
  TestClient client = parent.bootstrap();
  wire::Bootstrap bootstrap;
  bootstrap.product = "strata test";
  bootstrap.manifest = R"({"session_id": "x"})";
  ASSERT_TRUE(client.send(bootstrap_frame(bootstrap)));
  const Result<wire::BootstrapReply> reply = client.receive_reply();
  ASSERT_TRUE(reply) << reply.error().to_string();
  EXPECT_EQ(reply->code, static_cast<uint32_t>(Code::kCorrupt));
  EXPECT_NE(reply->text.find("session_id"), std::string::npos) << reply->text;
}

TEST_P(DaemonTest, AnotherVersionIsToldBothAndWhichSideToUpgrade) {
  DaemonProcess daemon(options("echo"));
  const TestParent parent(daemon, ring());
  for (const auto& [low, high, side] :
       {std::tuple<uint16_t, uint16_t, const char*>{2, 3, "upgrade the daemon"},
        {0, 0, "upgrade the parent"}}) {
    TestClient client = parent.bootstrap();
    wire::Bootstrap bootstrap;
    bootstrap.protocol_min = low;
    bootstrap.protocol_max = high;
    bootstrap.product = "strata 9.9";
    ASSERT_TRUE(client.send(bootstrap_frame(bootstrap)));
    const Result<wire::BootstrapReply> reply = client.receive_reply();
    ASSERT_TRUE(reply) << reply.error().to_string();
    EXPECT_EQ(reply->code, static_cast<uint32_t>(Code::kAbiMismatch));
    EXPECT_EQ(reply->protocol, wire::kVersion);
    for (const std::string& part : {std::string(side), std::string("strata 9.9"),
                                    fmt::format("version {}", low), std::string("version 1")}) {
      EXPECT_NE(reply->text.find(part), std::string::npos) << part << ": " << reply->text;
    }
  }
}

TEST_P(DaemonTest, APreambleOfAnotherVersionIsToldBothAndWhichSideToUpgrade) {
  DaemonProcess daemon(options("echo"));
  std::vector<std::byte> preface = preface_of({});
  preface[4] = std::byte{7};
  std::unique_ptr<transport::TlsContext> tls;
  if (ring() != nullptr) {
    tls = transport::TlsContext::create(*ring(), "bootstrap", transport::TlsSide::kClient).value();
  }
  TestClient client(daemon.address(), preface, tls.get());
  ASSERT_TRUE(client.send(bootstrap_of(test_manifest(1))));
  const Result<wire::BootstrapReply> reply = client.receive_reply();
  ASSERT_TRUE(reply) << reply.error().to_string();
  EXPECT_EQ(reply->code, static_cast<uint32_t>(Code::kAbiMismatch));
  EXPECT_NE(reply->text.find("version 7"), std::string::npos) << reply->text;
  EXPECT_NE(reply->text.find("upgrade the daemon"), std::string::npos) << reply->text;
}

TEST_P(DaemonTest, AWrongTokenIsClosedWithoutAnAnswer) {
  DaemonProcess daemon(options("echo"));
  const TestParent parent(daemon, ring());
  TestClient bootstrap = parent.bootstrap();
  const wire::BootstrapReply reply = ask(bootstrap, test_manifest(9));
  ASSERT_EQ(reply.code, 0u) << reply.text;
  wire::Token wrong = reply.command;
  wrong[15] ^= std::byte{1};
  const struct {
    wire::Lane lane;
    uint64_t session;
    wire::Token token;
    const char* why;
  } rows[] = {{wire::Lane::kCommand, 9, wrong, "a token that is not its"},
              {wire::Lane::kCommand, 10, reply.command, "no such session"},
              {wire::Lane::kData, 9, reply.command, "a token that is not its"},
              {wire::Lane::kCommand, 9, wire::Token{}, "a token that is not its"}};
  for (const auto& row : rows) {
    TestClient lane(daemon.address(), preface_of({row.lane, row.session, row.token}));
    const Result<std::string> got = lane.receive();
    ASSERT_FALSE(got) << "it answers";
    EXPECT_EQ(got.error().code(), Code::kEndpointFailed);
    EXPECT_NE(daemon.line_with(row.why), "") << row.why;
  }
  // The right ones are still good.
  std::vector<TestClient> lanes = parent.lanes(9, reply);
  for (TestClient& lane : lanes) ASSERT_TRUE(lane.open());
  EXPECT_EQ(text_of(lanes[0].receive()), "ready");
}

TEST_P(DaemonTest, ATokenIsGoodOnce) {
  DaemonProcess daemon(options("echo"));
  const TestParent parent(daemon, ring());
  TestClient bootstrap = parent.bootstrap();
  const wire::BootstrapReply reply = ask(bootstrap, test_manifest(9));
  std::vector<TestClient> lanes = parent.lanes(9, reply);
  for (TestClient& lane : lanes) ASSERT_TRUE(lane.open());
  EXPECT_EQ(text_of(lanes[0].receive()), "ready");
  TestClient again(daemon.address(), preface_of({wire::Lane::kCommand, 9, reply.command}));
  ASSERT_FALSE(again.receive());
  EXPECT_NE(daemon.line_with("a token that was used"), "");
  ASSERT_TRUE(lanes[0].send(std::as_bytes(std::span("still", 5))));
  EXPECT_EQ(text_of(lanes[0].receive()), "still");
}

TEST_P(DaemonTest, WithoutADescriptorLeftTheOldestClientMakesWay) {
  DaemonProcess daemon(options("echo"), 40);
  const TestParent parent(daemon, ring());
  std::vector<TestClient> silent;
  for (int i = 0; i < 60; ++i) {
    silent.emplace_back(daemon.address(), std::vector<std::byte>{});
    ASSERT_TRUE(silent.back().open());
  }
  EXPECT_NE(daemon.line_with("fewer than the"), "");
  EXPECT_NE(daemon.line_with("dropped, the oldest of"), "");
  // One who asks is heard; that there is no room for a runner is an answer.
  TestClient bootstrap = parent.bootstrap();
  const wire::BootstrapReply reply = ask(bootstrap, test_manifest(1));
  EXPECT_TRUE(reply.code == 0 || reply.code == static_cast<uint32_t>(Code::kResourceExhausted))
      << reply.text;
}

TEST_P(DaemonTest, WhatThisBuildLacksIsRefusedByName) {
  DaemonOptions limited = options("echo");
  limited.allow_env = {"OMP_NUM_THREADS"};
  DaemonProcess daemon(limited);
  const TestParent parent(daemon, ring());
  using Change = void (*)(wire::Manifest&);
  const std::pair<const char*, Change> rows[] = {
      {"platform is 'a2a3'", [](wire::Manifest& m) { m.platform = "a2a3"; }},
      {"runtime is 'other'", [](wire::Manifest& m) { m.runtime = "other"; }},
      {"'roce': this build has no UCX",
       [](wire::Manifest& m) { m.data_profile.transport = "roce"; }},
      {"'hccs'", [](wire::Manifest& m) { m.data_profile.transport = "hccs"; }},
      {"'ub'", [](wire::Manifest& m) { m.data_profile.transport = "ub"; }},
      {"there are tcp and sim", [](wire::Manifest& m) { m.data_profile.transport = "pigeon"; }},
      {"--allow-env LD_PRELOAD", [](wire::Manifest& m) {
         m.env = {{"LD_PRELOAD", "x"}};
       }}};
  for (const auto& [part, change] : rows) {
    wire::Manifest manifest = test_manifest(9);
    change(manifest);
    TestClient client = parent.bootstrap();
    const wire::BootstrapReply reply = ask(client, manifest);
    EXPECT_NE(reply.code, 0u) << part;
    EXPECT_NE(reply.text.find(part), std::string::npos) << reply.text;
  }
  wire::Manifest manifest = test_manifest(9);
  manifest.data_profile.transport = "sim";
  manifest.env = {{"OMP_NUM_THREADS", "1"}};
  TestClient client = parent.bootstrap();
  const wire::BootstrapReply reply = ask(client, manifest);
  EXPECT_EQ(reply.code, 0u) << reply.text;
  // A process has its environment some time after its number.
  std::vector<TestClient> lanes = parent.lanes(9, reply);
  for (TestClient& lane : lanes) ASSERT_TRUE(lane.open());
  EXPECT_EQ(text_of(lanes[0].receive()), "ready");
  std::ifstream environment(fmt::format("/proc/{}/environ", reply.pid));
  const std::string all{std::istreambuf_iterator<char>(environment), {}};
  EXPECT_NE(all.find("OMP_NUM_THREADS=1"), std::string::npos);
}

TEST_P(DaemonTest, ADeviceIsOneSessionsUntilItsEnd) {
  DaemonProcess daemon(options("echo"));
  const TestParent parent(daemon, ring());
  wire::Manifest manifest = test_manifest(9);
  manifest.device_ids = {0, 4};
  TestClient holder = parent.bootstrap();
  const wire::BootstrapReply held = ask(holder, manifest);
  ASSERT_EQ(held.code, 0u) << held.text;
  wire::Manifest wants = test_manifest(10);
  wants.device_ids = {4};
  TestClient second = parent.bootstrap();
  const wire::BootstrapReply refused = ask(second, wants);
  EXPECT_EQ(refused.code, static_cast<uint32_t>(Code::kResourceExhausted));
  for (const std::string& part : {std::string("device 4"), std::string("session 0000000000000009"),
                                  std::to_string(held.pid)}) {
    EXPECT_NE(refused.text.find(part), std::string::npos) << refused.text;
  }
  ::kill(static_cast<pid_t>(held.pid), SIGKILL);
  EXPECT_NE(daemon.line_with("has ended"), "");
  TestClient third = parent.bootstrap();
  EXPECT_EQ(ask(third, wants).code, 0u);
}

TEST_P(DaemonTest, SessionsHaveALimitAndEachIsThereOnce) {
  DaemonOptions small = options("echo");
  small.limits.sessions_max = 2;
  DaemonProcess daemon(small);
  const TestParent parent(daemon, ring());
  TestClient first = parent.bootstrap();
  ASSERT_EQ(ask(first, test_manifest(1)).code, 0u);
  TestClient twice = parent.bootstrap();
  const wire::BootstrapReply again = ask(twice, test_manifest(1));
  EXPECT_EQ(again.code, static_cast<uint32_t>(Code::kWrongState)) << again.text;
  TestClient second = parent.bootstrap();
  ASSERT_EQ(ask(second, test_manifest(2)).code, 0u);
  TestClient third = parent.bootstrap();
  const wire::BootstrapReply full = ask(third, test_manifest(3));
  EXPECT_EQ(full.code, static_cast<uint32_t>(Code::kResourceExhausted)) << full.text;
}

TEST(DaemonKeys, APlainParentIsToldThatAKeyIsNeeded) {
  DaemonProcess daemon(options_with("echo", true));
  const TestParent parent(daemon, nullptr);
  TestClient client = parent.bootstrap();
  ASSERT_TRUE(client.send(bootstrap_of(test_manifest(1))));
  const Result<wire::BootstrapReply> reply = client.receive_reply();
  ASSERT_TRUE(reply) << reply.error().to_string();
  EXPECT_EQ(reply->code, static_cast<uint32_t>(Code::kInvalidArgument));
  EXPECT_NE(reply->text.find("only connections with a key"), std::string::npos) << reply->text;
}

TEST(DaemonKeys, AParentWithAKeyIsToldThatThereIsNoTls) {
  DaemonProcess daemon(options_with("echo", false));
  const transport::KeyRing ring = test_ring();
  const TestParent parent(daemon, &ring);
  TestClient client = parent.bootstrap();
  const Result<void> opened = client.open();
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code(), Code::kInvalidArgument);
  EXPECT_NE(opened.error().message().find("does not speak TLS"), std::string::npos);
  EXPECT_NE(daemon.line_with("speaks no TLS"), "");
}

TEST(DaemonKeys, AnotherKeyIsRefusedOnBothSidesInWords) {
  DaemonProcess daemon(options_with("echo", true));
  const transport::KeyRing ring = test_ring(0x33);
  const TestParent parent(daemon, &ring);
  TestClient client = parent.bootstrap();
  const Result<void> opened = client.open();
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code(), Code::kInvalidArgument) << opened.error().to_string();
  EXPECT_NE(daemon.line_with("is not known here"), "");
}

TEST(DaemonKeys, NothingOfAKeyIsInTheLogOrInAProcessList) {
  DaemonProcess daemon(options_with("echo", true));
  const transport::KeyRing ring = test_ring();
  const TestParent parent(daemon, &ring);
  TestClient bootstrap = parent.bootstrap();
  ASSERT_TRUE(bootstrap.send(bootstrap_of(test_manifest(9))));
  const Result<wire::BootstrapReply> reply = bootstrap.receive_reply();
  ASSERT_TRUE(reply) << reply.error().to_string();
  std::vector<TestClient> lanes = parent.lanes(9, *reply);
  for (TestClient& lane : lanes) ASSERT_TRUE(lane.open());
  ASSERT_TRUE(lanes[0].receive());
  std::string seen;
  for (const char* file : {"cmdline", "environ"}) {
    std::ifstream in(fmt::format("/proc/{}/{}", reply->pid, file));
    seen.append(std::istreambuf_iterator<char>(in), {});
  }
  ASSERT_NE(seen, "");
  ::kill(static_cast<pid_t>(reply->pid), SIGKILL);
  EXPECT_NE(daemon.line_with("has ended"), "");
  seen += daemon.log();
  const std::string secret = base::hex(ring.keys()[0].secret.bytes());
  EXPECT_EQ(seen.find(secret.substr(0, 8)), std::string::npos);
  EXPECT_EQ(seen.find(std::string(4, '\x5a')), std::string::npos);
  for (const wire::Token& token : {reply->command, reply->data, reply->health}) {
    EXPECT_EQ(seen.find(base::hex(token)), std::string::npos);
  }
}

TEST(DaemonLog, AFloodOfRefusalsIsToldByItsNumber) {
  DaemonOptions options = options_with("echo");
  options.limits.refusals_per_second = 3;
  DaemonProcess daemon(options);
  // The second after a flood begins with how many were left out.
  for (int i = 0; daemon.log_now().find("more clients were refused") == std::string::npos; ++i) {
    ASSERT_LT(i, 1'000'000);
    TestClient client(daemon.address(), std::vector<std::byte>(48, std::byte{0xaa}));
    ASSERT_FALSE(client.receive());
  }
  const std::string& log = daemon.log();
  const size_t told = log.find("more clients were refused");
  EXPECT_EQ(std::count(log.begin(), log.begin() + static_cast<ptrdiff_t>(told), '\n'), 3);
}

TEST(RunnerByHand, IsToldThatThereIsNothingToRun) {
  EXPECT_FALSE(take_runner_start(os::Fd(-1)));
  const os::Fd null(::open("/dev/null", O_RDONLY));
  EXPECT_FALSE(take_runner_start(null.duplicate().value()));
}

}  // namespace
}  // namespace strata::runtime

int main(int argc, char** argv) {
  if (argc == 4 && std::string_view(argv[1]) == "runner") {
    return strata::runtime::test_runner(argv[3]);
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
