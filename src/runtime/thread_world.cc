#include "runtime/thread_world.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <cstdio>

#include "base/check.h"
#include "os/clock.h"
#include "os/cores.h"
#include "os/process.h"
#include "runtime/pause.h"

namespace strata::runtime {
namespace {

enum Tag : uint64_t { kSignal = 1, kServer = 2, kWatch = 3, kKick = 4, kEvents = 5, kLane = 6 };

constexpr base::Duration kWatchAfter = base::Duration::from_us(100);
constexpr int64_t kSpinByCallsNs = 10'000;
// Until the children of a server that was lost, which have been sent SIGKILL, have ended.
constexpr base::Duration kEndedMax = base::Duration::from_s(1);

std::optional<base::Duration> until(base::Instant deadline) {
  if (deadline == base::Instant::never()) return std::nullopt;
  return std::max(deadline - os::monotonic_now(), base::Duration{0});
}

// False where all of them slept when they were given what they have.
bool answers_soon(const std::vector<engine::Awaited>& awaited) {
  return awaited.empty() ||
         std::any_of(awaited.begin(), awaited.end(), [](const engine::Awaited& one) {
           return one.endpoint == nullptr || !one.endpoint->wakes_up();
         });
}

// A descriptor that this process made and epoll refuses is a broken invariant of ours.
void must(const Result<void>& result) {
  if (result) return;
  fmt::print(stderr, "strata: {}\n", result.error().to_string());
  STRATA_CHECK(result.ok());
}

}  // namespace

struct ThreadWorld::Spin {
  ThreadWorld& world;
  const std::vector<engine::Awaited>& awaited;
  const engine::Changed* changed;
  bool ready() const {
    if (changed != nullptr && changed->now()) return true;
    for (const engine::Awaited& one : awaited) {
      if (one.ready()) return true;
    }
    return false;
  }
  void pause() const { cpu_pause(); }
  int64_t now_ns() const { return os::monotonic_now().ns; }
  void yield() { os::yield_core(); }
};

Result<std::unique_ptr<ThreadWorld>> ThreadWorld::create(os::SharedRegion& hub,
                                                         os::SharedRegion& heap, std::string path) {
  STRATA_ASSIGN(os::Epoll events, os::Epoll::create());
  STRATA_ASSIGN(os::Epoll engine, os::Epoll::create());
  STRATA_ASSIGN(os::EventFd signal, os::EventFd::create());
  STRATA_ASSIGN(os::EventFd kick, os::EventFd::create());
  STRATA_ASSIGN(os::TimerFd watch, os::TimerFd::create());
  STRATA_TRY(events.add(signal.fd(), kSignal));
  STRATA_TRY(engine.add(watch.fd(), kWatch));
  STRATA_TRY(engine.add(kick.fd(), kKick));
  STRATA_TRY(engine.add(events.fd(), kEvents, 0));
  return std::unique_ptr<ThreadWorld>(new ThreadWorld(hub, heap, std::move(path), std::move(events),
                                                      std::move(engine), std::move(signal),
                                                      std::move(kick), std::move(watch)));
}

ThreadWorld::ThreadWorld(os::SharedRegion& hub, os::SharedRegion& heap, std::string path,
                         os::Epoll events, os::Epoll engine, os::EventFd signal, os::EventFd kick,
                         os::TimerFd watch)
    : heap_(heap),
      path_(std::move(path)),
      hub_({}, hub.data()),
      events_(std::move(events)),
      engine_(std::move(engine)),
      signal_(std::move(signal)),
      kick_(std::move(kick)),
      watch_(std::move(watch)) {
  const int cores = os::usable_cores();
  // On one core a spinner only keeps the other from what it waits for.
  if (cores == 1) {
    spin_ = {.free_spin_ns = 0, .linger_ns = 0};
  } else {
    spin_.polls_without_pause = 64;
  }
  hub_.format();
  user_waiter_ = mailbox::Waiter(spin_);
  engine_waiter_ = mailbox::Waiter(spin_);
}

Result<void> ThreadWorld::watch_server(os::ForkServer& server) {
  STRATA_TRY(events_.add(server.event_fd(), kServer));
  // By edges: the engine thread hears of a death while the Worker rests, and is not kept awake by
  // what a leader is about to take.
  STRATA_TRY(engine_.add(server.event_fd(), kServer, EPOLLIN | EPOLLET));
  server_ = &server;
  oom_kills_ = os::oom_kills();
  return {};
}

void ThreadWorld::forget_server() {
  if (server_ != nullptr && server_->alive()) {
    must(events_.remove(server_->event_fd()));
    must(engine_.remove(server_->event_fd()));
  }
  server_ = nullptr;
}

uint64_t ThreadWorld::expect_child(const engine::Core& core, uint32_t worker,
                                   const device::ChipNote* note) {
  if (worker >= children_.size()) children_.resize(worker + 1);
  children_[worker] = Child{};
  children_[worker].asked = true;
  children_[worker].note = note;
  ++alive_;
  return uint64_t{core.incarnation(worker)} << 32 | worker;
}

// ---------------------------------------------------------------- waiting

base::Instant ThreadWorld::now() {
  return os::monotonic_now();
}

const void* ThreadWorld::self() const {
  // Not zero: mold 1.10 may place the protection of zeroed thread memory on a page that is not
  // there.
  static thread_local char here = 1;
  return &here;
}

mailbox::Waiter& ThreadWorld::waiter() {
  return self() == engine_self_.load(std::memory_order_relaxed) ? engine_waiter_ : user_waiter_;
}

bool ThreadWorld::spin(const std::vector<engine::Awaited>& awaited) {
  Spin policy{*this, awaited, nullptr};
  const auto costs = [](const engine::Awaited& one) {
    return one.endpoint != nullptr && one.endpoint->looks_cost();
  };
  if (std::any_of(awaited.begin(), awaited.end(), costs)) [[unlikely]] {
    const int64_t ns = spin_.free_spin_ns > 0 && answers_soon(awaited) ? kSpinByCallsNs : 0;
    return waiter().spin_by_calls(policy, ns) == mailbox::Waiter::Verdict::kReady;
  }
  return waiter().spin(policy) == mailbox::Waiter::Verdict::kReady;
}

bool ThreadWorld::linger(const std::vector<engine::Awaited>& awaited,
                         const engine::Changed& changed) {
  if (!answers_soon(awaited)) return false;
  Spin policy{*this, awaited, &changed};
  return waiter().linger(policy) == mailbox::Waiter::Verdict::kReady;
}

void ThreadWorld::lead_sleep(base::Instant deadline) {
  os::EpollEvent events[4];
  const Result<size_t> got = events_.wait(events, until(deadline));
  STRATA_CHECK(got.ok());
  user_waiter_.slept(os::monotonic_now().ns);
}

void ThreadWorld::engine_sleep(bool leads, base::Instant deadline) {
  engine_self_.store(self(), std::memory_order_relaxed);
  if (leads != engine_sees_events_) {
    must(engine_.modify(events_.fd(), kEvents, leads ? uint32_t{EPOLLIN} : 0));
    engine_sees_events_ = leads;
  }
  os::EpollEvent events[4];
  const Result<size_t> got = engine_.wait(events, until(deadline));
  STRATA_CHECK(got.ok());
  for (size_t i = 0; i < *got; ++i) {
    if (events[i].tag == kWatch) watch_.drain();
    if (events[i].tag == kKick) kick_.drain();
  }
  if (leads) engine_waiter_.slept(os::monotonic_now().ns);
}

void ThreadWorld::arm_watch() {
  must(watch_.arm(os::monotonic_now() + kWatchAfter));
}

void ThreadWorld::park(Mutex& token, base::Instant deadline) {
  std::unique_lock lock(token.plain(), std::adopt_lock);
  if (const auto timeout = until(deadline)) {
    parked_.wait_for(lock, std::chrono::nanoseconds(timeout->ns));
  } else {
    parked_.wait(lock);
  }
  lock.release();
}

// ---------------------------------------------------------------- what the kernel tells

void ThreadWorld::collect(engine::Core& core, bool slept) {
  if (slept) signal_.drain();
  if (!remotes_.empty()) [[unlikely]]
    collect_remotes(core, slept);
  while (server_ != nullptr) {
    Result<std::optional<os::ServerEvent>> event = server_->next_event();
    if (!event) {
      os::ServerEvent gone;
      gone.text = event.error().message();
      on_event(core, std::move(gone));
      return;
    }
    if (!*event) return;
    on_event(core, std::move(**event));
  }
}

void ThreadWorld::expect_remote(const engine::Core& core, uint32_t worker,
                                std::shared_ptr<RemoteWorker> remote) {
  expect_child(core, worker);
  children_[worker].remote = std::move(remote);
  remotes_.push_back(worker);
}

// Whoever leads or will lead looks.
void ThreadWorld::remote_news() {
  remote_news_.store(true);
  signal_.signal();
  kick_.signal();
}

void ThreadWorld::collect_remotes(engine::Core& core, bool slept) {
  if (slept) {
    for (const uint32_t worker : remotes_) {
      if (!children_[worker].gone) children_[worker].remote->note_slept();
    }
  }
  if (!remote_news_.exchange(false)) return;
  for (const uint32_t worker : remotes_) {
    Child& child = children_[worker];
    if (child.gone) continue;
    const RemoteWorker::News news = child.remote->take_news();
    if (news.ready) {
      child.pid = child.remote->pid();
      child.caps = news.caps;
      core.name_worker(worker, child.remote->where());
      // Closed with its socket, which takes it out of the epoll too.
      const int lane = child.remote->command_descriptor();
      if (lane >= 0) must(events_.add(lane, kLane));
      core.start_worker(worker, now());
    }
    if (news.lost) lose(core, worker, news.lost->message());
  }
}

void ThreadWorld::on_event(engine::Core& core, os::ServerEvent event) {
  if (event.kind == os::ServerEvent::kServerGone) return lose_server(core, event.text);
  const auto worker = static_cast<uint32_t>(event.spawn_id);
  const auto incarnation = static_cast<uint32_t>(event.spawn_id >> 32);
  if (worker >= children_.size() || incarnation != core.incarnation(worker)) return;
  Child& child = children_[worker];
  switch (event.kind) {
    case os::ServerEvent::kStarted:
      child.pid = event.pid;
      if (output_ != nullptr) output_->started(worker, event.pid);
      child.pidfd = os::PidFd::adopt(std::move(event.pidfd));
      core.name_worker(worker, fmt::format("pid {}", child.pid));
      core.start_worker(worker, now());
      break;
    case os::ServerEvent::kSpawnFailed:
      lose(core, worker, event.text);
      break;
    case os::ServerEvent::kExited:
      lose(core, worker, why_ended(event, child));
      break;
    case os::ServerEvent::kStopped:
      child.stopped = true;
      fmt::print(stderr, "strata: {} is stopped by signal {}; its tasks wait until it goes on\n",
                 core.worker_name(worker), event.status);
      break;
    case os::ServerEvent::kContinued:
      child.stopped = false;
      fmt::print(stderr, "strata: {} goes on\n", core.worker_name(worker));
      break;
    case os::ServerEvent::kServerGone:
      break;
  }
}

// Its children have been sent SIGKILL. None of them may still run when its queue goes to others.
void ThreadWorld::lose_server(engine::Core& core, const std::string& why) {
  server_ = nullptr;
  const base::Instant limit = os::monotonic_now() + kEndedMax;
  for (const Child& child : children_) {
    if (child.gone || !child.pidfd.valid()) continue;
    static_cast<void>(child.pidfd.signal(SIGKILL));
    const base::Duration left = std::max(limit - os::monotonic_now(), base::Duration{0});
    static_cast<void>(child.pidfd.wait_ended(left));
    // Where this process is the reaper of orphans nobody else takes them.
    static_cast<void>(child.pidfd.reap());
  }
  for (uint32_t worker = 0; worker < children_.size(); ++worker) {
    if (children_[worker].remote != nullptr) continue;
    lose(core, worker,
         fmt::format("the fork server was lost, and all local children with it: {}", why));
  }
}

// A kill is told apart from one for lack of memory by the kernel's counts of those.
std::string ThreadWorld::why_ended(const os::ServerEvent& event, const Child& child) {
  std::string why = event.text;
  if (child.note != nullptr) {
    why += fmt::format("{}; the chip's device memory is lost with it", child.note->where());
  }
  if (event.status != -SIGKILL) return why;
  const os::OomKills now = os::oom_kills();
  why += os::oom_text(oom_kills_, now, os::cgroup_limits());
  oom_kills_ = now;
  return why;
}

void ThreadWorld::lose(engine::Core& core, uint32_t worker, const std::string& reason) {
  Child& child = children_[worker];
  if (child.gone || !child.asked) return;
  child.gone = true;
  --alive_;
  if (output_ != nullptr) {
    child.last_lines = output_->last_lines(worker);
    output_->ended(worker);
  }
  const std::string name = core.worker_name(worker);
  core.lose_worker(worker, reason, child.last_lines);
  if (core.wants_replacement(worker)) {
    fmt::print(stderr, "strata: {} was lost ({}); another one takes its place, {} of {}\n", name,
               reason, core.incarnation(worker), core.options().restart_limit);
  } else if (core.incarnation(worker) > 1 && !core.is_ending(worker)) {
    fmt::print(stderr, "strata: {} is lost for good: {}\n", name, core.loss_reason(worker));
  }
}

Result<void> ThreadWorld::spawn(engine::Core& core, uint32_t worker) {
  if (server_ == nullptr) {
    STRATA_ASSIGN(os::ForkServer* const server, maker_.server());
    fmt::print(stderr, "strata: {} has another fork server, pid {}\n", path_, server->pid());
    STRATA_TRY(watch_server(*server));
  }
  Result<void> asked = maker_.spawn(core, worker);
  if (!asked && !std::exchange(children_[worker].gone, true)) --alive_;
  return asked;
}

void ThreadWorld::kill(engine::Core& core, const engine::Kill& kill) {
  if (kill.incarnation != core.incarnation(kill.worker)) return;
  fmt::print(stderr, "strata: {} is ended: {}\n", core.worker_name(kill.worker), kill.reason);
  if (kill.worker >= children_.size()) return;
  const Child& child = children_[kill.worker];
  if (child.remote != nullptr) child.remote->abort(kill.reason);
  if (child.pidfd.valid()) static_cast<void>(child.pidfd.signal(SIGKILL));
}

void ThreadWorld::punch(const std::vector<engine::Punch>& punches) {
  for (const engine::Punch& punch : punches) {
    must(heap_.punch_hole(punch.heap_offset, punch.bytes));
  }
}

void ThreadWorld::stalled(const char* what, base::Duration since, const std::string& where) {
  fmt::print(stderr, "strata: {} has waited {:.1f} s for {}; {}\n", path_, since.seconds(), what,
             where);
}

}  // namespace strata::runtime
