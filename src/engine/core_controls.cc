// The part of Core that tells workers what is registered, and hears their answers.
#include <fmt/format.h>

#include <algorithm>

#include "base/bytes.h"
#include "base/check.h"
#include "base/fault.h"
#include "base/mark.h"
#include "base/result.h"
#include "engine/core.h"

namespace strata::engine {
namespace {

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::vector<std::byte> request_of(const Control& control) {
  if (control.question) return control.question->request;
  base::ByteWriter request;
  if (control.dropped) {
    request.put(control.dropped->high);
    request.put(control.dropped->low);
  } else {
    request.put(control.action.transaction);
    request.put(control.action.entry.index);
    request.put(control.action.entry.generation);
    if (control.action.payload) request.put_bytes(*control.action.payload);
  }
  return std::move(request).take();
}

}  // namespace

void Core::pump_registry(base::Instant now) {
  if (!dropped_.empty()) drop_mappings(now);
  while (registry_waits()) {
    for (registry::Action& action : registry_.take_actions()) {
      const uint32_t worker = action.worker;
      ++controls_open_;
      workers_[worker].rest->controls.push_back({std::move(action)});
      post_controls(worker, now);
    }
    for (const registry::WorkerReady& ready : registry_.take_ready()) {
      if (ready.error) {
        refuse_worker(ready.worker, ready.error->to_string());
        continue;
      }
      WorkerEntry& entry = workers_[ready.worker];
      returning_ -= is_returning(ready.worker);
      entry.state = WorkerState::kReady;
      entry.was_ready = true;
      if (!sched_.queues().is_open(ready.worker)) sched_.open_worker(ready.worker);
      notable_ = true;
    }
  }
}

// Posts the next control of the worker, where none stands in its slot.
void Core::post_controls(uint32_t worker, base::Instant now) {
  WorkerEntry& entry = workers_[worker];
  while (!entry.control_posted && !entry.exit_posted && entry.state != WorkerState::kLost) {
    if (entry.rest->controls.empty()) {
      if (!entry.exiting) return;
      if (!entry.endpoint->control(static_cast<uint32_t>(Command::kExit), {})) return;
      entry.exit_posted = true;
      if (entry.endpoint->needs_wake()) wakes_.push_back(entry.endpoint.get());
      return;  // its answer is its end
    }
    const Control& control = entry.rest->controls.front();
    const Result<void> posted =
        entry.endpoint->control(static_cast<uint32_t>(control.command()), request_of(control));
    if (!posted) {
      const Control refused = std::move(entry.rest->controls.front());
      entry.rest->controls.pop_front();
      --controls_open_;
      if (refused.question) {
        answers_.emplace_back(refused.question->id, posted.error());
        notable_ = true;
      } else {
        registry_.on_reply({worker, refused.action.transaction, refused.action.phase,
                            posted.error().code(), posted.error().message()});
      }
      continue;
    }
    control_posted(worker, now);
  }
}

void Core::control_posted(uint32_t worker, base::Instant now) {
  WorkerEntry& entry = workers_[worker];
  entry.control_posted = true;
  entry.rest->control_since = now;
  note_busy(worker);
  if (!entry.in_posted) posted_.push_back(worker);
  entry.in_posted = true;
  if (entry.endpoint->needs_wake()) wakes_.push_back(entry.endpoint.get());
}

void Core::on_reply(uint32_t command, uint32_t code, std::span<const std::byte> bytes) {
  const uint32_t worker = polled_;
  WorkerEntry& entry = workers_[worker];
  if (command == static_cast<uint32_t>(Command::kHello) && entry.state == WorkerState::kGreeted) {
    --controls_open_;
    entry.state = WorkerState::kReplaying;
    if (base::fault() == 12 && entry.incarnation > 1) sched_.open_worker(worker);
    if (code != 0) {
      STRATA_MARK("engine: a worker says why it cannot start");
      doubt(worker, text_of(bytes));
      return;
    }
    replay(worker);
    return;
  }
  if (entry.rest->controls.empty() ||
      static_cast<uint32_t>(entry.rest->controls.front().command()) != command) {
    doubt(worker, "it answered a control that it was not given");
    return;
  }
  const Control control = std::move(entry.rest->controls.front());
  const registry::Action& action = control.action;
  entry.rest->controls.pop_front();
  --controls_open_;
  if (control.question) return on_answer(worker, *control.question, code, bytes);
  if (control.dropped) {
    if (code != 0) doubt(worker, fmt::format("it keeps a mapping: {}", text_of(bytes)));
    return;
  }
  registry::Reply reply{worker, action.transaction, action.phase, std::nullopt, {}};
  if (code != 0) {
    reply.failure = static_cast<Code>(code);
    reply.text = fmt::format("{}: {}", worker_name(worker), text_of(bytes));
  }
  registry_.on_reply(reply);
  notable_ = true;
}

// It has answered its greeting: what it had asked for comes first, then what is registered.
void Core::replay(uint32_t worker) {
  WorkerEntry& entry = workers_[worker];
  entry.rest->journal_left = static_cast<uint32_t>(entry.rest->journal.size());
  for (const Question& question : entry.rest->journal) {
    STRATA_MARK("engine: a replacement is asked for the late children again");
    entry.rest->controls.push_back({{}, {}, question});
    ++controls_open_;
  }
  if (entry.rest->journal_left == 0) replay_callables(worker);
}

void Core::replay_callables(uint32_t worker) {
  const WorkerCaps& caps = workers_[worker].caps;
  const Result<size_t> added =
      registry_.on_worker_added(worker, static_cast<uint32_t>(caps.pool), caps.kinds, caps.nested);
  if (!added) doubt(worker, added.error().message());
}

Result<uint64_t> Core::ask_worker(uint32_t worker, Question question, base::Instant now) {
  WorkerEntry& entry = workers_[worker];
  if (!entry.caps.nested || entry.state != WorkerState::kReady) {
    return Error(
        entry.state == WorkerState::kLost ? Code::kNoWorker : Code::kWrongState, Scope::kCall,
        fmt::format("{} cannot be asked: {}", worker_name(worker),
                    !entry.caps.nested                  ? "it is no Worker"
                    : entry.state == WorkerState::kLost ? "it was lost: " + entry.rest->loss
                                                        : "it is not ready"),
        options_.path);
  }
  return ask(worker, std::move(question), now);
}

uint64_t Core::ask(uint32_t worker, Question question, base::Instant now) {
  question.id = ++questions_;
  workers_[worker].rest->controls.push_back({{}, {}, std::move(question)});
  ++controls_open_;
  post_controls(worker, now);
  return questions_;
}

// Behind the PREPARE of the workers that are being told of it.
Result<std::vector<uint64_t>> Core::activate(registry::EntryRef ref, base::Instant now) {
  STRATA_ASSIGN(const std::vector<uint32_t> workers, registry_.activate(ref));
  pump_registry(now);
  std::vector<uint64_t> out;
  for (const uint32_t worker : workers) {
    Question question;
    question.command = Command::kActivate;
    base::ByteWriter request;
    request.put(uint64_t{0});
    request.put(ref.index);
    request.put(ref.generation);
    question.request = std::move(request).take();
    out.push_back(ask(worker, std::move(question), now));
  }
  return out;
}

std::optional<Result<std::vector<std::byte>>> Core::take_answer(uint64_t id) {
  const auto found = std::find_if(answers_.begin(), answers_.end(),
                                  [id](const auto& answer) { return answer.first == id; });
  if (found == answers_.end()) return std::nullopt;
  Result<std::vector<std::byte>> out = std::move(found->second);
  answers_.erase(found);
  return out;
}

void Core::on_answer(uint32_t worker, const Question& question, uint32_t code,
                     std::span<const std::byte> bytes) {
  WorkerEntry& entry = workers_[worker];
  notable_ = true;
  if (question.id == 0) {
    if (code != 0) {
      doubt(worker, fmt::format("it cannot have again the children that were added below it: {}",
                                text_of(bytes)));
    } else if (--entry.rest->journal_left == 0) {
      replay_callables(worker);
    }
    return;
  }
  if (code != 0) {
    answers_.emplace_back(question.id, Error(static_cast<Code>(code), Scope::kCall, text_of(bytes),
                                             worker_name(worker)));
    return;
  }
  answers_.emplace_back(question.id, std::vector<std::byte>(bytes.begin(), bytes.end()));
  if (question.command != Command::kAddChildren) return;
  entry.rest->journal.push_back(question);
  entry.rest->journal.back().id = 0;
  std::copy_n(bytes.begin(), std::min({bytes.size(), question.request.size(), sizeof(uint32_t)}),
              entry.rest->journal.back().request.begin());
}

// Nothing where no deadline runs for the worker's control. The greeting of a child Worker waits for
// all that is below it: whoever starts it has a limit for that, and one that takes another's place
// has its own.
std::optional<uint32_t> Core::control_limit_ms(const WorkerEntry& entry) const {
  if (!entry.control_posted || entry.state == WorkerState::kLost) return std::nullopt;
  if (entry.inline_endpoint != nullptr) return std::nullopt;  // a call here cannot be ended
  if (entry.caps.nested && entry.state == WorkerState::kGreeted) {
    if (!entry.was_ready) return std::nullopt;
    return std::min(entry.caps.greeting_ms, ~uint32_t{0} - 1);
  }
  uint64_t limit = uint64_t{options_.timeouts.control_ms} + entry.caps.control_more_ms;
  if (!entry.rest->controls.empty() && entry.rest->controls.front().question) {
    limit += entry.rest->controls.front().question->more_ms;
  }
  return static_cast<uint32_t>(std::min(limit, uint64_t{~uint32_t{0} - 1}));
}

// A control has its time from the moment when no task stands before it.
void Core::check_control_deadlines(base::Instant now) {
  for (size_t i = 0; i < posted_.size();) {
    const uint32_t worker = posted_[i];
    WorkerEntry& entry = workers_[worker];
    if (!entry.control_posted || entry.state == WorkerState::kLost) {
      entry.in_posted = false;
      posted_[i] = posted_.back();
      posted_.pop_back();
      continue;
    }
    ++i;
    const std::optional<uint32_t> limit_ms = control_limit_ms(entry);
    if (!limit_ms) continue;
    if (sched_.queues().length(worker) > 0) {
      entry.rest->control_since = now;
    } else if (now - entry.rest->control_since > base::Duration::from_ms(*limit_ms)) {
      STRATA_MARK("engine: a control is not answered in time");
      doubt(worker, fmt::format("it did not answer a control within {} ms", *limit_ms));
      entry.rest->control_since = now;
    }
  }
}

base::Instant Core::next_deadline() const {
  if (registry_waits() || !dropped_.empty()) return {};  // for a step that has the time
  base::Instant next = std::min(endings_.deadlines.next(), endings_.grace_at);
  for (const uint32_t worker : posted_) {
    const WorkerEntry& entry = workers_[worker];
    const std::optional<uint32_t> limit_ms = control_limit_ms(entry);
    if (!limit_ms) continue;
    next = std::min(next, entry.rest->control_since + base::Duration::from_ms(*limit_ms + 1));
  }
  return next;
}

Result<void> Core::begin_register(const registry::PreparePayload& payload, base::Instant now,
                                  std::span<const uint32_t> listed) {
  const CallableKind kind = model::kind_of(payload.descriptor);
  const auto can_run = [&](uint32_t worker) {
    if (payload.inner) return workers_[worker].caps.nested;
    return (workers_[worker].caps.kinds >> static_cast<uint32_t>(kind) & 1) != 0;
  };
  std::vector<uint32_t> all, later;
  for (const uint32_t worker : listed) {
    const bool there = worker < workers_.size();
    (there && !is_returning(worker) ? all : later).push_back(worker);
    if (!there && workers_expected_) continue;
    if (!there) {
      return Error(
          Code::kNotFound, Scope::kCall,
          fmt::format("there is no worker {}; this Worker has {}", worker, workers_.size()),
          options_.path);
    }
    if (can_run(worker)) continue;
    return Error(
        Code::kUnsupported, Scope::kCall,
        fmt::format("callable '{}' is a {}, which {} cannot run; it runs: {}", payload.name,
                    name_of(kind), worker_name(worker), kinds_text(workers_[worker].caps.kinds)),
        options_.path);
  }
  for (uint32_t worker = 0; worker < workers_.size() && listed.empty(); ++worker) {
    if (workers_[worker].state == WorkerState::kReady && can_run(worker)) all.push_back(worker);
  }
  STRATA_TRY(registry_.begin(
      payload, all,
      listed.empty() ? registry::Registry::Reach::kEverywhere : registry::Registry::Reach::kListed,
      later));
  pump_registry(now);
  return {};
}

std::optional<Result<registry::EntryRef>> Core::take_register_outcome() {
  return registry_.take_outcome();
}

Result<void> Core::unregister(registry::EntryRef entry, base::Instant now) {
  STRATA_TRY(registry_.unregister(entry));
  pump_registry(now);
  return {};
}

}  // namespace strata::engine
