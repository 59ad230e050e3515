#include "runtime/daemon.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>

#include "base/result.h"
#include "os/clock.h"
#include "runtime/daemon_tags.h"
#include "runtime/lane_role.h"

namespace strata::runtime {
namespace {

constexpr size_t kAcceptsAtOnce = 16;
constexpr base::Duration kAcceptPause = base::Duration::from_ms(100);
constexpr uint64_t kOutputKept = 64 << 10;  // of a runner's, for its last lines

}  // namespace

Result<std::unique_ptr<Daemon>> Daemon::create(DaemonOptions options) {
  if (options.allow_library.size() > kAllowedLibrariesMax) {
    return Error(Code::kInvalidArgument, Scope::kCall,
                 fmt::format("{} folders of libraries, at most {}", options.allow_library.size(),
                             kAllowedLibrariesMax));
  }
  STRATA_ASSIGN(transport::Listener listener,
                transport::Listener::listen(options.listen, {.keyed = options.keys.has_value()}));
  STRATA_ASSIGN(os::Epoll epoll, os::Epoll::create());
  STRATA_ASSIGN(os::EventFd stop, os::EventFd::create());
  std::unique_ptr<Daemon> out(
      new Daemon(std::move(options), std::move(listener), std::move(epoll), std::move(stop)));
  STRATA_TRY(out->set_up());
  return out;
}

Daemon::~Daemon() = default;

Result<void> Daemon::set_up() {
  if (options_.keys) {
    STRATA_ASSIGN(tls_,
                  transport::TlsContext::create(*options_.keys, lane_role(wire::Lane::kBootstrap),
                                                transport::TlsSide::kServer));
  }
  if (options_.advertise.empty()) options_.advertise = address().to_string();
  STRATA_TRY(epoll_.add(listener_.descriptor(), daemon_tag(DaemonEvent::kListener)));
  return epoll_.add(stop_.fd(), daemon_tag(DaemonEvent::kStop));
}

void Daemon::warn_of_limit() const {
  // A session has its process, its link and its output, and for a while its parent.
  const size_t wanted = options_.limits.clients_max + 4 * options_.limits.sessions_max + 32;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return;
  log(fmt::format(
      "{} descriptors (ulimit -n) are fewer than the {} that {} sessions and {} clients "
      "need",
      limit.rlim_cur, wanted, options_.limits.sessions_max, options_.limits.clients_max));
}

Result<void> Daemon::run() {
  warn_of_limit();
  std::array<os::EpollEvent, os::Epoll::kEventsMax> events;
  for (;;) {
    const base::Instant next = next_deadline();
    std::optional<base::Duration> timeout;
    if (next != base::Instant::never()) timeout = next - os::boottime_now();
    STRATA_ASSIGN(const size_t count, epoll_.wait(events, timeout));
    for (const os::EpollEvent& event : std::span(events).first(count)) {
      if (event_of(event.tag) == DaemonEvent::kStop) {
        listener_.close();
        log(fmt::format("stops; sessions that go on without it: {}", sessions_.size()));
        return {};
      }
      on_event(event.tag);
    }
    on_deadlines(os::boottime_now());
    for (const uint64_t tag : dropped_) clients_.erase(tag);
    dropped_.clear();
  }
}

void Daemon::on_event(uint64_t tag) {
  const base::Instant now = os::boottime_now();
  const uint64_t number = number_of_tag(tag);
  switch (event_of(tag)) {
    case DaemonEvent::kListener:
      return accept_clients(now);
    case DaemonEvent::kClient: {
      const auto found = clients_.find(number);
      if (found != clients_.end() && found->second->descriptor() >= 0) {
        on_client(*found->second, now);
      }
      return;
    }
    default: {
      // One of the same batch may have ended it.
      const auto found = sessions_.find(number);
      if (found == sessions_.end()) return;
      if (event_of(tag) == DaemonEvent::kLink) return on_link(*found->second, now);
      return on_process(*found->second, now);
    }
  }
}

void Daemon::accept_clients(base::Instant now) {
  for (size_t i = 0; i < kAcceptsAtOnce; ++i) {
    Result<std::optional<transport::Accepted>> accepted = listener_.accept();
    if (!accepted) {
      // Where a descriptor is missing an idle client has one; else to look again at once would be
      // to spin, since who waits still waits.
      if (accepted.error().code() == Code::kResourceExhausted && make_room(0, now)) continue;
      log_refusal(accepted.error().message(), now);
      (void)epoll_.modify(listener_.descriptor(), daemon_tag(DaemonEvent::kListener), 0);
      accept_again_ = now + kAcceptPause;
      return;
    }
    if (!*accepted) return;
    make_room(options_.limits.clients_max, now);
    auto client = std::make_unique<Client>();
    client->tag = next_tag_++;
    client->peer = std::move((*accepted)->peer);
    client->fd = std::move((*accepted)->fd);
    client->deadline = now + options_.limits.preamble;
    client->watched = EPOLLIN;
    if (!epoll_.add(client->fd.get(), daemon_tag(DaemonEvent::kClient, client->tag))) continue;
    clients_.emplace(client->tag, std::move(client));
  }
}

bool Daemon::make_room(size_t clients_max, base::Instant now) {
  size_t idle = 0;
  Client* oldest = nullptr;
  for (const auto& [tag, client] : clients_) {
    if (client->state == ClientState::kWaiting || client->descriptor() < 0) continue;
    ++idle;
    if (oldest == nullptr) oldest = client.get();
  }
  if (idle < clients_max || oldest == nullptr) return false;
  log_refusal(fmt::format("{}: dropped, the oldest of {} clients at once", oldest->peer, idle),
              now);
  drop(*oldest);
  return true;
}

base::Instant Daemon::next_deadline() const {
  base::Instant next = std::min(accept_again_, trim_at_);
  for (const auto& [tag, client] : clients_) {
    if (client->descriptor() >= 0) next = std::min(next, client->deadline);
  }
  for (const auto& [tag, session] : sessions_) next = std::min(next, session->deadline);
  return next;
}

void Daemon::on_deadlines(base::Instant now) {
  for (const auto& [tag, client] : clients_) {
    if (client->descriptor() >= 0 && client->deadline <= now) client_timed_out(*client, now);
  }
  for (const auto& [tag, session] : sessions_) {
    if (session->deadline <= now) session_timed_out(*session, now);
  }
  if (accept_again_ <= now) {
    accept_again_ = base::Instant::never();
    (void)epoll_.modify(listener_.descriptor(), daemon_tag(DaemonEvent::kListener), EPOLLIN);
  }
  if (trim_at_ <= now || (trim_at_ == base::Instant::never() && !sessions_.empty())) {
    trim_outputs();
    trim_at_ = sessions_.empty() ? base::Instant::never() : now + options_.limits.trim;
  }
}

void Daemon::trim_outputs() {
  for (const auto& [tag, session] : sessions_) {
    if (!session->output) continue;
    const Result<uint64_t> end = session->output->end();
    if (!end || *end < os::OutputFile::kBegin + 2 * kOutputKept) continue;
    (void)session->output->forget_before(*end - kOutputKept);
  }
}

void Daemon::log(std::string_view line) const {
  if (!options_.log) return;
  // What a peer has named stands in it: one line stays one line.
  std::string clean(line);
  for (char& c : clean) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  }
  options_.log(clean);
}

void Daemon::log_refusal(std::string_view line, base::Instant now) {
  if (now - refusals_since_ >= base::Duration::from_s(1)) {
    if (refusals_untold_ > 0) {
      log(fmt::format("{} more clients were refused and are not told one by one",
                      refusals_untold_));
    }
    refusals_since_ = now;
    refusals_ = refusals_untold_ = 0;
  }
  if (++refusals_ <= options_.limits.refusals_per_second) {
    log(line);
  } else {
    ++refusals_untold_;
  }
}

}  // namespace strata::runtime
