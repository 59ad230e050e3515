// What comes from the parent, and what of it is refused.
#include <fmt/format.h>

#include "base/fault.h"
#include "base/mark.h"
#include "base/result.h"
#include "session/refusals.h"
#include "session/runner_session.h"

namespace strata::session {

void RunnerSession::take_frames(wire::Lane lane, Instant now) {
  while (!ended()) {
    Result<std::optional<wire::Frame>> frame = at(lane).next();
    if (!frame) return refuse(lane, frame.error());
    if (!*frame) return;
    if (Result<void> taken = on_frame(lane, **frame, now); !taken) {
      if (!ended()) refuse(lane, taken.error());
      return;
    }
  }
}

Result<void> RunnerSession::on_frame(wire::Lane lane, const wire::Frame& frame, Instant now) {
  if (lane == wire::Lane::kHealth) return on_health_lane(frame, now);
  if (lane == wire::Lane::kCommand) return on_command(frame);
  if (frame.header.type == wire::FrameType::kControl) return on_control(lane, frame);
  return not_here(frame, "a parent says on this lane");
}

Result<void> RunnerSession::check_next(const Queue& queue, const wire::Frame& frame) const {
  STRATA_TRY(check_count(frame, queue.last + 1));
  if (state_ < State::kStarting) {
    return broken(fmt::format("{} before HELLO", wire_name(frame.header.type)));
  }
  if (state_ == State::kDraining) {
    return broken(
        fmt::format("{} {} after SHUTDOWN", wire_name(frame.header.type), frame.header.sequence));
  }
  return {};
}

Result<void> RunnerSession::on_command(const wire::Frame& frame) {
  switch (frame.header.type) {
    case wire::FrameType::kTask:
      return on_task(frame);
    case wire::FrameType::kControl:
      return on_control(wire::Lane::kCommand, frame);
    case wire::FrameType::kShutdown: {
      STRATA_TRY(check_next(command_, frame));
      STRATA_ASSIGN(const wire::Shutdown shutdown, wire::decode<wire::Shutdown>(frame.payload));
      if (state_ != State::kReady) return broken("SHUTDOWN before READY");
      state_ = State::kDraining;
      command_.last = frame.header.sequence;
      command_.waiting.push_back({command_.last, shutdown});
      sink_.on_work(wire::Lane::kCommand);
      return {};
    }
    default:
      return not_here(frame, "a parent says on this lane");
  }
}

Result<void> RunnerSession::on_task(const wire::Frame& frame) {
  STRATA_TRY(check_next(command_, frame));
  const uint64_t sequence = frame.header.sequence;
  if (state_ != State::kReady) return broken(fmt::format("TASK {} before READY", sequence));
  if (command_.tasks == options_.task_credits) {
    return broken(
        fmt::format("TASK {} without credit: {} are not answered", sequence, command_.tasks));
  }
  STRATA_ASSIGN(wire::Task task, wire::decode<wire::Task>(frame.payload));
  command_.last = sequence;
  ++command_.tasks;
  if (std::erase(cancelled_, sequence) != 0) {
    STRATA_MARK("session: cancelled before it came");
    skip(command_, sequence);
    return {};
  }
  command_.waiting.push_back({sequence, std::move(task)});
  if (!command_.taken) sink_.on_work(wire::Lane::kCommand);
  return {};
}

Result<void> RunnerSession::on_control(wire::Lane lane, const wire::Frame& frame) {
  Queue& queue = this->queue(lane);
  STRATA_TRY(check_next(queue, frame));
  STRATA_ASSIGN(wire::Control control, wire::decode<wire::Control>(frame.payload));
  const uint64_t sequence = frame.header.sequence;
  if (lane_of(control.command) != lane) {
    return broken(fmt::format("{} {}, which belongs on the {} lane", wire_name(control.command),
                              sequence, wire_name(lane_of(control.command))));
  }
  if (state_ == State::kStarting &&
      (lane != wire::Lane::kCommand || sequence > options_.early_controls)) {
    return broken(fmt::format("{} {} before READY: {} early controls were announced",
                              wire_name(control.command), sequence, options_.early_controls));
  }
  if (queue.controls == kControlCredits) {
    return broken(fmt::format("{} {} without credit: {} are not answered",
                              wire_name(control.command), sequence, queue.controls));
  }
  queue.last = sequence;
  ++queue.controls;
  if (lane == wire::Lane::kCommand) std::erase(cancelled_, sequence);
  queue.waiting.push_back({sequence, std::move(control)});
  if (!queue.taken) sink_.on_work(lane);
  return {};
}

// ---------------------------------------------------------------- the health lane

Result<void> RunnerSession::on_health_lane(const wire::Frame& frame, Instant now) {
  STRATA_TRY(check_count(frame, ++health_came_));
  switch (frame.header.type) {
    case wire::FrameType::kHealth: {
      STRATA_ASSIGN(const wire::Health health, wire::decode<wire::Health>(frame.payload));
      return on_health(health, now);
    }
    case wire::FrameType::kCancel: {
      STRATA_ASSIGN(const wire::Cancel cancel, wire::decode<wire::Cancel>(frame.payload));
      return on_cancel(cancel);
    }
    case wire::FrameType::kAbort: {
      STRATA_ASSIGN(const wire::Abort abort, wire::decode<wire::Abort>(frame.payload));
      STRATA_MARK("session: the parent aborts");
      end(Error(static_cast<Code>(abort.code), Scope::kSession,
                fmt::format("the parent ends the session: {}", abort.text)));
      return {};
    }
    case wire::FrameType::kSetLog: {
      STRATA_ASSIGN(const wire::SetLog set, wire::decode<wire::SetLog>(frame.payload));
      log_level_ = static_cast<wire::LogLevel>(set.level);
      sink_.on_set_log(log_level_);
      return {};
    }
    default:
      return not_here(frame, "a parent says on this lane");
  }
}

Result<void> RunnerSession::on_health(const wire::Health& health, Instant now) {
  if (health.sent_ns <= beat_came_ns_) {
    return broken(
        fmt::format("HEALTH sent at {} after one sent at {}", health.sent_ns, beat_came_ns_));
  }
  if (health.echo_ns < echo_came_ns_) {
    return broken(fmt::format("HEALTH echoes {} after {}", health.echo_ns, echo_came_ns_));
  }
  beat_came_ns_ = health.sent_ns;
  heard_at_ = awake_.elapsed();
  if (health.echo_ns == 0) return {};
  // One that is older than all that are kept counts for nothing.
  if (!beats_.empty() && health.echo_ns < beats_.front().sent_ns) return {};
  while (!beats_.empty() && beats_.front().sent_ns < health.echo_ns) beats_.pop_front();
  if (beats_.empty() || beats_.front().sent_ns != health.echo_ns) {
    return broken(fmt::format("HEALTH echoes {}, which was not sent", health.echo_ns));
  }
  echo_came_ns_ = health.echo_ns;
  lines_confirmed_ = beats_.front().lines;
  const bool held = holding(now);
  // The parent has heard this side at `echo_ns` or later: before its verdict it waits longer from
  // there than this lease lasts.
  lease_until_ = Instant{health.echo_ns} + options_.timing.hold;
  if (held && !holding(now)) {
    STRATA_MARK("session: the fence opens");
    if (!command_.taken && !command_.waiting.empty()) sink_.on_work(wire::Lane::kCommand);
  }
  const bool told = lines_sent_ - lines_confirmed_ < options_.log_lines;
  if (dropped_ != 0 && told) send_line({.level = wire::LogLevel::kWarning, .text = {}});
  return {};
}

Result<void> RunnerSession::on_cancel(const wire::Cancel& cancel) {
  // What the parent has in flight beyond what has come here is bounded by its credits.
  if (cancel.last > command_.last + options_.task_credits + kControlCredits + 1) {
    return broken(fmt::format("CANCEL {} to {}, the last request that came is {}", cancel.first,
                              cancel.last, command_.last));
  }
  const auto named = [&](uint64_t sequence) {
    return cancel.first <= sequence && sequence <= cancel.last;
  };
  if (command_.taken && command_.taken_is_task && named(*command_.taken)) {
    sink_.on_cancel(*command_.taken);
  }
  std::vector<uint64_t> skipped;
  std::erase_if(command_.waiting, [&](const Work& work) {
    const bool drop = named(work.sequence) && std::holds_alternative<wire::Task>(work.what);
    if (drop) skipped.push_back(work.sequence);
    return drop;
  });
  for (const uint64_t sequence : skipped) skip(command_, sequence);
  // The lanes have no common order: the TASK may be behind its cancel.
  for (uint64_t sequence = std::max(cancel.first, command_.last + 1); sequence <= cancel.last;
       ++sequence) {
    if (std::find(cancelled_.begin(), cancelled_.end(), sequence) == cancelled_.end()) {
      cancelled_.push_back(sequence);
    }
  }
  const bool next = !command_.taken && !command_.waiting.empty();
  if (!skipped.empty() && next) sink_.on_work(wire::Lane::kCommand);
  return {};
}

// Answers a TASK that never starts.
void RunnerSession::skip(Queue& queue, uint64_t sequence) {
  STRATA_MARK("session: a TASK never starts");
  wire::Completion completion;
  completion.outcome = wire::Outcome::kSkipped;
  completion.code = static_cast<uint32_t>(Code::kCancelled);
  completion.scope = static_cast<uint32_t>(Scope::kTask);
  completion.root = {wire_text(options_.host, wire::kPathBytesMax),
                     wire_text(options_.path, wire::kPathBytesMax),
                     {},
                     sequence};
  completion.message = "it was cancelled before it started";
  const Result<void> sent =
      at(wire::Lane::kCommand).send(wire::FrameType::kCompletion, sequence, completion);
  STRATA_CHECK(sent.ok());
  --queue.tasks;
  ++tasks_done_;
}

}  // namespace strata::session
