// RunnerSession: one session as its runner sees it: the barrier of HELLO, requests in their order,
// CANCEL and ABORT, beats, the fence, the verdict on a silent parent, LOG lines.
//
// Not a socket and not the Worker: bytes and times are handed in, bytes to write wait in output(),
// requests wait in take(). Times are CLOCK_BOOTTIME.
//
// Threads: a runner reads each lane with a thread of its own, and they share the executing
// sequence, the lease of the fence, the end, and the outputs (a cancelled TASK is answered on the
// command lane by the thread of the health lane; lines of a task go to the health lane). So the
// driver has one mutex for the session and holds it in every call but space(); never while it
// reads, writes, or runs a task. It costs 20 ns a call beside a round trip of tens of
// microseconds, and what the simulator steps is then all there is. To write, swap output() out
// under the mutex. The sink is called under it, and only takes notes and wakes threads.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/check.h"
#include "session/awake_clock.h"
#include "session/lane_stream.h"
#include "session/options.h"
#include "wire/bootstrap.h"
#include "wire/controls.h"
#include "wire/lanes.h"
#include "wire/task.h"

namespace strata::session {

struct Work {
  uint64_t sequence = 0;
  std::variant<wire::Task, wire::Control, wire::Shutdown> what;
};

class RunnerSession {
 public:
  class Sink {
   public:
    // take() of that lane may give something now: wake its thread.
    virtual void on_work(wire::Lane lane) = 0;
    // The TASK that runs should stop: its callable sees that it is cancelled.
    virtual void on_cancel(uint64_t sequence) = 0;
    virtual void on_set_log(wire::LogLevel level) = 0;
    // Once, and nothing after it: whatever runs is ended, with the subtree. None: drained.
    virtual void on_ended(const std::optional<Error>& cause) = 0;

   protected:
    ~Sink() = default;
  };

  RunnerSession(RunnerOptions options, Sink& sink, Instant now);
  RunnerSession(const RunnerSession&) = delete;
  RunnerSession& operator=(const RunnerSession&) = delete;

  // ---- the driver's, as in ParentSession ----------------------------------------------------
  // With the third one HELLO STARTING goes out.
  void on_lane_up(wire::Lane lane, Instant now);
  // By the thread of that lane, also without the mutex, until it calls came().
  std::span<std::byte> space(wire::Lane lane) { return at(lane).space(); }
  void came(wire::Lane lane, size_t n, Instant now);
  void on_bytes(wire::Lane lane, std::span<const std::byte> bytes, Instant now);
  void on_lane_closed(wire::Lane lane, const std::optional<Error>& why, Instant now);
  Instant next_deadline() const;
  void on_deadline(Instant now);
  std::vector<std::byte>& output(wire::Lane lane) { return at(lane).output(); }
  // Ends it for a reason of this side; the parent gets the text.
  void fail(Error cause, Instant now);

  // ---- the Worker's -------------------------------------------------------------------------
  // The Worker stands: caps, runtimes and features are taken from `hello`, the rest is filled in.
  // HELLO READY goes out now, or after the answer to the last early control.
  void ready(wire::Hello hello);
  // The Worker cannot be built: HELLO FAILED, then the end.
  void failed(std::string text);

  // The next request of the command lane or of the data lane, in order; none while one that was
  // taken is not answered, where nothing waits, and where a TASK must not start because the fence
  // holds (on_work says when it may). A Shutdown comes last: answer it with drained().
  std::optional<Work> take(wire::Lane lane, Instant now);
  // The answer to what take() gave. An Error: it does not go over the wire; answer it otherwise.
  Result<void> completion(wire::Completion completion);
  Result<void> reply(wire::Lane lane, wire::ControlReply reply);
  // All is done and the subtree has ended: the driver writes output(), then closes.
  void drained();

  // A line home. Dropped and counted where the credit is used up, or its level is too low.
  void log(wire::Log line);
  void set_rss(uint64_t bytes) { rss_bytes_ = bytes; }

  // ---- queries ------------------------------------------------------------------------------
  // The fence: no task may start and nothing may be written to memory of others.
  bool holding(Instant now) const { return now >= lease_until_; }
  uint64_t executing() const;  // request of the command lane that was taken; 0: none
  bool is_ready() const { return state_ == State::kReady; }
  bool ended() const { return state_ == State::kEnded; }
  wire::LogLevel log_level() const { return log_level_; }
  uint64_t lines_dropped() const { return lines_dropped_; }
  std::string where() const;

 private:
  enum class State : uint8_t { kOpening, kStarting, kReady, kDraining, kEnded };
  // The requests of one lane: those that wait, and the one that was taken.
  struct Queue {
    std::deque<Work> waiting;
    std::optional<uint64_t> taken;
    wire::ControlCommand command = wire::ControlCommand::kPrepareRegister;  // of `taken`
    bool taken_is_task = false;
    uint64_t last = 0;      // sequence that came
    uint32_t tasks = 0;     // that came and are not answered
    uint32_t controls = 0;  // likewise
  };

  LaneStream& at(wire::Lane lane) { return lanes_[index_of(lane)]; }
  const LaneStream& at(wire::Lane lane) const { return lanes_[index_of(lane)]; }
  Queue& queue(wire::Lane lane) { return lane == wire::Lane::kCommand ? command_ : data_; }
  void take_frames(wire::Lane lane, Instant now);
  Result<void> on_frame(wire::Lane lane, const wire::Frame& frame, Instant now);
  Result<void> on_command(const wire::Frame& frame);
  Result<void> on_task(const wire::Frame& frame);
  Result<void> on_control(wire::Lane lane, const wire::Frame& frame);
  Result<void> on_health_lane(const wire::Frame& frame, Instant now);
  Result<void> on_health(const wire::Health& health, Instant now);
  Result<void> on_cancel(const wire::Cancel& cancel);
  Result<void> check_next(const Queue& queue, const wire::Frame& frame) const;
  void skip(Queue& queue, uint64_t sequence);
  template <class T>
  void send_health(wire::FrameType type, const T& message) {
    STRATA_CHECK(at(wire::Lane::kHealth).send(type, ++health_sent_, message).ok());
  }
  void tell_abort(const Error& cause);
  bool judges_beats() const;
  void say_hello(wire::ReadyState state, wire::Hello hello);
  void maybe_ready();
  void beat(Instant now);
  void send_line(wire::Log line);
  void end(std::optional<Error> cause);
  void refuse(wire::Lane lane, const Error& why);

  // A beat of this side that no echo has confirmed, and the lines that went before it.
  struct Beat {
    int64_t sent_ns = 0;
    uint64_t lines = 0;
  };
  static constexpr size_t kBeatsMax = 256;

  const RunnerOptions options_;
  Sink& sink_;
  State state_ = State::kOpening;
  std::array<LaneStream, kLaneCount> lanes_;
  AwakeClock awake_;
  std::optional<wire::Hello> hello_;  // of ready(), until READY is out
  Queue command_, data_;
  uint32_t early_answered_ = 0;
  std::vector<uint64_t> cancelled_;  // before they came
  uint64_t tasks_done_ = 0;

  uint64_t health_sent_ = 0;
  uint64_t health_came_ = 0;
  Instant next_beat_ = Instant::never();
  std::deque<Beat> beats_;
  int64_t beat_came_ns_ = 0;
  int64_t echo_came_ns_ = 0;
  Instant lease_until_{};  // of the fence; before the first echo it holds
  Duration heard_at_;
  wire::LogLevel log_level_;
  uint64_t lines_sent_ = 0;
  uint64_t lines_confirmed_ = 0;
  uint32_t dropped_ = 0;  // since the last line
  uint64_t lines_dropped_ = 0;
  uint64_t rss_bytes_ = 0;
};

}  // namespace strata::session
