#include "sim/session_truth.h"

#include <fmt/format.h>

#include <cstring>

#include "wire/codec.h"

namespace strata::sim {

using wire::Lane;

void SessionTruth::fail(std::string what) {
  checks_.fail(Verdict::kCorrectness, fmt::format("session {:x}: {}", id_, std::move(what)));
}

uint64_t SessionTruth::answer_of(uint64_t session, Lane lane, uint64_t sequence) {
  uint64_t x = session * 0x9e3779b97f4a7c15ull + sequence * 0xbf58476d1ce4e5b9ull +
               static_cast<uint64_t>(lane);
  x ^= x >> 29;
  return x * 0x94d049bb133111ebull;
}

RequestTruth* SessionTruth::find(Lane lane, uint64_t sequence) {
  std::vector<RequestTruth>& all = of(lane);
  return sequence == 0 || sequence > all.size() ? nullptr : &all[sequence - 1];
}

// ---------------------------------------------------------------- the parent's side

void SessionTruth::on_sent(Lane lane, uint64_t sequence, bool is_task, int64_t now) {
  if (sequence != of(lane).size() + 1) {
    return fail(fmt::format("request {} was sent after {}", sequence, of(lane).size()));
  }
  of(lane).push_back({.is_task = is_task, .sent_at = now});
  tasks_sent_ += is_task ? 1 : 0;
}

void SessionTruth::on_cancelled(uint64_t first, uint64_t last) {
  for (uint64_t n = first; n <= last && n <= command_.size(); ++n) {
    if (command_[n - 1].is_task) command_[n - 1].cancelled = true;
  }
}

void SessionTruth::on_completion(uint64_t sequence, const wire::Completion& completion) {
  RequestTruth* const task = find(Lane::kCommand, sequence);
  if (task == nullptr || !task->is_task || task->answered || task->in_flight) {
    return fail(fmt::format("TASK {} is answered, which is not in flight", sequence));
  }
  task->answered = true;
  ++tasks_answered_;
  if (completion.outcome == wire::Outcome::kSkipped) {
    if (task->starts != 0) fail(fmt::format("TASK {} was skipped, but it had started", sequence));
    if (!task->cancelled) fail(fmt::format("TASK {} was skipped, nobody cancelled it", sequence));
    return;
  }
  if (task->ended_at < 0) {
    return fail(fmt::format("TASK {} is answered before it has ended", sequence));
  }
  if ((completion.outcome == wire::Outcome::kOk) == task->failed) {
    return fail(fmt::format("TASK {} has another outcome than the runner gave", sequence));
  }
  uint64_t told = 0;
  if (completion.result.size() == sizeof told) {
    std::memcpy(&told, completion.result.data(), sizeof told);
  }
  if (!task->failed && told != answer_of(id_, Lane::kCommand, sequence)) {
    fail(fmt::format("TASK {} has the result of another one", sequence));
  }
}

void SessionTruth::on_reply(Lane lane, uint64_t sequence, std::span<const std::byte> result) {
  RequestTruth* const control = find(lane, sequence);
  if (control == nullptr || control->is_task || control->answered || control->ended_at < 0) {
    return fail(fmt::format("control {} has an answer that nobody gave", sequence));
  }
  control->answered = true;
  uint64_t told = 0;
  if (result.size() == sizeof told) std::memcpy(&told, result.data(), sizeof told);
  if (told != answer_of(id_, lane, sequence)) {
    fail(fmt::format("control {} has the answer of another one", sequence));
  }
}

void SessionTruth::on_credits(uint32_t granted, uint32_t left) {
  const uint32_t open = tasks_sent_ - tasks_answered_;
  if (left + open != granted) {
    fail(fmt::format("{} credits are left of {}, with {} TASKs in flight", left, granted, open));
  }
}

void SessionTruth::on_parent_ended(const session::Ended& ended, const SimProcess& parent,
                                   int64_t now) {
  for (const session::InFlight& request : ended.in_flight) {
    RequestTruth* const truth = find(request.lane, request.sequence);
    if (truth == nullptr || truth->answered || truth->in_flight ||
        truth->is_task != request.is_task) {
      fail(fmt::format("request {} is reported in flight", request.sequence));
      continue;
    }
    truth->in_flight = true;
    if (!request.may_have_run && truth->starts != 0) {
      fail(fmt::format("TASK {} has run, and is said not to have", request.sequence));
    }
  }
  for (const Lane lane : {Lane::kCommand, Lane::kData}) {
    for (size_t i = 0; i < of(lane).size(); ++i) {
      const RequestTruth& request = of(lane)[i];
      if (!request.answered && !request.in_flight) {
        fail(fmt::format("request {} of the {} lane is forgotten", i + 1, wire_name(lane)));
      }
    }
  }
  if (!ended.cause) return;
  const std::string& text = ended.cause->message();
  if (text.find("no beat for") != std::string::npos) {
    verdict_given_ = true;
    check_verdict(parent_ear_, timing_.parent_verdict.ns, parent, now, "the parent");
  }
  if (text.find("of lane time") != std::string::npos) check_control_deadline(now);
}

// ---------------------------------------------------------------- beats

void SessionTruth::on_health_up(bool parent, const SimProcess& process, int64_t now) {
  Ear& ear = parent ? parent_ear_ : runner_ear_;
  ear.up = true;
  ear.ran_at = process.ran(now);
  ear.pauses_at = process.pauses;
}

void SessionTruth::on_health_bytes(bool to_parent, std::span<const std::byte> bytes,
                                   const SimProcess& process, int64_t now) {
  Ear& ear = to_parent ? parent_ear_ : runner_ear_;
  while (!bytes.empty() && !ear.broken) {
    const std::span<std::byte> to = ear.splitter.space();
    const size_t n = std::min(to.size(), bytes.size());
    std::memcpy(to.data(), bytes.data(), n);
    ear.splitter.came(n);
    bytes = bytes.subspan(n);
    for (;;) {
      const auto frame = ear.splitter.next();
      ear.broken = !frame.ok();
      if (ear.broken || !*frame) break;
      if ((*frame)->header.type != wire::FrameType::kHealth) continue;
      if ((*frame)->header.session_id != id_) continue;
      const auto beat = wire::decode<wire::Health>((*frame)->payload);
      if (!beat) continue;
      ear.ran_at = process.ran(now);
      ear.pauses_at = process.pauses;
      ear.echo = std::max(ear.echo, session::Instant{beat->echo_ns});
    }
  }
}

// Of each pause up to two beats may count, and the clock may be a little fast.
void SessionTruth::check_verdict(const Ear& ear, int64_t limit, const SimProcess& process,
                                 int64_t now, const char* who) {
  const int64_t ran = process.ran(now) - ear.ran_at;
  const int64_t pauses = process.pauses - ear.pauses_at;
  const int64_t least = limit - limit / 500 - 2 * pauses * timing_.beat.ns;
  if (ran < least) {
    fail(fmt::format("{} gave its verdict after {} ms of its own time without a beat, {} are due",
                     who, ran / 1'000'000, least / 1'000'000));
  }
}

void SessionTruth::check_silence(bool parent, const SimProcess& process, int64_t now) {
  const Ear& ear = parent ? parent_ear_ : runner_ear_;
  if (!ear.up || ear.broken) return;
  const int64_t limit = parent ? timing_.parent_verdict.ns : timing_.runner_verdict.ns;
  const int64_t ran = process.ran(now) - ear.ran_at;
  if (ran > limit + limit / 100 + 2 * timing_.beat.ns) {
    fail(fmt::format("{} has had no beat for {} ms of its own time and gives no verdict",
                     parent ? "the parent" : "the runner", ran / 1'000'000));
  }
}

void SessionTruth::check_control_deadline(int64_t now) {
  for (const Lane lane : {Lane::kCommand, Lane::kData}) {
    int64_t from = 0;
    for (const RequestTruth& request : of(lane)) {
      if (!request.is_task && !request.answered) {
        const int64_t lane_ns = now - std::max(from, request.sent_at);
        if (lane_ns >= timing_.control.ns - timing_.control.ns / 500) return;
        break;
      }
      // What still runs, or waits and was not cancelled, stands before all that follows.
      if (request.ended_at < 0 && !request.answered && !request.cancelled) break;
      from = std::max(from, request.ended_at);
    }
  }
  fail("a control's deadline has passed, which counted the time of what stands before it");
}

// ---------------------------------------------------------------- the runner's side

void SessionTruth::on_start(uint64_t sequence, const wire::Task& task, const SimProcess& runner,
                            int64_t now) {
  RequestTruth* const truth = find(Lane::kCommand, sequence);
  if (truth == nullptr || !truth->is_task || task.scalars.size() != 2 || task.scalars[0] != id_ ||
      task.scalars[1] != sequence) {
    return fail(fmt::format("TASK {} starts, which its parent has not sent", sequence));
  }
  if (truth->starts != 0) fail(fmt::format("TASK {} starts twice", sequence));
  if (truth->answered) fail(fmt::format("TASK {} starts after it was answered", sequence));
  ++truth->starts;
  for (uint64_t n = 1; n < sequence; ++n) {
    const RequestTruth& before = command_[n - 1];
    if (before.ended_at < 0 && !before.cancelled) {
      fail(fmt::format("TASK {} starts before {} has ended", sequence, n));
    }
  }
  if (verdict_given_) {
    fail(fmt::format("TASK {} starts after the parent's verdict", sequence));
  }
  const session::Instant local = runner.local(now);
  if (runner_ear_.echo == session::Instant{} || local >= runner_ear_.echo + timing_.hold) {
    fail(fmt::format("TASK {} starts while the fence holds", sequence));
  }
}

void SessionTruth::on_control_taken(Lane lane, uint64_t sequence) {
  RequestTruth* const truth = find(lane, sequence);
  if (truth == nullptr || truth->is_task || truth->starts != 0) {
    return fail(fmt::format("control {} comes, which its parent has not sent", sequence));
  }
  ++truth->starts;
}

void SessionTruth::on_end(Lane lane, uint64_t sequence, bool failed, int64_t now) {
  RequestTruth* const truth = find(lane, sequence);
  if (truth == nullptr) return;
  truth->ended_at = now;
  truth->failed = failed;
}

void SessionTruth::on_runner_ended(const std::optional<Error>& cause, const SimProcess& runner,
                                   int64_t now) {
  if (cause && cause->message().find("no beat of the parent") != std::string::npos) {
    check_verdict(runner_ear_, timing_.runner_verdict.ns, runner, now, "the runner");
  }
}

}  // namespace strata::sim
