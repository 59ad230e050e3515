#include "runtime/runner_lanes.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>

#include "base/result.h"
#include "os/clock.h"
#include "runtime/lane_role.h"
#include "transport/socket/connect.h"

namespace strata::runtime {

using Phase = env::ByteChannel::Phase;

Result<void> RunnerLanes::open(base::Instant deadline) {
  if (start_.keys) {
    for (const wire::Lane lane : session::kLanes) {
      STRATA_ASSIGN(lanes_[session::index_of(lane)].tls,
                    transport::TlsContext::create(*start_.keys, lane_role(lane),
                                                  transport::TlsSide::kServer));
    }
  }
  for (;;) {
    STRATA_TRY(take_events());
    for (Lane& lane : lanes_) STRATA_TRY(advance(lane));
    if (all_open()) return {};
    STRATA_TRY(wait(deadline));
  }
}

bool RunnerLanes::all_open() const {
  return std::all_of(lanes_.begin(), lanes_.end(), [](const Lane& lane) {
    return lane.channel && lane.channel->phase() >= Phase::kOpen;
  });
}

Result<void> RunnerLanes::wait(base::Instant deadline) {
  std::array<pollfd, session::kLaneCount + 1> polled;
  polled[session::kLaneCount] = {start_.socket.descriptor(), POLLIN, 0};  // below 0: left out
  base::Instant next = deadline;
  for (size_t i = 0; i < lanes_.size(); ++i) {
    polled[i] = {-1, 0, 0};
    const Lane& lane = lanes_[i];
    if (!lane.channel) continue;
    // What the parent says on an open lane waits there until all are.
    const bool is_open = lane.channel->phase() >= Phase::kOpen;
    const int events = (is_open ? POLLRDHUP : POLLIN) | (lane.channel->wants_write() ? POLLOUT : 0);
    polled[i] = {lane.channel->descriptor(), static_cast<short>(events), 0};
    next = std::min(next, lane.handshake_deadline);
  }
  const base::Instant now = os::boottime_now();
  if (now >= next) {
    return Error(Code::kDeadline, Scope::kSession,
                 next == deadline ? "not all lanes have come before the start-up deadline"
                                  : "a lane's TLS handshake took too long");
  }
  const int64_t ms = (next - now).ns / 1'000'000 + 1;
  static_cast<void>(
      ::poll(polled.data(), polled.size(), static_cast<int>(std::min<int64_t>(ms, 60'000))));
  for (size_t i = 0; i < lanes_.size(); ++i) {
    if ((polled[i].revents & (POLLRDHUP | POLLHUP | POLLERR)) == 0) continue;
    if (lanes_[i].channel->phase() < Phase::kOpen) continue;
    return Error(Code::kCancelled, Scope::kSession,
                 fmt::format("the parent has closed its lane {}", lanes_[i].channel->peer()));
  }
  return {};
}

Result<void> RunnerLanes::take_events() {
  while (start_.socket.descriptor() >= 0) {
    STRATA_ASSIGN(std::optional<RunnerEvent> event, start_.socket.receive());
    if (!event) return {};
    if (event->kind == RunnerEvent::Kind::kParentGone) {
      return Error(Code::kCancelled, Scope::kSession, "the parent does not wait any more");
    }
    if (event->kind == RunnerEvent::Kind::kDaemonGone) {
      const bool all = std::all_of(lanes_.begin(), lanes_.end(),
                                   [](const Lane& lane) { return lane.channel != nullptr; });
      if (all) return {};
      return Error(Code::kEndpointFailed, Scope::kSession,
                   "the daemon has ended before all lanes had come");
    }
    const size_t index = session::index_of(event->lane);
    if (index >= lanes_.size()) continue;  // nothing is exported that a peer could read
    STRATA_ASSIGN(lanes_[index].channel, transport::adopt(transport::SocketFd(event->fd.release()),
                                                          event->peer, lanes_[index].tls.get()));
  }
  return {};
}

Result<void> RunnerLanes::advance(Lane& lane) {
  if (!lane.channel) return {};
  STRATA_ASSIGN(const Phase phase, lane.channel->advance());
  if (phase != Phase::kHandshake) {
    lane.handshake_deadline = base::Instant::never();
  } else if (lane.handshake_deadline == base::Instant::never()) {
    lane.handshake_deadline =
        os::boottime_now() + base::Duration::from_ms(manifest_.timeouts.handshake_ms);
  }
  return {};
}

}  // namespace strata::runtime
