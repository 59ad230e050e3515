// The least that a hand-over between two processes and back can cost on this machine, by polling
// shared memory and by sleeping on a futex in it. No runtime: two processes, one line each way.
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <csignal>
#include <cstring>

#include "bench/figure.h"

namespace {

using namespace strata::bench;

constexpr uint32_t kStop = UINT_MAX;
constexpr double kLimitMs = 3'000;
constexpr int64_t kPauseUs = 2'000;

// One message: its number and 60 bytes, a cache line; lines are kept from being fetched in pairs.
struct alignas(128) Line {
  std::atomic<uint32_t> number{0};
  char body[60]{};
};
struct Mailbox {
  Line there;
  Line back;
};

struct Poll {
  static void wait(std::atomic<uint32_t>& word, uint32_t old) {
    for (uint32_t spins = 1; word.load(std::memory_order_acquire) == old; ++spins) {
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
      if (spins % 4096 == 0) sched_yield();  // the other may need this core
    }
  }
  static void wake(std::atomic<uint32_t>&) {}
};

struct Futex {
  static long call(std::atomic<uint32_t>& word, int op, uint32_t value) {
    return syscall(SYS_futex, &word, op, value, nullptr, nullptr, 0);
  }
  static void wait(std::atomic<uint32_t>& word, uint32_t old) {
    while (word.load(std::memory_order_acquire) == old) call(word, FUTEX_WAIT, old);
  }
  static void wake(std::atomic<uint32_t>& word) { call(word, FUTEX_WAKE, 1); }
};

template <class Way>
void post(Line& line, const char (&body)[60], uint32_t number) {
  std::memcpy(line.body, body, sizeof body);
  line.number.store(number, std::memory_order_release);
  Way::wake(line.number);
}

template <class Way>
void answer(Mailbox& box) {
  char body[60];
  for (uint32_t seen = 0;;) {
    Way::wait(box.there.number, seen);
    seen = box.there.number.load(std::memory_order_acquire);
    if (seen == kStop) return;
    std::memcpy(body, box.there.body, sizeof body);
    post<Way>(box.back, body, seen);
  }
}

// The asking side; the other process lives as long as it.
template <class Way>
class Pair {
 public:
  Pair() {
    void* memory = mmap(nullptr, sizeof(Mailbox), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED) std::perror("limit_shm: mmap"), std::exit(1);
    box_ = new (memory) Mailbox;
    const pid_t asker = getpid();
    pid_ = fork();
    if (pid_ < 0) std::perror("limit_shm: fork"), std::exit(1);
    if (pid_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() == asker) answer<Way>(*box_);
    _exit(0);
  }
  ~Pair() {
    post<Way>(box_->there, body_, kStop);
    waitpid(pid_, nullptr, 0);
    munmap(box_, sizeof(Mailbox));
  }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;

  // Microseconds for each of `trips` round trips, one after the other.
  double round_trips(int trips) {
    const double begun = now_us();
    for (int i = 0; i < trips; ++i) {
      post<Way>(box_->there, body_, count_ + 1);
      Way::wait(box_->back.number, count_);
      std::memcpy(body_, box_->back.body, sizeof body_);
      ++count_;
    }
    return (now_us() - begun) / trips;
  }

 private:
  Mailbox* box_ = nullptr;
  pid_t pid_ = -1;
  uint32_t count_ = 0;
  char body_[60]{};
};

}  // namespace

int main() {
  {
    Pair<Poll> pair;  // a trip is shorter than a few readings of the clock: a hundred at a time
    const auto timed = [&] { return pair.round_trips(100); };
    figure("limit.poll.round_trip", median_of(scaled(4'000, 1'000), kLimitMs, timed), "us");
  }
  Pair<Futex> pair;
  const auto timed = [&] { return pair.round_trips(1); };
  figure("limit.futex.round_trip", median_of(scaled(10'000, 3'000), kLimitMs, timed), "us");
  const auto rested = [&] {
    sleep_us(kPauseUs);
    return pair.round_trips(1);
  };
  figure("limit.futex.round_trip.rested", median_of(scaled(300, 100), kLimitMs, rested), "us");
  return 0;
}
