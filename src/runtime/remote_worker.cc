#include "runtime/remote_worker.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "base/result.h"
#include "mailbox/layout.h"
#include "os/clock.h"
#include "runtime/lane_role.h"
#include "transport/socket/connect.h"
#include "wire/manifest.h"

namespace strata::runtime {

using env::ByteChannel;
using wire::Lane;

namespace {

constexpr base::Duration kFirstWait = base::Duration::from_ms(20);
constexpr base::Duration kLongestWait = base::Duration::from_s(1);
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

Result<void> check_names(const RemoteWorkerSpec& spec) {
  if (spec.platform != "cpu") {
    return refuse(
        Code::kUnsupported,
        fmt::format("RemoteWorkerSpec::platform '{}': this build drives cpu alone", spec.platform));
  }
  if (spec.runtime != "tensormap_and_ringbuffer") {
    return refuse(Code::kUnsupported, fmt::format("RemoteWorkerSpec::runtime '{}': there is only "
                                                  "tensormap_and_ringbuffer, this engine",
                                                  spec.runtime));
  }
  if (spec.transport == "tcp" || spec.transport == "sim") return {};
  for (const auto& [name, lacks] : std::initializer_list<std::pair<const char*, const char*>>{
           {"roce", "an RDMA card and UCX"},
           {"hccs", "Ascend hardware and its driver"},
           {"ub", "a UB fabric and its driver"}}) {
    if (spec.transport != name) continue;
    return refuse(
        Code::kUnsupported,
        fmt::format("RemoteWorkerSpec::transport '{}' needs {}, which this build does not "
                    "drive; use tcp",
                    name, lacks));
  }
  return refuse(Code::kInvalidArgument,
                fmt::format("RemoteWorkerSpec::transport '{}': tcp is one", spec.transport));
}

}  // namespace

// ---------------------------------------------------------------- making

Result<std::shared_ptr<RemoteWorker>> RemoteWorker::create(RemoteWorkerSpec spec, RemotePlace place,
                                                           std::function<void()> notify) {
  std::shared_ptr<RemoteWorker> out(
      new RemoteWorker(std::move(spec), std::move(place), std::move(notify)));
  STRATA_TRY(out->prepare());
  return out;
}

RemoteWorker::~RemoteWorker() = default;

Result<void> RemoteWorker::prepare() {
  path_ = fmt::format("{}/{}", place_.parent_path, place_.worker);
  STRATA_TRY(check_names(spec_));
  STRATA_TRY(manifest());  // so that what is wrong with it is told here
  STRATA_ASSIGN(const transport::HostPort where, transport::parse_host_port(spec_.endpoint));
  STRATA_ASSIGN(addresses_, transport::resolve(where));
  if (spec_.key_file.empty()) {
    const bool local = std::all_of(addresses_.begin(), addresses_.end(),
                                   [](const transport::Address& one) { return one.is_loopback(); });
    if (local) return {};
    return refuse(Code::kInvalidArgument,
                  fmt::format("{} is not on this host's loopback: RemoteWorkerSpec::key_file must "
                              "name the key of its daemon",
                              spec_.endpoint));
  }
  STRATA_ASSIGN(const transport::KeyRing ring, transport::KeyRing::read_files({spec_.key_file}));
  const auto context = [&](Lane lane) {
    return transport::TlsContext::create(ring, lane_role(lane), transport::TlsSide::kClient);
  };
  STRATA_ASSIGN(bootstrap_tls_, context(Lane::kBootstrap));
  for (const Lane lane : session::kLanes) {
    STRATA_ASSIGN(lane_tls_[session::index_of(lane)], context(lane));
  }
  return {};
}

Result<std::string> RemoteWorker::manifest() const {
  wire::Manifest out;
  out.session_id = place_.session_id;
  out.parent_path = place_.parent_path;
  out.parent_level = place_.parent_level;
  out.level = spec_.level;
  out.worker_id = static_cast<int32_t>(place_.worker);
  out.platform = spec_.platform;
  out.runtime = spec_.runtime;
  out.build = place_.build;
  out.device_ids.assign(spec_.device_ids.begin(), spec_.device_ids.end());
  out.sub_workers = static_cast<uint32_t>(std::max(spec_.num_sub_workers, 0));
  out.env.assign(spec_.env.begin(), spec_.env.end());
  out.cwd = spec_.cwd;
  out.limits.slots = spec_.limits.slots;
  out.limits.depth = spec_.limits.depth;
  out.limits.buffers = spec_.limits.buffers;
  out.limits.callables = spec_.limits.callables;
  out.limits.heap_bytes = spec_.limits.heap_bytes;
  out.limits.huge_pages = spec_.limits.huge_pages;
  out.limits.reserve_memory = spec_.limits.reserve_memory;
  const Timeouts& own = spec_.timeouts;
  out.timeouts.child_ready_ms = own.child_ready_ms;
  out.timeouts.building_turn_ms = own.building_turn_ms;
  out.timeouts.control_ms = own.control_ms;
  out.timeouts.close_ms = own.close_ms;
  out.timeouts.exit_ms = own.exit_ms;
  out.timeouts.deadline_grace_ms = own.deadline_grace_ms;
  out.timeouts.stall_report_ms = own.stall_report_ms;
  const SessionTimeouts& both = spec_.session;
  out.timeouts.start_ms = both.start_ms;
  out.timeouts.handshake_ms = both.handshake_ms;
  out.timeouts.beat_ms = both.beat_ms;
  out.timeouts.hold_ms = both.hold_ms;
  out.timeouts.parent_verdict_ms = both.verdict_ms;
  out.timeouts.runner_verdict_ms = both.orphan_ms;
  if (spec_.num_sub_workers < 0) {
    return refuse(Code::kInvalidArgument, "RemoteWorkerSpec::num_sub_workers is below 0");
  }
  return wire::encode_manifest(out);
}

// ---------------------------------------------------------------- the daemon

void RemoteWorker::begin(base::Instant now) {
  const std::lock_guard lock(mutex_);
  if (phase_ != Phase::kIdle) return;
  start_by_ = now + base::Duration::from_ms(spec_.session.start_ms);
  wait_ = kFirstWait;
  phase_ = Phase::kBootstrap;
  connect_bootstrap(now);
}

void RemoteWorker::connect_bootstrap(base::Instant now) {
  again_at_ = base::Instant::never();
  bootstrap_in_ = wire::Splitter();
  bootstrap_out_.clear();
  const auto preamble = wire::encode_preamble({});
  wire::Bootstrap hello;
  hello.product = place_.build;
  const uint64_t layout = mailbox::layout_id();
  hello.build_id.resize(sizeof layout);
  std::memcpy(hello.build_id.data(), &layout, sizeof layout);
  hello.manifest = manifest().value();
  const wire::FrameHeader header{.type = wire::FrameType::kBootstrap};
  if (auto put = wire::append_frame(header, hello, &bootstrap_out_); !put) return fail(put.error());
  auto made = transport::connect(addresses_[attempt_++ % addresses_.size()],
                                 {.peer = spec_.endpoint,
                                  .preface = {preamble.begin(), preamble.end()},
                                  .tls = bootstrap_tls_.get()});
  if (!made) return bootstrap_lost(made.error(), now);
  bootstrap_ = *std::move(made);
}

// Whoever is late to exist is tried again; a peer that refuses is not.
void RemoteWorker::bootstrap_lost(const Error& why, base::Instant now) {
  if (bootstrap_) bootstrap_->close();
  bootstrap_.reset();
  if (why.code() != Code::kEndpointFailed) return fail(why);
  last_failure_ = why;
  again_at_ = now + wait_;
  wait_ = std::min(base::Duration{wait_.ns * 2}, kLongestWait);
}

void RemoteWorker::step_bootstrap(base::Instant now) {
  if (phase_ == Phase::kBootstrap && now >= start_by_) {
    return fail(Error(
        Code::kDeadline, Scope::kSession,
        fmt::format("no session with {} within {} ms: {}", spec_.endpoint, spec_.session.start_ms,
                    last_failure_ ? last_failure_->message() : "no answer")));
  }
  if (phase_ == Phase::kBootstrap && !bootstrap_ && now >= again_at_) connect_bootstrap(now);
  while (bootstrap_) {
    if (!bootstrap_out_.empty()) {
      const Result<size_t> put = bootstrap_->write(bootstrap_out_);
      if (!put) return bootstrap_lost(put.error(), now);
      bootstrap_out_.erase(bootstrap_out_.begin(),
                           bootstrap_out_.begin() + static_cast<long>(*put));
    }
    const Result<size_t> got = bootstrap_->read(bootstrap_in_.space());
    if (!got) {
      if (phase_ == Phase::kBootstrap) return bootstrap_lost(got.error(), now);
      // From the answer on it only tells what goes wrong until READY; the lanes tell the rest.
      bootstrap_->close();
      bootstrap_.reset();
      return;
    }
    if (*got == 0) return;
    bootstrap_in_.came(*got);
    for (;;) {
      const auto frame = bootstrap_in_.next();
      if (!frame) return fail(frame.error());
      if (!*frame) break;
      take_bootstrap(**frame, now);
      if (!bootstrap_) return;
    }
  }
}

void RemoteWorker::take_bootstrap(const wire::Frame& frame, base::Instant now) {
  if (frame.header.type != wire::FrameType::kBootstrapReply) {
    return fail(Error(Code::kCorrupt, Scope::kSession,
                      fmt::format("{} answers BOOTSTRAP with {}", spec_.endpoint,
                                  wire::wire_name(frame.header.type))));
  }
  const auto reply = wire::decode<wire::BootstrapReply>(frame.payload);
  if (!reply) return fail(reply.error());
  if (reply->code != 0) {
    return fail(Error(static_cast<Code>(reply->code), Scope::kSession,
                      fmt::format("{}: {}", spec_.endpoint, reply->text)));
  }
  if (phase_ == Phase::kBootstrap) open_lanes(*reply, now);
}

void RemoteWorker::open_lanes(const wire::BootstrapReply& reply, base::Instant now) {
  phase_ = Phase::kLanes;
  pid_ = reply.pid;
  session::ParentOptions options;
  options.session_id = place_.session_id;
  options.worker_id = static_cast<int32_t>(place_.worker);
  options.host = spec_.endpoint;
  options.path = path_;
  options.pid = reply.pid;
  options.timing.start = std::max(start_by_ - now, base::Duration::from_ms(1));
  options.timing.control = base::Duration::from_ms(spec_.session.control_ms);
  options.timing.beat = base::Duration::from_ms(spec_.session.beat_ms);
  options.timing.hold = base::Duration::from_ms(spec_.session.hold_ms);
  options.timing.parent_verdict = base::Duration::from_ms(spec_.session.verdict_ms);
  options.timing.runner_verdict = base::Duration::from_ms(spec_.session.orphan_ms);
  session_.emplace(std::move(options), static_cast<session::ParentSession::Sink&>(*this), now);
  const size_t address = (attempt_ + addresses_.size() - 1) % addresses_.size();
  for (const auto& [lane, token] :
       {std::pair(Lane::kCommand, reply.command), std::pair(Lane::kData, reply.data),
        std::pair(Lane::kHealth, reply.health)}) {
    const auto preamble =
        wire::encode_preamble({.lane = lane, .session_id = place_.session_id, .token = token});
    auto made =
        transport::connect(addresses_[address], {.peer = spec_.endpoint,
                                                 .preface = {preamble.begin(), preamble.end()},
                                                 .tls = lane_tls_[session::index_of(lane)].get()});
    if (!made) return fail(made.error());
    channel(lane).stream = *std::move(made);
  }
}

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

void RemoteWorker::on_ready(const wire::Hello&) {
  quiet_ = false;
  count_credits();
  news_.ready = true;
  told_ = true;
}

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
