// Question: does the hand-over of a mailbox lose wake-ups without the two seq_cst fences, are both
// needed, and does a small store-buffer model find the same fault?
//
//   publish: write payload, release store of tail, [fence], load of the sleep flag, wake if set
//   sleep:   store the sleep flag, [fence], load of tail, wait if it has not moved
//
// Part 1, real: two processes (or threads), 2 million hand-overs for each variant. The sleeper
// goes to sleep after every hand-over; the publisher publishes a short random time later, so that
// the two sequences overlap. A wait has a limit; a lost wake-up is a wait that ran into it
// although the tail had moved and the publisher is past its load of the flag and did not wake.
// The futex word is the sleep flag, as an eventfd would be. The last variant waits on the tail
// itself, without fences: the kernel's compare then repairs most of the fault and hides it.
// Part 2, model: each process has a FIFO store buffer; loads see the own buffer first, then memory;
// a fence drains the own buffer. Random interleavings from a seed, and all of them by search.
//
// Build: g++ -std=c++20 -O2 -pthread -o mailbox_fence mailbox_fence.cc
// Run:   ./mailbox_fence [processes|threads] [hand-overs, default 2000000]     (under 40 s)

#include <linux/futex.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <deque>
#include <new>
#include <set>
#include <thread>

namespace {

constexpr int64_t kWaitLimitNs = 500'000;
constexpr int64_t kVariantLimitNs = 7'000'000'000;
constexpr uint32_t kJitterMax = 64;
constexpr int kInterleavings = 1'000'000;

struct Variant {
  const char* name;
  bool publish_fence;
  bool sleep_fence;
  bool wait_on_tail = false;
};

constexpr Variant kVariants[] = {
    {"both fences", true, true},
    {"publisher's fence only", true, false},
    {"sleeper's fence only", false, true},
    {"no fence", false, false},
    {"no fence, futex on the tail", false, false, true},
};

// ---- Part 1 -----------------------------------------------------------------------------------

// Publisher's and sleeper's words 128 bytes apart; `decided` is the publisher's witness: twice the
// sequence whose flag it has loaded, plus one if it went on to wake.
struct Shared {
  alignas(128) std::atomic<uint32_t> tail{0};
  uint64_t payload = 0;
  alignas(128) std::atomic<uint32_t> decided{0};
  alignas(128) std::atomic<uint32_t> flag{0};
  alignas(128) std::atomic<uint32_t> head{0};
  alignas(128) std::atomic<uint32_t> stop{0};
  uint64_t sleeps = 0;
  uint64_t lost = 0;
  uint64_t late = 0;
  uint64_t torn = 0;
};

int64_t now_ns() {
  timespec ts;
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return ts.tv_sec * 1'000'000'000ll + ts.tv_nsec;
}

uint64_t next_random(uint64_t& state) {
  state += 0x9e3779b97f4a7c15ull;
  uint64_t z = state;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

template <bool kFence>
void publish(Shared& shared, uint32_t sequence, bool wait_on_tail) {
  shared.payload = sequence * 3ull;
  shared.tail.store(sequence, std::memory_order_release);
  if constexpr (kFence) {
    std::atomic_thread_fence(std::memory_order_seq_cst);
  } else {
    std::atomic_signal_fence(std::memory_order_seq_cst);  // the compiler keeps the order
  }
  const bool wake = shared.flag.load(std::memory_order_relaxed) != 0;
  shared.decided.store(2 * sequence + (wake ? 1 : 0), std::memory_order_release);
  if (wake) {
    shared.flag.store(0, std::memory_order_relaxed);
    std::atomic<uint32_t>* word = wait_on_tail ? &shared.tail : &shared.flag;
    syscall(SYS_futex, word, FUTEX_WAKE, 1, nullptr, nullptr, 0);
  }
}

// One wait for `sequence`, without any spin before it.
template <bool kFence>
void sleep_until(Shared& shared, uint32_t sequence, bool wait_on_tail) {
  const timespec limit{0, kWaitLimitNs};
  while (true) {
    shared.flag.store(1, std::memory_order_relaxed);
    if constexpr (kFence) {
      std::atomic_thread_fence(std::memory_order_seq_cst);
    } else {
      std::atomic_signal_fence(std::memory_order_seq_cst);
    }
    if (shared.tail.load(std::memory_order_acquire) == sequence) break;
    ++shared.sleeps;
    const long rc =
        wait_on_tail
            ? syscall(SYS_futex, &shared.tail, FUTEX_WAIT, sequence - 1, &limit, nullptr, 0)
            : syscall(SYS_futex, &shared.flag, FUTEX_WAIT, 1u, &limit, nullptr, 0);
    const bool timed_out = rc != 0 && errno == ETIMEDOUT;
    if (shared.tail.load(std::memory_order_acquire) != sequence) continue;
    if (timed_out) {
      uint32_t decided;
      while ((decided = shared.decided.load(std::memory_order_acquire)) < 2 * sequence) {
      }
      ++((decided & 1) != 0 ? shared.late : shared.lost);
    }
    break;
  }
  shared.flag.store(0, std::memory_order_relaxed);
}

void sleeper(Shared& shared, const Variant& variant, uint32_t count) {
  for (uint32_t sequence = 1; sequence <= count; ++sequence) {
    if (variant.sleep_fence) {
      sleep_until<true>(shared, sequence, variant.wait_on_tail);
    } else {
      sleep_until<false>(shared, sequence, variant.wait_on_tail);
    }
    if (shared.payload != sequence * 3ull) ++shared.torn;
    // A full barrier between hand-overs, so that the clearing of the flag belongs to this one.
    shared.head.store(sequence, std::memory_order_seq_cst);
    if (shared.stop.load(std::memory_order_relaxed) == sequence) return;
  }
}

void publisher(Shared& shared, const Variant& variant, uint32_t count) {
  uint64_t random = 1;
  const int64_t end = now_ns() + kVariantLimitNs;
  for (uint32_t sequence = 1; sequence <= count; ++sequence) {
    for (int i = 0; shared.head.load(std::memory_order_acquire) != sequence - 1; ++i) {
      if (i > 2000) __builtin_ia32_pause();
    }
    const uint64_t jitter = next_random(random) % kJitterMax;
    for (uint64_t i = 0; i < jitter; ++i) asm volatile("" ::: "memory");
    const bool last = sequence == count || (sequence % 1024 == 0 && now_ns() > end);
    if (last) shared.stop.store(sequence, std::memory_order_seq_cst);
    if (variant.publish_fence) {
      publish<true>(shared, sequence, variant.wait_on_tail);
    } else {
      publish<false>(shared, sequence, variant.wait_on_tail);
    }
    if (last) return;
  }
}

void run_real(Shared* shared, const Variant& variant, bool threads, uint32_t count) {
  new (shared) Shared();
  const int64_t start = now_ns();
  if (threads) {
    std::thread other([&] { sleeper(*shared, variant, count); });
    publisher(*shared, variant, count);
    other.join();
  } else {
    const pid_t parent = getpid();
    const pid_t pid = fork();
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() == parent) sleeper(*shared, variant, count);
      _exit(0);
    }
    publisher(*shared, variant, count);
    waitpid(pid, nullptr, 0);
  }
  printf("%-28s %9u hand-overs %9lu waits %7lu lost %5lu late %3lu torn %6.2f s\n", variant.name,
         shared->head.load(), shared->sleeps, shared->lost, shared->late, shared->torn,
         static_cast<double>(now_ns() - start) / 1e9);
  fflush(stdout);
}

// ---- Part 2 -----------------------------------------------------------------------------------

enum Word : uint8_t { kPayload, kTail, kFlag, kWords };
enum class Op : uint8_t { kStore, kFence, kLoad };

struct Step {
  Op op;
  Word word = kWords;
};

constexpr Step kPublish[] = {
    {Op::kStore, kPayload}, {Op::kStore, kTail}, {Op::kFence}, {Op::kLoad, kFlag}};
constexpr Step kSleep[] = {
    {Op::kStore, kFlag}, {Op::kFence}, {Op::kLoad, kTail}, {Op::kLoad, kPayload}};

// Every stored value is 1. Process 0 publishes, process 1 goes to sleep. Moves 0 and 1: the
// process's next step; moves 2 and 3: the oldest entry of its store buffer reaches memory.
struct Model {
  std::array<uint8_t, kWords> memory{};
  std::array<std::deque<Word>, 2> buffer;
  std::array<uint8_t, 2> at{};
  std::array<uint8_t, kWords> loaded{};
  std::array<bool, 2> fenced{};

  auto operator<=>(const Model&) const = default;

  bool enabled(int move) const { return move < 2 ? at[move] < 4 : !buffer[move - 2].empty(); }

  void drain_one(int process) {
    memory[buffer[process].front()] = 1;
    buffer[process].pop_front();
  }

  void make(int move) {
    if (move >= 2) return drain_one(move - 2);
    const Step step = (move == 0 ? kPublish : kSleep)[at[move]++];
    if (step.op == Op::kStore) {
      buffer[move].push_back(step.word);
    } else if (step.op == Op::kFence) {
      while (fenced[move] && !buffer[move].empty()) drain_one(move);
    } else {
      loaded[step.word] = memory[step.word];
      for (const Word word : buffer[move]) loaded[step.word] |= word == step.word;
    }
  }

  // The sleeper saw no new tail and waits, the publisher saw no flag and does not wake.
  bool lost() const { return loaded[kTail] == 0 && loaded[kFlag] == 0; }
  bool torn() const { return loaded[kTail] == 1 && loaded[kPayload] == 0; }
};

struct Ends {
  uint64_t all = 0;
  uint64_t lost = 0;
  uint64_t torn = 0;

  void add(const Model& model) {
    ++all;
    lost += model.lost();
    torn += model.torn();
  }
};

// All interleavings, each state once; counts distinct end states.
void search(const Model& model, std::set<Model>& seen, Ends& ends) {
  if (!seen.insert(model).second) return;
  bool end = true;
  for (int move = 0; move < 4; ++move) {
    if (!model.enabled(move)) continue;
    end = false;
    Model next = model;
    next.make(move);
    search(next, seen, ends);
  }
  if (end) ends.add(model);
}

void run_model(const Variant& variant, uint64_t seed) {
  Model start;
  start.fenced = {variant.publish_fence, variant.sleep_fence};
  Ends random_ends;
  uint64_t random = seed;
  for (int i = 0; i < kInterleavings; ++i) {
    Model model = start;
    while (true) {
      std::array<int, 4> moves;
      int n = 0;
      for (int move = 0; move < 4; ++move) {
        if (model.enabled(move)) moves[n++] = move;
      }
      if (n == 0) break;
      model.make(moves[next_random(random) % n]);
    }
    random_ends.add(model);
  }
  Ends every_end;
  std::set<Model> seen;
  search(start, seen, every_end);
  printf(
      "%-28s %9lu random: %7lu lost %3lu torn   all: %4zu states, %3lu ends, %2lu lost, %lu torn\n",
      variant.name, random_ends.all, random_ends.lost, random_ends.torn, seen.size(), every_end.all,
      every_end.lost, every_end.torn);
}

// What a publish costs when nobody sleeps.
void run_price(Shared* shared) {
  constexpr uint32_t kCount = 20'000'000;
  for (const bool fence : {false, true}) {
    new (shared) Shared();
    const int64_t start = now_ns();
    for (uint32_t i = 1; i <= kCount; ++i) {
      fence ? publish<true>(*shared, i, false) : publish<false>(*shared, i, false);
    }
    printf("publish %s fence, nobody asleep: %.1f ns\n", fence ? "with" : "without",
           static_cast<double>(now_ns() - start) / kCount);
  }
}

}  // namespace

int main(int argc, char** argv) {
  alarm(60);
  const bool threads = argc > 1 && strcmp(argv[1], "threads") == 0;
  const uint32_t count = argc > 2 ? static_cast<uint32_t>(atol(argv[2])) : 2'000'000;
  void* memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 1;
  printf("two %s\n", threads ? "threads" : "processes");
  for (const Variant& variant : kVariants) {
    run_real(static_cast<Shared*>(memory), variant, threads, count);
  }
  run_price(static_cast<Shared*>(memory));
  printf("model, seed 1\n");
  for (const Variant& variant : kVariants) {
    if (!variant.wait_on_tail) run_model(variant, 1);
  }
  return 0;
}
