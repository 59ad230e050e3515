// What comes from the runner, and what of it is refused.
#include <fmt/format.h>

#include "base/fault.h"
#include "base/result.h"
#include "session/parent_session.h"
#include "session/refusals.h"

namespace strata::session {

void ParentSession::take_frames(wire::Lane lane, Instant now) {
  while (!ended()) {
    Result<std::optional<wire::Frame>> frame = at(lane).next();
    if (!frame) return refuse(lane, frame.error());
    if (!*frame) return;
    if (Result<void> taken = on_frame(lane, **frame, now); !taken) {
      // The sink may have ended it while the frame was on its way.
      if (!ended()) refuse(lane, taken.error());
      return;
    }
    if (ended()) return;
    start_clocks();
    maybe_shutdown();
  }
}

Result<void> ParentSession::on_frame(wire::Lane lane, const wire::Frame& frame, Instant now) {
  if (lane == wire::Lane::kHealth) return on_health_lane(frame, now);
  if (frame.header.type == wire::FrameType::kControlReply) return on_reply(lane, frame);
  if (lane == wire::Lane::kCommand) return on_command(frame);
  return not_here(frame, "a runner says on this lane");
}

Result<void> ParentSession::on_command(const wire::Frame& frame) {
  switch (frame.header.type) {
    case wire::FrameType::kHello:
      return on_hello(frame);
    case wire::FrameType::kCompletion:
      return on_completion(frame);
    default:
      return not_here(frame, "a runner says on this lane");
  }
}

// ---------------------------------------------------------------- the barrier

Result<void> ParentSession::check_barrier(const wire::Hello& hello) const {
  if (hello.session_id != options_.session_id || hello.worker_id != options_.worker_id) {
    return broken(
        fmt::format("HELLO of session {:016x}, worker {}", hello.session_id, hello.worker_id));
  }
  if (hello.protocol != wire::kVersion) {
    return Error(Code::kAbiMismatch, Scope::kSession,
                 fmt::format("HELLO: the runner has protocol {}, this side {}: upgrade {}",
                             hello.protocol, wire::kVersion,
                             hello.protocol < wire::kVersion ? "the runner's" : "this side"));
  }
  if (state_ >= State::kReady) return broken("HELLO after READY");
  if (hello.state == wire::ReadyState::kFailed) return {};
  if (hello.state == wire::ReadyState::kStarting) {
    if (state_ != State::kOpening) return broken("HELLO STARTING twice");
    return {};
  }
  if (state_ != State::kStarting) return broken("HELLO READY before STARTING");
  if (early_sent_ < options_.early_controls || !command_requests_.empty()) {
    return broken(fmt::format("HELLO READY before the answer to the last of {} early controls",
                              options_.early_controls));
  }
  if (hello.credits == 0) return broken("HELLO READY grants no credit");
  return {};
}

Result<void> ParentSession::on_hello(const wire::Frame& frame) {
  if (frame.header.sequence != 0) {
    return broken(fmt::format("HELLO with sequence {}", frame.header.sequence));
  }
  STRATA_ASSIGN(wire::Hello hello, wire::decode<wire::Hello>(frame.payload));
  STRATA_TRY(check_barrier(hello));
  hello_ = std::move(hello);
  switch (hello_->state) {
    case wire::ReadyState::kStarting:
      state_ = State::kStarting;
      sink_.on_starting(*hello_);
      return {};
    case wire::ReadyState::kReady:
      state_ = State::kReady;
      task_credits_ = std::min(hello_->credits, options_.task_credits);
      sink_.on_ready(*hello_);
      return {};
    case wire::ReadyState::kFailed:
      STRATA_MARK("session: HELLO FAILED");
      end(Error(Code::kEndpointFailed, Scope::kSession,
                fmt::format("the runner could not build its Worker: {}", hello_->text)));
  }
  return {};
}

// ---------------------------------------------------------------- answers

Result<void> ParentSession::on_completion(const wire::Frame& frame) {
  STRATA_ASSIGN(wire::Completion completion, wire::decode<wire::Completion>(frame.payload));
  uint64_t sequence = frame.header.sequence;
  auto it = std::find_if(command_requests_.begin(), command_requests_.end(),
                         [&](const Request& request) { return request.sequence == sequence; });
  // Deliberate fault 6: a reply is matched to the wrong sequence, that of the oldest TASK.
  if (base::fault() == 6) {
    it = std::find_if(command_requests_.begin(), command_requests_.end(),
                      [](const Request& request) { return request.is_task; });
    if (it != command_requests_.end()) sequence = it->sequence;
  }
  if (it == command_requests_.end() || !it->is_task) {
    return broken(fmt::format("COMPLETION {}, which answers {}", sequence,
                              it == command_requests_.end() ? "nothing" : "a control"));
  }
  const bool skipped = completion.outcome == wire::Outcome::kSkipped;
  // One request runs at a time, in order; only what never started is answered before its turn.
  if (!skipped && it != command_requests_.begin() && base::fault() != 6) {
    return broken(fmt::format("COMPLETION {} before the answer to {}", sequence,
                              command_requests_.front().sequence));
  }
  if (it != command_requests_.begin()) STRATA_MARK("session: answered before its turn");
  command_requests_.erase(it);
  // Deliberate fault 5: the credit of a TASK that was skipped is not returned.
  if (base::fault() != 5 || !skipped) --tasks_in_flight_;
  sink_.on_completion(sequence, std::move(completion));
  return {};
}

Result<void> ParentSession::on_reply(wire::Lane lane, const wire::Frame& frame) {
  STRATA_ASSIGN(wire::ControlReply reply, wire::decode<wire::ControlReply>(frame.payload));
  Requests& open = requests(lane);
  const uint64_t sequence = frame.header.sequence;
  const auto it = std::find_if(open.begin(), open.end(), [&](const Request& request) {
    return request.sequence == sequence;
  });
  if (it == open.end() || it->is_task) {
    return broken(fmt::format("CONTROL_REPLY {}, which answers {}", sequence,
                              it == open.end() ? "nothing" : "a TASK"));
  }
  if (it->command != reply.command) {
    return broken(fmt::format("CONTROL_REPLY {} to {}, it was {}", sequence,
                              wire_name(reply.command), wire_name(it->command)));
  }
  if (it != open.begin()) {
    return broken(
        fmt::format("CONTROL_REPLY {} before the answer to {}", sequence, open.front().sequence));
  }
  open.pop_front();
  sink_.on_reply(lane, sequence, std::move(reply));
  return {};
}

// True once the runner is known to be done with it, though its answer has not come.
bool ParentSession::passed(const Request& request) const {
  return executing_ > request.sequence || (executing_ == 0 && tasks_done_ == tasks_sent_);
}

// The lane time of a control begins when it is the one that the runner has to answer: all TASKs
// and controls before it are answered, or heard to be passed.
void ParentSession::start_clocks() {
  for (const wire::Lane lane : {wire::Lane::kCommand, wire::Lane::kData}) {
    for (Request& request : requests(lane)) {
      if (request.is_task) {
        // Deliberate fault 18: a control's deadline counts the task before it.
        if (passed(request) || base::fault() == 18) continue;
        break;
      }
      if (!request.clock_from) request.clock_from = awake_.elapsed();
      break;
    }
  }
}

// ---------------------------------------------------------------- the health lane

Result<void> ParentSession::on_health_lane(const wire::Frame& frame, Instant now) {
  STRATA_TRY(check_count(frame, ++health_came_));
  switch (frame.header.type) {
    case wire::FrameType::kHealth: {
      STRATA_ASSIGN(const wire::Health health, wire::decode<wire::Health>(frame.payload));
      return on_health(health, now);
    }
    case wire::FrameType::kLog:
      return on_log(frame);
    case wire::FrameType::kAbort: {
      STRATA_ASSIGN(const wire::Abort abort, wire::decode<wire::Abort>(frame.payload));
      STRATA_MARK("session: the runner aborts");
      end(Error(static_cast<Code>(abort.code), Scope::kSession,
                fmt::format("the runner ends the session: {}", abort.text)));
      return {};
    }
    default:
      return not_here(frame, "a runner says on this lane");
  }
}

Result<void> ParentSession::on_health(const wire::Health& health, Instant now) {
  if (health.sent_ns <= beat_came_ns_) {
    return broken(
        fmt::format("HEALTH sent at {} after one sent at {}", health.sent_ns, beat_came_ns_));
  }
  if (health.echo_ns > beat_sent_ns_ || health.echo_ns < echo_came_ns_) {
    return broken(fmt::format("HEALTH echoes {}, the last one sent is {}, the last echo {}",
                              health.echo_ns, beat_sent_ns_, echo_came_ns_));
  }
  if (health.executing > command_sequence_ ||
      (health.executing != 0 && health.executing < executing_max_)) {
    return broken(fmt::format("HEALTH tells that {} is executing, after {}; the last sent is {}",
                              health.executing, executing_max_, command_sequence_));
  }
  if (health.tasks_done > tasks_sent_ || health.tasks_done < tasks_done_) {
    return broken(fmt::format("HEALTH tells {} TASKs done, after {}; {} were sent",
                              health.tasks_done, tasks_done_, tasks_sent_));
  }
  const bool first = beat_came_ns_ == 0;
  beat_came_ns_ = health.sent_ns;
  if (health.echo_ns > echo_came_ns_) round_trip_ = now - Instant{health.echo_ns};
  echo_came_ns_ = health.echo_ns;
  executing_ = health.executing;
  executing_max_ = std::max(executing_max_, executing_);
  tasks_done_ = health.tasks_done;
  rss_bytes_ = health.rss_bytes;
  lines_unechoed_ = 0;
  heard_at_ = awake_.elapsed();
  // The runner starts nothing before its first beat is echoed.
  if (first) beat(now);
  return {};
}

Result<void> ParentSession::on_log(const wire::Frame& frame) {
  STRATA_ASSIGN(const wire::Log log, wire::decode<wire::Log>(frame.payload));
  if (log.sequence > command_sequence_) {
    return broken(
        fmt::format("LOG of TASK {}, the last sent is {}", log.sequence, command_sequence_));
  }
  ++lines_unechoed_;
  if (++lines_ > kLogLines) {
    return broken(fmt::format("more than {} LOGs that no beat has confirmed", kLogLines));
  }
  sink_.on_log(log);
  return {};
}

}  // namespace strata::session
