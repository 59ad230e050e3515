// The runners of these tests: this program itself, started by the daemon under test with the name
// of what it is to do. One thread.
#pragma once

#include <poll.h>

#include <array>
#include <cstdio>
#include <string_view>
#include <utility>
#include <vector>

#include "os/clock.h"
#include "runtime/lane_role.h"
#include "runtime/runner_lanes.h"
#include "runtime/runner_main.h"
#include "session/runner_session.h"
#include "transport/socket/connect.h"
#include "wire/manifest.h"

namespace strata::runtime {

// Takes three lanes, says "ready" on each and to the daemon; then sends back what comes on the
// command lane until the parent closes it. The daemon's end changes nothing.
inline int echo_runner(RunnerStart start) {
  std::array<std::unique_ptr<transport::TlsContext>, 3> tls;
  std::array<std::unique_ptr<env::ByteChannel>, 3> lanes;
  const std::string_view hello = "ready";
  std::array<bool, 3> told{};
  for (;;) {
    while (start.socket.descriptor() >= 0) {
      Result<std::optional<RunnerEvent>> event = start.socket.receive();
      if (!event) return 3;
      if (!*event) break;
      if ((*event)->kind == RunnerEvent::Kind::kParentGone) return 4;
      if ((*event)->kind == RunnerEvent::Kind::kDaemonGone) {
        if (!lanes[0] || !lanes[1] || !lanes[2]) return 9;
        break;
      }
      const size_t i = static_cast<size_t>((*event)->lane) - 2;
      if (start.keys) {
        tls[i] = transport::TlsContext::create(*start.keys, lane_role((*event)->lane),
                                               transport::TlsSide::kServer)
                     .value();
      }
      lanes[i] = transport::adopt(transport::SocketFd((*event)->fd.release()), (*event)->peer,
                                  tls[i].get())
                     .value();
    }
    std::array<pollfd, 4> polled;
    polled[3] = {start.socket.descriptor(), POLLIN, 0};
    size_t open = 0;
    for (size_t i = 0; i < lanes.size(); ++i) {
      polled[i] = {-1, 0, 0};
      if (!lanes[i]) continue;
      Result<env::ByteChannel::Phase> phase = lanes[i]->advance();
      if (!phase) return 5;
      if (*phase >= env::ByteChannel::Phase::kOpen) {
        ++open;
        if (!std::exchange(told[i], true)) {
          if (!lanes[i]->write(std::as_bytes(std::span(hello)))) return 6;
          if (told[0] && told[1] && told[2] && !start.socket.ready()) return 7;
        }
      }
      polled[i] = {lanes[i]->descriptor(), POLLIN, 0};
    }
    if (open == 3) {
      std::array<std::byte, 4096> buffer;
      Result<size_t> n = lanes[0]->read(buffer);
      if (!n) return 0;
      if (*n > 0) {
        if (!lanes[0]->write(std::span<const std::byte>(buffer).first(*n))) return 8;
        continue;
      }
      polled[1].fd = polled[2].fd = -1;
    }
    ::poll(polled.data(), polled.size(), -1);
  }
}

// A session whose HELLO tells of nothing that it is able to do; until the parent ends it.
class UnableRunner final : private session::RunnerSession::Sink {
 public:
  explicit UnableRunner(RunnerStart start)
      : start_(std::move(start)),
        manifest_(wire::decode_manifest(start_.settings.manifest).value()),
        lanes_(start_, manifest_) {}

  int run() {
    if (!lanes_.open(os::boottime_now() + base::Duration::from_s(20))) return 3;
    session::RunnerOptions options;
    options.session_id = manifest_.session_id;
    options.worker_id = manifest_.worker_id;
    session::RunnerSession session(std::move(options), *this, os::boottime_now());
    for (const wire::Lane lane : session::kLanes) session.on_lane_up(lane, os::boottime_now());
    session.ready({});
    while (!session.ended()) {
      std::array<pollfd, session::kLaneCount> polled;
      for (const wire::Lane lane : session::kLanes) {
        env::ByteChannel& channel = lanes_.at(lane);
        std::vector<std::byte>& out = session.output(lane);
        const Result<size_t> put = channel.write(out);
        if (!put) return 0;
        out.erase(out.begin(), out.begin() + static_cast<ptrdiff_t>(*put));
        const Result<size_t> got = channel.read(session.space(lane));
        if (!got) return 0;
        if (*got > 0) session.came(lane, *got, os::boottime_now());
        polled[session::index_of(lane)] = {channel.descriptor(), POLLIN, 0};
        if (session.ended()) return 0;
      }
      ::poll(polled.data(), polled.size(), 10);
    }
    return 0;
  }

 private:
  void on_work(wire::Lane) override {}
  void on_cancel(uint64_t) override {}
  void on_set_log(wire::LogLevel) override {}
  void on_ended(const std::optional<Error>&) override {}

  RunnerStart start_;
  wire::Manifest manifest_;
  RunnerLanes lanes_;
};

inline int test_runner(std::string_view what) {
  if (what == "product") return run_as_runner(3);
  if (what == "dies") {
    std::fprintf(stderr, "first line\nthe very last words\n");
    return 7;
  }
  Result<RunnerStart> start = take_runner_start(os::Fd(3));
  if (!start) return 2;
  if (what == "fails") {
    (void)start->socket.failed(Error(Code::kNotFound, Scope::kSession, "no such library here"));
    return 1;
  }
  // Does nothing at all until the daemon has ended.
  if (what == "hangs") {
    pollfd end{.fd = start->socket.descriptor(), .events = 0, .revents = 0};
    while ((end.revents & POLLHUP) == 0) ::poll(&end, 1, -1);
    return 0;
  }
  if (what == "unable") return UnableRunner(std::move(start).value()).run();
  return echo_runner(std::move(start).value());
}

}  // namespace strata::runtime
