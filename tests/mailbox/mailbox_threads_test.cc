// Two real threads over PlainMemory: what the sanitizers watch. The futex and the eventfd are
// condition variables here; a wake-up that is lost leaves both threads asleep, which the watchdog
// of an event reports.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "base/prng.h"
#include "content.h"
#include "mailbox/child_side.h"
#include "mailbox/hub.h"
#include "mailbox/parent_side.h"
#include "mailbox/plain_memory.h"
#include "mapping.h"

namespace strata::mailbox {
namespace {

constexpr size_t kArgsMax = 3000;
constexpr size_t kResultMax = 20'000;
constexpr size_t kTextMax = 300;

class Event {
 public:
  void signal() {
    {
      std::lock_guard lock(mutex_);
      set_ = true;
    }
    condition_.notify_one();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    // Not a proof of anything: it turns a hang into a failure.
    if (!condition_.wait_for(lock, std::chrono::seconds(100), [&] { return set_; })) {
      std::fprintf(stderr, "a wake-up was lost: nothing has signalled for 100 s\n");
      std::abort();
    }
    set_ = false;
  }

 private:
  std::mutex mutex_;
  std::condition_variable condition_;
  bool set_ = false;
};

constexpr uint32_t kStopCallable = 99;

class TwoThreads {
 public:
  explicit TwoThreads(uint64_t tasks) : tasks_(tasks), started_(tasks + 1), ended_(tasks + 1) {
    hub_.format();
    parent_.format();
  }

  void run() {
    std::thread child([this] { run_child(); });
    run_parent();
    child.join();
    for (uint64_t task = 1; task <= tasks_; ++task) {
      ASSERT_EQ(ended_[task], 1) << task;
      ASSERT_EQ(started_[task], revoked_[task] ? 0 : 1) << task;
    }
    EXPECT_GT(controls_, 0u);
  }

 private:
  void wake_child_if_asleep() {
    if (parent_.child_asleep_after_publish()) child_event_.signal();
  }

  void end(uint64_t task) {
    ++ended_[task];
    std::erase_if(tickets_, [&](const auto& pair) { return pair.second == task; });
  }

  void push_some(base::Prng& prng) {
    const uint64_t first = next_task_;
    for (uint64_t n = prng.between(1, 8); n > 0 && next_task_ <= tasks_; --n) {
      const std::optional<uint64_t> ticket =
          parent_.push({.task = next_task_, .callable = static_cast<uint32_t>(next_task_ % 7)},
                       content(next_task_, Part::kArgs, kArgsMax));
      if (!ticket) break;
      tickets_.emplace_back(*ticket, next_task_++);
    }
    if (next_task_ != first) wake_child_if_asleep();
  }

  void revoke_one(base::Prng& prng) {
    if (tickets_.empty()) return;
    // The youngest mostly, as the engine does.
    const size_t at = prng.chance(3, 4) ? tickets_.size() - 1 : prng.below(tickets_.size());
    const auto [ticket, task] = tickets_[at];
    if (!parent_.revoke(ticket)) return;
    revoked_[task] = true;
    end(task);
  }

  size_t poll(size_t max) {
    const Polled polled = parent_.poll(max, [&](const Completion& done) {
      EXPECT_TRUE(is_content(done.result, done.task, Part::kResult, kResultMax));
      EXPECT_TRUE(is_content(done.text, done.task, Part::kText, kTextMax));
      EXPECT_EQ(done.code, static_cast<int32_t>(done.task % 11));
      end(done.task);
    });
    EXPECT_EQ(polled.corrupt, nullptr);
    if (polled.wake_child) child_event_.signal();
    const bool reply = parent_.control_poll(
        [&](uint32_t command, uint32_t code, std::span<const std::byte> bytes) {
          EXPECT_EQ(code, command + 1);
          EXPECT_TRUE(is_content(bytes, command, Part::kReply, kControlBytesMax));
          ++controls_;
        });
    return polled.completions + reply;
  }

  void run_parent() {
    base::Prng prng(1);
    while (next_task_ <= tasks_ || !tickets_.empty() || parent_.control_outstanding()) {
      if (prng.chance(1, 2)) push_some(prng);
      if (prng.chance(1, 4)) revoke_one(prng);
      if (prng.chance(1, 64) && next_task_ <= tasks_ && !parent_.control_outstanding()) {
        const uint32_t command = static_cast<uint32_t>(next_task_);
        EXPECT_TRUE(
            parent_.control_post(command, content(command, Part::kRequest, kControlBytesMax)).ok());
        wake_child_if_asleep();
      }
      const size_t got = poll(prng.between(1, 64));
      const bool waits = !tickets_.empty() || parent_.control_outstanding();
      if (got == 0 && waits && prng.chance(1, 8)) {
        if (hub_.prepare_sleep([&] { return parent_.has_news(); })) {
          parent_event_.wait();
          hub_.finish_sleep();
        }
      }
    }
    while (!parent_.push({.task = tasks_ + 1, .callable = kStopCallable}, {})) {
      std::this_thread::yield();
    }
    wake_child_if_asleep();
  }

  void run_child() {
    auto attached = ChildSide<PlainMemory>::attach({}, region_memory_.span(), hub_memory_.span());
    ASSERT_TRUE(attached.ok());
    ChildSide<PlainMemory>& child = attached.value();
    for (;;) {
      ASSERT_EQ(child.corrupt(), nullptr);
      TaskView task;
      ControlView control;
      if (child.control_take(&control)) {
        EXPECT_TRUE(is_content(control.request, control.command, Part::kRequest, kControlBytesMax));
        child.control_reply(control.command + 1,
                            content(control.command, Part::kReply, kControlBytesMax));
      } else if (child.try_take(&task)) {
        if (task.callable == kStopCallable) return;
        run_task(child, task);
      } else {
        signal_parent_if_asleep(child);
        wait(child);
        continue;
      }
      signal_parent_if_asleep(child);
    }
  }

  void run_task(ChildSide<PlainMemory>& child, const TaskView& task) {
    ++started_[task.task];
    EXPECT_EQ(task.callable, task.task % 7);
    EXPECT_TRUE(is_content(task.args, task.task, Part::kArgs, kArgsMax));
    const auto result = content(task.task, Part::kResult, kResultMax);
    const auto text = content(task.task, Part::kText, kTextMax);
    while (!child.try_complete(
        task, {.code = static_cast<int32_t>(task.task % 11), .result = result, .text = text})) {
      wait(child);
    }
  }

  void signal_parent_if_asleep(ChildSide<PlainMemory>& child) {
    if (child.parent_asleep_after_publish(true)) parent_event_.signal();
  }

  void wait(ChildSide<PlainMemory>& child) {
    for (int i = 0; i < 20; ++i) {
      if (child.have_work()) return;
    }
    if (!child.prepare_sleep()) return;
    child_event_.wait();
    child.finish_sleep();
  }

  const uint64_t tasks_;
  Mapping<kRegionBytes> region_memory_;
  Mapping<kHubBytes> hub_memory_;
  Hub<PlainMemory> hub_{{}, hub_memory_.data()};
  ParentSide<PlainMemory> parent_{{}, region_memory_.data()};
  Event child_event_;
  Event parent_event_;
  uint64_t next_task_ = 1;
  uint64_t controls_ = 0;
  std::vector<std::pair<uint64_t, uint64_t>> tickets_;  // ticket, task
  std::vector<int> started_;                            // by the child's thread
  std::vector<int> ended_;
  std::vector<bool> revoked_ = std::vector<bool>(tasks_ + 1);
};

TEST(MailboxThreads, EveryTaskIsCompletedOnceOrRevokedAndNeverStarted) {
  TwoThreads(200'000).run();
}

}  // namespace
}  // namespace strata::mailbox
