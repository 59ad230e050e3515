// Question: what does a round trip from a waiting caller to its child cost when the caller itself
// steps the engine, against an engine thread between the two? And how long should a waiter spin
// before it sleeps, when there are more parties in the chain than cores?
//
// Method: a chain of parties, each link one word in MAP_SHARED memory in each direction. The first
// party sends a sequence number down; the last one answers; those between forward it down, wait,
// and forward the answer up. 'p' is a party in a process of its own, 't' a thread in the process
// of the party before it:
//   pp     caller (steps itself) - child                           two parties
//   ptp    caller - engine thread - child                          an engine thread between
//   ppp    L4 - L3 (its waiting thread steps) - SUB                three parties
//   ptptp  L4 - engine thread - L3 - engine thread - SUB           the same with engine threads
// A waiter spins `free` us without asking, then at most 20 us with a permit from one shared counter
// (cores - 1), then sleeps (FUTEX_WAIT). With "history" it asks for a permit only while the last
// waits at that place ended within the spin (after 4 misses it asks at every 32nd wait).
// "unbounded" never sleeps. Each variant runs five times in fresh processes, since some have two
// stable states: "low" and "high" are the least and greatest of the five medians.
//
// Build: g++ -std=c++20 -O2 -pthread -o step_token step_token.cc
// Run:   ./step_token [seconds for each repeat, default 0.14]        (about 32 s in all)

#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <new>
#include <thread>
#include <vector>

namespace {

constexpr int kLinksMax = 4;
constexpr int kRepeats = 5;
constexpr uint32_t kRoundsMax = 40'000;  // for each repeat
constexpr uint32_t kMissesMax = 4;
constexpr uint32_t kRetryEvery = 32;
constexpr int64_t kPermitSpinNs = 20'000;
constexpr uint32_t kStop = UINT32_MAX;

struct Policy {
  const char* name;
  int64_t free_spin_ns;
  bool permits = false;
  bool history = false;
  bool unbounded = false;
  uint32_t warm_up_rounds = 100;
};

// One direction of one link. The writer of `value` and the writer of `asleep` are different
// parties, so each has its own pair of cache lines.
struct Channel {
  alignas(128) std::atomic<uint32_t> value{0};
  alignas(128) std::atomic<uint32_t> asleep{0};
  alignas(128) uint32_t misses = 0;  // the waiter's own: waits in a row that the spin missed
};

struct Shared {
  Channel down[kLinksMax];
  Channel up[kLinksMax];
  alignas(128) std::atomic<int32_t> permits{0};
  alignas(128) std::atomic<uint64_t> sleeps{0};
  alignas(128) std::atomic<uint32_t> token{0};
  uint32_t rounds = 0;
  uint32_t samples_ns[kRoundsMax];
};

int64_t now_ns() {
  timespec ts;
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return ts.tv_sec * 1'000'000'000ll + ts.tv_nsec;
}

// The public clock costs about 20 ns; a pause costs more, so the spin's end is exact enough.
template <class Ready>
bool spin_until(Ready ready, int64_t limit_ns) {
  const int64_t end = now_ns() + limit_ns;
  do {
    for (int i = 0; i < 4; ++i) {
      if (ready()) return true;
      __builtin_ia32_pause();
    }
  } while (now_ns() < end);
  return ready();
}

void send(Channel& channel, uint32_t value) {
  channel.value.store(value, std::memory_order_release);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (channel.asleep.load(std::memory_order_relaxed) != 0) {
    syscall(SYS_futex, &channel.value, FUTEX_WAKE, 1, nullptr, nullptr, 0);
  }
}

// Waits until the channel's value is no longer `seen`, and returns the new one.
uint32_t wait_past(Shared& shared, Channel& channel, uint32_t seen, const Policy& policy) {
  auto ready = [&] { return channel.value.load(std::memory_order_acquire) != seen; };
  if (ready()) return channel.value.load(std::memory_order_acquire);
  if (policy.unbounded) {
    while (!ready()) __builtin_ia32_pause();
    return channel.value.load(std::memory_order_acquire);
  }
  bool done = policy.free_spin_ns > 0 && spin_until(ready, policy.free_spin_ns);
  const bool asks = policy.permits && (!policy.history || channel.misses < kMissesMax ||
                                       channel.misses % kRetryEvery == 0);
  if (!done && asks) {
    int32_t left = shared.permits.load(std::memory_order_relaxed);
    if (left > 0 && shared.permits.compare_exchange_strong(left, left - 1)) {
      done = spin_until(ready, kPermitSpinNs);
      shared.permits.fetch_add(1);
    }
  }
  channel.misses = done ? 0 : channel.misses + 1;
  while (!done) {
    channel.asleep.store(1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    done = ready();
    if (!done) {
      shared.sleeps.fetch_add(1, std::memory_order_relaxed);
      syscall(SYS_futex, &channel.value, FUTEX_WAIT, seen, nullptr, nullptr, 0);
      done = ready();
    }
    channel.asleep.store(0, std::memory_order_relaxed);
  }
  return channel.value.load(std::memory_order_acquire);
}

// A party that is not the first: it takes from the link above and forwards to the link below, if
// there is one. Its wait for the answer is the wait of a thread that steps its own engine.
void follower(Shared& shared, int index, int parties, const Policy& policy) {
  uint32_t seen = 0;
  while (true) {
    seen = wait_past(shared, shared.down[index - 1], seen, policy);
    if (index < parties - 1) {
      const uint32_t before = shared.up[index].value.load(std::memory_order_relaxed);
      send(shared.down[index], seen);
      if (seen == kStop) return;
      wait_past(shared, shared.up[index], before, policy);
    }
    if (seen == kStop) return;
    send(shared.up[index - 1], seen);
  }
}

void caller(Shared& shared, const Policy& policy, int64_t duration_ns) {
  const int64_t end = now_ns() + duration_ns;
  uint32_t sequence = 0;
  int64_t before = now_ns();
  while (shared.rounds < kRoundsMax && before < end) {
    ++sequence;
    while (shared.token.exchange(1, std::memory_order_acquire) != 0) {
    }
    send(shared.down[0], sequence);
    wait_past(shared, shared.up[0], sequence - 1, policy);
    shared.token.store(0, std::memory_order_release);
    const int64_t after = now_ns();
    if (sequence > policy.warm_up_rounds) {
      shared.samples_ns[shared.rounds++] =
          static_cast<uint32_t>(std::min<int64_t>(after - before, UINT32_MAX));
    }
    before = after;
  }
  send(shared.down[0], kStop);
}

// Forks one party and the threads that follow it in its process.
pid_t start_party(Shared& shared, const char* chain, int index, const Policy& policy,
                  int64_t duration_ns) {
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid != 0) return pid;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  const int parties = static_cast<int>(strlen(chain));
  std::vector<std::thread> threads;
  for (int i = index + 1; i < parties && chain[i] == 't'; ++i) {
    threads.emplace_back([&shared, &policy, i, parties] { follower(shared, i, parties, policy); });
  }
  if (index == 0) {
    caller(shared, policy, duration_ns);
  } else {
    follower(shared, index, parties, policy);
  }
  for (auto& thread : threads) thread.join();
  _exit(0);
}

double cpu_us_of_children() {
  rusage usage;
  getrusage(RUSAGE_CHILDREN, &usage);
  return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e6 + usage.ru_utime.tv_usec +
         usage.ru_stime.tv_usec;
}

void measure(Shared* shared, const char* chain, const Policy& policy, int64_t duration_ns,
             int permits) {
  std::vector<uint32_t> all;
  std::vector<uint32_t> medians;
  double cpu = 0;
  double sleeps = 0;
  double rounds = 0;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    new (shared) Shared();
    shared->permits.store(permits);
    const double cpu_before = cpu_us_of_children();
    std::vector<pid_t> pids;
    for (int i = static_cast<int>(strlen(chain)) - 1; i >= 0; --i) {
      if (chain[i] == 'p') pids.push_back(start_party(*shared, chain, i, policy, duration_ns));
    }
    for (const pid_t pid : pids) waitpid(pid, nullptr, 0);
    cpu += cpu_us_of_children() - cpu_before;
    sleeps += static_cast<double>(shared->sleeps.load());
    rounds += shared->rounds + policy.warm_up_rounds;
    if (shared->rounds == 0) continue;
    std::sort(shared->samples_ns, shared->samples_ns + shared->rounds);
    medians.push_back(shared->samples_ns[shared->rounds / 2]);
    all.insert(all.end(), shared->samples_ns, shared->samples_ns + shared->rounds);
  }
  if (all.empty()) {
    printf("%-6s %-20s no round trip ended\n", chain, policy.name);
    return;
  }
  std::sort(all.begin(), all.end());
  std::sort(medians.begin(), medians.end());
  printf("%-6s %-20s %7zu %9.2f %9.2f %9.2f %9.2f %9.2f %7.2f\n", chain, policy.name, all.size(),
         all[all.size() / 2] / 1e3, medians.front() / 1e3, medians.back() / 1e3,
         all[static_cast<size_t>(static_cast<double>(all.size()) * 0.99)] / 1e3, cpu / rounds,
         sleeps / rounds);
  fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  alarm(60);
  const double seconds = argc > 1 ? atof(argv[1]) : 0.14;
  const int64_t duration_ns = static_cast<int64_t>(std::clamp(seconds, 0.05, 0.16) * 1e9);
  cpu_set_t mask;
  sched_getaffinity(0, sizeof mask, &mask);
  const int permits = std::max(1, CPU_COUNT(&mask) - 1);
  void* memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 1;
  const Policy policies[] = {
      {.name = "free 0", .free_spin_ns = 0},
      {.name = "free 1 us", .free_spin_ns = 1'000},
      {.name = "free 2 us", .free_spin_ns = 2'000},
      {.name = "free 5 us", .free_spin_ns = 5'000},
      {.name = "free 20 us", .free_spin_ns = 20'000},
      {.name = "free 0 + permit", .free_spin_ns = 0, .permits = true},
      {.name = "free 1 us + permit", .free_spin_ns = 1'000, .permits = true},
      {.name = "free 2 us + permit", .free_spin_ns = 2'000, .permits = true},
      {.name = "free 5 us + permit", .free_spin_ns = 5'000, .permits = true},
      {.name = "free 1 us + history", .free_spin_ns = 1'000, .permits = true, .history = true},
      {.name = "unbounded", .free_spin_ns = 0, .unbounded = true, .warm_up_rounds = 2},
  };
  printf("permits %d; us for each round trip; cpu is summed over all parties\n", permits);
  printf("%-6s %-20s %7s %9s %9s %9s %9s %9s %7s\n", "chain", "policy", "rounds", "median", "low",
         "high", "p99", "cpu", "sleeps");
  for (const char* chain : {"pp", "ptp", "ppp", "ptptp"}) {
    for (const Policy& policy : policies) {
      measure(static_cast<Shared*>(memory), chain, policy, duration_ns, permits);
    }
  }
  return 0;
}
