#include "sim/child.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/bytes.h"
#include "engine/core.h"
#include "sim/level_world.h"
#include "sim/shared.h"
#include "sim/timeline.h"

namespace strata::sim {
namespace {

constexpr uint64_t kSlowNsMax = 1'000'000;

}  // namespace

void Gate::pass() {
  if (scheduler->unwinding()) return;
  if (++ops == kill_at) on_kill();
  while (scheduler->now() < paused_until) scheduler->block(paused_until);
}

Child::Child(Shared* shared, uint32_t worker, uint32_t incarnation, std::byte* region)
    : shared_(shared),
      worker_(worker),
      incarnation_(incarnation),
      region_(region),
      name_(incarnation == 1 ? fmt::format("child {}", worker)
                             : fmt::format("child {}#{}", worker, incarnation)) {}

void Child::start() {
  process_ = shared_->machine->make_process();
  if (shared_->fault(shared_->options.slow_child)) slowness_ = shared_->prng().between(2, 60);
  gate_.scheduler = shared_->scheduler;
  gate_.process = process_;
  gate_.on_kill = [this] { strike("killed at a memory operation"); };
  code_ = std::make_unique<TaskCode>(shared_, worker_, name_, [this](uint64_t ns) {
    // Slow is short tasks that take longer, not long ones that never end.
    const uint64_t slow = shared_->calm ? ns : std::max(ns, std::min(ns * slowness_, kSlowNsMax));
    shared_->scheduler->block(shared_->scheduler->now() +
                              base::Duration{static_cast<int64_t>(slow)});
    gate_.pass();
  });
  fiber_ = shared_->scheduler->spawn(name_, [this] { main(); });
  process_->adopt(fiber_);
  shared_->level->arrive({worker_, incarnation_, true, {}});
}

void Child::kill(const std::string& reason) {
  if (!alive()) return;
  shared_->note(name_, EventKind::kWorkerDeath, worker_);
  ++shared_->deaths;
  shared_->checks.on_death(worker_);
  shared_->overdue.on_death(worker_);
  shared_->level->arrive({worker_, incarnation_, false, reason});
  process_->die();  // unwinds at once where it is this very fiber
}

void Child::strike(const std::string& reason) {
  shared_->faults.kills += alive();
  kill(reason);
}

void Child::kill_soon(uint64_t operations) {
  gate_.kill_at = gate_.ops + operations;
}

void Child::pause_for(base::Duration length) {
  shared_->note(name_, EventKind::kPause, worker_, static_cast<uint64_t>(length.ns));
  gate_.paused_until = shared_->scheduler->now() + length;
}

void Child::linger(uint64_t ns_max) {
  const uint64_t ns = shared_->prng().below(ns_max) + 1;
  shared_->scheduler->block(shared_->scheduler->now() + base::Duration{static_cast<int64_t>(ns)});
  gate_.pass();
}

void Child::main() {
  linger(20'000);
  Result<Side> attached =
      Side::attach(GatedMemory(process_, &gate_), {region_, mailbox::kRegionBytes},
                   {static_cast<std::byte*>(shared_->hub), mailbox::kHubBytes});
  if (!attached) {
    shared_->checks.fail(Verdict::kCorrectness, attached.error().to_string());
    return;
  }
  side_.emplace(*std::move(attached));
  shared_->note(name_, EventKind::kWorkerStart, worker_);
  if (incarnation_ > 1 && shared_->fault(shared_->options.spawn_fails)) return refuse_start();
  const int64_t spin = shared_->options.child_spin_ns;
  Loop loop(*side_, *this, {.free_spin_ns = spin, .linger_ns = 3 * spin});
  if (loop.run() == mailbox::kExitAsked) {
    kill("it was told to end");
    return;
  }
  shared_->checks.fail(Verdict::kCorrectness,
                       fmt::format("{} finds its mailbox broken: {}", name_, side_->corrupt()));
}

// Answers the greeting with a reason, as a child whose own start has failed.
void Child::refuse_start() {
  for (;;) {
    mailbox::ControlView control;
    if (side_->control_take(&control)) {
      if (control.command == mailbox::kCommandExit) return kill("it was told to end");
      ++shared_->faults.refusals;
      const std::string_view text = "told not to start";
      side_->control_reply(static_cast<uint32_t>(Code::kSystem), std::as_bytes(std::span(text)));
      shared_->note(name_, EventKind::kReply, worker_, 1);
      if (side_->parent_asleep_after_publish(true)) signal_parent();
      return strike("it could not start");
    }
    linger(5'000);
  }
}

// ---------------------------------------------------------------- the loop's host

// The parent's clock: it is told when a task began.
int64_t Child::now_ns() const {
  return shared_->level->now().ns;
}

void Child::pause() {
  shared_->scheduler->yield();
}

void Child::signal_parent() {
  if (shared_->chance(200)) linger(2'000);
  process_->drain();
  shared_->note(name_, EventKind::kSignal, worker_);
  shared_->level->signal();
}

bool Child::past_deadline(const mailbox::TaskView& view) const {
  return view.deadline_ms != 0 &&
         now_ns() >= view.started_ns + int64_t{view.deadline_ms} * 1'000'000;
}

void Child::run(const mailbox::TaskView& view, mailbox::TaskOutcome* out) {
  const auto callable = callables_.find(view.callable);
  if (callable == callables_.end() || !callable->second.committed) {
    shared_->checks.fail(Verdict::kCorrectness,
                         fmt::format("{} is given a task of callable {}, which it does not have",
                                     name_, view.callable));
  }
  shared_->timeline->begin_task(worker_, incarnation_, view.ticket);
  end_ = code_->run(view, [&] { return side_->cancelled(view) || past_deadline(view); });
  shared_->timeline->end_task(worker_, incarnation_);
  out->outcome = end_.outcome;
  out->code = end_.code;
  out->result = end_.result;
  out->text = std::as_bytes(std::span(end_.text));
}

uint32_t Child::control(uint32_t command, std::span<const std::byte> request, std::string* text) {
  shared_->note(name_, EventKind::kControl, worker_, command);
  if (shared_->fault(shared_->options.slow_control)) {
    shared_->late = true;
    linger(uint64_t{3'000'000} * shared_->options.control_ms);
  } else if (shared_->chance(300)) {
    linger(20'000);
  }
  const uint32_t code = answer(command, request, text);
  shared_->note(name_, EventKind::kReply, worker_, code);
  return code;
}

void Child::sleep(const uint32_t* word) {
  // futex_wait: a system call, so stores drain; it returns at once where the word has changed.
  process_->drain();
  if (*word != 1) return;
  shared_->note(name_, EventKind::kChildSleep, worker_);
  base::Instant until = base::Instant::never();
  if (shared_->fault(shared_->options.spurious_wake)) {
    ++shared_->faults.wakes;
    until = shared_->scheduler->now() +
            base::Duration{static_cast<int64_t>(shared_->prng().below(20'000))};
  }
  asleep_ = true;
  shared_->scheduler->block(until);
  asleep_ = false;
  gate_.pass();
  shared_->note(name_, EventKind::kChildWake, worker_);
}

uint32_t Child::answer(uint32_t command, std::span<const std::byte> request, std::string* text) {
  base::ByteReader reader(request);
  const uint64_t transaction = reader.get<uint64_t>();
  const uint32_t index = reader.get<uint32_t>();
  const uint32_t generation = reader.get<uint32_t>();
  const auto broken = [&](std::string_view why) {
    shared_->checks.fail(Verdict::kCorrectness,
                         fmt::format("{}: control {} of callable {} generation {}: {}", name_,
                                     command, index, generation, why));
  };
  if (!reader.ok()) broken("the request is short");
  const auto refuse = [&](std::string_view why) {
    ++shared_->faults.refusals;
    *text = why;
    return static_cast<uint32_t>(Code::kUnsupported);
  };
  const Options& options = shared_->options;
  const auto known = callables_.find(index);
  switch (static_cast<engine::Command>(command)) {
    case engine::Command::kPrepare:
      if (shared_->fault(options.refuse_prepare)) return refuse("told not to prepare");
      if (known != callables_.end()) broken("prepared where it is known");
      callables_[index] = {generation, transaction, false};
      return 0;
    case engine::Command::kCommit:
      if (known == callables_.end() || known->second.generation != generation ||
          known->second.transaction != transaction) {
        broken("committed where it was not prepared");
        return 0;
      }
      if (shared_->fault(options.refuse_commit)) return refuse("told not to commit");
      known->second.committed = true;
      return 0;
    case engine::Command::kAbort:
      if (shared_->fault(options.refuse_undo)) return refuse("told not to abort");
      if (known != callables_.end() && known->second.transaction == transaction) {
        callables_.erase(known);
      }
      return 0;
    case engine::Command::kDropMapping:
      return refuse("there are no chips here");
    case engine::Command::kAddChildren:
    case engine::Command::kActivate:
      return refuse("there are no Workers here");
    case engine::Command::kUnregister:
      if (known == callables_.end() || known->second.generation != generation ||
          !known->second.committed) {
        broken("unregistered where it is not committed");
        return 0;
      }
      if (shared_->fault(options.refuse_undo)) return refuse("told not to unregister");
      callables_.erase(known);
      return 0;
    case engine::Command::kExit:
    case engine::Command::kHello:
      break;
  }
  broken("an unknown command");
  return static_cast<uint32_t>(Code::kUnsupported);
}

std::vector<uint32_t> Child::callables() const {
  std::vector<uint32_t> out;
  for (const auto& [index, callable] : callables_) out.push_back(index);
  return out;
}

void Child::wake() {
  if (!alive() || !asleep_) return;
  shared_->scheduler->wake(fiber_);
}

}  // namespace strata::sim
