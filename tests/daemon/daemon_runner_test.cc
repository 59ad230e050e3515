// A daemon's runners: how one that fails is told, and what ends one.
#include <filesystem>

#include "strata/strata.h"
#include "tests/daemon/daemon_fixture.h"

namespace strata::runtime {
namespace {

class DaemonRunner : public DaemonFixture {};
INSTANTIATE_TEST_SUITE_P(Each, DaemonRunner, testing::Bool(),
                         [](const auto& each) { return each.param ? "Keyed" : "Plain"; });

TEST_P(DaemonRunner, ARunnerThatDiesBeforeReadyIsToldWithItsStatusAndLastLines) {
  DaemonProcess daemon(options("dies"));
  const TestParent parent(daemon, ring());
  TestClient bootstrap = parent.bootstrap();
  const wire::BootstrapReply first = ask(bootstrap, test_manifest(9));
  ASSERT_EQ(first.code, 0u) << first.text;
  const Result<wire::BootstrapReply> second = bootstrap.receive_reply();
  ASSERT_TRUE(second) << second.error().to_string();
  EXPECT_EQ(second->code, static_cast<uint32_t>(Code::kEndpointFailed));
  for (const char* part : {"exit status 7", "the very last words"}) {
    EXPECT_NE(second->text.find(part), std::string::npos) << second->text;
  }
  EXPECT_NE(second->text.find(std::to_string(first.pid)), std::string::npos) << second->text;
}

TEST_P(DaemonRunner, ARunnerThatIsKilledBeforeReadyIsTold) {
  DaemonProcess daemon(options("hangs"));
  const TestParent parent(daemon, ring());
  TestClient bootstrap = parent.bootstrap();
  const wire::BootstrapReply first = ask(bootstrap, test_manifest(9));
  ASSERT_EQ(first.code, 0u) << first.text;
  ::kill(static_cast<pid_t>(first.pid), SIGKILL);
  const Result<wire::BootstrapReply> second = bootstrap.receive_reply();
  ASSERT_TRUE(second) << second.error().to_string();
  EXPECT_NE(second->text.find("signal 9"), std::string::npos) << second->text;
}

TEST_P(DaemonRunner, ARunnersOwnWordsComeHome) {
  DaemonProcess daemon(options("fails"));
  const TestParent parent(daemon, ring());
  TestClient bootstrap = parent.bootstrap();
  ASSERT_EQ(ask(bootstrap, test_manifest(9)).code, 0u);
  const Result<wire::BootstrapReply> second = bootstrap.receive_reply();
  ASSERT_TRUE(second) << second.error().to_string();
  EXPECT_EQ(second->code, static_cast<uint32_t>(Code::kNotFound));
  EXPECT_NE(second->text.find("no such library here"), std::string::npos) << second->text;
}

TEST(DaemonRunners, OneThatTakesNoArgumentsIsRefusedByItsParent) {
  DaemonProcess daemon(options_with("unable"));
  auto worker = Worker::create({.level = 4}).value();
  ASSERT_TRUE(worker->init().ok());
  RemoteWorkerSpec spec;
  spec.endpoint = daemon.address().to_string();
  const Result<int> added = worker->add_remote_worker(spec);
  ASSERT_FALSE(added.ok());
  EXPECT_NE(added.error().message().find("takes no callables of NATIVE_IMPORT"), std::string::npos)
      << added.error().to_string();
  EXPECT_TRUE(worker->close().ok());
}

TEST_P(DaemonRunner, ARunnerThatIsNotReadyInTimeIsEndedAndThatIsTold) {
  DaemonProcess daemon(options("hangs"));
  const TestParent parent(daemon, ring());
  TestClient bootstrap = parent.bootstrap();
  wire::Manifest manifest = test_manifest(9);
  manifest.timeouts.start_ms = 50;
  const wire::BootstrapReply first = ask(bootstrap, manifest);
  ASSERT_EQ(first.code, 0u) << first.text;
  const Result<wire::BootstrapReply> second = bootstrap.receive_reply();
  ASSERT_TRUE(second) << second.error().to_string();
  EXPECT_EQ(second->code, static_cast<uint32_t>(Code::kDeadline));
  EXPECT_NE(second->text.find("not READY in"), std::string::npos) << second->text;
  EXPECT_FALSE(alive(first.pid));
}

TEST_P(DaemonRunner, AParentThatLeavesBeforeReadyEndsItsRunner) {
  for (const char* runner : {"echo", "hangs"}) {
    DaemonOptions fast = options(runner);
    fast.limits.exit = base::Duration::from_ms(50);
    DaemonProcess daemon(fast);
    const TestParent parent(daemon, ring());
    TestClient bootstrap = parent.bootstrap();
    const wire::BootstrapReply first = ask(bootstrap, test_manifest(9));
    ASSERT_EQ(first.code, 0u) << first.text;
    bootstrap.channel().close();
    EXPECT_NE(daemon.line_with("closed the bootstrap connection before READY"), "");
    EXPECT_NE(daemon.line_with("has ended"), "");
    EXPECT_FALSE(alive(first.pid));
  }
}

TEST_P(DaemonRunner, AParentThatClosesItsBootstrapConnectionAtReadyKeepsItsSession) {
  DaemonProcess daemon(options("echo"));
  const TestParent parent(daemon, ring());
  for (uint64_t id = 1; id <= 20; ++id) {
    TestClient bootstrap = parent.bootstrap();
    const wire::BootstrapReply reply = ask(bootstrap, test_manifest(id));
    ASSERT_EQ(reply.code, 0u) << reply.text;
    std::vector<TestClient> lanes = parent.lanes(id, reply);
    for (TestClient& lane : lanes) ASSERT_TRUE(lane.open());
    for (TestClient& lane : lanes) ASSERT_TRUE(lane.receive());
    bootstrap.channel().close();
    EXPECT_NE(daemon.line_with("is ready after"), "");
    ASSERT_TRUE(lanes[0].send(std::as_bytes(std::span("on", 2))));
    EXPECT_EQ(text_of(lanes[0].receive()), "on") << daemon.log_now();
  }
}

TEST_P(DaemonRunner, SessionsThatEndInAnyWayLeaveNothing) {
  DaemonProcess daemon(options("echo"));
  const TestParent parent(daemon, ring());
  const auto descriptors = [&] {
    const std::filesystem::directory_iterator all(fmt::format("/proc/{}/fd", daemon.pid()));
    return std::distance(begin(all), end(all));
  };
  {
    // Once it has answered it has what it needs, and nothing of the process that it came from.
    TestClient client(daemon.address(), std::vector<std::byte>(48, std::byte{0xaa}));
    ASSERT_FALSE(client.receive());
  }
  const auto before = descriptors();
  const char* many = std::getenv("STRATA_TEST_SESSIONS");
  const int sessions = many != nullptr ? std::atoi(many) : 40;
  for (int i = 0; i < sessions; ++i) {
    TestClient bootstrap = parent.bootstrap();
    const wire::BootstrapReply reply = ask(bootstrap, test_manifest(static_cast<uint64_t>(i) + 1));
    ASSERT_EQ(reply.code, 0u) << reply.text;
    const bool killed = i % 5 == 0;
    if (i % 10 == 0) ::kill(static_cast<pid_t>(reply.pid), SIGKILL);
    std::vector<TestClient> lanes = parent.lanes(static_cast<uint64_t>(i) + 1, reply);
    if (i % 10 != 0) {
      for (TestClient& lane : lanes) ASSERT_TRUE(lane.open());
      for (TestClient& lane : lanes) ASSERT_TRUE(lane.receive());
    }
    if (i % 10 == 5) ::kill(static_cast<pid_t>(reply.pid), SIGKILL);
    lanes.clear();
    const std::string line = daemon.line_with("has ended");
    EXPECT_NE(line.find(killed ? "signal 9" : "exit status 0"), std::string::npos) << line;
    EXPECT_FALSE(alive(reply.pid));
  }
  // The last bootstrap connection lingers until its own end is seen, which a further client
  // follows.
  for (int i = 0; i < 1000 && descriptors() > before; ++i) {
    TestClient client(daemon.address(), std::vector<std::byte>(48, std::byte{0xaa}));
    ASSERT_FALSE(client.receive());
  }
  EXPECT_EQ(descriptors(), before);
}

TEST_P(DaemonRunner, AProgramThatCannotBeStartedIsARefusal) {
  DaemonOptions broken = options("echo");
  broken.program = "/no/such/program";
  DaemonProcess daemon(broken);
  const TestParent parent(daemon, ring());
  TestClient bootstrap = parent.bootstrap();
  const wire::BootstrapReply reply = ask(bootstrap, test_manifest(9));
  EXPECT_NE(reply.code, 0u);
  EXPECT_NE(reply.text.find("/no/such/program"), std::string::npos) << reply.text;
  // It left nothing behind: the same session may be asked for again.
  TestClient second = parent.bootstrap();
  EXPECT_EQ(ask(second, test_manifest(9)).text, reply.text);
}

TEST_P(DaemonRunner, TheDaemonsDeathEndsNoSession) {
  for (const int how : {SIGKILL, SIGTERM}) {
    DaemonProcess daemon(options("echo"));
    const TestParent parent(daemon, ring());
    TestClient bootstrap = parent.bootstrap();
    const wire::BootstrapReply reply = ask(bootstrap, test_manifest(9));
    std::vector<TestClient> lanes = parent.lanes(9, reply);
    for (TestClient& lane : lanes) ASSERT_TRUE(lane.open());
    EXPECT_EQ(text_of(lanes[0].receive()), "ready");
    EXPECT_NE(daemon.line_with("is ready after"), "");
    EXPECT_EQ(daemon.end(how), how == SIGKILL ? -SIGKILL : 0);
    for (const char* text : {"one", "two"}) {
      ASSERT_TRUE(lanes[0].send(std::as_bytes(std::span(text, 3))));
      EXPECT_EQ(text_of(lanes[0].receive()), text);
    }
    EXPECT_TRUE(alive(reply.pid));
  }
}

TEST_P(DaemonRunner, TheProductsRunnerSaysHelloTwiceAndEndsWithItsParent) {
  DaemonProcess daemon(options("product"));
  const TestParent parent(daemon, ring());
  TestClient bootstrap = parent.bootstrap();
  const wire::BootstrapReply reply = ask(bootstrap, test_manifest(9));
  ASSERT_EQ(reply.code, 0u) << reply.text;
  std::vector<TestClient> lanes = parent.lanes(9, reply);
  for (TestClient& lane : lanes) ASSERT_TRUE(lane.open());
  for (const wire::ReadyState state : {wire::ReadyState::kStarting, wire::ReadyState::kReady}) {
    const Result<wire::Hello> hello = lanes[0].receive_frame<wire::Hello>(wire::FrameType::kHello);
    ASSERT_TRUE(hello) << hello.error().to_string();
    EXPECT_EQ(hello->state, state) << hello->text;
    EXPECT_EQ(hello->session_id, 9u);
    EXPECT_EQ(hello->pid, reply.pid);
  }
  EXPECT_EQ(bootstrap.receive_end().code(), Code::kEndpointFailed);
  lanes.clear();
  EXPECT_NE(daemon.line_with("has ended"), "");
  EXPECT_FALSE(alive(reply.pid));
}

TEST_P(DaemonRunner, ARunnerWhoseParentClosesALaneAtItsStartEnds) {
  DaemonProcess daemon(options("product"));
  const TestParent parent(daemon, ring());
  TestClient bootstrap = parent.bootstrap();
  const wire::BootstrapReply reply = ask(bootstrap, test_manifest(9));
  TestClient lane = parent.lane(wire::Lane::kCommand, 9, reply.command);
  ASSERT_TRUE(lane.open());
  lane.channel().close();
  EXPECT_NE(daemon.line_with("has ended"), "");
  EXPECT_FALSE(alive(reply.pid));
}

}  // namespace
}  // namespace strata::runtime
