#include "runtime/runner_main.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <memory>

#include "base/result.h"
#include "os/clock.h"
#include "os/fd.h"
#include "os/system_error.h"
#include "runtime/lane_role.h"
#include "transport/socket/connect.h"
#include "wire/frame.h"
#include "wire/manifest.h"

namespace strata::runtime {
namespace {

constexpr size_t kLanes = 3;
constexpr std::string_view kCannot =
    "this build cannot run tasks remotely yet: its runner reaches its parent and does no more";

size_t index_of(wire::Lane lane) {
  return static_cast<size_t>(lane) - static_cast<size_t>(wire::Lane::kCommand);
}

// One session up to its first HELLO: takes the lanes, and tells the parent what this build lacks.
class Runner {
 public:
  explicit Runner(RunnerStart start) : start_(std::move(start)) {}

  Result<void> run() {
    STRATA_TRY(set_up());
    while (!all_open()) {
      STRATA_TRY(wait());
      STRATA_TRY(take_events());
      for (auto& lane : lanes_) STRATA_TRY(advance(lane));
    }
    STRATA_TRY(say(wire::ReadyState::kStarting, 0, ""));
    STRATA_TRY(say(wire::ReadyState::kFailed, 0, kCannot));
    return Error(Code::kUnsupported, Scope::kSession, std::string(kCannot));
  }
  RunnerSocket& socket() { return start_.socket; }

 private:
  struct LaneState {
    std::unique_ptr<env::ByteChannel> channel;
    std::unique_ptr<transport::TlsContext> tls;
    base::Instant handshake_deadline = base::Instant::never();
  };

  Result<void> set_up() {
    STRATA_ASSIGN(manifest_, wire::decode_manifest(start_.settings.manifest));
    deadline_ = os::boottime_now() + base::Duration::from_ms(manifest_.timeouts.start_ms);
    if (!manifest_.cwd.empty() && ::chdir(manifest_.cwd.c_str()) != 0) {
      return os::system_error(
          fmt::format("enter the folder '{}' below the daemon's", manifest_.cwd), errno);
    }
    if (!start_.keys) return {};
    for (const wire::Lane lane : {wire::Lane::kCommand, wire::Lane::kData, wire::Lane::kHealth}) {
      STRATA_ASSIGN(lanes_[index_of(lane)].tls,
                    transport::TlsContext::create(*start_.keys, lane_role(lane),
                                                  transport::TlsSide::kServer));
    }
    return {};
  }

  bool all_open() const {
    for (const LaneState& lane : lanes_) {
      if (!lane.channel || lane.channel->phase() < env::ByteChannel::Phase::kOpen) return false;
    }
    return true;
  }

  Result<void> wait() {
    std::array<pollfd, kLanes + 1> polled;
    base::Instant next = deadline_;
    polled[kLanes] = {start_.socket.descriptor(), POLLIN, 0};  // below 0: left out
    for (size_t i = 0; i < kLanes; ++i) {
      const LaneState& lane = lanes_[i];
      polled[i] = {-1, 0, 0};
      if (!lane.channel) continue;
      // What the parent says on an open lane waits there until this runner can answer it.
      const bool open = lane.channel->phase() >= env::ByteChannel::Phase::kOpen;
      const int events = (open ? POLLRDHUP : POLLIN) | (lane.channel->wants_write() ? POLLOUT : 0);
      polled[i] = {lane.channel->descriptor(), static_cast<short>(events), 0};
      next = std::min(next, lane.handshake_deadline);
    }
    const base::Instant now = os::boottime_now();
    if (now >= next) {
      return Error(Code::kDeadline, Scope::kSession,
                   next == deadline_ ? "not all lanes have come before the start-up deadline"
                                     : "a lane's TLS handshake took too long");
    }
    const int64_t ms = (next - now).ns / 1'000'000 + 1;
    (void)::poll(polled.data(), polled.size(), static_cast<int>(std::min<int64_t>(ms, 60'000)));
    for (size_t i = 0; i < kLanes; ++i) {
      if ((polled[i].revents & (POLLRDHUP | POLLHUP | POLLERR)) == 0) continue;
      if (lanes_[i].channel->phase() < env::ByteChannel::Phase::kOpen) continue;
      return Error(Code::kCancelled, Scope::kSession,
                   fmt::format("the parent has closed its lane {}", lanes_[i].channel->peer()));
    }
    return {};
  }

  Result<void> take_events() {
    if (start_.socket.descriptor() < 0) return {};
    for (;;) {
      STRATA_ASSIGN(std::optional<RunnerEvent> event, start_.socket.receive());
      if (!event) return {};
      switch (event->kind) {
        case RunnerEvent::Kind::kLane: {
          if (index_of(event->lane) >= kLanes) continue;  // nothing is exported that a peer reads
          LaneState& lane = lanes_[index_of(event->lane)];
          STRATA_ASSIGN(lane.channel, transport::adopt(transport::SocketFd(event->fd.release()),
                                                       event->peer, lane.tls.get()));
          continue;
        }
        case RunnerEvent::Kind::kParentGone:
          return Error(Code::kCancelled, Scope::kSession, "the parent does not wait any more");
        case RunnerEvent::Kind::kDaemonGone:
          for (const LaneState& lane : lanes_) {
            if (lane.channel) continue;
            return Error(Code::kEndpointFailed, Scope::kSession,
                         "the daemon has ended before all lanes had come");
          }
          return {};
      }
    }
  }

  Result<void> advance(LaneState& lane) {
    if (!lane.channel) return {};
    STRATA_ASSIGN(const env::ByteChannel::Phase phase, lane.channel->advance());
    if (phase == env::ByteChannel::Phase::kHandshake) {
      if (lane.handshake_deadline == base::Instant::never()) {
        lane.handshake_deadline =
            os::boottime_now() + base::Duration::from_ms(manifest_.timeouts.handshake_ms);
      }
    } else {
      lane.handshake_deadline = base::Instant::never();
    }
    return {};
  }

  Result<void> say(wire::ReadyState state, uint64_t sequence, std::string_view text) {
    wire::Hello hello;
    hello.session_id = manifest_.session_id;
    hello.worker_id = manifest_.worker_id;
    hello.state = state;
    hello.pid = static_cast<uint32_t>(::getpid());
    hello.text = text;
    const wire::FrameHeader header{.type = wire::FrameType::kHello,
                                   .session_id = manifest_.session_id,
                                   .worker_id = manifest_.worker_id,
                                   .sequence = sequence};
    std::vector<std::byte> bytes;
    STRATA_TRY(wire::append_frame(header, hello, &bytes));
    env::ByteChannel& command = *lanes_[index_of(wire::Lane::kCommand)].channel;
    size_t sent = 0;
    while (sent < bytes.size()) {
      STRATA_ASSIGN(const size_t n, command.write(std::span(bytes).subspan(sent)));
      sent += n;
      if (n == 0) STRATA_TRY(wait());
    }
    return {};
  }

  RunnerStart start_;
  wire::Manifest manifest_;
  std::array<LaneState, kLanes> lanes_;
  base::Instant deadline_ = base::Instant::never();
};

}  // namespace

int runner_main(RunnerStart start) {
  Runner runner(std::move(start));
  const Result<void> outcome = runner.run();
  if (outcome) return 0;
  (void)runner.socket().failed(outcome.error());
  return outcome.error().code() == Code::kCancelled ? 0 : 1;
}

int run_as_runner(int link_fd) {
  Result<RunnerStart> start = take_runner_start(os::Fd(link_fd));
  if (!start) {
    std::fprintf(stderr, "strata: %s\n", start.error().message().c_str());
    return 2;
  }
  return runner_main(std::move(start).value());
}

}  // namespace strata::runtime
