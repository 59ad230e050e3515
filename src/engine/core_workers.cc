// The life of Core's workers: their coming, their loss, and who takes the place of a lost one.
#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/mark.h"
#include "engine/core.h"

namespace strata::engine {

uint32_t Core::add_worker(std::unique_ptr<WorkerEndpoint> endpoint, WorkerCaps caps) {
  const uint32_t worker = sched_.add_worker(static_cast<uint32_t>(caps.pool));
  STRATA_CHECK(worker == workers_.size());
  WorkerEntry& entry = workers_.emplace_back();
  entry.caps = caps;
  pool_transfers_[static_cast<size_t>(caps.pool)] = caps.transfers;
  pool_kinds_[static_cast<size_t>(caps.pool)] |= caps.kinds;
  refs_ = refs_ || caps.nested || caps.transfers != kInPlace;
  any_notes_news_ = any_notes_news_ || caps.notes_news;
  remotes_ += caps.remote;
  if (caps.notes_news) news_.cover(worker);
  entry.inline_endpoint = dynamic_cast<InlineEndpoint*>(endpoint.get());
  if (entry.inline_endpoint != nullptr) inline_.push_back(entry.inline_endpoint);
  entry.endpoint = std::move(endpoint);
  return worker;
}

void Core::start_worker(uint32_t worker, base::Instant now) {
  WorkerEntry& entry = workers_[worker];
  STRATA_CHECK(entry.state == WorkerState::kAdded);
  entry.state = WorkerState::kGreeted;
  if (entry.exiting) return;
  ++controls_open_;
  const Result<void> greeted = entry.endpoint->control(static_cast<uint32_t>(Command::kHello), {});
  STRATA_CHECK(greeted.ok());
  control_posted(worker, now);
}

std::string Core::worker_name(uint32_t worker) const {
  const WorkerEntry& entry = workers_[worker];
  if (entry.incarnation == 1) {
    return fmt::format("{}/{} {}", options_.path, worker, entry.endpoint->where());
  }
  return fmt::format("{}/{}#{} {}", options_.path, worker, entry.incarnation,
                     entry.endpoint->where());
}

// ---------------------------------------------------------------- losses

// One that was never ready is who started it's to judge: the start has failed.
bool Core::may_return(const WorkerEntry& entry) const {
  return options_.restarts && entry.was_ready && !entry.exiting &&
         entry.inline_endpoint == nullptr && entry.incarnation <= options_.restart_limit;
}

bool Core::is_returning(uint32_t worker) const {
  const WorkerEntry& entry = workers_[worker];
  return entry.was_ready && entry.state != WorkerState::kReady && entry.state != WorkerState::kLost;
}

void Core::lose_worker(uint32_t worker, const std::string& reason, std::string last_lines,
                       bool final) {
  WorkerEntry& entry = workers_[worker];
  if (entry.state == WorkerState::kLost) return;
  const bool was_returning = is_returning(worker);
  const WorkerState before = entry.state;
  if (before != WorkerState::kReplaced) {
    polled_ = worker;
    // What it completed before its end counts.
    if (const Result<void> last = entry.endpoint->poll(*this); !last) {
      STRATA_MARK("engine: a lost worker's mailbox is corrupt");
    }
  }
  const bool was_ready = entry.state == WorkerState::kReady;
  // The greeting is counted, but stands in no list.
  if (entry.state == WorkerState::kGreeted && entry.control_posted) --controls_open_;
  // How the process ended says less than why it was made to.
  entry.rest->loss =
      entry.rest->doubt.empty() ? reason : fmt::format("{}; {}", entry.rest->doubt, reason);
  entry.rest->last_lines = std::move(last_lines);
  const bool returns = !final && may_return(entry);
  if (!returns && entry.incarnation > 1) {
    entry.rest->loss +=
        fmt::format("; it had been replaced {} times, and WorkerSpec::restart_limit is {}",
                    entry.incarnation - 1, options_.restart_limit);
  }
  entry.state = returns ? WorkerState::kReplaced : WorkerState::kLost;
  returning_ += uint32_t{is_returning(worker)} - uint32_t{was_returning};
  if (trace_.on()) [[unlikely]]
    trace_.worker_gone(worker, entry.rest->loss, entry.exiting);
  sched_.close_worker(worker, returns);
  if (was_ready) entry.endpoint->abandon(*this);
  entry.rest->condemned.reset();
  entry.control_posted = false;
  drop_controls(worker);
  registry_.on_worker_lost(worker, entry.rest->loss);
  if (returns) {
    STRATA_MARK("engine: a lost worker is to be replaced");
    replacements_.push_back(worker);
  } else {
    // Who may take a callable is remembered by the registry's epoch, which knows no returns.
    std::erase(replacements_, worker);
    known_classes_.clear();
  }
  notable_ = true;
}

void Core::drop_controls(uint32_t worker) {
  WorkerEntry& entry = workers_[worker];
  for (const Control& control : entry.rest->controls) {
    --controls_open_;
    if (!control.question || control.question->id == 0) continue;
    answers_.emplace_back(control.question->id,
                          Error(Code::kEndpointFailed, Scope::kCall,
                                fmt::format("it was lost before it answered: {}", entry.rest->loss),
                                worker_name(worker)));
  }
  entry.rest->controls.clear();
}

void Core::end_worker(uint32_t worker, std::string reason) {
  workers_[worker].was_ready = false;
  doubt(worker, std::move(reason));
}

void Core::renew_worker(uint32_t worker, std::unique_ptr<WorkerEndpoint> endpoint) {
  WorkerEntry& entry = workers_[worker];
  STRATA_CHECK(entry.state == WorkerState::kReplaced);
  STRATA_MARK("engine: a worker has a new incarnation");
  std::erase(wakes_, entry.endpoint.get());
  retired_.push_back(std::exchange(entry.endpoint, std::move(endpoint)));
  std::erase_if(kills_, [worker](const Kill& kill) { return kill.worker == worker; });
  ++entry.incarnation;
  entry.state = WorkerState::kAdded;
  entry.unconfirmed = false;
  entry.rest->doubt.clear();
  entry.doubted = false;
  entry.rest->seen_ticket = 0;
}

void Core::drop_retired() {
  retired_.clear();
}

// ---------------------------------------------------------------- ends

void Core::ask_exit(base::Instant now) {
  for (uint32_t worker = 0; worker < workers_.size(); ++worker) {
    WorkerEntry& entry = workers_[worker];
    if (entry.state == WorkerState::kLost || entry.exiting) continue;
    if (entry.inline_endpoint != nullptr) continue;
    entry.exiting = true;
    if (entry.state == WorkerState::kReplaced) {
      lose_worker(worker, "the Worker was closed before another one took its place");
      continue;
    }
    post_controls(worker, now);
  }
}

void Core::ask_exit(uint32_t worker, base::Instant now) {
  WorkerEntry& entry = workers_[worker];
  if (entry.state == WorkerState::kLost || entry.exiting) return;
  entry.doubted = entry.exiting = true;
  post_controls(worker, now);
}

void Core::note_busy(uint32_t worker) {
  if (workers_[worker].busy || workers_[worker].caps.notes_news) return;
  workers_[worker].busy = true;
  busy_.push_back(worker);
}

void Core::doubt(uint32_t worker, std::string reason) {
  WorkerEntry& entry = workers_[worker];
  if (!entry.rest->doubt.empty()) return;
  entry.rest->doubt = reason;
  entry.doubted = true;
  kills_.push_back({worker, entry.incarnation, std::move(reason)});
}

// It did not take what is registered. A child is ended; calls in this process are only left alone.
void Core::refuse_worker(uint32_t worker, const std::string& reason) {
  if (workers_[worker].inline_endpoint == nullptr) {
    doubt(worker, reason);
  } else {
    STRATA_MARK("engine: an inline worker is refused");
    lose_worker(worker, reason);
  }
}

}  // namespace strata::engine
