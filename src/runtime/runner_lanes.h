// RunnerLanes: how the three lanes of a session come to its runner: by the daemon's socket, then
// TLS where there are keys. Not the session. One thread.
#pragma once

#include <array>
#include <memory>

#include "base/time.h"
#include "env/byte_channel.h"
#include "runtime/runner_socket.h"
#include "session/lane_stream.h"
#include "transport/socket/tls_context.h"
#include "wire/manifest.h"

namespace strata::runtime {

class RunnerLanes {
 public:
  // Both outlive this.
  RunnerLanes(RunnerStart& start, const wire::Manifest& manifest)
      : start_(start), manifest_(manifest) {}

  // Returns when all three are open, within the session's start-up deadline.
  Result<void> open(base::Instant deadline);
  env::ByteChannel& at(wire::Lane lane) { return *lanes_[session::index_of(lane)].channel; }

 private:
  struct Lane {
    std::unique_ptr<transport::TlsContext> tls;
    std::unique_ptr<env::ByteChannel> channel;
    base::Instant handshake_deadline = base::Instant::never();
  };

  bool all_open() const;
  Result<void> wait(base::Instant deadline);
  Result<void> take_events();
  Result<void> advance(Lane& lane);

  RunnerStart& start_;
  const wire::Manifest& manifest_;
  std::array<Lane, session::kLaneCount> lanes_;
};

}  // namespace strata::runtime
