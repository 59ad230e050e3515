// Both sides in one thread, step by step: what each call promises, and what a parent makes of a
// child that writes nonsense.
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "base/prng.h"
#include "mailbox/child_side.h"
#include "mailbox/hub.h"
#include "mailbox/parent_side.h"
#include "mailbox/plain_memory.h"
#include "mapping.h"

namespace strata::mailbox {
namespace {

using Parent = ParentSide<PlainMemory>;
using Child = ChildSide<PlainMemory>;

std::vector<std::byte> filled(size_t bytes, int value) {
  return {bytes, std::byte(value)};
}

class Mailbox : public testing::Test {
 protected:
  Mailbox() {
    hub.format();
    parent.format();
  }
  Child attach() { return Child::attach({}, region_memory.span(), hub_memory.span()).value(); }
  std::string attach_error() {
    const auto attached = Child::attach({}, region_memory.span(), hub_memory.span());
    return attached.ok() ? "" : attached.error().to_string();
  }
  uint64_t push(uint64_t task, std::span<const std::byte> args = {}) {
    return parent.push({.task = task}, args).value();
  }
  // Takes and completes the next task.
  void run_next(Child& child, size_t result_bytes = 0) {
    TaskView task;
    ASSERT_TRUE(child.try_take(&task));
    ASSERT_TRUE(child.try_complete(task, {.result = filled(result_bytes, 1)}));
  }
  std::vector<uint64_t> poll(size_t max = 64) {
    std::vector<uint64_t> tasks;
    polled = parent.poll(max, [&](const Completion& done) { tasks.push_back(done.task); });
    return tasks;
  }
  RegionLayout& raw() { return *reinterpret_cast<RegionLayout*>(region_memory.data()); }

  Mapping<kRegionBytes> region_memory;
  Mapping<kHubBytes> hub_memory;
  Hub<PlainMemory> hub{{}, hub_memory.data()};
  Parent parent{{}, region_memory.data()};
  Polled polled;
};

TEST_F(Mailbox, ATaskAndItsCompletionArriveWhole) {
  Child child = attach();
  const auto args = filled(1000, 7);
  const uint64_t ticket =
      parent.push({.task = 11, .callable = 2, .flags = 3, .block_dim = -4, .deadline_ms = 5}, args)
          .value();
  TaskView task;
  ASSERT_TRUE(child.try_take(&task));
  EXPECT_EQ(task.task, 11u);
  EXPECT_EQ(task.ticket, ticket);
  EXPECT_EQ(task.callable, 2u);
  EXPECT_EQ(task.flags, 3u);
  EXPECT_EQ(task.block_dim, -4);
  EXPECT_EQ(task.deadline_ms, 5u);
  EXPECT_TRUE(std::ranges::equal(task.args, args));
  ASSERT_TRUE(child.try_complete(task, {.outcome = Outcome::kTaskFailed,
                                        .code = -9,
                                        .started_ns = 100,
                                        .ended_ns = 200,
                                        .result = filled(10, 1),
                                        .text = filled(20, 2)}));
  EXPECT_TRUE(parent.has_completion());
  const Polled got = parent.poll(1, [&](const Completion& done) {
    EXPECT_EQ(done.task, 11u);
    EXPECT_EQ(done.ticket, ticket);
    EXPECT_EQ(done.outcome, Outcome::kTaskFailed);
    EXPECT_EQ(done.code, -9);
    EXPECT_EQ(done.started_ns, 100);
    EXPECT_EQ(done.ended_ns, 200);
    EXPECT_TRUE(std::ranges::equal(done.result, filled(10, 1)));
    EXPECT_TRUE(std::ranges::equal(done.text, filled(20, 2)));
  });
  EXPECT_EQ(got.completions, 1u);
  EXPECT_EQ(got.corrupt, nullptr);
  EXPECT_EQ(parent.outstanding(), 0u);
  EXPECT_FALSE(parent.has_completion());
}

TEST_F(Mailbox, ARingThatIsFullTakesMoreOnlyAfterACompletionWasPolled) {
  Child child = attach();
  for (uint64_t task = 0; task < kRingEntries; ++task) push(task);
  EXPECT_FALSE(parent.push({}, {}).has_value());
  run_next(child);
  EXPECT_FALSE(parent.push({}, {}).has_value());  // its completion entry is not free yet
  EXPECT_EQ(poll(), (std::vector<uint64_t>{0}));
  EXPECT_TRUE(parent.push({}, {}).has_value());
  EXPECT_FALSE(parent.push({}, {}).has_value());
}

TEST_F(Mailbox, ArgumentsAreContiguousAndFreedInOrder) {
  Child child = attach();
  const size_t third = kArgsRingBytes / 3;
  push(1, filled(third, 1));
  push(2, filled(third, 2));
  EXPECT_FALSE(parent.push({}, filled(third + 64, 3)).has_value());
  run_next(child);
  EXPECT_EQ(poll().size(), 1u);
  push(3, filled(third, 3));  // skips the short end
  EXPECT_FALSE(parent.push({}, filled(1, 4)).has_value() &&
               parent.push({}, filled(third, 4)).has_value());
  run_next(child);
  TaskView task;
  ASSERT_TRUE(child.try_take(&task));
  EXPECT_TRUE(std::ranges::equal(task.args, filled(third, 3)));
}

TEST_F(Mailbox, AnEmptyArgsRingTakesTheLargestArguments) {
  Child child = attach();
  push(1, filled(100, 1));
  EXPECT_FALSE(parent.can_push(kArgsBytesMax));
  run_next(child);
  poll();
  const auto all = filled(kArgsBytesMax, 2);
  push(2, all);
  TaskView task;
  ASSERT_TRUE(child.try_take(&task));
  EXPECT_TRUE(std::ranges::equal(task.args, all));
}

TEST_F(Mailbox, ARevokedTaskNeverStartsAndAStartedOneIsNotRevoked) {
  Child child = attach();
  const uint64_t first = push(1);
  const uint64_t second = push(2);
  push(3);
  TaskView task;
  ASSERT_TRUE(child.try_take(&task));
  EXPECT_FALSE(parent.revoke(first));
  EXPECT_TRUE(parent.revoke(second));
  EXPECT_FALSE(parent.revoke(second));
  EXPECT_FALSE(parent.revoke(77));
  EXPECT_EQ(parent.outstanding(), 2u);
  ASSERT_TRUE(child.try_complete(task, {}));
  ASSERT_TRUE(child.try_take(&task));
  EXPECT_EQ(task.task, 3u);
}

TEST_F(Mailbox, EntriesOfRevokedTasksComeBackWithoutACompletion) {
  Child child = attach();
  for (uint64_t task = 0; task < kRingEntries; ++task) EXPECT_TRUE(parent.revoke(push(task)));
  EXPECT_FALSE(parent.push({}, {}).has_value());
  EXPECT_TRUE(child.have_work());
  TaskView task;
  EXPECT_FALSE(child.try_take(&task));
  EXPECT_TRUE(parent.has_news());
  hub.prepare_sleep([] { return false; });
  EXPECT_TRUE(child.parent_asleep_after_publish(false));
  for (uint64_t n = 0; n < kRingEntries; ++n) push(n);
}

TEST_F(Mailbox, AChildWithoutResultSpaceWaitsUntilTheParentHasRead) {
  Child child = attach();
  for (uint64_t task = 1; task <= 5; ++task) push(task);
  for (uint64_t n = 0; n < 4; ++n) run_next(child, kResultBytesMax);
  TaskView task;
  ASSERT_TRUE(child.try_take(&task));
  const auto result = filled(kResultBytesMax, 5);
  EXPECT_FALSE(child.try_complete(task, {.result = result}));
  EXPECT_FALSE(child.have_work());
  EXPECT_TRUE(child.prepare_sleep());
  EXPECT_EQ(poll(1), (std::vector<uint64_t>{1}));
  EXPECT_TRUE(polled.wake_child);
  EXPECT_TRUE(child.have_work());
  EXPECT_TRUE(child.try_complete(task, {.result = result}));
  EXPECT_EQ(poll(), (std::vector<uint64_t>{2, 3, 4, 5}));
  EXPECT_FALSE(polled.wake_child);
}

TEST_F(Mailbox, ASleepingSideIsWokenOnce) {
  Child child = attach();
  EXPECT_FALSE(parent.child_asleep_after_publish());
  EXPECT_TRUE(child.prepare_sleep());
  push(1);
  EXPECT_TRUE(parent.child_asleep_after_publish());
  EXPECT_FALSE(parent.child_asleep_after_publish());
  child.finish_sleep();
  EXPECT_FALSE(child.prepare_sleep());  // there is work
  EXPECT_FALSE(parent.child_asleep_after_publish());

  EXPECT_TRUE(hub.prepare_sleep([&] { return parent.has_news(); }));
  EXPECT_FALSE(child.parent_asleep_after_publish(false));  // nothing was published
  run_next(child);
  EXPECT_TRUE(child.parent_asleep_after_publish(false));
  EXPECT_FALSE(child.parent_asleep_after_publish(false));
  hub.finish_sleep();
  EXPECT_FALSE(hub.prepare_sleep([&] { return parent.has_news(); }));
}

TEST_F(Mailbox, OneControlIsAnsweredAtATime) {
  Child child = attach();
  EXPECT_EQ(parent.control_post(1, filled(kControlBytesMax + 1, 0)).error().code(),
            Code::kResourceExhausted);
  ASSERT_TRUE(parent.control_post(42, filled(kControlBytesMax, 3)).ok());
  EXPECT_EQ(parent.control_post(43, {}).error().code(), Code::kWrongState);
  EXPECT_TRUE(child.have_work());
  ControlView control;
  ASSERT_TRUE(child.control_take(&control));
  EXPECT_EQ(control.command, 42u);
  EXPECT_TRUE(std::ranges::equal(control.request, filled(kControlBytesMax, 3)));
  EXPECT_FALSE(child.control_take(&control));
  EXPECT_FALSE(child.have_work());
  EXPECT_FALSE(parent.has_reply());
  child.control_reply(7, filled(100, 4));
  EXPECT_TRUE(parent.has_reply());
  int replies = 0;
  const auto on_reply = [&](uint32_t command, uint32_t code, std::span<const std::byte> bytes) {
    ++replies;
    EXPECT_EQ(command, 42u);
    EXPECT_EQ(code, 7u);
    EXPECT_TRUE(std::ranges::equal(bytes, filled(100, 4)));
  };
  EXPECT_TRUE(parent.control_poll(on_reply));
  EXPECT_FALSE(parent.control_poll(on_reply));
  EXPECT_EQ(replies, 1);
  EXPECT_TRUE(parent.control_post(44, {}).ok());
  EXPECT_FALSE(parent.has_reply());  // the old reply is not the new one's
  ASSERT_TRUE(child.control_take(&control));
  EXPECT_TRUE(control.request.empty());
}

TEST_F(Mailbox, CancelReachesTheTicketsUpToTheOneNamed) {
  Child child = attach();
  push(1);
  const uint64_t second = push(2);
  TaskView task;
  ASSERT_TRUE(child.try_take(&task));
  EXPECT_FALSE(child.cancelled(task));
  parent.cancel_through(task.ticket);
  EXPECT_TRUE(child.cancelled(task));
  ASSERT_TRUE(child.try_complete(task, {}));
  ASSERT_TRUE(child.try_take(&task));
  EXPECT_EQ(task.ticket, second);
  EXPECT_FALSE(child.cancelled(task));
}

TEST_F(Mailbox, AfterAChildsDeathEachTicketIsKnownStartedOrNot) {
  Child child = attach();
  for (uint64_t task = 1; task <= 4; ++task) push(task);
  run_next(child);
  TaskView task;
  ASSERT_TRUE(child.try_take(&task));
  EXPECT_TRUE(parent.revoke(3));
  EXPECT_EQ(poll(), (std::vector<uint64_t>{1}));
  std::vector<std::pair<uint64_t, bool>> entries;
  parent.abandon(
      [&](uint64_t which, uint64_t, bool started) { entries.emplace_back(which, started); });
  EXPECT_EQ(entries, (std::vector<std::pair<uint64_t, bool>>{{2, true}, {4, false}}));
  EXPECT_EQ(parent.outstanding(), 0u);
}

// ---- what does not fit together

TEST_F(Mailbox, AnotherLayoutIsRefusedInWords) {
  raw().header.layout_id ^= 1;
  std::memcpy(raw().header.version, "9.8.7\n", 6);
  const std::string error = attach_error();
  EXPECT_TRUE(error.starts_with("ABI_MISMATCH")) << error;
  EXPECT_NE(error.find("9.8.7?"), std::string::npos) << error;
  EXPECT_NE(error.find(STRATA_VERSION), std::string::npos) << error;
  EXPECT_NE(error.find("run parent and child from one installation"), std::string::npos) << error;
}

TEST_F(Mailbox, AWrongMagicVersionOrSizeIsRefused) {
  raw().header.magic = 0;
  EXPECT_NE(attach_error().find("not a Strata mailbox"), std::string::npos);
  parent.format();
  raw().header.layout_version = 4;
  EXPECT_NE(attach_error().find("layout version 4"), std::string::npos);
  parent.format();
  raw().header.total_bytes -= 1;
  EXPECT_NE(attach_error().find("are needed"), std::string::npos);
  parent.format();
  EXPECT_FALSE(Child::attach({}, region_memory.span().first(100), hub_memory.span()).ok());
  EXPECT_FALSE(Child::attach({}, region_memory.span().first(4096), hub_memory.span()).ok());
  reinterpret_cast<HubLayout*>(hub_memory.data())->header.layout_id = 0;
  EXPECT_NE(attach_error().find("the hub was laid out by"), std::string::npos);
  hub.format();
  EXPECT_EQ(attach_error(), "");
}

// Completes task 1 and lets `spoil` change the entry before the parent looks.
class CorruptCompletion : public Mailbox {
 protected:
  template <class Spoil>
  std::string spoilt(Spoil&& spoil) {
    Child child = attach();
    push(1);
    run_next(child, 100);
    spoil(raw().completions[0]);
    EXPECT_TRUE(poll().empty());
    EXPECT_TRUE(parent.poll(1, [](const Completion&) {}).corrupt != nullptr) << "it sticks";
    EXPECT_FALSE(parent.push({}, {}).has_value());
    EXPECT_EQ(parent.outstanding(), 1u);
    return polled.corrupt == nullptr ? "" : polled.corrupt;
  }
};

TEST_F(CorruptCompletion, OfATicketThatIsNotOutstanding) {
  EXPECT_NE(spoilt([](CompletionEntry& entry) { entry.ticket = 2; }).find("not outstanding"),
            std::string::npos);
}
TEST_F(CorruptCompletion, UnderAnotherTasksName) {
  EXPECT_NE(spoilt([](CompletionEntry& entry) { entry.task = 9; }).find("another task's name"),
            std::string::npos);
}
TEST_F(CorruptCompletion, WithAnUnknownOutcome) {
  EXPECT_NE(spoilt([](CompletionEntry& entry) { entry.outcome = 3; }).find("outcome"),
            std::string::npos);
}
TEST_F(CorruptCompletion, WithBytesBeyondTheRing) {
  EXPECT_NE(spoilt([](CompletionEntry& entry) {
              entry.bytes_begin = kResultsRingBytes - 50;
            }).find("outside the result ring"),
            std::string::npos);
}
TEST_F(CorruptCompletion, WithAHugeLength) {
  EXPECT_NE(spoilt([](CompletionEntry& entry) {
              entry.bytes_begin = ~uint64_t{0} - 10;
              entry.text_bytes = ~uint32_t{0};
            }).find("outside the result ring"),
            std::string::npos);
}

TEST_F(Mailbox, ACompletionOfARevokedTicketIsCorrupt) {
  Child child = attach();
  const uint64_t ticket = push(1);
  push(2);
  EXPECT_TRUE(parent.revoke(ticket));
  run_next(child);
  raw().completions[0].ticket = ticket;
  raw().completions[0].task = 1;
  EXPECT_TRUE(poll().empty());
  EXPECT_NE(polled.corrupt, nullptr);
}

TEST_F(Mailbox, AConsumedCounterFromTheFutureIsCorrupt) {
  raw().child_progress.consumed = 1000;
  for (uint64_t task = 0; task < kRingEntries; ++task) push(task);
  EXPECT_FALSE(parent.push({}, {}).has_value());
  EXPECT_NE(parent.corrupt(), nullptr);
}

TEST_F(Mailbox, AReplyLongerThanItsAreaIsCorrupt) {
  Child child = attach();
  ASSERT_TRUE(parent.control_post(1, {}).ok());
  ControlView control;
  ASSERT_TRUE(child.control_take(&control));
  child.control_reply(0, {});
  raw().reply.bytes = kControlBytesMax + 1;
  EXPECT_FALSE(parent.control_poll([](auto&&...) { FAIL(); }));
  EXPECT_NE(parent.corrupt(), nullptr);
}

TEST_F(Mailbox, AChildRefusesArgumentsAndRequestsOutsideTheirAreas) {
  Child child = attach();
  push(1, filled(100, 1));
  raw().tasks[0].args_bytes = kArgsRingBytes;
  raw().tasks[0].args_begin = 64;
  TaskView task;
  EXPECT_FALSE(child.try_take(&task));
  EXPECT_NE(child.corrupt(), nullptr);
  EXPECT_FALSE(child.try_take(&task));

  Child second = attach();
  ASSERT_TRUE(parent.control_post(1, {}).ok());
  raw().request.bytes = kControlBytesMax + 1;
  ControlView control;
  EXPECT_FALSE(second.control_take(&control));
  EXPECT_NE(second.corrupt(), nullptr);
}

// Whatever a child scribbles, the parent reads nothing outside the region (the sanitizers look) and
// ends every ticket once.
TEST_F(Mailbox, AChildThatScribblesHarmsNobody) {
  base::Prng prng(5);
  for (int round = 0; round < 2000; ++round) {
    Mapping<kRegionBytes> memory;
    Parent side({}, memory.data());
    side.format();
    auto& region = *reinterpret_cast<RegionLayout*>(memory.data());
    std::vector<int> ended(70);
    uint64_t next_task = 0;
    const auto end = [&](const Completion& done) {
      ++ended[done.task];
      std::accumulate(done.result.begin(), done.result.end(), std::byte{},
                      [](std::byte a, std::byte b) { return a ^ b; });
    };
    for (int step = 0; step < 30; ++step) {
      if (next_task < ended.size() && side.push({.task = next_task}, filled(100, 1))) ++next_task;
      side.control_post(1, {}).ok();
      const uint64_t number = prng.between(1, 4);
      CompletionEntry& entry = region.completions[ring_position(number)];
      entry = {.state = state_word(number, Phase::kDone),
               .task = prng.below(4),
               .ticket = prng.between(1, 4),
               .started_ns = 0,
               .ended_ns = 0,
               .bytes_begin = prng.chance(1, 2) ? prng.next() : prng.below(kResultsRingBytes),
               .result_bytes = static_cast<uint32_t>(prng.below(kResultBytesMax + 10)),
               .text_bytes = static_cast<uint32_t>(prng.next() >> prng.between(32, 63)),
               .outcome = static_cast<uint32_t>(prng.below(3)),
               .code = 0};
      entry.task = prng.chance(7, 8) ? entry.ticket - 1 : entry.task;
      region.child_progress.consumed = prng.chance(1, 8) ? prng.next() : 0;
      region.reply = {state_word(1, Phase::kDone), 0,
                      static_cast<uint32_t>(prng.next() >> prng.between(32, 63))};
      region.tasks[prng.below(4)].state = prng.next();
      side.poll(prng.between(1, 64), end);
      side.control_poll([](uint32_t, uint32_t, std::span<const std::byte> bytes) {
        EXPECT_LE(bytes.size(), kControlBytesMax);
      });
      side.revoke(prng.below(5));
    }
    const uint32_t left = side.outstanding();
    uint32_t abandoned = 0;
    side.abandon([&](uint64_t task, uint64_t, bool) {
      ++abandoned;
      ++ended[task];
    });
    ASSERT_EQ(left, abandoned);
    for (const int times : ended) ASSERT_LE(times, 1);
  }
}

}  // namespace
}  // namespace strata::mailbox
