// RunnerSocket: what a daemon and the runner of one session say to each other, over a local socket
// pair of the two. Not the session's protocol: that goes over the lanes, which come this way as
// descriptors and are the runner's own from then on. Either side outlives the other.
//
//   daemon to runner   start (manifest and keys), lane, parent gone
//   runner to daemon   ready, failed
//
// Both are one program, so the messages have no version. One thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/time.h"
#include "os/fd.h"
#include "os/socket_pair.h"
#include "strata/result.h"
#include "transport/socket/key_ring.h"
#include "wire/numbers.h"

namespace strata::runtime {

// The daemon gives its end as this argument of `strata runner`.
inline constexpr std::string_view kRunnerCommand = "runner";
inline constexpr std::string_view kRunnerArgument = "--link=3";
inline constexpr size_t kAllowedLibrariesMax = 64;

struct RunnerSettings {
  uint64_t session_id = 0;
  std::string manifest;                    // as the parent sent it; the daemon has checked it
  std::string parent;                      // "host:port" that asked for the session
  std::string advertise;                   // "host:port" by which others reach the daemon
  std::vector<std::string> allow_library;  // folders; empty: none but the loader's own
};

struct RunnerEvent {
  enum class Kind {
    kLane,        // a connection whose preamble was right; TLS, where there are keys, comes next
    kParentGone,  // the parent has closed its bootstrap connection before ready(); never after it
    kDaemonGone,  // the daemon has ended: no lane comes any more, and nothing else changes
  };
  Kind kind = Kind::kDaemonGone;
  wire::Lane lane = wire::Lane::kCommand;
  os::Fd fd;         // does not block
  std::string peer;  // "host:port"
};

class RunnerSocket {
 public:
  RunnerSocket() = default;
  explicit RunnerSocket(os::SeqPacket link) : link_(std::move(link)) {}

  // None where nothing waits. After kDaemonGone it is closed and gives that again.
  Result<std::optional<RunnerEvent>> receive();
  // Readable when there is something to receive; -1 once the daemon is gone.
  int descriptor() const { return link_.fd(); }
  // Once, after HELLO READY or in place of it. That the daemon is gone is no Error.
  Result<void> ready();
  Result<void> failed(const Error& why);

 private:
  Result<void> send(std::span<const std::byte> message);
  os::SeqPacket link_;
  bool ready_ = false;
};

struct RunnerStart {
  RunnerSettings settings;
  std::optional<transport::KeyRing> keys;  // none: no TLS
  RunnerSocket socket;
};

// The first thing in a runner: takes what the daemon has put into the socket before it existed.
Result<RunnerStart> take_runner_start(os::Fd link);

// ---- the daemon's side

struct RunnerNews {
  bool ready = false;         // else it has failed
  Code code = Code::kSystem;  // why
  std::string text;
};

// Puts everything that a runner starts with into its socket.
Result<void> send_runner_start(const os::SeqPacket& link, const RunnerSettings& settings,
                               const transport::KeyRing* keys);
// False where the runner does not read.
Result<bool> send_lane(const os::SeqPacket& link, wire::Lane lane, std::string_view peer, int fd);
Result<bool> send_parent_gone(const os::SeqPacket& link);
// None where nothing waits; `*end` where the runner has closed its end.
Result<std::optional<RunnerNews>> receive_news(const os::SeqPacket& link, bool* end);

}  // namespace strata::runtime
