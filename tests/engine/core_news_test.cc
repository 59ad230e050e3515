// Workers that note their news instead of being looked at.
#include <algorithm>

#include "core_rig.h"

namespace strata::engine {
namespace {

struct NotingRig : CoreRig {
  explicit NotingRig(uint32_t workers, Limits limits = {.slots = 64, .buffers = 64})
      : CoreRig(0, limits) {
    for (uint32_t i = 0; i < workers; ++i) core.start_worker(add_worker({.notes_news = true}), now);
    answer_all();
    EXPECT_TRUE(core.begin_register(native("gemm"), now).ok());
    answer_all();
    gemm = core.take_register_outcome()->value();
  }
  // Every control, and note it.
  void answer_all() {
    for (bool any = true; any;) {
      step();
      any = false;
      for (uint32_t i = 0; i < fakes.size(); ++i) {
        if (!fakes[i]->posted_control || fakes[i]->answered()) continue;
        fakes[i]->answer();
        core.news().note(i);
        any = true;
      }
    }
  }
  uint32_t live() const { return core.scheduler().live(); }
};

TEST(CoreNews, AWorkerThatNotesItsAnswersBecomesReady) {
  NotingRig rig(3);
  for (uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(rig.core.worker_state(i), Core::WorkerState::kReady);
  }
}

TEST(CoreNews, ACompletionIsFoundWhenItIsNotedAndNotBefore) {
  NotingRig rig(2);
  const auto run = rig.core.open_run();
  rig.submit(*run);
  rig.step();
  const uint32_t worker = rig.fake(0).queue.empty() ? 1 : 0;
  rig.fake(worker).end();
  rig.step();
  EXPECT_EQ(rig.live(), 1u);
  EXPECT_FALSE(rig.core.has_news());
  rig.core.news().note(worker);
  EXPECT_TRUE(rig.core.has_news());
  rig.step();
  EXPECT_EQ(rig.live(), 0u);
  EXPECT_FALSE(rig.core.has_news());
}

TEST(CoreNews, AThreadThatSpinsSeesANote) {
  NotingRig rig(1);
  const auto run = rig.core.open_run();
  rig.submit(*run);
  rig.step();
  std::vector<Awaited> awaited;
  rig.core.busy_endpoints(&awaited);
  const auto ready = [&] { return std::ranges::any_of(awaited, &Awaited::ready); };
  EXPECT_FALSE(ready());
  rig.fake().end();
  rig.core.news().note(0);
  EXPECT_TRUE(ready());
}

// An endpoint that hands out one completion a poll, and on the first one more is brought and noted.
class SlowEndpoint final : public WorkerEndpoint {
 public:
  std::optional<uint64_t> dispatch(const mailbox::TaskPost& post,
                                   std::span<const std::byte>) override {
    tasks.push_back(post.task);
    return tasks.size();
  }
  bool has_room() override { return true; }
  bool revoke(uint64_t) override { return false; }
  void cancel_through(uint64_t) override {}
  Result<void> control(uint32_t command, std::span<const std::byte>) override {
    reply_ = command;
    return {};
  }
  bool control_outstanding() const override { return reply_.has_value(); }
  bool needs_wake() override { return false; }
  void wake() override {}
  bool has_news() const override { return polled_ < done || reply_.has_value(); }
  bool has_news_ahead(uint32_t) const override { return has_news(); }
  Result<void> poll(EndpointSink& sink) override {
    if (reply_) {
      sink.on_reply(*std::exchange(reply_, std::nullopt), 0, {});
      return {};
    }
    if (polled_ == done) return {};
    mailbox::Completion completion;
    completion.task = tasks[polled_];
    completion.ticket = ++polled_;
    completion.outcome = mailbox::Outcome::kOk;
    sink.on_completion(completion);
    if (note_in_poll != nullptr) {
      ++done;
      std::exchange(note_in_poll, nullptr)->note(0);
    }
    return {};
  }
  void abandon(EndpointSink&) override {}
  const std::string& where() const override { return where_; }

  std::vector<uint64_t> tasks;
  size_t done = 0;
  NewsSet* note_in_poll = nullptr;

 private:
  size_t polled_ = 0;
  std::optional<uint32_t> reply_;
  std::string where_ = "slow";
};

struct SlowRig {
  SlowRig() : core({.path = "L3", .limits = {.slots = 64, .buffers = 64}, .timeouts = {}}) {
    auto endpoint = std::make_unique<SlowEndpoint>();
    slow = endpoint.get();
    core.add_worker(std::move(endpoint), {.notes_news = true});
    core.start_worker(0, now);
    settle();
    EXPECT_TRUE(core.begin_register(native("gemm"), now).ok());
    settle();
    gemm = core.take_register_outcome()->value();
    run = core.open_run();
  }
  void settle() {
    while (core.wants_time()) {
      core.news().note(0);
      core.step(now);
    }
  }
  void submit() {
    TaskRef ref;
    std::optional<Error> error;
    EXPECT_EQ(core.submit(*run, {gemm, Where{}, {}}, {}, &ref, &error), Core::Submitted::kDone);
  }
  const base::Instant now{1'000'000'000};
  Core core;
  SlowEndpoint* slow;
  registry::EntryRef gemm;
  std::shared_ptr<RunRecord> run;
};

TEST(CoreNews, WhatAPollLeavesIsTakenByALaterStepWithoutAnotherNote) {
  SlowRig rig;
  for (int i = 0; i < 3; ++i) rig.submit();
  rig.core.step({});
  rig.slow->done = 3;
  rig.core.news().note(0);
  int steps = 0;
  for (; rig.core.has_news(); ++steps) {
    ASSERT_LT(steps, 10);
    rig.core.step({});
  }
  EXPECT_EQ(rig.core.scheduler().live(), 0u);
}

TEST(CoreNews, WhatIsNotedDuringAStepIsNotLost) {
  SlowRig rig;
  rig.submit();
  rig.submit();
  rig.core.step({});
  rig.slow->done = 1;
  rig.slow->note_in_poll = &rig.core.news();
  rig.core.news().note(0);
  rig.core.step({});
  if (rig.core.scheduler().live() > 0) {
    EXPECT_TRUE(rig.core.has_news());
    rig.core.step({});
  }
  EXPECT_EQ(rig.core.scheduler().live(), 0u);
}

TEST(CoreNews, ALateNoteOfALostWorkerIsHarmless) {
  NotingRig rig(2);
  rig.core.lose_worker(0, "it ended");
  rig.core.news().note(0);
  rig.step();
  EXPECT_FALSE(rig.core.has_news());
  EXPECT_EQ(rig.core.worker_state(0), Core::WorkerState::kLost);
}

TEST(CoreNews, TasksAtANotingWorkerCountAsThoseThatWillMoveOn) {
  NotingRig rig(1, {.slots = 2, .buffers = 64});
  const auto run = rig.core.open_run();
  rig.submit(*run);
  rig.submit(*run);
  rig.step();
  EXPECT_EQ(rig.try_submit(*run, {}), Core::Submitted::kFull);
  EXPECT_FALSE(rig.core.stuck().has_value());
}

TEST(CoreNews, AControlThatIsNotAnsweredIsDoubtedInTime) {
  NotingRig rig(2);
  ASSERT_TRUE(rig.core.begin_register(native("trsm"), rig.now).ok());
  rig.step();
  const base::Instant deadline = rig.core.next_deadline();
  EXPECT_GT(deadline, rig.now);
  rig.fake(0).answer();
  rig.core.news().note(0);
  rig.now = deadline + base::Duration::from_ms(1);
  rig.step();
  const std::vector<Kill> kills = rig.core.take_kills();
  ASSERT_EQ(kills.size(), 1u);
  EXPECT_EQ(kills.front().worker, 1u);
}

}  // namespace
}  // namespace strata::engine
