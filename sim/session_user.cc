// The two ends' users: who sends TASKs and controls, and the Worker that runs them.
#include <cstring>

#include "sim/session_life.h"

namespace strata::sim {

using wire::ControlCommand;
using wire::Lane;

// ---------------------------------------------------------------- the parent's user

void SessionWorld::send_task(Life& life) {
  const bool room = life.parent->task_credits() != 0;
  wire::Task task;
  const uint64_t sequence = life.truth.command().size() + 1;
  task.scalars = {life.truth.id(), sequence};
  const auto sent = life.parent->task(task, local(kParent));
  if (!sent || sent->has_value() != room) {
    return checks_.fail(Verdict::kCorrectness, "a TASK is taken exactly where there is a credit");
  }
  if (!room) return;
  ++life.tasks_sent;
  ++counts_.tasks;
  life.truth.on_sent(Lane::kCommand, **sent, true, now_);
}

void SessionWorld::send_control(Life& life, ControlCommand command) {
  const Lane lane = session::lane_of(command);
  const bool room = life.parent->control_credits(lane) != 0;
  if (!life.parent->ready() && !room) return;  // it would be refused, or has no credit
  const bool early = !life.parent->ready();
  wire::Control control;
  control.command = command;
  control.body.resize(prng_.below(200));
  const auto sent = life.parent->control(control, local(kParent));
  if (!sent || sent->has_value() != room) {
    return checks_.fail(Verdict::kCorrectness, "a control is taken exactly where there is credit");
  }
  if (!room) return;
  const auto& all = life.truth.command();
  if (lane == Lane::kCommand && !all.empty() && all.back().is_task && !all.back().answered) {
    ++counts_.controls_behind_tasks;
  }
  ++counts_.controls;
  counts_.data_controls += lane == Lane::kData;
  counts_.early += early;
  life.truth.on_sent(lane, **sent, false, now_);
}

void SessionWorld::script(uint32_t slot) {
  push(now_ + around(options_.script_ns), Kind::kScript, slot);
  Life* const found = slots_[slot].now;
  if (found == nullptr || found->parent_over) return;
  Life& life = *found;
  session::ParentSession& parent = *life.parent;
  const auto chance = [&](uint32_t thousandths) { return prng_.chance(thousandths, 1000); };
  if (!parent.ready()) {
    if (!parent.draining()) send_control(life, ControlCommand::kPrepareRegister);
    return after(life, false);
  }
  note("script", slot, life.tasks_sent);
  if (chance(options_.control)) send_control(life, ControlCommand::kCommitRegister);
  for (uint64_t n = 1 + prng_.below(4); n > 0 && life.tasks_sent < options_.tasks; --n) {
    send_task(life);
  }
  if (chance(options_.control)) send_control(life, ControlCommand::kPrepareRegister);
  if (chance(options_.data_control)) send_control(life, ControlCommand::kAllocBuffer);
  if (chance(options_.cancel) && !life.truth.command().empty()) {
    const uint64_t last = life.truth.command().size();
    const uint64_t first = last - prng_.below(std::min<uint64_t>(last, 12));
    ++counts_.cancels;
    if (parent.cancel(first, last).ok()) life.truth.on_cancelled(first, last);
  }
  if (chance(options_.log)) {
    (void)parent.set_log(chance(500) ? wire::LogLevel::kDebug : wire::LogLevel::kInfo);
  }
  if (chance(options_.abort)) {
    parent.abort(Error(Code::kCancelled, Scope::kSession, "the user ends it"), local(kParent));
  } else if (life.tasks_sent == options_.tasks && chance(300)) {
    const int64_t ms = chance(options_.short_drain) ? 100 : 60'000;
    const auto drained = parent.drain(session::Duration::from_ms(ms), local(kParent));
    if (!drained) checks_.fail(Verdict::kCorrectness, "drain: " + drained.error().to_string());
  }
  after(life, false);
}

// ---------------------------------------------------------------- the runner's Worker

void SessionWorld::take_work(Life& life) {
  for (const Lane lane : {Lane::kCommand, Lane::kData}) {
    const size_t at = session::index_of(lane);
    if (life.work[at] || life.drained || life.runner_over) continue;
    std::optional<session::Work> work = life.runner->take(lane, local(life.process));
    if (!work) continue;
    int64_t takes = around(2'000'000);
    if (const auto* const task = std::get_if<wire::Task>(&work->what)) {
      life.truth.on_start(work->sequence, *task, processes_[life.process], now_);
      note("task starts", life.index, work->sequence);
      takes = prng_.chance(options_.long_task, 1000)
                  ? options_.timing.control.ns + around(options_.timing.control.ns)
                  : around(options_.task_ns);
    } else if (std::holds_alternative<wire::Control>(work->what)) {
      life.truth.on_control_taken(lane, work->sequence);
      note("control starts", life.index, static_cast<uint64_t>(lane), work->sequence);
      if (!healed_ && prng_.chance(options_.hang_control, 1000)) {
        fired(SessionFault::kHang);
        takes = -1;
      }
    } else {
      // SHUTDOWN is the last: all before it is answered.
      life.drained = true;
      life.runner->drained();
      return;
    }
    life.work[at] = std::move(work);
    const uint64_t generation = ++life.work_generation[at];
    if (takes >= 0) {
      push(now_ + takes, Kind::kWorkEnd, life.index, static_cast<uint32_t>(lane), 0, generation);
    }
  }
}

void SessionWorld::work_end(Life& life, Lane lane) {
  const size_t at = session::index_of(lane);
  if (life.runner_over || !life.work[at]) return;
  const session::Work work = *std::move(life.work[at]);
  life.work[at].reset();
  const uint64_t answer = SessionTruth::answer_of(life.truth.id(), lane, work.sequence);
  std::vector<std::byte> result(sizeof answer);
  std::memcpy(result.data(), &answer, sizeof answer);
  if (const auto* const control = std::get_if<wire::Control>(&work.what)) {
    life.truth.on_end(lane, work.sequence, false, now_);
    wire::ControlReply reply;
    reply.command = control->command;
    reply.result = std::move(result);
    if (!life.runner->reply(lane, reply)) {
      checks_.fail(Verdict::kCorrectness, "an answer to a control was not taken");
    }
  } else {
    wire::Completion completion;
    const bool cancelled = life.cancel == work.sequence;
    if (cancelled || prng_.chance(1, 20)) {
      completion.outcome = wire::Outcome::kTaskFailed;
      completion.code = static_cast<uint32_t>(cancelled ? Code::kCancelled : Code::kTaskFailed);
      completion.scope = static_cast<uint32_t>(Scope::kTask);
      completion.message = "it failed";
    } else {
      completion.result = std::move(result);
    }
    const bool failed = completion.outcome != wire::Outcome::kOk;
    life.truth.on_end(lane, work.sequence, failed, now_);
    uint64_t lines = prng_.chance(options_.log, 1000) ? 1 : 0;
    if (prng_.chance(options_.log_burst, 1000)) lines = prng_.between(2, 60);
    for (; lines > 0; --lines) {
      wire::Log line;
      line.sequence = work.sequence;
      line.text = "a line of a task";
      life.runner->log(line);
      ++life.lines_logged;
    }
    if (!life.runner->completion(std::move(completion))) {
      checks_.fail(Verdict::kCorrectness, "a completion was not taken");
    }
  }
  note("work ends", life.index, static_cast<uint64_t>(lane), work.sequence);
  after(life, true);
}

}  // namespace strata::sim
