#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <utility>

#include "base/result.h"
#include "os/clock.h"
#include "os/epoll.h"
#include "os/event_fd.h"
#include "os/futex.h"
#include "os/shared_region.h"
#include "os/system_error.h"
#include "tools/doctor_trials.h"

namespace strata::tools {
namespace {

constexpr int kRounds = 500;
constexpr base::Duration kRoundMax = base::Duration::from_s(1);
constexpr base::Duration kAllMax = base::Duration::from_ms(700);

// The other side of a round trip: a process that ends with this object, or with this process.
class Partner {
 public:
  template <class Loop>
  static Result<Partner> start(const Loop& loop) {
    const pid_t parent = ::getpid();
    const pid_t pid = ::fork();
    if (pid < 0) return os::system_error("fork", errno);
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() == parent) loop();
      ::_exit(0);
    }
    return Partner(pid);
  }
  Partner(Partner&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}
  Partner& operator=(Partner&&) = delete;
  ~Partner() {
    if (pid_ < 0) return;
    ::kill(pid_, SIGKILL);
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }

 private:
  explicit Partner(pid_t pid) : pid_(pid) {}
  pid_t pid_;
};

// Medians of `round`, which makes one round trip and says whether it came back.
template <class Round>
Result<Latency> measure(const char* what, const Round& round) {
  std::array<int64_t, kRounds> ns{};
  size_t count = 0;
  const base::Instant end = os::monotonic_now() + kAllMax;
  // The first ones find pages and caches cold.
  for (int i = 0; i < 20; ++i) {
    if (!round()) break;
  }
  while (count < ns.size() && (count < 20 || os::monotonic_now() < end)) {
    const base::Instant begin = os::monotonic_now();
    if (!round()) {
      return Error(Code::kDeadline, Scope::kCall,
                   std::string(what) + ": the other process does not answer within a second");
    }
    ns[count++] = (os::monotonic_now() - begin).ns;
  }
  std::sort(ns.begin(), ns.begin() + static_cast<ptrdiff_t>(count));
  return Latency{.median_us = static_cast<double>(ns[count / 2]) * 1e-3,
                 .p99_us = static_cast<double>(ns[count * 99 / 100]) * 1e-3};
}

// Waits until the word is no longer `old`; false after kRoundMax.
bool await_change(const std::atomic<uint32_t>& word, uint32_t old) {
  const base::Instant end = os::monotonic_now() + kRoundMax;
  while (word.load(std::memory_order_acquire) == old) {
    if (os::futex_wait(&word, old, kRoundMax) == os::FutexWait::kTimedOut &&
        os::monotonic_now() >= end) {
      return word.load(std::memory_order_acquire) != old;
    }
  }
  return true;
}

}  // namespace

Result<Latency> time_futex() {
  STRATA_ASSIGN(const os::SharedRegion region, os::SharedRegion::create("strata-doctor", 4096));
  auto* const words = reinterpret_cast<std::atomic<uint32_t>*>(region.data());
  std::atomic<uint32_t>& question = words[0];
  std::atomic<uint32_t>& answer = words[32];  // in a cache line of its own
  STRATA_ASSIGN(const Partner partner, Partner::start([&] {
                  for (uint32_t seen = 0;; ++seen) {
                    while (question.load(std::memory_order_acquire) == seen) {
                      os::futex_wait(&question, seen);
                    }
                    answer.store(seen + 1, std::memory_order_release);
                    os::futex_wake(&answer, 1);
                  }
                }));
  uint32_t asked = 0;
  return measure("futex", [&] {
    question.store(asked + 1, std::memory_order_release);
    os::futex_wake(&question, 1);
    return await_change(answer, asked++);
  });
}

Result<Latency> time_eventfd() {
  STRATA_ASSIGN(const os::EventFd question, os::EventFd::create());
  STRATA_ASSIGN(const os::EventFd answer, os::EventFd::create());
  STRATA_ASSIGN(os::Epoll epoll, os::Epoll::create());
  STRATA_TRY(epoll.add(answer.fd(), 1));
  STRATA_ASSIGN(const Partner partner, Partner::start([&] {
                  Result<os::Epoll> own = os::Epoll::create();
                  if (!own.ok() || !own->add(question.fd(), 1).ok()) return;
                  for (std::array<os::EpollEvent, 1> events;;) {
                    if (!own->wait(events, std::nullopt).ok()) return;
                    if (question.drain()) answer.signal();
                  }
                }));
  return measure("eventfd", [&] {
    question.signal();
    std::array<os::EpollEvent, 1> events;
    const base::Instant end = os::monotonic_now() + kRoundMax;
    while (os::monotonic_now() < end) {
      const Result<size_t> got = epoll.wait(events, kRoundMax);
      if (!got.ok()) return false;
      if (*got > 0 && answer.drain()) return true;
    }
    return false;
  });
}

Noise watch_noise() {
  constexpr base::Duration kSpan = base::Duration::from_ms(200);
  // A loop that is not disturbed looks every few tens of nanoseconds.
  constexpr int64_t kDisturbedNs = 5'000;
  Noise out;
  int64_t lost_ns = 0;
  const base::Instant begin = os::monotonic_now();
  base::Instant last = begin;
  while (last - begin < kSpan) {
    const base::Instant now = os::monotonic_now();
    const int64_t gap = (now - last).ns;
    if (gap > kDisturbedNs) {
      lost_ns += gap;
      out.longest_us = std::max(out.longest_us, static_cast<double>(gap) * 1e-3);
    }
    last = now;
  }
  out.lost = static_cast<double>(lost_ns) / static_cast<double>((last - begin).ns);
  return out;
}

ClockFacts time_clock() {
  constexpr int kReads = 20'000;
  const base::Instant begin = os::monotonic_now();
  base::Instant last = begin;
  for (int i = 0; i < kReads; ++i) last = os::monotonic_now();
  return {.counter = os::CycleClock::measured().uses_counter(),
          .read_ns = static_cast<double>((last - begin).ns) / kReads};
}

}  // namespace strata::tools
