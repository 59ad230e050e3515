// A real child process that is killed at its first store, its second, and so on: whatever instant
// it dies at, the parent finds each entry whole or not there. The simulator does the same with
// fibers and store buffers; here the memory is shared, and the death is SIGKILL.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <set>

#include "content.h"
#include "mailbox/child_loop.h"
#include "mailbox/hub.h"
#include "mailbox/parent_side.h"
#include "mailbox/plain_memory.h"

namespace strata::mailbox {
namespace {

constexpr uint64_t kTasks = 5;
constexpr size_t kArgsMax = 300;
constexpr size_t kResultMax = 500;
constexpr uint32_t kAsk = 40;  // a control

template <size_t kBytes>
class Shared {
 public:
  Shared()
      : at_(::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {}
  ~Shared() { ::munmap(at_, kBytes); }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  std::byte* data() const { return static_cast<std::byte*>(at_); }
  std::span<std::byte> span() const { return {data(), kBytes}; }

 private:
  void* at_;
};

// Of the child: kills its process before its n-th change of memory, in the midst of one of bytes.
struct KillingMemory : PlainMemory {
  int* left = nullptr;

  bool is_last() const { return --*left == 0; }
  void change() const {
    if (is_last()) ::kill(::getpid(), SIGKILL);
  }
  template <class T>
  void store_relaxed(T* at, T value) const {
    change();
    PlainMemory::store_relaxed(at, value);
  }
  template <class T>
  void store_release(T* at, T value) const {
    change();
    PlainMemory::store_release(at, value);
  }
  template <class T>
  bool compare_exchange(T* at, T expected, T desired) const {
    change();
    return PlainMemory::compare_exchange(at, expected, desired);
  }
  template <class T>
  T fetch_add(T* at, T value) const {
    change();
    return PlainMemory::fetch_add(at, value);
  }
  void write_bytes(std::byte* to, const std::byte* from, size_t bytes) const {
    if (is_last()) {
      PlainMemory::write_bytes(to, from, bytes / 2);
      ::kill(::getpid(), SIGKILL);
    }
    PlainMemory::write_bytes(to, from, bytes);
  }
};

// How often user code of each task has begun; of the parent and the child.
struct Counts {
  std::atomic<uint32_t> begun[kTasks + 1];
};

class Host {
 public:
  explicit Host(Counts* counts) : counts_(counts) {}
  uint32_t control(uint32_t command, std::span<const std::byte> request, std::string* text) {
    const std::vector<std::byte> reply = content(command, Part::kReply, 200);
    text->assign(reinterpret_cast<const char*>(reply.data()), reply.size());
    return is_content(request, command, Part::kRequest, 200) ? command + 1 : 0;
  }
  void run(const TaskView& task, TaskOutcome* outcome) {
    counts_->begun[task.task].fetch_add(1);
    result_ = content(task.task, Part::kResult, kResultMax);
    outcome->result = result_;
    if (!is_content(task.args, task.task, Part::kArgs, kArgsMax)) {
      outcome->outcome = Outcome::kTaskFailed;
    }
  }
  void signal_parent() {}  // who polls needs none
  void sleep(const uint32_t*) { ::sched_yield(); }
  int64_t now_ns() { return 0; }
  void pause() {}
  void yield() { ::sched_yield(); }

 private:
  Counts* counts_;
  std::vector<std::byte> result_;
};

class Kill {
 public:
  explicit Kill(int at) {
    hub_.format();
    parent_.format();
    child_ = ::fork();
    if (child_ == 0) child_main(at);
  }

  // Drives the parent until the child has ended; true where it was killed.
  bool run() {
    std::vector<uint64_t> tickets;
    for (uint64_t task = 1; task <= kTasks; ++task) {
      tickets.push_back(*parent_.push({.task = task}, content(task, Part::kArgs, kArgsMax)));
    }
    EXPECT_TRUE(parent_.control_post(kAsk, content(kAsk, Part::kRequest, 200)).ok());
    if (parent_.revoke(tickets.back())) end(kTasks, "revoked");
    bool asked_to_exit = false;
    int status = 0;
    while (::waitpid(child_, &status, WNOHANG) == 0) {
      poll();
      if (!asked_to_exit && ends_.size() == kTasks && !parent_.control_outstanding()) {
        asked_to_exit = parent_.control_post(kCommandExit, {}).ok();
      }
    }
    poll();
    parent_.abandon([&](uint64_t task, uint64_t, bool started) {
      end(task, started ? "lost" : "not started");
    });
    check();
    if (WIFSIGNALED(status)) return true;
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == kExitAsked) << status;
    return false;
  }

 private:
  [[noreturn]] void child_main(int at) {
    KillingMemory memory;
    memory.left = &at;
    auto side = ChildSide<KillingMemory>::attach(memory, region_.span(), hub_memory_.span());
    if (!side) ::_exit(9);
    Host host(counts());
    ChildLoop<KillingMemory, Host> loop(*side, host, {.free_spin_ns = 0, .linger_ns = 0});
    ::_exit(loop.run());
  }

  Counts* counts() { return reinterpret_cast<Counts*>(counts_memory_.data()); }

  void end(uint64_t task, const char* how) {
    EXPECT_TRUE(ends_.emplace(task, how).second) << task << " ended twice: " << how;
  }
  void poll() {
    const Polled polled = parent_.poll(kTasks, [&](const Completion& done) {
      EXPECT_EQ(done.outcome, Outcome::kOk);
      EXPECT_TRUE(is_content(done.result, done.task, Part::kResult, kResultMax));
      end(done.task, "done");
    });
    ASSERT_EQ(polled.corrupt, nullptr);
    parent_.control_poll([&](uint32_t command, uint32_t code, std::span<const std::byte> bytes) {
      if (command != kAsk) return;
      EXPECT_EQ(code, kAsk + 1);
      EXPECT_TRUE(is_content(bytes, kAsk, Part::kReply, 200));
    });
  }
  void check() {
    ASSERT_EQ(ends_.size(), kTasks);
    for (const auto& [task, how] : ends_) {
      const uint32_t begun = counts()->begun[task].load();
      const std::string text = how;
      if (text == "done") {
        EXPECT_EQ(begun, 1u) << task;
      }
      if (text == "lost") {
        EXPECT_LE(begun, 1u) << task;
      }
      if (text == "not started" || text == "revoked") {
        EXPECT_EQ(begun, 0u) << task << " " << how;
      }
    }
  }

  Shared<kRegionBytes> region_;
  Shared<kHubBytes> hub_memory_;
  Shared<4096> counts_memory_;
  Hub<PlainMemory> hub_{{}, hub_memory_.data()};
  ParentSide<PlainMemory> parent_{{}, region_.data()};
  std::map<uint64_t, const char*> ends_;
  pid_t child_ = -1;
};

TEST(MailboxKill, AtEveryChangeOfMemoryLeavesEachEntryWholeOrNotThere) {
  int killed = 0;
  int whole = 0;
  // How many changes a run has depends on how the two meet: it is through after several whole ones.
  for (int at = 1; whole < 5; ++at) {
    Kill one(at);
    const bool died = one.run();
    if (testing::Test::HasFailure()) FAIL() << "killed at change " << at;
    (died ? killed : whole) += 1;
    ASSERT_LT(at, 10'000);
  }
  EXPECT_GT(killed, 40);
  RecordProperty("changes", killed);
}

}  // namespace
}  // namespace strata::mailbox
