// Calls, deadlines and the end; what comes is in runner_frames.cc.
#include "session/runner_session.h"

#include <fmt/format.h>

#include "base/check.h"
#include "base/mark.h"
#include "base/result.h"

namespace strata::session {
namespace {

std::array<LaneStream, kLaneCount> make_lanes(const RunnerOptions& o) {
  return {LaneStream(wire::Lane::kCommand, o.session_id, o.worker_id, o.payload_bytes_max),
          LaneStream(wire::Lane::kData, o.session_id, o.worker_id, o.payload_bytes_max),
          LaneStream(wire::Lane::kHealth, o.session_id, o.worker_id, kHealthPayloadMax)};
}

Error wrong_state(std::string text) {
  return Error(Code::kWrongState, Scope::kCall, std::move(text));
}

}  // namespace

RunnerSession::RunnerSession(RunnerOptions options, Sink& sink, Instant now)
    : options_(std::move(options)),
      sink_(sink),
      lanes_(make_lanes(options_)),
      awake_(options_.timing.beat, now),
      lease_until_(now),
      log_level_(options_.log_level) {
  STRATA_CHECK(options_.session_id != 0);
  STRATA_CHECK(options_.log_lines <= kLogLines);
}

std::string RunnerSession::where() const {
  return fmt::format("{} on {} pid {}, parent {}", options_.path, options_.host, options_.pid,
                     options_.parent);
}

// ---------------------------------------------------------------- lanes and time

void RunnerSession::on_lane_up(wire::Lane lane, Instant now) {
  awake_.step(now);
  STRATA_CHECK(!at(lane).up());
  at(lane).set_up();
  if (ended()) return;
  if (lane == wire::Lane::kHealth) {
    heard_at_ = awake_.elapsed();
    beat(now);
  }
  for (const LaneStream& other : lanes_) {
    if (!other.up()) return;
  }
  state_ = State::kStarting;
  say_hello(wire::ReadyState::kStarting, {});
  maybe_ready();
}

void RunnerSession::came(wire::Lane lane, size_t n, Instant now) {
  STRATA_CHECK(at(lane).up());
  awake_.step(now);
  at(lane).came(n);
  take_frames(lane, now);
}

void RunnerSession::on_bytes(wire::Lane lane, std::span<const std::byte> bytes, Instant now) {
  while (!bytes.empty() && !ended()) {
    const std::span<std::byte> to = space(lane);
    const size_t n = std::min(to.size(), bytes.size());
    std::copy_n(bytes.begin(), n, to.begin());
    came(lane, n, now);
    bytes = bytes.subspan(n);
  }
}

void RunnerSession::on_lane_closed(wire::Lane lane, const std::optional<Error>& why, Instant now) {
  awake_.step(now);
  at(lane).set_closed();
  if (ended()) return;
  STRATA_MARK("session: the parent closed a lane");
  end(Error(Code::kEndpointFailed, Scope::kSession,
            fmt::format("the parent has closed the {} lane{}{}", wire_name(lane), why ? ": " : "",
                        why ? why->message() : "")));
}

bool RunnerSession::judges_beats() const {
  return at(wire::Lane::kHealth).up();
}

Instant RunnerSession::next_deadline() const {
  if (ended()) return Instant::never();
  const Timing& timing = options_.timing;
  Instant next = std::min(next_beat_, awake_.last() + timing.beat);
  if (state_ == State::kOpening) next = std::min(next, awake_.when(timing.start));
  if (judges_beats()) next = std::min(next, awake_.when(heard_at_ + timing.runner_verdict));
  return next;
}

void RunnerSession::on_deadline(Instant now) {
  if (ended()) return;
  awake_.step(now);
  if (now >= next_beat_) beat(now);
  const Timing& timing = options_.timing;
  if (state_ == State::kOpening && awake_.elapsed() >= timing.start) {
    STRATA_MARK("session: lanes did not come");
    return fail(Error(Code::kDeadline, Scope::kSession,
                      fmt::format("the parent has not opened all lanes in {:.3g} s",
                                  timing.start.seconds())),
                now);
  }
  if (judges_beats() && awake_.elapsed() - heard_at_ >= timing.runner_verdict) {
    STRATA_MARK("session: verdict of the runner");
    fail(Error(Code::kEndpointFailed, Scope::kSession,
               fmt::format("HEALTH lane: no beat of the parent for {:.3g} s",
                           timing.runner_verdict.seconds())),
         now);
  }
}

void RunnerSession::beat(Instant now) {
  next_beat_ = now + options_.timing.beat;
  if (output(wire::Lane::kHealth).size() > kHealthOutputMax) return;
  const int64_t last = beats_.empty() ? 0 : beats_.back().sent_ns;
  const wire::Health health{.sent_ns = std::max(now.ns, last + 1),
                            .echo_ns = beat_came_ns_,
                            .executing = executing(),
                            .tasks_done = tasks_done_,
                            .queued = static_cast<uint32_t>(command_.waiting.size()),
                            .rss_bytes = rss_bytes_};
  if (beats_.size() == kBeatsMax) beats_.pop_front();
  beats_.push_back({health.sent_ns, lines_sent_});
  send_health(wire::FrameType::kHealth, health);
}

// ---------------------------------------------------------------- the end

void RunnerSession::fail(Error cause, Instant now) {
  awake_.step(now);
  if (ended()) return;
  tell_abort(cause);
  end(std::move(cause));
}

void RunnerSession::tell_abort(const Error& cause) {
  send_health(wire::FrameType::kAbort,
              wire::Abort{static_cast<uint32_t>(cause.code()),
                          wire_text(cause.message(), wire::kTextBytesMax)});
}

void RunnerSession::refuse(wire::Lane lane, const Error& why) {
  STRATA_MARK("session: the runner refuses what came");
  const Error cause(why.code(), Scope::kSession,
                    fmt::format("{} lane: {}", wire_name(lane), why.message()));
  tell_abort(cause);
  end(cause);
}

void RunnerSession::end(std::optional<Error> cause) {
  STRATA_CHECK(!ended());
  state_ = State::kEnded;
  lease_until_ = {};
  command_.waiting.clear();
  data_.waiting.clear();
  if (cause) cause = std::move(*cause).at(where());
  sink_.on_ended(cause);
}

void RunnerSession::drained() {
  if (ended()) return;
  STRATA_CHECK(state_ == State::kDraining && command_.waiting.empty());
  end(std::nullopt);
}

// ---------------------------------------------------------------- the barrier

void RunnerSession::say_hello(wire::ReadyState state, wire::Hello hello) {
  hello.session_id = options_.session_id;
  hello.worker_id = options_.worker_id;
  hello.protocol = wire::kVersion;
  hello.state = state;
  hello.credits = options_.task_credits;
  hello.host = wire_text(options_.host, wire::kPathBytesMax);
  hello.pid = options_.pid;
  hello.text = wire_text(hello.text, wire::kTextBytesMax);
  const Result<void> sent = at(wire::Lane::kCommand).send(wire::FrameType::kHello, 0, hello);
  STRATA_CHECK(sent.ok());
}

void RunnerSession::ready(wire::Hello hello) {
  if (ended()) return;
  STRATA_CHECK(!hello_ && state_ < State::kReady);
  hello_ = std::move(hello);
  maybe_ready();
}

void RunnerSession::maybe_ready() {
  if (!hello_ || state_ != State::kStarting) return;
  if (early_answered_ < options_.early_controls) {
    STRATA_MARK("session: READY waits for early controls");
    return;
  }
  state_ = State::kReady;
  say_hello(wire::ReadyState::kReady, *std::move(hello_));
  hello_.reset();
}

void RunnerSession::failed(std::string text) {
  if (ended()) return;
  wire::Hello hello;
  hello.text = text;
  if (state_ < State::kReady) say_hello(wire::ReadyState::kFailed, std::move(hello));
  end(Error(Code::kEndpointFailed, Scope::kSession, std::move(text)));
}

// ---------------------------------------------------------------- requests and answers

uint64_t RunnerSession::executing() const {
  return command_.taken.value_or(0);
}

std::optional<Work> RunnerSession::take(wire::Lane lane, Instant now) {
  Queue& queue = this->queue(lane);
  if (ended() || queue.taken || queue.waiting.empty()) return std::nullopt;
  const bool is_task = std::holds_alternative<wire::Task>(queue.waiting.front().what);
  if (is_task && holding(now)) {
    STRATA_MARK("session: the fence holds a TASK");
    return std::nullopt;
  }
  Work work = std::move(queue.waiting.front());
  queue.waiting.pop_front();
  queue.taken = work.sequence;
  queue.taken_is_task = is_task;
  if (const auto* const control = std::get_if<wire::Control>(&work.what)) {
    queue.command = control->command;
  }
  return work;
}

Result<void> RunnerSession::completion(wire::Completion completion) {
  if (ended() || !command_.taken || !command_.taken_is_task) {
    return wrong_state("COMPLETION: no TASK was taken");
  }
  completion.message = wire_text(completion.message, wire::kMessageBytesMax);
  STRATA_TRY(
      at(wire::Lane::kCommand).send(wire::FrameType::kCompletion, *command_.taken, completion));
  command_.taken.reset();
  --command_.tasks;
  ++tasks_done_;
  return {};
}

Result<void> RunnerSession::reply(wire::Lane lane, wire::ControlReply reply) {
  Queue& queue = this->queue(lane);
  if (ended() || !queue.taken || queue.taken_is_task || queue.controls == 0) {
    return wrong_state("CONTROL_REPLY: no control was taken");
  }
  STRATA_CHECK(reply.command == queue.command);
  reply.message = wire_text(reply.message, wire::kMessageBytesMax);
  STRATA_TRY(at(lane).send(wire::FrameType::kControlReply, *queue.taken, reply));
  queue.taken.reset();
  --queue.controls;
  if (state_ == State::kStarting) {
    ++early_answered_;
    maybe_ready();
  }
  return {};
}

// ---------------------------------------------------------------- lines

void RunnerSession::log(wire::Log line) {
  if (line.stream == wire::LogStream::kLog && line.level < log_level_) return;
  const bool full = lines_sent_ - lines_confirmed_ >= options_.log_lines ||
                    output(wire::Lane::kHealth).size() > kHealthOutputMax;
  if (ended() || full) {
    STRATA_MARK("session: a line was dropped");
    ++dropped_;
    ++lines_dropped_;
    return;
  }
  send_line(std::move(line));
}

void RunnerSession::send_line(wire::Log line) {
  line.text = wire_text(line.text, wire::kTextBytesMax);
  line.dropped = dropped_;
  dropped_ = 0;
  ++lines_sent_;
  send_health(wire::FrameType::kLog, line);
}

}  // namespace strata::session
