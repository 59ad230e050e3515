// What both sides of a session are built with, and what both tell of its end. Values; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/time.h"
#include "strata/result.h"
#include "wire/controls.h"
#include "wire/numbers.h"

namespace strata::session {

using base::Duration;
using base::Instant;

inline constexpr uint32_t kTaskCredits = 16;    // TASKs of a session that are not answered yet
inline constexpr uint32_t kControlCredits = 4;  // likewise controls, of each of the two lanes
inline constexpr uint32_t kLogLines = 256;      // LOGs that no beat of the parent has confirmed
inline constexpr size_t kLaneCount = 3;
inline constexpr uint32_t kHealthPayloadMax = 8 << 10;
// Where so much waits to be written on the health lane, no beat is added and a CANCEL is refused.
inline constexpr size_t kHealthOutputMax = 64 << 10;

// All but `hold` and `beat` count only while the judge ran itself: see AwakeClock.
struct Timing {
  Duration start = Duration::from_s(30);    // until READY
  Duration control = Duration::from_s(30);  // of lane time
  Duration beat = Duration::from_ms(250);   // between two HEALTH of one side
  Duration hold = Duration::from_s(3);      // without a beat; then the runner starts nothing
  Duration parent_verdict = Duration::from_s(5);
  Duration runner_verdict = Duration::from_s(30);
};

struct ParentOptions {
  uint64_t session_id = 0;  // never 0
  int32_t worker_id = 0;
  std::string host;  // "host:port" of the other side, for texts
  std::string path;  // of the remote Worker, "L5/2"
  uint32_t pid = 0;  // of the runner, from BOOTSTRAP_REPLY
  uint32_t early_controls = 0;
  uint32_t task_credits = kTaskCredits;  // or what HELLO grants, if that is less
  uint32_t payload_bytes_max = wire::kPayloadBytesMax;
  Timing timing;
};

struct RunnerOptions {
  uint64_t session_id = 0;
  int32_t worker_id = 0;
  std::string parent;  // "host:port" of the other side, for texts
  std::string host;    // this one, for texts and HELLO
  std::string path;    // of this Worker
  uint32_t pid = 0;    // of this process
  uint32_t early_controls = 0;
  uint32_t task_credits = kTaskCredits;  // granted in HELLO
  uint32_t log_lines = kLogLines;
  wire::LogLevel log_level = wire::LogLevel::kInfo;
  uint32_t payload_bytes_max = wire::kPayloadBytesMax;
  Timing timing;
};

// A request that has no answer and will get none.
struct InFlight {
  wire::Lane lane = wire::Lane::kCommand;
  uint64_t sequence = 0;
  bool is_task = false;
  // False: not a byte of it has left this process.
  bool may_have_run = true;
};

struct Ended {
  std::optional<Error> cause;  // none: drained
  std::vector<InFlight> in_flight;
};

// Where a control travels.
constexpr wire::Lane lane_of(wire::ControlCommand command) {
  return command <= wire::ControlCommand::kUnregister ? wire::Lane::kCommand : wire::Lane::kData;
}

}  // namespace strata::session
