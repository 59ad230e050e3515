// Sessions over a network that fails at any byte, and many sessions one after the other.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <mutex>
#include <thread>

#include "base/prng.h"
#include "tests/runtime/remote_util.h"

namespace strata {
namespace {

using namespace test;  // NOLINT

constexpr size_t kPreambleBytes = 48, kLaneAt = 6;

enum class Fault : uint8_t { kNone, kReset, kGarbage, kStall };

// Between a parent and a daemon: passes bytes on, and after `after` bytes of one lane in one
// direction does something else. A thread for each direction of each connection.
class Network {
 public:
  explicit Network(uint16_t to) : to_(to) {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = loopback(0);
    socklen_t size = sizeof address;
    EXPECT_EQ(::bind(listener_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(listener_, 16), 0);
    ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    accepting_ = std::thread([this] { accept(); });
  }
  ~Network() {
    over_ = true;
    ::shutdown(listener_, SHUT_RDWR);
    accepting_.join();
    {
      const std::lock_guard lock(mutex_);
      for (const int fd : fds_) ::shutdown(fd, SHUT_RDWR);
    }
    for (std::thread& thread : threads_) thread.join();
    for (const int fd : fds_) ::close(fd);
    ::close(listener_);
  }
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  void set(Fault fault, uint16_t lane, bool towards_parent, uint64_t after) {
    const std::lock_guard lock(mutex_);
    fault_ = fault;
    lane_ = lane;
    towards_parent_ = towards_parent;
    after_ = after;
  }
  std::string endpoint() const { return "127.0.0.1:" + std::to_string(port_); }

 private:
  static sockaddr_in loopback(uint16_t port) {
    sockaddr_in out{};
    out.sin_family = AF_INET;
    out.sin_port = htons(port);
    out.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return out;
  }
  void accept() {
    while (!over_) {
      const int from = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (from < 0) return;
      const int to = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      const sockaddr_in address = loopback(to_);
      std::array<std::byte, kPreambleBytes> preamble;
      const bool there =
          ::connect(to, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
          ::recv(from, preamble.data(), preamble.size(), MSG_WAITALL) == kPreambleBytes &&
          ::send(to, preamble.data(), preamble.size(), MSG_NOSIGNAL) == kPreambleBytes;
      const std::lock_guard lock(mutex_);
      fds_.insert(fds_.end(), {from, to});
      if (!there) {
        ::shutdown(from, SHUT_RDWR);
        ::shutdown(to, SHUT_RDWR);
        continue;
      }
      const auto lane = static_cast<uint16_t>(preamble[kLaneAt]);
      threads_.emplace_back([=, this] { pass(from, to, lane, false); });
      threads_.emplace_back([=, this] { pass(to, from, lane, true); });
    }
  }
  void pass(int from, int to, uint16_t lane, bool towards_parent) {
    std::array<std::byte, 4096> buffer;
    uint64_t passed = 0;
    for (;;) {
      const ssize_t got = ::recv(from, buffer.data(), buffer.size(), 0);
      if (got <= 0) break;
      auto n = static_cast<size_t>(got);
      Fault fault = Fault::kNone;
      uint64_t left = 0;
      {
        const std::lock_guard lock(mutex_);
        if (fault_ != Fault::kNone && lane == lane_ && towards_parent == towards_parent_ &&
            passed + n > after_) {
          fault = fault_;
          left = after_ > passed ? after_ - passed : 0;
        }
      }
      if (fault == Fault::kStall) continue;  // it takes them, and nothing comes out
      if (fault == Fault::kGarbage) {
        for (size_t i = left; i < n; ++i) buffer[i] ^= std::byte{0x5a};
      } else if (fault == Fault::kReset) {
        n = left;
      }
      if (n > 0 && ::send(to, buffer.data(), n, MSG_NOSIGNAL) != static_cast<ssize_t>(n)) break;
      passed += n;
      if (fault == Fault::kReset) {
        const linger now{.l_onoff = 1, .l_linger = 0};
        ::setsockopt(to, SOL_SOCKET, SO_LINGER, &now, sizeof now);
        ::setsockopt(from, SOL_SOCKET, SO_LINGER, &now, sizeof now);
        break;
      }
    }
    ::shutdown(from, SHUT_RDWR);
    ::shutdown(to, SHUT_RDWR);
  }

  uint16_t to_;
  uint16_t port_ = 0;
  int listener_ = -1;
  std::atomic<bool> over_{false};
  std::mutex mutex_;
  Fault fault_ = Fault::kNone;
  uint16_t lane_ = 0;
  bool towards_parent_ = false;
  uint64_t after_ = 0;
  std::vector<int> fds_;
  std::vector<std::thread> threads_;  // of connections; made by accepting_ until it has ended
  std::thread accepting_;
};

WorkerSpec pod() {
  WorkerSpec spec = spec_of(StartMethod::kFork, 0);
  spec.level = 4;
  return spec;
}

// Whatever fails is an Error within the time that the session's spec gives, and no process stays.
void fail_at(Worker& worker, Daemon& daemon, Fault fault, uint16_t lane, bool towards_parent,
             uint64_t after) {
  const auto port =
      static_cast<uint16_t>(std::stoi(daemon.endpoint().substr(daemon.endpoint().find(':') + 1)));
  Network network(port);
  RemoteWorkerSpec spec = daemon.spec(0);
  spec.endpoint = network.endpoint();
  spec.session.start_ms = 1'500;
  spec.session.control_ms = 700;
  spec.session.beat_ms = 50;
  spec.session.hold_ms = 300;
  spec.session.verdict_ms = 600;
  spec.session.orphan_ms = 600;
  spec.session.close_ms = 500;
  network.set(fault, lane, towards_parent, after);
  const base::Instant begun = os::monotonic_now();
  const Result<int> added = worker.add_remote_worker(spec);
  if (added) {
    const auto sum = worker.register_callable(NativeImport{"libnative_far.so", "far_nothing"});
    for (int i = 0; sum && i < 20; ++i) {
      static_cast<void>(worker.run([&](Orchestrator& orch) -> Result<void> {
        auto task = orch.submit_next_level(*sum, TaskArgs(), {}, *added);
        if (!task) return task.error();
        return {};
      }));
    }
    static_cast<void>(worker.remove_remote_worker(*added));
  } else {
    EXPECT_GT(added.error().message().size(), 20u);
  }
  EXPECT_LT((os::monotonic_now() - begun).seconds(), 6.0)
      << "lane " << lane << (towards_parent ? " to the parent" : " to the runner") << " after "
      << after;
}

class RemoteNetwork : public ::testing::TestWithParam<Fault> {};
std::string name_of_fault(const ::testing::TestParamInfo<Fault>& instance) {
  constexpr std::array kNames = {"None", "Reset", "Garbage", "Stall"};
  return kNames[static_cast<size_t>(instance.param)];
}
INSTANTIATE_TEST_SUITE_P(All, RemoteNetwork,
                         ::testing::Values(Fault::kReset, Fault::kGarbage, Fault::kStall),
                         name_of_fault);

TEST_P(RemoteNetwork, ThatFailsAtAnyByteOfAnyLaneEndsTheSessionInWordsAndInTime) {
  Daemon daemon;
  auto worker = started(pod());
  base::Prng prng(11);
  const int rounds = GetParam() == Fault::kStall ? 1 : 3;
  for (const uint16_t lane : {1, 2, 3, 4}) {
    for (const bool towards_parent : {false, true}) {
      for (int i = 0; i < rounds; ++i) {
        fail_at(*worker, daemon, GetParam(), lane, towards_parent, prng.below(600));
        if (testing::Test::HasFailure()) return;
      }
    }
  }
  EXPECT_TRUE(worker->add_remote_worker(daemon.spec(0)).ok()) << "parent and daemon go on";
  EXPECT_TRUE(worker->close().ok());
  EXPECT_TRUE(await([&] { return descendants(daemon.pid()).empty(); }, kLossBound));
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kShare = 10;
#else
constexpr int kShare = 1;
#endif

TEST(RemoteCycles, AThousandSessionsOfWhichTwoHundredAreKilledLeaveNothing) {
  Daemon daemon;
  auto worker = started(pod());
  const auto none =
      worker->register_callable(NativeImport{"libnative_far.so", "far_nothing"}).value();
  const auto cycle = [&](int i) {
    RemoteWorkerSpec spec = daemon.spec(0);
    spec.session.close_ms = 5'000;
    const Result<int> id = worker->add_remote_worker(spec);
    ASSERT_TRUE(id.ok()) << id.error().to_string();
    const std::vector<Worker::Child> children = worker->next_level_children();
    if (i % 5 == 0) ::kill(children.back().pid, SIGKILL);
    static_cast<void>(worker->run(
        [&](Orchestrator& orch) { static_cast<void>(orch.submit_next_level(none, TaskArgs())); }));
    static_cast<void>(worker->remove_remote_worker(*id));
  };
  for (int i = 0; i < 10; ++i) cycle(i);
  EXPECT_TRUE(await([&] { return descendants(daemon.pid()).empty(); }, kLossBound));
  const std::set<int> fds = open_fds();
  const std::set<int> processes = descendants();
  const auto daemon_fds = [&] {
    size_t n = 0;
    const std::string folder = "/proc/" + std::to_string(daemon.pid()) + "/fd";
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      n += entry.exists() || true;
    return n;
  };
  const size_t of_daemon = daemon_fds();
  for (int i = 0; i < 1000 / kShare; ++i) {
    cycle(i);
    if (testing::Test::HasFailure()) FAIL() << "session " << i;
  }
  EXPECT_TRUE(await([&] { return descendants() == processes; }, kLossBound));
  EXPECT_EQ(open_fds(), fds);
  EXPECT_TRUE(await([&] { return daemon_fds() == of_daemon; }, kLossBound));
  EXPECT_TRUE(worker->close().ok());
}

}  // namespace
}  // namespace strata
