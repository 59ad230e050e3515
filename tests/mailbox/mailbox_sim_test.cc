// One simulated parent and one simulated child over a mailbox, thousands of seeds: random pushes,
// revocations, completions, controls, sleeps, wakes and deaths. The oracle is a log beside the
// simulated memory. Not checked here: what needs acquire and release (x86 keeps that order; the
// thread test under ThreadSanitizer looks for it), and a corrupt peer (mailbox_test.cc).
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "base/fault.h"
#include "base/mark.h"
#include "content.h"
#include "mailbox/child_side.h"
#include "mailbox/hub.h"
#include "mailbox/parent_side.h"
#include "sim/fiber.h"
#include "sim/memory.h"

namespace strata::mailbox {
namespace {

using sim::SimMemory;

constexpr uint64_t kStepsMax = 4'000'000;

// ThreadSanitizer makes a run some twenty times slower and, with one thread, has little to find.
#ifdef __SANITIZE_THREAD__
constexpr uint64_t kSeeds = 300;
#else
constexpr uint64_t kSeeds = 8000;
#endif

// The kernel's half of an eventfd or a futex: who waits, and that a signal came first.
class SimEvent {
 public:
  explicit SimEvent(sim::World* world) : world_(world) {}
  void signal(sim::Process* by) {
    by->drain();
    signalled_ = true;
    if (waiter_ != nullptr) world_->scheduler().wake(waiter_);
  }
  // Until the next signal, or one that came since the last wait.
  void wait(sim::Process* by) {
    by->drain();
    while (!signalled_) {
      waiter_ = world_->scheduler().current();
      world_->scheduler().block();
      waiter_ = nullptr;
    }
    signalled_ = false;
  }
  // As FUTEX_WAIT: returns at once where the word has another value, and may return for no reason.
  void futex_wait(sim::Process* by, const uint32_t* word, uint32_t value) {
    by->drain();
    uint32_t found;
    std::memcpy(&found, word, sizeof found);
    if (found != value) return;
    waiter_ = world_->scheduler().current();
    world_->scheduler().block();
    waiter_ = nullptr;
  }
  void futex_wake(sim::Process* by) {
    by->drain();
    if (waiter_ != nullptr) world_->scheduler().wake(waiter_);
  }

 private:
  sim::World* world_;
  sim::Fiber* waiter_ = nullptr;
  bool signalled_ = false;
};

struct TaskLog {
  int starts = 0;
  int completions = 0;
  bool revoked = false;
  bool abandoned = false;
  bool abandoned_as_started = false;
};

enum class Death { kNone, kChild, kParent };

// All memory of one run; reused, because zeroing is most of the cost of a short one.
struct Memories {
  alignas(4096) std::byte region[kRegionBytes];
  alignas(4096) std::byte hub[kHubBytes];
};

class Story {
 public:
  Story(uint64_t seed, Memories* memories)
      : prng_(seed), scheduler_(seed * 3 + 1), world_(&scheduler_, seed * 3 + 2) {
    std::memset(memories, 0, sizeof *memories);
    region_ = memories->region;
    hub_ = memories->hub;
    depth_ = static_cast<uint32_t>(uint64_t{1} << prng_.below(7));
    revoke_one_in_ = uint64_t{1} << prng_.between(1, 6);
    sleep_one_in_ = uint64_t{1} << prng_.below(4);
    poll_one_in_ = uint64_t{1} << prng_.below(6);
    control_one_in_ = prng_.chance(1, 2) ? 16 : 4096;  // each wakes a child that should sleep
    spins_max_ = prng_.chance(1, 2) ? 0 : prng_.below(30);
    const bool large_args = prng_.chance(1, 24);
    const bool large_results = prng_.chance(1, 16);
    if (large_results &&
        prng_.chance(3, 4)) {  // the child runs ahead of a parent that hardly looks
      depth_ = kRingEntries;
      poll_one_in_ = uint64_t{1} << prng_.between(10, 15);
      revoke_one_in_ = uint64_t{1} << 14;
    }
    storm_ = !large_results && prng_.chance(1, 8);
    if (storm_) depth_ = 2 * kRingEntries;  // the ring's own limit is met
    tasks_ = prng_.between(1, large_args || large_results ? 40
                              : storm_                    ? 500
                              : prng_.chance(1, 4)        ? 250
                                                          : 50);
    args_max_ = large_args ? 60'000 : 150;
    result_max_ = large_results ? kResultBytesMax : 150;
    text_max_ = large_results ? kTextBytesMax : 40;
    if (prng_.chance(1, 2)) death_ = prng_.chance(3, 4) ? Death::kChild : Death::kParent;
    log_.resize(tasks_ + 1);
  }

  // Empty: all held. Else what did not.
  std::string run() {
    parent_process_ = world_.make_process();
    child_process_ = world_.make_process();
    parent_process_->adopt(scheduler_.spawn("parent", [this] { parent(); }));
    if (death_ != Death::kNone) scheduler_.spawn("death", [this] { death(); });
    const sim::Scheduler::Stop stop = scheduler_.run(kStepsMax);
    if (failure_.empty()) judge(stop);
    return failure_;
  }
  uint64_t fingerprint() const { return scheduler_.fingerprint(); }
  Death death_drawn() const { return death_; }

 private:
  using Parent = ParentSide<SimMemory>;
  using Child = ChildSide<SimMemory>;

  void fail(std::string text) {
    if (failure_.empty()) failure_ = std::move(text);
  }
  void expect(bool held, const char* what, uint64_t task = 0) {
    if (!held) fail(std::string(what) + ", task " + std::to_string(task));
  }

  // ---- the parent

  void parent() {
    const SimMemory memory(parent_process_);
    Hub<SimMemory> hub(memory, hub_);
    Parent side(memory, region_);
    hub.format();
    side.format();
    parent_process_->drain();  // it makes the child by a system call
    child_process_->adopt(scheduler_.spawn("child", [this] { child(); }));
    while (failure_.empty() &&
           !(next_task_ > tasks_ && tickets_.empty() && !side.control_outstanding())) {
      if (child_process_->dead()) return after_child_death(side);
      parent_step(side, hub);
    }
    stop_ = true;
    child_event_.signal(parent_process_);
    child_event_.futex_wake(parent_process_);
  }

  void parent_step(Parent& side, Hub<SimMemory>& hub) {
    if (storm_ && prng_.chance(1, 2)) {
      storm(side);
    } else if (prng_.chance(1, 2)) {
      push_some(side);
    }
    if (prng_.chance(1, revoke_one_in_)) revoke_one(side);
    if (prng_.chance(1, control_one_in_) && !side.control_outstanding()) post_control(side);
    if (prng_.chance(1, 32)) cancel(side);
    if (!prng_.chance(1, poll_one_in_)) return scheduler_.yield();
    const bool got = poll(side, prng_.between(1, kRingEntries));
    // There may be room now: by completions, or by entries that the child has only skipped.
    if (got || (full_ && side.can_push(args_max_))) full_ = false;
    const bool waits = !tickets_.empty() || side.control_outstanding() || full_;
    if (got || !waits || !prng_.chance(1, sleep_one_in_)) return;
    side.set_wake_at(wake_point());
    if (!hub.prepare_sleep([&] { return side.has_news() || child_process_->dead(); })) return;
    parent_event_.wait(parent_process_);
    hub.finish_sleep();
  }

  // Every completion, one to come, or none but the child's last.
  uint64_t wake_point() {
    if (tickets_.empty() || prng_.chance(1, 3)) return 0;
    if (prng_.chance(1, 3)) return ~uint64_t{0};
    return std::next(tickets_.begin(), prng_.below(tickets_.size()))->first;
  }

  void wake_child_if_asleep(Parent& side) {
    if (side.child_asleep_after_publish()) child_event_.futex_wake(parent_process_);
  }

  void push_some(Parent& side) {
    const uint64_t first = next_task_;
    for (uint64_t n = prng_.between(1, 4);
         n > 0 && next_task_ <= tasks_ && side.outstanding() < depth_; --n) {
      const uint64_t task = next_task_;
      const auto ticket = side.push({.task = task,
                                     .callable = static_cast<uint32_t>(task * 3),
                                     .flags = static_cast<uint32_t>(task * 5),
                                     .block_dim = -static_cast<int32_t>(task),
                                     .deadline_ms = static_cast<uint32_t>(task * 7)},
                                    content(task, Part::kArgs, args_max_));
      full_ = !ticket.has_value();
      if (full_) break;
      tickets_[*ticket] = task;
      ++next_task_;
    }
    if (next_task_ != first) wake_child_if_asleep(side);
  }

  // Fills the ring and takes everything back: the child has nothing but entries to skip, and only
  // its skipping makes room again.
  void storm(Parent& side) {
    for (int n = 0; n < 80 && (n == 0 || !full_); ++n) push_some(side);
    for (size_t n = tickets_.size(); n > 0; --n) revoke_one(side);
    for (uint64_t n = prng_.below(400); n > 0; --n) scheduler_.yield();
  }

  void revoke_one(Parent& side) {
    if (tickets_.empty()) return;
    auto at = std::prev(tickets_.end());
    if (prng_.chance(1, 4)) at = std::next(tickets_.begin(), prng_.below(tickets_.size()));
    if (!side.revoke(at->first)) return;
    log_[at->second].revoked = true;
    expect(log_[at->second].starts == 0, "revoked after its start", at->second);
    tickets_.erase(at);
  }

  void post_control(Parent& side) {
    const uint32_t command = ++controls_;
    expect(side.control_post(command, content(command, Part::kRequest, 300)).ok(),
           "control refused");
    expect(!side.control_post(command, {}).ok(), "second control accepted");
    wake_child_if_asleep(side);
  }

  void cancel(Parent& side) {
    if (tickets_.empty()) return;
    cancelled_through_ = std::max(cancelled_through_, tickets_.begin()->first);
    side.cancel_through(cancelled_through_);
  }

  bool poll(Parent& side, size_t max) {
    const Polled polled = side.poll(max, [&](const Completion& done) {
      const auto at = tickets_.find(done.ticket);
      if (at == tickets_.end() || at->second != done.task) {
        return fail("completion of an unknown ticket");
      }
      tickets_.erase(at);
      ++log_[done.task].completions;
      const bool failed = done.task % 3 == 0;
      // The bytes must stay while others run.
      for (uint64_t n = prng_.below(4); n > 0; --n) scheduler_.yield();
      expect(is_content(done.result, done.task, Part::kResult, result_max_), "result", done.task);
      expect(is_content(done.text, done.task, Part::kText, text_max_), "text", done.task);
      expect(done.outcome == (failed ? Outcome::kTaskFailed : Outcome::kOk), "outcome", done.task);
      expect(done.code == -static_cast<int32_t>(done.task), "code", done.task);
      expect(done.started_ns == static_cast<int64_t>(done.task) && done.ended_ns == 12345, "times",
             done.task);
    });
    expect(polled.corrupt == nullptr, polled.corrupt == nullptr ? "" : polled.corrupt);
    if (polled.wake_child) child_event_.futex_wake(parent_process_);
    const bool replied =
        side.control_poll([&](uint32_t command, uint32_t code, std::span<const std::byte> bytes) {
          expect(command == controls_ && code == command * 2, "control reply", command);
          expect(is_content(bytes, command, Part::kReply, 300), "reply bytes", command);
        });
    return polled.completions > 0 || replied;
  }

  void after_child_death(Parent& side) {
    while (poll(side, 3)) {
    }
    side.abandon([&](uint64_t task, uint64_t ticket, bool started) {
      expect(tickets_.contains(ticket) && tickets_[ticket] == task, "abandoned an unknown ticket");
      tickets_.erase(ticket);
      log_[task].abandoned = true;
      log_[task].abandoned_as_started = started;
    });
    expect(tickets_.empty() && side.outstanding() == 0, "not all abandoned");
  }

  // ---- the child

  void child() {
    const SimMemory memory(child_process_);
    auto attached = Child::attach(memory, {region_, kRegionBytes}, {hub_, kHubBytes});
    if (!attached.ok()) return fail(attached.error().to_string());
    Child& side = attached.value();
    while (!stop_ && !parent_process_->dead()) {
      TaskView task;
      ControlView control;
      if (side.control_take(&control)) {
        expect(is_content(control.request, control.command, Part::kRequest, 300), "request bytes",
               control.command);
        side.control_reply(control.command * 2, content(control.command, Part::kReply, 300));
      } else if (side.try_take(&task)) {
        run_task(side, task);
      } else {
        expect(side.corrupt() == nullptr, side.corrupt() == nullptr ? "" : side.corrupt());
        signal_parent_if_asleep(side, true);
        child_waits(side);
        continue;
      }
      signal_parent_if_asleep(side, false);
    }
  }

  void run_task(Child& side, const TaskView& view) {
    const uint64_t task = view.task;
    if (task == 0 || task > tasks_) return fail("a task that was never pushed was started");
    ++log_[task].starts;
    expect(view.callable == task * 3 && view.flags == task * 5 &&
               view.block_dim == -static_cast<int32_t>(task) && view.deadline_ms == task * 7,
           "fields", task);
    for (uint64_t n = child_prng_.below(8); n > 0; --n) scheduler_.yield();
    expect(is_content(view.args, task, Part::kArgs, args_max_), "arguments", task);
    expect(!side.cancelled(view) || cancelled_through_ >= view.ticket, "cancelled for nothing");
    const auto result = content(task, Part::kResult, result_max_);
    const auto text = content(task, Part::kText, text_max_);
    while (!side.try_complete(view, {.outcome = task % 3 == 0 ? Outcome::kTaskFailed : Outcome::kOk,
                                     .code = -static_cast<int32_t>(task),
                                     .started_ns = static_cast<int64_t>(task),
                                     .ended_ns = 12345,
                                     .result = result,
                                     .text = text})) {
      signal_parent_if_asleep(side, true);
      child_waits(side);
      if (stop_ || parent_process_->dead()) return;
    }
  }

  void signal_parent_if_asleep(Child& side, bool idle) {
    if (side.parent_asleep_after_publish(idle)) parent_event_.signal(child_process_);
  }

  void child_waits(Child& side) {
    for (uint64_t spins = 0; spins < spins_max_; ++spins) {
      if (side.have_work() || stop_) return;
      scheduler_.yield();
    }
    if (!side.prepare_sleep()) return;
    if (!stop_ && !parent_process_->dead()) {
      child_event_.futex_wait(child_process_, side.sleep_word(), 1);
    }
    side.finish_sleep();
  }

  // ---- death and judgement

  void death() {
    const uint64_t steps = prng_.below(uint64_t{1} << prng_.between(4, 15));
    for (uint64_t n = 0; n < steps; ++n) scheduler_.yield();
    if (death_ == Death::kChild) {
      child_process_->die();
      parent_event_.signal(death_process_);  // its pidfd is readable
    } else {
      parent_process_->die();
      child_event_.futex_wake(death_process_);  // the child's parent-death signal
    }
  }

  void judge(sim::Scheduler::Stop stop) {
    if (stop == sim::Scheduler::Stop::kSteps) return fail("no end within the steps");
    if (stop == sim::Scheduler::Stop::kStuck) return fail("all sleep: a wake-up was lost");
    for (uint64_t task = 1; task < next_task_; ++task) {
      const TaskLog& log = log_[task];
      expect(log.starts <= 1, "started twice", task);
      expect(!log.revoked || log.starts == 0, "revoked and started", task);
      expect(log.completions <= log.starts, "completed and never started", task);
      expect(!log.abandoned || log.abandoned_as_started || log.starts == 0,
             "started and told as not started", task);
      if (parent_process_->dead()) continue;
      expect(log.completions + log.revoked + log.abandoned == 1, "not ended exactly once", task);
    }
  }

  base::Prng prng_;
  base::Prng child_prng_{prng_.next()};
  sim::Scheduler scheduler_;
  sim::World world_;
  sim::Process* parent_process_ = nullptr;
  sim::Process* child_process_ = nullptr;
  sim::Process* death_process_ = world_.make_process();
  SimEvent parent_event_{&world_};
  SimEvent child_event_{&world_};
  std::byte* region_;
  std::byte* hub_;
  uint64_t tasks_;
  uint32_t depth_;
  uint64_t revoke_one_in_;
  uint64_t sleep_one_in_;
  uint64_t poll_one_in_;
  uint64_t control_one_in_;
  bool storm_;
  uint64_t spins_max_;
  size_t args_max_;
  size_t result_max_;
  size_t text_max_;
  Death death_ = Death::kNone;
  std::vector<TaskLog> log_;
  std::map<uint64_t, uint64_t> tickets_;  // outstanding: ticket to task
  uint64_t next_task_ = 1;
  uint32_t controls_ = 0;
  bool full_ = false;  // the newest push found no room, and nothing came since
  uint64_t cancelled_through_ = 0;
  bool stop_ = false;
  std::string failure_;
};

class MailboxSim : public testing::Test {
 protected:
  void TearDown() override { base::set_fault(0); }
  std::string run(uint64_t seed) { return Story(seed, memories_.get()).run(); }
  // The first seed that fails, and how; 0 for none.
  uint64_t first_failure(uint64_t seeds, std::string* text) {
    for (uint64_t seed = 1; seed <= seeds; ++seed) {
      *text = run(seed);
      if (!text->empty()) return seed;
    }
    return 0;
  }
  static bool all_reached() {
    bool all = true;
    base::marks([&](const base::Mark& mark) {
      all &= mark.hits() > 0 || !mark.name().starts_with("mailbox: ");
    });
    return all;
  }
  std::unique_ptr<Memories> memories_ = std::make_unique<Memories>();
};

TEST_F(MailboxSim, EveryTaskEndsOnceAndNoWakeUpIsLostWhateverTheOrder) {
  std::string text;
  const uint64_t seed = first_failure(kSeeds, &text);
  EXPECT_EQ(seed, 0u) << "seed " << seed << ": " << text;
}

TEST_F(MailboxSim, TheSameSeedGivesTheSameRun) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Story first(seed, memories_.get());
    EXPECT_EQ(first.run(), "");
    Story second(seed, memories_.get());
    EXPECT_EQ(second.run(), "");
    EXPECT_EQ(first.fingerprint(), second.fingerprint()) << seed;
  }
}

TEST_F(MailboxSim, ALeftOutFenceLosesAWakeUp) {
  base::set_fault(7);
  std::string text;
  const uint64_t seed = first_failure(2000, &text);
  EXPECT_NE(seed, 0u);
  EXPECT_EQ(text, "all sleep: a wake-up was lost") << "seed " << seed;
}

TEST_F(MailboxSim, ARevokedEntryThatStartsIsFound) {
  base::set_fault(13);
  std::string text;
  const uint64_t seed = first_failure(2000, &text);
  EXPECT_NE(seed, 0u) << text;
}

TEST_F(MailboxSim, ReachesEveryRareBranch) {
  std::string text;
  for (uint64_t seed = 1; seed <= 4000 && !all_reached(); ++seed) {
    ASSERT_EQ(text = run(seed), "") << "seed " << seed;
  }
  size_t named = 0;
  base::marks([&](const base::Mark& mark) {
    if (!mark.name().starts_with("mailbox: ")) return;
    if (mark.name() == "mailbox: a task ends after its deadline") return;  // ChildLoop's, not here
    ++named;
    EXPECT_GT(mark.hits(), 0u) << mark.name();
  });
  EXPECT_GE(named, 8u);
}

}  // namespace
}  // namespace strata::mailbox
