#include "runtime/remote_worker.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "base/result.h"
#include "os/clock.h"

namespace strata::runtime {

using env::ByteChannel;
using wire::Lane;

namespace {

// For the daemon to say why a runner has ended before READY.
constexpr base::Duration kDaemonsWord = base::Duration::from_s(1);
// Between two looks at a socket, which cost about as much: for each task on its way, up to kLooks.
constexpr int64_t kLookNs = 250;
constexpr int kLooks = 16;
// A runner looks for about so long for its next TASK before it sleeps.
constexpr int64_t kAwakeNs = 120'000;

Error refuse(Code code, std::string text) {
  return Error(code, Scope::kCall, std::move(text));
}

}  // namespace

// ---------------------------------------------------------------- the lanes

bool RemoteWorker::step(base::Instant now) {
  Lock lock(mutex_);
  if (phase_ == Phase::kBootstrap || bootstrap_) step_bootstrap(now);
  if (phase_ == Phase::kLanes) {
    // The command lane is its endpoint's once the session is ready.
    for (const Lane lane : session::kLanes) {
      if (phase_ != Phase::kLanes) break;
      if (lane != Lane::kCommand || quiet_ || session_->draining()) {
        step_lane(lane, now);
      } else if (!session_->output(lane).empty()) {
        write_lane(lane, now);
      }
    }
    if (phase_ == Phase::kLanes) step_early_loss(now);
    if (phase_ == Phase::kLanes && now >= session_->next_deadline()) session_->on_deadline(now);
    if (phase_ == Phase::kLanes) {
      for (const Lane lane : session::kLanes) {
        if (phase_ == Phase::kLanes && channel(lane).up) write_lane(lane, now);
      }
    }
  }
  const bool more = phase_ != Phase::kEnded;
  tell(lock);
  return more;
}

void RemoteWorker::step_lane(Lane lane, base::Instant now) {
  Channel& one = channel(lane);
  if (!one.stream) return;
  if (!one.up) {
    const Result<ByteChannel::Phase> phase = one.stream->advance();
    if (!phase) return lane_failed(lane, phase.error(), now);
    if (*phase < ByteChannel::Phase::kOpen) return;
    one.up = true;
    session_->on_lane_up(lane, now);
  }
  read_lane(lane, now);
  if (phase_ == Phase::kLanes && one.stream) write_lane(lane, now);
}

void RemoteWorker::read_lane(Lane lane, base::Instant now) {
  for (;;) {
    Channel& one = channel(lane);
    if (phase_ != Phase::kLanes || !one.stream || !one.up) return;
    const std::span<std::byte> space = session_->space(lane);
    const Result<size_t> got = one.stream->read(space);
    if (!got) return lane_failed(lane, got.error(), now);
    if (*got == 0) return;
    session_->came(lane, *got, now);
    if (lane == Lane::kCommand) {
      heard_ns_ = now.ns;
      wakes_up_.store(false, std::memory_order_relaxed);
    }
    executing_ = session_->executing();
    // A socket in clear that gave less than there was room for has no more.
    if (!bootstrap_tls_ && *got < space.size()) return;
  }
}

void RemoteWorker::write_lane(Lane lane, base::Instant now) {
  Channel& one = channel(lane);
  if (!one.stream || !one.up) return;
  std::vector<std::byte>& out = session_->output(lane);
  while (!out.empty()) {
    const Result<size_t> put = one.stream->write(out);
    if (!put) return lane_failed(lane, put.error(), now);
    if (*put == 0) break;
    out.erase(out.begin(), out.begin() + static_cast<long>(*put));
  }
  if (lane == Lane::kCommand) unsent_ = false;
}

// The command lane is read to its end first: what it still holds has happened.
void RemoteWorker::lane_failed(Lane lane, const Error& why, base::Instant now) {
  channel(lane).stream->close();
  channel(lane).stream.reset();
  if (lane != Lane::kCommand) read_lane(Lane::kCommand, now);
  // The last lines of a runner that has drained, which it wrote before it closed anything.
  if (lane == Lane::kCommand && session_->draining()) read_lane(Lane::kHealth, now);
  if (phase_ != Phase::kLanes) return;
  // Before READY the daemon knows why, and says so in a moment.
  if (quiet_ && bootstrap_) {
    if (!early_loss_) early_loss_ = {lane, why, now + kDaemonsWord};
    return;
  }
  session_->on_lane_closed(lane, why, now);
}

// The daemon has had its time to tell why a lane was closed before READY.
void RemoteWorker::step_early_loss(base::Instant now) {
  if (!early_loss_ || (bootstrap_ && now < early_loss_->until)) return;
  const EarlyLoss loss = *std::exchange(early_loss_, std::nullopt);
  session_->on_lane_closed(loss.lane, loss.why, now);
}

void RemoteWorker::fail(const Error& why) {
  if (phase_ == Phase::kEnded) return;
  if (session_ && !session_->ended()) {
    session_->fail(why, os::boottime_now());
    return;
  }
  phase_ = Phase::kEnded;
  news_.lost = why;
  told_ = true;
  close_channels();
}

void RemoteWorker::close_channels() {
  if (bootstrap_) bootstrap_->close();
  bootstrap_.reset();
  for (Channel& one : lanes_) {
    if (one.stream) one.stream->close();
    one = {};
  }
  unsent_ = false;
}

void RemoteWorker::descriptors(std::vector<pollfd>* out) const {
  const std::lock_guard lock(mutex_);
  const auto add = [&](const ByteChannel& stream, bool reads) {
    const int events = (reads ? POLLIN : 0) | (stream.wants_write() ? POLLOUT : 0);
    out->push_back({stream.descriptor(), static_cast<short>(events), 0});
  };
  if (bootstrap_) add(*bootstrap_, true);
  for (const Lane lane : session::kLanes) {
    const Channel& one = channel(lane);
    if (!one.stream) continue;
    add(*one.stream, lane != Lane::kCommand || quiet_ || session_->draining());
  }
}

base::Instant RemoteWorker::next_deadline() const {
  const std::lock_guard lock(mutex_);
  if (phase_ == Phase::kEnded || phase_ == Phase::kIdle) return base::Instant::never();
  base::Instant next =
      phase_ == Phase::kBootstrap ? std::min(start_by_, again_at_) : base::Instant::never();
  if (session_) next = std::min(next, session_->next_deadline());
  if (early_loss_) next = std::min(next, early_loss_->until);
  return next;
}

// Calls without the lock.
void RemoteWorker::tell(Lock& lock) {
  const bool told = std::exchange(told_, false);
  lock.unlock();
  if (told) notify_();
}

// ---------------------------------------------------------------- what the session says

void RemoteWorker::on_completion(uint64_t sequence, wire::Completion completion) {
  events_.emplace_back(Completed{sequence, std::move(completion)});
  count_credits();
  in_flight_.fetch_sub(1, std::memory_order_relaxed);
  executing_ = session_->executing();
  pending_ = told_ = true;
}

void RemoteWorker::on_reply(Lane, uint64_t, wire::ControlReply reply) {
  events_.emplace_back(std::move(reply));
  pending_ = told_ = true;
}

void RemoteWorker::on_log(const wire::Log& log) {
  executing_ = session_->executing();
  std::FILE* const to = log.stream == wire::LogStream::kStdout ? stdout : stderr;
  if (log.dropped > 0) {
    fmt::print(to, "[{} {} pid {}] {} lines were dropped\n", path_, spec_.endpoint, pid_.load(),
               log.dropped);
  }
  fmt::print(to, "[{} {} pid {}] {}\n", path_, spec_.endpoint, pid_.load(), log.text);
}

void RemoteWorker::on_ended(const session::Ended& ended) {
  phase_ = Phase::kEnded;
  count_credits();
  news_.lost = ended.cause ? *ended.cause
                           : Error(Code::kCancelled, Scope::kSession, "its session has ended");
  told_ = true;
  for (const Lane lane : session::kLanes) {
    Channel& one = channel(lane);
    if (one.stream && one.up) static_cast<void>(one.stream->write(session_->output(lane)));
  }
  close_channels();
}

// ---------------------------------------------------------------- whoever holds the step token

RemoteWorker::News RemoteWorker::take_news() {
  const std::lock_guard lock(mutex_);
  return std::exchange(news_, {});
}

int RemoteWorker::command_descriptor() const {
  const std::lock_guard lock(mutex_);
  const Channel& one = channel(Lane::kCommand);
  return one.stream ? one.stream->descriptor() : -1;
}

void RemoteWorker::abort(const std::string& reason) {
  Lock lock(mutex_);
  const Error why(Code::kEndpointFailed, Scope::kSession, reason);
  if (session_ && !session_->ended()) {
    session_->abort(why, os::boottime_now());
  } else {
    fail(why);
  }
  tell(lock);
}

std::string RemoteWorker::where() const {
  return fmt::format("{} pid {}", spec_.endpoint, pid_.load());
}

// Under the lock.
void RemoteWorker::count_credits() {
  credits_.store(session_->task_credits(), std::memory_order_relaxed);
}

std::optional<uint64_t> RemoteWorker::send(const wire::Task& task) {
  const std::lock_guard lock(mutex_);
  if (!session_ || !session_->ready()) return std::nullopt;
  const base::Instant now = os::boottime_now();
  const auto sent = session_->task(task, now);
  count_credits();
  if (!sent || !*sent) return std::nullopt;
  const bool alone = in_flight_.fetch_add(1, std::memory_order_relaxed) == 0;
  if (alone && now.ns - heard_ns_ > kAwakeNs) wakes_up_.store(true, std::memory_order_relaxed);
  unsent_ = true;
  return **sent;
}

Result<void> RemoteWorker::send(wire::ControlCommand command, std::vector<std::byte> body) {
  const std::lock_guard lock(mutex_);
  wire::Control control;
  control.command = command;
  control.body = std::move(body);
  if (!session_) return refuse(Code::kWrongState, "there is no session");
  STRATA_ASSIGN(const std::optional<uint64_t> sent, session_->control(control, os::boottime_now()));
  if (!sent) return refuse(Code::kResourceExhausted, "no credit for a control");
  unsent_ = true;
  return {};
}

void RemoteWorker::cancel(uint64_t first, uint64_t last) {
  Lock lock(mutex_);
  if (!session_) return;
  static_cast<void>(session_->cancel(first, last));
  write_lane(Lane::kHealth, os::boottime_now());
  const bool rest = !session_->output(Lane::kHealth).empty();
  told_ = told_ || rest;
  tell(lock);
}

void RemoteWorker::drain() {
  Lock lock(mutex_);
  if (!session_ || session_->ended()) return;
  if (!session_->ready()) {
    fail(Error(Code::kCancelled, Scope::kSession, "it is not needed any more"));
  } else {
    static_cast<void>(
        session_->drain(base::Duration::from_ms(spec_.session.close_ms), os::boottime_now()));
    count_credits();
    write_lane(Lane::kCommand, os::boottime_now());
    told_ = true;  // the service's thread reads its end
  }
  tell(lock);
}

void RemoteWorker::flush() {
  Lock lock(mutex_);
  if (phase_ == Phase::kLanes) {
    write_lane(Lane::kCommand, os::boottime_now());
    // The service's thread goes on with what the peer does not take now.
    told_ = told_ || (phase_ == Phase::kLanes && !session_->output(Lane::kCommand).empty());
  }
  tell(lock);
}

bool RemoteWorker::readable() {
  if (pending_.load(std::memory_order_relaxed) || look_.load(std::memory_order_relaxed)) {
    return true;
  }
  // Few system calls for all who look, and fewer where many tasks are on their way.
  const int64_t now = os::monotonic_now().ns;
  const int64_t pause = kLookNs * std::clamp(in_flight_.load(std::memory_order_relaxed), 1, kLooks);
  int64_t looked = looked_ns_.load(std::memory_order_relaxed);
  if (now - looked < pause ||
      !looked_ns_.compare_exchange_strong(looked, now, std::memory_order_relaxed)) {
    return false;
  }
  Lock lock(mutex_, std::try_to_lock);
  if (!lock || phase_ != Phase::kLanes || quiet_) return false;
  read_lane(Lane::kCommand, os::boottime_now());
  const bool some = pending_;
  tell_others(lock);
  return some;
}

// What has come is the caller's; of news others hear.
void RemoteWorker::tell_others(Lock& lock) {
  if (!news_.lost && !news_.ready) told_ = false;
  tell(lock);
}

void RemoteWorker::pull(std::vector<Event>* events) {
  Lock lock(mutex_);
  look_.store(false, std::memory_order_relaxed);
  if (events_.empty() && phase_ == Phase::kLanes && !quiet_) {
    read_lane(Lane::kCommand, os::boottime_now());
  }
  std::move(events_.begin(), events_.end(), std::back_inserter(*events));
  events_.clear();
  pending_ = false;
  tell_others(lock);
}

}  // namespace strata::runtime
