// Calls, deadlines and the end; what comes is in parent_frames.cc.
#include "session/parent_session.h"

#include <fmt/format.h>

#include "base/check.h"
#include "base/result.h"

namespace strata::session {
namespace {

std::array<LaneStream, kLaneCount> make_lanes(const ParentOptions& o) {
  return {LaneStream(wire::Lane::kCommand, o.session_id, o.worker_id, o.payload_bytes_max),
          LaneStream(wire::Lane::kData, o.session_id, o.worker_id, o.payload_bytes_max),
          LaneStream(wire::Lane::kHealth, o.session_id, o.worker_id, kHealthPayloadMax)};
}

Error wrong_state(std::string text) {
  return Error(Code::kWrongState, Scope::kCall, std::move(text));
}

}  // namespace

ParentSession::ParentSession(ParentOptions options, Sink& sink, Instant now)
    : options_(std::move(options)),
      sink_(sink),
      lanes_(make_lanes(options_)),
      awake_(options_.timing.beat, now) {
  STRATA_CHECK(options_.session_id != 0);
}

std::string ParentSession::where() const {
  const uint32_t pid = options_.pid != 0 ? options_.pid : hello_ ? hello_->pid : 0;
  return fmt::format("{} on {}{}", options_.path, options_.host,
                     pid != 0 ? fmt::format(" pid {}", pid) : "");
}

// ---------------------------------------------------------------- lanes and time

void ParentSession::on_lane_up(wire::Lane lane, Instant now) {
  awake_.step(now);
  STRATA_CHECK(!at(lane).up());
  at(lane).set_up();
  if (lane != wire::Lane::kHealth || ended()) return;
  heard_at_ = awake_.elapsed();
  beat(now);
}

void ParentSession::came(wire::Lane lane, size_t n, Instant now) {
  STRATA_CHECK(at(lane).up());
  awake_.step(now);
  at(lane).came(n);
  take_frames(lane, now);
}

void ParentSession::on_bytes(wire::Lane lane, std::span<const std::byte> bytes, Instant now) {
  while (!bytes.empty() && !ended()) {
    const std::span<std::byte> to = space(lane);
    const size_t n = std::min(to.size(), bytes.size());
    std::copy_n(bytes.begin(), n, to.begin());
    came(lane, n, now);
    bytes = bytes.subspan(n);
  }
}

void ParentSession::on_lane_closed(wire::Lane lane, const std::optional<Error>& why, Instant now) {
  awake_.step(now);
  at(lane).set_closed();
  if (ended()) return;
  // A runner that has drained closes its lanes in any order, and what it sent before stands in
  // the command lane: that one's end is the session's.
  const bool idle = requests(lane).empty() && shutdown_sent_;
  if (idle && lane != wire::Lane::kCommand) return;
  if (idle && data_requests_.empty()) {
    STRATA_MARK("session: drained");
    return end(std::nullopt);
  }
  STRATA_MARK("session: a lane was closed");
  end(Error(Code::kEndpointFailed, Scope::kSession,
            fmt::format("the {} lane was closed{}{}", wire_name(lane), why ? ": " : "",
                        why ? why->message() : "")));
}

Instant ParentSession::next_deadline() const {
  if (ended()) return Instant::never();
  const Timing& timing = options_.timing;
  Instant next = std::min(next_beat_, awake_.last() + timing.beat);
  const auto add = [&](Duration from, Duration limit) {
    next = std::min(next, awake_.when(from + limit));
  };
  if (state_ < State::kReady) add({}, timing.start);
  if (judges_beats()) add(heard_at_, timing.parent_verdict);
  for (const Requests* const queue : {&command_requests_, &data_requests_}) {
    for (const Request& request : *queue) {
      if (request.clock_from) add(*request.clock_from, timing.control);
    }
  }
  if (drain_until_) add(*drain_until_, {});
  return next;
}

void ParentSession::on_deadline(Instant now) {
  if (ended()) return;
  awake_.step(now);
  if (now >= next_beat_) beat(now);
  check_deadlines(now);
}

bool ParentSession::judges_beats() const {
  return at(wire::Lane::kHealth).up() && !at(wire::Lane::kHealth).closed();
}

void ParentSession::check_deadlines(Instant) {
  const Timing& timing = options_.timing;
  const Duration awake = awake_.elapsed();
  const auto late = [&](Duration from, Duration limit) { return awake - from >= limit; };
  const auto deadline = [&](Code code, std::string text) {
    const Error cause(code, Scope::kSession, std::move(text));
    tell_abort(cause);
    end(cause);
  };
  if (state_ < State::kReady && late({}, timing.start)) {
    STRATA_MARK("session: not ready in time");
    return deadline(
        Code::kDeadline,
        fmt::format("the runner was not READY after {:.3g} s: {}", timing.start.seconds(),
                    hello_                          ? "it builds its Worker"
                    : at(wire::Lane::kCommand).up() ? "it has said no HELLO"
                                                    : "the command lane is not up"));
  }
  if (judges_beats() && late(heard_at_, timing.parent_verdict)) {
    STRATA_MARK("session: verdict of the parent");
    return deadline(Code::kEndpointFailed,
                    fmt::format("HEALTH lane: no beat for {:.3g} s, the last one was HEALTH {}",
                                timing.parent_verdict.seconds(), health_came_));
  }
  for (const wire::Lane lane : {wire::Lane::kCommand, wire::Lane::kData}) {
    for (const Request& request : requests(lane)) {
      if (!request.clock_from || !late(*request.clock_from, timing.control)) continue;
      STRATA_MARK("session: a control past its deadline");
      return deadline(
          Code::kDeadline,
          fmt::format("{} lane: {} {} has no answer after {:.3g} s of lane time", wire_name(lane),
                      wire_name(request.command), request.sequence, timing.control.seconds()));
    }
  }
  if (drain_until_ && awake >= *drain_until_) {
    STRATA_MARK("session: not drained in time");
    return deadline(Code::kDeadline, fmt::format("not drained in time: {} requests are open",
                                                 command_requests_.size() + data_requests_.size()));
  }
}

void ParentSession::beat(Instant now) {
  next_beat_ = now + options_.timing.beat;
  // Who does not read gets no more of them, and will not echo those that it has.
  if (output(wire::Lane::kHealth).size() > kHealthOutputMax) return;
  beat_sent_ns_ = std::max(now.ns, beat_sent_ns_ + 1);
  const wire::Health health{.sent_ns = beat_sent_ns_, .echo_ns = beat_came_ns_};
  send_health(wire::FrameType::kHealth, health);
  lines_ = lines_unechoed_;
}

// ---------------------------------------------------------------- the end

void ParentSession::fail(Error cause, Instant now) {
  awake_.step(now);
  if (ended()) return;
  tell_abort(cause);
  end(std::move(cause));
}

void ParentSession::abort(Error cause, Instant now) {
  STRATA_MARK("session: abort");
  fail(std::move(cause), now);
}

void ParentSession::tell_abort(const Error& cause) {
  wire::Abort abort{static_cast<uint32_t>(cause.code()),
                    wire_text(cause.message(), wire::kTextBytesMax)};
  send_health(wire::FrameType::kAbort, abort);
}

void ParentSession::refuse(wire::Lane lane, const Error& why) {
  STRATA_MARK("session: the parent refuses what came");
  const Error cause(why.code(), Scope::kSession,
                    fmt::format("{} lane: {}", wire_name(lane), why.message()));
  tell_abort(cause);
  end(cause);
}

void ParentSession::end(std::optional<Error> cause) {
  STRATA_CHECK(!ended());
  state_ = State::kEnded;
  Ended ended;
  for (const wire::Lane lane : {wire::Lane::kCommand, wire::Lane::kData}) {
    for (const Request& request : requests(lane)) {
      ended.in_flight.push_back(
          {lane, request.sequence, request.is_task, at(lane).taken(request.place)});
    }
    requests(lane).clear();
  }
  if (cause) {
    std::string text = cause->message();
    if (!ended.in_flight.empty()) {
      text += fmt::format(" ({} requests in flight, the first one is {})", ended.in_flight.size(),
                          ended.in_flight.front().sequence);
    }
    ended.cause = Error(cause->code(), cause->scope(), std::move(text), where());
  }
  sink_.on_ended(ended);
}

// ---------------------------------------------------------------- requests

bool ParentSession::early() const {
  return state_ == State::kStarting && early_sent_ < options_.early_controls;
}

uint32_t ParentSession::task_credits() const {
  return ready() && tasks_in_flight_ < task_credits_ ? task_credits_ - tasks_in_flight_ : 0;
}

uint32_t ParentSession::control_credits(wire::Lane lane) const {
  const bool open = ready() || (early() && lane == wire::Lane::kCommand);
  if (!open) return 0;
  uint32_t used = 0;
  for (const Request& request : requests(lane)) used += request.is_task ? 0 : 1;
  const uint32_t left = used < kControlCredits ? kControlCredits - used : 0;
  return ready() ? left : std::min(left, options_.early_controls - early_sent_);
}

Error ParentSession::not_now(std::string_view what) const {
  return wrong_state(fmt::format("{}: {} to {}", what,
                                 ended()      ? "the session has ended"
                                 : draining() ? "the session is being drained"
                                              : "the runner is not READY",
                                 where()));
}

Result<std::optional<uint64_t>> ParentSession::task(const wire::Task& task, Instant now) {
  awake_.step(now);
  if (!ready()) return not_now("TASK");
  if (task_credits() == 0) {
    STRATA_MARK("session: no task credit");
    return std::optional<uint64_t>();
  }
  LaneStream& lane = at(wire::Lane::kCommand);
  const uint64_t place = lane.appended();
  STRATA_TRY(lane.send(wire::FrameType::kTask, command_sequence_ + 1, task));
  command_requests_.push_back(
      {.sequence = ++command_sequence_, .is_task = true, .place = place, .clock_from = {}});
  ++tasks_in_flight_;
  ++tasks_sent_;
  return std::optional<uint64_t>(command_sequence_);
}

Result<std::optional<uint64_t>> ParentSession::control(const wire::Control& control, Instant now) {
  awake_.step(now);
  const wire::Lane lane = lane_of(control.command);
  if (!ready() && !(early() && lane == wire::Lane::kCommand)) {
    return not_now(wire_name(control.command));
  }
  if (control_credits(lane) == 0) {
    STRATA_MARK("session: no control credit");
    return std::optional<uint64_t>();
  }
  uint64_t& sequence = lane == wire::Lane::kCommand ? command_sequence_ : data_sequence_;
  const uint64_t place = at(lane).appended();
  STRATA_TRY(at(lane).send(wire::FrameType::kControl, sequence + 1, control));
  requests(lane).push_back(
      {.sequence = ++sequence, .command = control.command, .place = place, .clock_from = {}});
  if (!ready()) ++early_sent_;
  start_clocks();
  return std::optional<uint64_t>(sequence);
}

Result<void> ParentSession::cancel(uint64_t first, uint64_t last) {
  if (!ready() && !draining()) return not_now("CANCEL");
  wire::Cancel cancel;
  for (const Request& request : command_requests_) {
    if (!request.is_task || request.sequence < first || request.sequence > last) continue;
    if (cancel.first == 0) cancel.first = request.sequence;
    cancel.last = request.sequence;
  }
  if (cancel.first == 0) return {};
  if (output(wire::Lane::kHealth).size() > kHealthOutputMax) {
    return Error(Code::kResourceExhausted, Scope::kCall,
                 fmt::format("CANCEL: {} does not read its health lane", where()));
  }
  send_health(wire::FrameType::kCancel, cancel);
  return {};
}

Result<void> ParentSession::drain(Duration deadline, Instant now) {
  awake_.step(now);
  if (!ready()) return not_now("SHUTDOWN");
  state_ = State::kDraining;
  drain_until_ = awake_.elapsed() + deadline;
  drain_ms_ = static_cast<uint32_t>(std::clamp<int64_t>(deadline.ns / 1'000'000, 0, UINT32_MAX));
  maybe_shutdown();
  return {};
}

// SHUTDOWN overtakes no control of the data lane: the runner has answered them all before it comes.
void ParentSession::maybe_shutdown() {
  if (!draining() || shutdown_sent_ || !data_requests_.empty()) return;
  shutdown_sent_ = true;
  const Result<void> sent =
      at(wire::Lane::kCommand)
          .send(wire::FrameType::kShutdown, ++command_sequence_, wire::Shutdown{drain_ms_});
  STRATA_CHECK(sent.ok());
}

Result<void> ParentSession::set_log(wire::LogLevel level) {
  if (ended()) return not_now("SET_LOG");
  if (output(wire::Lane::kHealth).size() > kHealthOutputMax) {
    return Error(Code::kResourceExhausted, Scope::kCall,
                 fmt::format("SET_LOG: {} does not read its health lane", where()));
  }
  send_health(wire::FrameType::kSetLog, wire::SetLog{static_cast<uint32_t>(level)});
  return {};
}

}  // namespace strata::session
