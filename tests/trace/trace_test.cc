#include "trace/trace.h"

#include <gtest/gtest.h>

#include <deque>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "base/prng.h"
#include "trace/perfetto.h"

namespace strata::trace {
namespace {

Event event(uint64_t task) {
  return {static_cast<int64_t>(task), 0, task, 0, 0};
}

TEST(EventRing, KeepsEventsInOrderAndDropsWhatDoesNotFit) {
  EventRing ring(4);
  for (uint64_t i = 0; i < 6; ++i) EXPECT_EQ(ring.push(event(i)), i < 4);
  EXPECT_EQ(ring.dropped(), 2u);
  std::vector<Event> out;
  EXPECT_EQ(ring.drain(&out), 4u);
  ASSERT_EQ(out.size(), 4u);
  for (uint64_t i = 0; i < 4; ++i) EXPECT_EQ(out[i].task, i);
  EXPECT_TRUE(ring.push(event(9)));
  EXPECT_EQ(ring.drain(&out), 1u);
  EXPECT_EQ(out.back().task, 9u);
}

TEST(EventRing, HasACapacityThatIsAPowerOfTwoWithinBounds) {
  EXPECT_EQ(EventRing(0).capacity(), 1u);
  EXPECT_EQ(EventRing(5).capacity(), 8u);
  EXPECT_EQ(EventRing(~0u).capacity(), 1u << 24);
}

TEST(EventRing, RandomPushesAndDrainsMatchAQueue) {
  base::Prng prng(5);
  EventRing ring(16);
  std::deque<uint64_t> model;
  uint64_t dropped = 0;
  for (uint64_t i = 0; i < 20'000; ++i) {
    if (prng.chance(9, 10)) {
      const bool fits = model.size() < 16;
      ASSERT_EQ(ring.push(event(i)), fits);
      if (fits) {
        model.push_back(i);
      } else {
        ++dropped;
      }
    } else {
      std::vector<Event> out;
      ASSERT_EQ(ring.drain(&out), model.size());
      for (const Event& e : out) {
        ASSERT_EQ(e.task, model.front());
        model.pop_front();
      }
    }
    ASSERT_EQ(ring.dropped(), dropped);
  }
}

TEST(EventRing, OneThreadMayDrainWhileAnotherPushes) {
  constexpr uint64_t kEvents = 200'000;
  EventRing ring(64);
  std::atomic<bool> end{false};
  std::thread producer([&] {
    for (uint64_t i = 0; i < kEvents; ++i) ring.push(event(i));
    end.store(true, std::memory_order_release);
  });
  std::vector<Event> out;
  while (!end.load(std::memory_order_acquire)) ring.drain(&out);
  producer.join();
  ring.drain(&out);
  EXPECT_EQ(out.size() + ring.dropped(), kEvents);
  for (size_t i = 0; i < out.size(); ++i) {
    ASSERT_EQ(static_cast<uint64_t>(out[i].start_ns), out[i].task);
    if (i > 0) {
      ASSERT_GT(out[i].task, out[i - 1].task);
    }
  }
}

TEST(Span, PushesItsOwnLifeByTheClockGiven) {
  EventRing ring(4);
  int64_t now = 100;
  const auto clock = [&now] { return now; };
  {
    Span span(&ring, clock, {.name = 3, .lane = 2, .task = 7});
    now = 150;
  }
  { Span off(nullptr, clock, {}); }
  std::vector<Event> out;
  ASSERT_EQ(ring.drain(&out), 1u);
  EXPECT_EQ(out[0].start_ns, 100);
  EXPECT_EQ(out[0].end_ns, 150);
  EXPECT_EQ(out[0].name, 3u);
  EXPECT_EQ(out[0].lane, 2u);
  EXPECT_EQ(out[0].task, 7u);
}

nlohmann::json written(const std::vector<ProcessTimeline>& processes) {
  std::ostringstream out;
  write_perfetto_json(processes, out);
  return nlohmann::json::parse(out.str());  // throws, and so fails, on anything that is no JSON
}

TEST(Perfetto, WritesNamesAndEventsThatParseBack) {
  ProcessTimeline process;
  process.pid = 4711;
  process.name = "L3/0";
  process.lanes = {"engine", "task"};
  process.names = {"gemm"};
  process.events = {{1'234'567, 1'234'999, 42, 0, 1}, {-1'001, 999, 1, 9, 7}, {50, 40, 2, 0, 0}};
  process.dropped = 3;
  const nlohmann::json json = written({process});
  EXPECT_EQ(json["displayTimeUnit"], "ns");
  const nlohmann::json& events = json["traceEvents"];
  ASSERT_EQ(events.size(), 7u);
  EXPECT_EQ(events[0], (nlohmann::json{{"ph", "M"},
                                       {"pid", 4711},
                                       {"tid", 0},
                                       {"name", "process_name"},
                                       {"args", {{"name", "L3/0"}}}}));
  EXPECT_EQ(events[1]["args"]["labels"], "3 events dropped");
  EXPECT_EQ(events[3]["name"], "thread_name");
  EXPECT_EQ(events[3]["tid"], 1);
  EXPECT_EQ(events[3]["args"]["name"], "task");
  EXPECT_EQ(events[4], (nlohmann::json{{"ph", "X"},
                                       {"pid", 4711},
                                       {"tid", 1},
                                       {"name", "gemm"},
                                       {"ts", 1234.567},
                                       {"dur", 0.432},
                                       {"args", {{"task", 42}}}}));
  EXPECT_EQ(events[5]["name"], "#9");
  EXPECT_EQ(events[5]["ts"], -1.001);
  EXPECT_EQ(events[5]["dur"], 2.0);
  EXPECT_EQ(events[6]["dur"], 0.0);
}

TEST(Perfetto, WithoutProcessesIsAValidFile) {
  EXPECT_EQ(written({})["traceEvents"].size(), 0u);
}

TEST(Perfetto, EscapesWhateverBytesANameHas) {
  ProcessTimeline process;
  process.name = "a\"b\\c\n\t\x01\x7f \xc3\xa4 \xff\xe2\x82 z";
  EXPECT_EQ(written({process})["traceEvents"][0]["args"]["name"],
            "a\"b\\c\n\t\x01\x7f \xc3\xa4 \xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd z");
  base::Prng prng(6);
  for (int round = 0; round < 2000; ++round) {
    process.name.assign(prng.below(20), ' ');
    for (char& c : process.name) c = static_cast<char>(prng.next());
    EXPECT_EQ(written({process})["traceEvents"].size(), 1u);
  }
}

}  // namespace
}  // namespace strata::trace
