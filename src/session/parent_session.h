// ParentSession: one remote Worker as its parent sees it, from lanes that come up to the end: the
// barrier of HELLO, credits, the order of requests and answers, deadlines, beats and the verdict.
//
//   lanes up -> HELLO STARTING -> early controls -> HELLO READY -> TASKs, controls -> SHUTDOWN ->
//   end
//
// Not the bootstrap (ParentBootstrap) and not a socket: bytes and times are handed in, and bytes to
// write wait in output(). Times are CLOCK_BOOTTIME. One thread at a time (the parent's engine
// thread). The sink may call task, control, cancel, abort and drain from inside its functions.
//
// The driver reads every lane before it calls on_deadline, so that a beat that has come is never
// overlooked, and the command lane before it tells that another one is closed.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
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

class ParentSession {
 public:
  class Sink {
   public:
    virtual void on_starting(const wire::Hello&) {}  // early controls may go
    virtual void on_ready(const wire::Hello& hello) = 0;
    virtual void on_completion(uint64_t sequence, wire::Completion completion) = 0;
    virtual void on_reply(wire::Lane lane, uint64_t sequence, wire::ControlReply reply) = 0;
    virtual void on_log(const wire::Log& log) = 0;
    // Once, and nothing after it. The driver writes what it can of output() and closes the lanes.
    virtual void on_ended(const Ended& ended) = 0;

   protected:
    ~Sink() = default;
  };

  // The start-up deadline begins at `now`.
  ParentSession(ParentOptions options, Sink& sink, Instant now);
  ParentSession(const ParentSession&) = delete;
  ParentSession& operator=(const ParentSession&) = delete;

  // ---- the driver's -------------------------------------------------------------------------
  // The lane's connection is authenticated (or needs not be). Once for each lane.
  void on_lane_up(wire::Lane lane, Instant now);
  // Where bytes of the lane go; then came() says how many. Or on_bytes() at once.
  std::span<std::byte> space(wire::Lane lane) { return at(lane).space(); }
  void came(wire::Lane lane, size_t n, Instant now);
  void on_bytes(wire::Lane lane, std::span<const std::byte> bytes, Instant now);
  // `why`: none where the stream has ended in order.
  void on_lane_closed(wire::Lane lane, const std::optional<Error>& why, Instant now);
  // At least one call of on_deadline each beat; never() once it has ended.
  Instant next_deadline() const;
  void on_deadline(Instant now);
  // To be written, and erased from the front as it is.
  std::vector<std::byte>& output(wire::Lane lane) { return at(lane).output(); }
  // Ends it for a reason from outside: a second BOOTSTRAP_REPLY, say.
  void fail(Error cause, Instant now);

  // ---- the endpoint's -----------------------------------------------------------------------
  // Its sequence; none where no credit is left. kWrongState before READY, while draining and after
  // the end; kInvalidArgument, kResourceExhausted for a TASK that the wire does not take.
  Result<std::optional<uint64_t>> task(const wire::Task& task, Instant now);
  // On the lane of its command; before READY the registry controls that were announced as early.
  Result<std::optional<uint64_t>> control(const wire::Control& control, Instant now);
  // TASKs of these sequences that have not started never do; who runs is asked to stop. Nothing is
  // sent where none of them is in flight. kResourceExhausted where the lane does not move.
  Result<void> cancel(uint64_t first, uint64_t last);
  // The runner ends with all that it runs; the session ends with `cause` here, now.
  void abort(Error cause, Instant now);
  // No more requests; ends in order once all are answered and the runner has closed, else with
  // kDeadline when `deadline` has passed.
  Result<void> drain(Duration deadline, Instant now);
  Result<void> set_log(wire::LogLevel level);

  // ---- queries ------------------------------------------------------------------------------
  bool ready() const { return state_ == State::kReady; }
  bool draining() const { return state_ == State::kDraining; }
  bool ended() const { return state_ == State::kEnded; }
  // Zero where a request would be refused.
  uint32_t task_credits() const;
  uint32_t control_credits(wire::Lane lane) const;
  // The request that the runner was last heard to be at; 0: none.
  uint64_t executing() const { return executing_; }
  uint64_t tasks_done() const { return tasks_done_; }  // as last heard
  uint64_t rss_bytes() const { return rss_bytes_; }
  Duration round_trip() const { return round_trip_; }  // of a beat, the last one; 0: none yet
  const std::optional<wire::Hello>& hello() const { return hello_; }
  // "L5/2 on node7:4711 pid 88", for texts.
  std::string where() const;

 private:
  enum class State : uint8_t { kOpening, kStarting, kReady, kDraining, kEnded };
  struct Request {
    uint64_t sequence = 0;
    bool is_task = false;
    wire::ControlCommand command = wire::ControlCommand::kPrepareRegister;
    uint64_t place = 0;                  // of its frame in the lane's stream
    std::optional<Duration> clock_from;  // of a control: when its lane time began, awake time
  };
  using Requests = std::deque<Request>;

  LaneStream& at(wire::Lane lane) { return lanes_[index_of(lane)]; }
  const LaneStream& at(wire::Lane lane) const { return lanes_[index_of(lane)]; }
  Requests& requests(wire::Lane lane) {
    return lane == wire::Lane::kCommand ? command_requests_ : data_requests_;
  }
  const Requests& requests(wire::Lane lane) const {
    return lane == wire::Lane::kCommand ? command_requests_ : data_requests_;
  }
  void take_frames(wire::Lane lane, Instant now);
  Result<void> on_frame(wire::Lane lane, const wire::Frame& frame, Instant now);
  Result<void> on_command(const wire::Frame& frame);
  Result<void> on_health_lane(const wire::Frame& frame, Instant now);
  Result<void> on_hello(const wire::Frame& frame);
  Result<void> on_completion(const wire::Frame& frame);
  Result<void> on_reply(wire::Lane lane, const wire::Frame& frame);
  Result<void> on_health(const wire::Health& health, Instant now);
  Result<void> on_log(const wire::Frame& frame);
  Result<void> check_barrier(const wire::Hello& hello) const;
  bool early() const;  // before READY, with early controls to send
  bool passed(const Request& request) const;
  void start_clocks();
  void beat(Instant now);
  bool judges_beats() const;
  void check_deadlines(Instant now);
  void maybe_shutdown();
  Error not_now(std::string_view what) const;
  template <class T>
  void send_health(wire::FrameType type, const T& message) {
    STRATA_CHECK(at(wire::Lane::kHealth).send(type, ++health_sent_, message).ok());
  }
  void tell_abort(const Error& cause);
  void end(std::optional<Error> cause);
  void refuse(wire::Lane lane, const Error& why);

  const ParentOptions options_;
  Sink& sink_;
  State state_ = State::kOpening;
  std::array<LaneStream, kLaneCount> lanes_;
  AwakeClock awake_;
  std::optional<wire::Hello> hello_;
  Requests command_requests_, data_requests_;  // not answered yet, oldest first
  uint64_t command_sequence_ = 0;              // the last one that was sent
  uint64_t data_sequence_ = 0;
  uint64_t tasks_sent_ = 0;
  uint32_t tasks_in_flight_ = 0;
  uint32_t task_credits_ = 0;  // those that HELLO granted
  uint32_t early_sent_ = 0;

  uint64_t health_sent_ = 0;  // frames of the health lane, each way
  uint64_t health_came_ = 0;
  Instant next_beat_ = Instant::never();
  int64_t beat_sent_ns_ = 0;  // of the last beat each way
  int64_t beat_came_ns_ = 0;
  int64_t echo_came_ns_ = 0;
  uint32_t lines_ = 0;                   // LOGs since the beat that the last one of ours confirmed
  uint32_t lines_unechoed_ = 0;          // of these, since the last beat that came
  Duration heard_at_;                    // awake time of the last beat that came, or of the lane
  std::optional<Duration> drain_until_;  // awake time
  uint32_t drain_ms_ = 0;
  bool shutdown_sent_ = false;
  uint64_t executing_ = 0;
  uint64_t executing_max_ = 0;
  uint64_t tasks_done_ = 0;
  uint64_t rss_bytes_ = 0;
  Duration round_trip_;
};

}  // namespace strata::session
