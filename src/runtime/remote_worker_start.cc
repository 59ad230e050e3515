// The making of a remote Worker: what its spec may say, the daemon, and what the runner is able to
// do. What it does once it is ready is in remote_worker.cc.
#include <fmt/format.h>

#include <algorithm>

#include "base/result.h"
#include "mailbox/layout.h"
#include "os/clock.h"
#include "runtime/lane_role.h"
#include "runtime/remote_worker.h"
#include "transport/socket/connect.h"
#include "wire/manifest.h"

namespace strata::runtime {

using env::ByteChannel;
using wire::Lane;

namespace {

constexpr base::Duration kFirstWait = base::Duration::from_ms(20);
constexpr base::Duration kLongestWait = base::Duration::from_s(1);

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

// What this side needs of a runner, and what it is told that it has.
Result<void> check_caps(const wire::SessionCaps& caps) {
  const auto has = [](uint32_t bits, auto value) {
    return (bits >> static_cast<uint32_t>(value) & 1) != 0;
  };
  const char* lacks = nullptr;
  if (!has(caps.directions, TensorArgType::kInput)) lacks = "INPUT arguments";
  if (!has(caps.spaces, wire::Space::kHostInline)) lacks = "HOST_INLINE arguments";
  if (!has(caps.kinds, CallableKind::kNativeImport)) lacks = "callables of NATIVE_IMPORT";
  if (lacks == nullptr) return {};
  return Error(Code::kUnsupported, Scope::kSession,
               fmt::format("its runner takes no {}: its build of Strata is another one", lacks));
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

// ---------------------------------------------------------------- READY

void RemoteWorker::on_ready(const wire::Hello& hello) {
  if (Result<void> able = check_caps(hello.caps); !able) return fail(able.error());
  quiet_ = false;
  count_credits();
  news_.ready = true;
  news_.caps = hello.caps;
  told_ = true;
}

}  // namespace strata::runtime
