// The daemon's sessions: what a manifest may ask for, the runner's process, and its end.
#include <fmt/format.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>

#include "base/result.h"
#include "os/clock.h"
#include "os/spawn.h"
#include "os/system_error.h"
#include "runtime/daemon.h"
#include "runtime/daemon_tags.h"
#include "runtime/last_lines.h"

namespace strata::runtime {
namespace {

Error unsupported(std::string text) {
  return Error(Code::kUnsupported, Scope::kSession, std::move(text));
}

Result<void> fill_random(std::span<std::byte> out) {
  while (!out.empty()) {
    const ssize_t n = ::getrandom(out.data(), out.size(), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return os::system_error("random bytes for a token", errno);
    out = out.subspan(static_cast<size_t>(n));
  }
  return {};
}

Result<void> check_transport(std::string_view name) {
  if (name == "tcp" || name == "sim") return {};
  if (name == "roce") {
    return unsupported("data_profile.transport is 'roce': this build has no UCX; use 'tcp'");
  }
  if (name == "hccs" || name == "ub") {
    return unsupported(
        fmt::format("data_profile.transport is '{}': this build has no driver for "
                    "such links; use 'tcp'",
                    name));
  }
  return unsupported(fmt::format("data_profile.transport is '{}': there are tcp and sim", name));
}

}  // namespace

Result<void> Daemon::check_policy(const wire::Manifest& manifest) const {
  if (manifest.platform != "cpu") {
    return unsupported(fmt::format("platform is '{}': this build has cpu", manifest.platform));
  }
  if (manifest.runtime != "tensormap_and_ringbuffer") {
    return unsupported(
        fmt::format("runtime is '{}': this build has tensormap_and_ringbuffer", manifest.runtime));
  }
  STRATA_TRY(check_transport(manifest.data_profile.transport));
  for (const auto& [name, value] : manifest.env) {
    if (std::find(options_.allow_env.begin(), options_.allow_env.end(), name) !=
        options_.allow_env.end()) {
      continue;
    }
    return Error(Code::kInvalidArgument, Scope::kSession,
                 fmt::format("env: '{}' may not be set here: start the daemon with --allow-env {}",
                             name, name));
  }
  for (const int32_t device : manifest.device_ids) {
    const auto lease = leases_.find(device);
    if (lease == leases_.end()) continue;
    const Session& holder = *sessions_.at(lease->second);
    return Error(Code::kResourceExhausted, Scope::kSession,
                 fmt::format("device {} is held by {} of {}, runner pid {}", device, holder.what,
                             holder.peer, holder.pid));
  }
  return {};
}

Daemon::Session* Daemon::find_session(uint64_t id) {
  for (const auto& [tag, session] : sessions_) {
    if (session->id == id) return session.get();
  }
  return nullptr;
}

Result<Daemon::Session*> Daemon::start_session(Client& client, const wire::Manifest& manifest,
                                               std::string text, base::Instant now) {
  if (sessions_.size() >= options_.limits.sessions_max) {
    return Error(Code::kResourceExhausted, Scope::kSession,
                 fmt::format("{} sessions are all that this daemon has at once",
                             options_.limits.sessions_max));
  }
  if (find_session(manifest.session_id) != nullptr) {
    return Error(Code::kWrongState, Scope::kSession,
                 fmt::format("session {:016x} is here already", manifest.session_id));
  }
  STRATA_TRY(check_policy(manifest));
  auto made = std::make_unique<Session>();
  Session& session = *made;
  session.tag = next_tag_++;
  session.id = manifest.session_id;
  session.what = fmt::format("session {:016x} ({}/{}, level {})", manifest.session_id,
                             manifest.parent_path, manifest.worker_id, manifest.level);
  session.peer = client.peer;
  session.client = client.tag;
  session.devices = manifest.device_ids;
  session.started = now;
  session.deadline = now + base::Duration::from_ms(manifest.timeouts.start_ms);
  for (wire::Token& token : session.tokens) STRATA_TRY(fill_random(token));
  STRATA_TRY(start_runner(session, manifest, std::move(text)));
  for (const int32_t device : session.devices) leases_[device] = session.tag;
  sessions_.emplace(session.tag, std::move(made));
  log(fmt::format("{}: {} begins, runner pid {}", client.peer, session.what, session.pid));
  return &session;
}

Result<void> Daemon::start_runner(Session& session, const wire::Manifest& manifest,
                                  std::string text) {
  STRATA_ASSIGN(auto ends, os::SeqPacket::pair());
  session.link = std::move(ends.first);
  const RunnerSettings settings{.session_id = session.id,
                                .manifest = std::move(text),
                                .parent = session.peer,
                                .advertise = options_.advertise,
                                .allow_library = options_.allow_library};
  STRATA_TRY(send_runner_start(session.link, settings, options_.keys ? &*options_.keys : nullptr));
  if (os::output_files_are_possible()) {
    STRATA_ASSIGN(os::OutputFile output, os::OutputFile::create("strata-runner-output"));
    session.output.emplace(std::move(output));
  }
  STRATA_ASSIGN(session.pid, os::spawn({.program = options_.program,
                                        .arguments = options_.arguments,
                                        .environment = manifest.env,
                                        .output = session.output ? session.output->fd() : -1,
                                        .channel = ends.second.fd()}));
  const auto watch_it = [&]() -> Result<void> {
    STRATA_ASSIGN(session.process, os::PidFd::open(session.pid));
    STRATA_TRY(epoll_.add(session.process.fd(), daemon_tag(DaemonEvent::kProcess, session.tag)));
    return epoll_.add(session.link.fd(), daemon_tag(DaemonEvent::kLink, session.tag));
  };
  Result<void> watched = watch_it();
  if (watched) return {};
  // A runner whose end nobody would see is worse than none.
  kill_runner(session);
  ::waitpid(session.pid, nullptr, 0);
  return watched;
}

void Daemon::kill_runner(const Session& session) const {
  // It leads a session and a process group of its own; what it has started sees its end.
  ::kill(-session.pid, SIGKILL);
}

void Daemon::on_link(Session& session, base::Instant now) {
  bool end = false;
  for (;;) {
    Result<std::optional<RunnerNews>> news = receive_news(session.link, &end);
    if (!news || end) {
      // Its end follows, and comes by its process.
      (void)epoll_.remove(session.link.fd());
      if (!news) log(fmt::format("{}: {}", session.what, news.error().message()));
      return;
    }
    if (!*news) return;
    if (session.ready || session.failure) continue;
    if ((*news)->ready) {
      session.ready = true;
      session.ending.clear();
      session.deadline = base::Instant::never();
      log(fmt::format("{}: {} is ready after {:.1f} ms", session.peer, session.what,
                      (now - session.started).seconds() * 1e3));
      const auto client = clients_.find(session.client);
      session.client = 0;
      if (client == clients_.end() || client->second->descriptor() < 0) continue;
      begin_closing(*client->second, now);
      if (client->second->output.empty()) client->second->channel->end_writes();
      drive_closing(*client->second, now);
    } else {
      session.failure = std::move(**news);
      session.deadline = std::min(session.deadline, now + options_.limits.exit);
    }
  }
}

void Daemon::parent_left(Session& session, base::Instant now) {
  session.client = 0;
  // A parent that has its HELLO READY may be quicker than the runner's word to this process.
  on_link(session, now);
  if (session.ready || !session.ending.empty()) return;
  session.ending = "its parent closed the bootstrap connection before READY";
  log(fmt::format("{}: {}: {}", session.peer, session.what, session.ending));
  const Result<bool> told = send_parent_gone(session.link);
  session.deadline = now + options_.limits.exit;
  if (!told || !*told) kill_runner(session);
}

void Daemon::session_timed_out(Session& session, base::Instant now) {
  session.deadline = base::Instant::never();
  if (session.ready) return;
  if (session.ending.empty()) {
    session.ending =
        session.failure
            ? fmt::format("it did not end {:.3g} s after it failed", options_.limits.exit.seconds())
            : fmt::format("not READY in {:.3g} s", (now - session.started).seconds());
  }
  kill_runner(session);
}

void Daemon::on_process(Session& session, base::Instant now) {
  // What it has said last may be of the same moment.
  on_link(session, now);
  const std::optional<int> status = session.process.reap();
  const std::string how = status ? os::describe_status(*status) : "ended";
  tell_end(session, how, now);
  (void)epoll_.remove(session.process.fd());
  (void)epoll_.remove(session.link.fd());
  for (const int32_t device : session.devices) leases_.erase(device);
  const std::string why = !session.ending.empty() ? session.ending
                          : session.failure       ? session.failure->text
                                                  : std::string();
  log(fmt::format("{}: {} has ended after {:.3f} s, runner pid {}: {}{}{}", session.peer,
                  session.what, (now - session.started).seconds(), session.pid, how,
                  why.empty() ? "" : ": ", why));
  sessions_.erase(session.tag);
}

void Daemon::tell_end(Session& session, const std::string& status, base::Instant now) {
  const auto found = clients_.find(session.client);
  if (session.ready || found == clients_.end() || found->second->descriptor() < 0) return;
  Client& client = *found->second;
  std::string why = !session.ending.empty() ? session.ending
                    : session.failure       ? session.failure->text
                                            : "it ended before READY";
  std::string text =
      fmt::format("runner pid {} at {}: {}; {}", session.pid, options_.advertise, why, status);
  if (session.output) text += last_lines("", session.output->tail(kLastLinesLookBytes));
  Code code = Code::kEndpointFailed;
  if (session.failure) code = session.failure->code;
  if (!session.ending.empty() && !session.failure) code = Code::kDeadline;
  session.client = 0;
  client.session = 0;
  refuse(client, Error(code, Scope::kSession, std::move(text)), now);
}

}  // namespace strata::runtime
