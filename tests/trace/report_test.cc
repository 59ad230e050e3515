// From rings to the file: what belongs together, and what a hostile or dying writer leaves.
#include "trace/report.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "base/prng.h"
#include "tests/trace/memory.h"
#include "trace/perfetto.h"

namespace strata::trace {
namespace {

using test::dispatch;
using test::Memory;
using test::task;
using Json = nlohmann::json;

Json written(const Region& region, uint64_t last = 1'000'000, const Facts& facts = {}) {
  Report report(region, {.first_ticks = 0, .last_ticks = last, .ns_per_tick = 1.0});
  std::ostringstream out;
  write_perfetto_json(report, facts, out);
  return Json::parse(out.str());  // throws, and so fails, on anything that is no JSON
}

std::vector<Json> all(const Json& json, const std::string& category) {
  std::vector<Json> out;
  for (const Json& event : json["traceEvents"]) {
    if (event.value("cat", "") == category) out.push_back(event);
  }
  return out;
}

// What timeline_check.py asks of a file: times on a thread do not go back, spans nest, and a flow
// has one beginning and one end in this order.
void expect_sound(const Json& json) {
  std::map<std::pair<int64_t, int64_t>, std::vector<Json>> threads;
  std::map<std::string, std::vector<Json>> flows;
  for (const Json& event : json["traceEvents"]) {
    if (event["ph"] == "M") continue;
    threads[{event["pid"], event["tid"]}].push_back(event);
    if (event.contains("bind_id")) flows[event["bind_id"]].push_back(event);
  }
  const auto ns = [](const Json& us) { return std::llround(us.get<double>() * 1000); };
  for (const auto& [thread, events] : threads) {
    long long last = 0;
    std::vector<long long> ends;
    for (const Json& event : events) {
      const long long start = ns(event["ts"]);
      ASSERT_GE(start, last) << event;
      last = start;
      if (event["ph"] != "X") continue;
      ASSERT_GT(ns(event["dur"]), 0);
      while (!ends.empty() && ends.back() <= start) ends.pop_back();
      ASSERT_TRUE(ends.empty() || start + ns(event["dur"]) <= ends.back()) << event;
      ends.push_back(start + ns(event["dur"]));
    }
  }
  for (const auto& [flow, events] : flows) {
    ASSERT_EQ(events.size(), 2u) << flow;
    const bool first_is_out = events[0].contains("flow_out");
    const Json& out = first_is_out ? events[0] : events[1];
    const Json& in = first_is_out ? events[1] : events[0];
    ASSERT_EQ(out["cat"], "dispatch");
    ASSERT_EQ(in["cat"], "task");
    ASSERT_LE(ns(out["ts"]), ns(in["ts"]));
  }
}

TEST(TimelineReport, ATaskIsBoundToItsDispatchAndHasItsNumbers) {
  Memory memory;
  Recorder parent(memory.region(), memory.host(), {10, Role::kParent, "L3"});
  Recorder child(memory.region(), memory.host(), {11, Role::kSub, "L3/1"});
  Event sent = dispatch(1, 5, 100, 120);
  sent.name = parent.name("gemm");
  parent.push(sent);
  parent.push(dispatch(0, 5, 130, 140));  // of another worker, whose ring is not there
  parent.push(dispatch(1, 6, 150, 160));  // never started
  Event ran = task(5, 200, 300);
  ran.name = child.name("gemm");
  child.push(ran);
  child.push(task(7, 400, 500));  // never dispatched, as far as is known
  const Json json = written(memory.region());
  expect_sound(json);
  const std::vector<Json> tasks = all(json, "task");
  ASSERT_EQ(tasks.size(), 2u);
  EXPECT_EQ(tasks[0], (Json{{"ph", "X"},
                            {"pid", 11},
                            {"tid", tasks[0]["tid"]},
                            {"ts", 0.2},
                            {"dur", 0.1},
                            {"cat", "task"},
                            {"name", "gemm"},
                            {"args", {{"run", 1}, {"task", 4}, {"ticket", 5}, {"outcome", "ok"}}},
                            {"bind_id", tasks[0]["bind_id"]},
                            {"flow_in", true}}));
  EXPECT_FALSE(tasks[1].contains("bind_id"));
  EXPECT_EQ(tasks[1]["name"], "?");
  EXPECT_FALSE(tasks[1]["args"].contains("run"));
  const std::vector<Json> dispatches = all(json, "dispatch");
  ASSERT_EQ(dispatches.size(), 3u);
  EXPECT_EQ(dispatches[0]["bind_id"], tasks[0]["bind_id"]);
  EXPECT_FALSE(dispatches[1].contains("bind_id"));
  EXPECT_FALSE(dispatches[2].contains("bind_id"));
}

TEST(TimelineReport, AWorkerThatIsAChildIsOneProcessWithBothSides) {
  Memory memory;
  Recorder root(memory.region(), memory.host(), {10, Role::kParent, "L4"});
  Recorder below(memory.region(), memory.host(), {11, Role::kWorker, "L4/0"});
  Recorder inner(memory.region(), memory.host(), {11, Role::kParent, "L4/0"});
  Recorder leaf(memory.region(), memory.host(), {12, Role::kSub, "L4/0/0"});
  root.push(dispatch(0, 1, 100, 110));
  below.push(task(1, 120, 900));
  inner.push(dispatch(0, 1, 200, 210));
  leaf.push(task(1, 220, 300));
  const Json json = written(memory.region());
  expect_sound(json);
  std::map<int64_t, std::string> processes;
  for (const Json& event : json["traceEvents"]) {
    if (event["name"] == "process_name") processes[event["pid"]] = event["args"]["name"];
  }
  EXPECT_EQ(processes, (std::map<int64_t, std::string>{
                           {10, "L4 Worker"}, {11, "L4/0 Worker"}, {12, "L4/0/0 SUB"}}));
  for (const Json& one : all(json, "task")) EXPECT_TRUE(one.contains("bind_id")) << one;
}

TEST(TimelineReport, ATaskThatWasCutOffEndsWhenItsParentFindsOut) {
  Memory memory;
  Recorder parent(memory.region(), memory.host(), {10, Role::kParent, "L3"});
  Recorder child(memory.region(), memory.host(), {11, Role::kSub, "L3/0"});
  parent.push(dispatch(0, 1, 100, 110));
  child.begin(0, task(1, 200, 0));
  Event gone;
  gone.kind = Kind::kGone;
  gone.mark = Mark::kLost;
  gone.start = gone.end = 777;
  gone.name = parent.name("killed by signal 9 \"(Killed)\"");
  parent.push(gone);
  const Json json = written(memory.region());
  expect_sound(json);
  ASSERT_EQ(all(json, "task").size(), 1u);
  EXPECT_EQ(all(json, "task")[0]["dur"], 0.577);
  EXPECT_EQ(all(json, "task")[0]["args"]["outcome"], "lost");
  EXPECT_TRUE(all(json, "task")[0].contains("bind_id"));
  EXPECT_EQ(all(json, "gone")[0]["args"]["reason"], "killed by signal 9 \"(Killed)\"");
}

TEST(TimelineReport, ASpanWhoseEndWasPushedBeforeTheKillIsNotShownTwice) {
  Memory memory;
  Recorder child(memory.region(), memory.host(), {11, Role::kSub, "L3/0"});
  child.begin(0, task(1, 200, 0));
  child.push(task(1, 200, 250));  // and killed before the open one is taken away
  EXPECT_EQ(all(written(memory.region()), "task").size(), 1u);
  child.begin(0, task(2, 300, 0));
  EXPECT_EQ(all(written(memory.region()), "task").size(), 2u);
}

TEST(TimelineReport, DroppedEventsAreInTheLabelsInTheTotalsAndAsAVisibleMark) {
  Memory memory({.rings = 1, .events = 2, .names_bytes = 16});
  Recorder child(memory.region(), memory.host(), {11, Role::kSub, "L3/0"});
  Recorder none(memory.region(), memory.host(), {12, Role::kSub, "L3/1"});
  for (uint64_t i = 1; i < 6; ++i) child.push(task(i, i * 10, i * 10 + 5));
  EXPECT_EQ(child.name("a name that does not fit"), 0u);
  const Json json = written(memory.region(), 1'000, {{"clock", "of a \"test\""}});
  expect_sound(json);
  const std::vector<Json> dropped = all(json, "dropped");
  ASSERT_EQ(dropped.size(), 1u);
  EXPECT_EQ(dropped[0]["ph"], "i");
  EXPECT_EQ(dropped[0]["ts"], 0.025);
  EXPECT_EQ(dropped[0]["args"]["dropped"], 3);
  bool labelled = false;
  for (const Json& event : json["traceEvents"]) {
    if (event["name"] != "process_labels") continue;
    labelled = event["args"]["labels"] == "3 events dropped";
  }
  EXPECT_TRUE(labelled);
  EXPECT_EQ(json["otherData"], (Json{{"clock", "of a \"test\""},
                                     {"dropped_events", 3},
                                     {"bad_events", 0},
                                     {"names_without_room", 1},
                                     {"processes_without_ring", 1}}));
}

TEST(TimelineReport, SleepsOfTwoLeadersThatOverlapAreCutAndRunsNest) {
  Memory memory;
  Recorder parent(memory.region(), memory.host(), {10, Role::kParent, "L3"});
  const auto span = [](Kind kind, uint64_t start, uint64_t end, uint32_t run) {
    Event event;
    event.kind = kind;
    event.start = start;
    event.end = end;
    event.run = run;
    return event;
  };
  parent.push(span(Kind::kSleep, 100, 300, 0));
  parent.push(span(Kind::kSleep, 200, 400, 0));
  parent.push(span(Kind::kSleep, 200, 250, 0));
  parent.push(span(Kind::kBuild, 500, 600, 1));
  parent.push(span(Kind::kRun, 500, 900, 1));
  parent.push(span(Kind::kBuild, 550, 700, 2));
  const Json json = written(memory.region());
  expect_sound(json);
  EXPECT_EQ(all(json, "sleep").size(), 3u);
  EXPECT_EQ(all(json, "sleep")[0]["dur"], 0.1);
}

TEST(TimelineReport, WithoutRingsIsAValidFile) {
  Memory memory;
  EXPECT_EQ(written(memory.region())["traceEvents"].size(), 0u);
}

TEST(TimelineReport, EscapesWhateverBytesANameHas) {
  Memory memory({.rings = 1, .events = 4, .names_bytes = 4096});
  Recorder child(memory.region(), memory.host(),
                 {11, Role::kSub, "a\"b\\c\n\t\x01\x7f \xc3\xa4 \xff\xe2\x82 z"});
  Event event = task(1, 10, 20);
  event.name = child.name("q\"\\\x02\xff");
  child.push(event);
  const Json json = written(memory.region());
  EXPECT_EQ(json["traceEvents"][0]["args"]["name"],
            "a\"b\\c\n\t\x01\x7f \xc3\xa4 \xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd z SUB");
  EXPECT_EQ(all(json, "task")[0]["name"], "q\"\\\x02\xef\xbf\xbd");
}

// Whatever bytes stand in the shared memory, the reader stays inside it and the file is sound.
TEST(TimelineReport, AnyBytesInTheRegionGiveASoundFile) {
  base::Prng prng(11);
  for (int round = 0; round < 300; ++round) {
    Memory memory({.rings = 3, .events = 32, .names_bytes = 128});
    const std::span<std::byte> bytes = memory.bytes();
    {
      Recorder parent(memory.region(), memory.host(), {10, Role::kParent, "L3"});
      Recorder child(memory.region(), memory.host(), {11, Role::kSub, "L3/0"});
      Recorder other(memory.region(), memory.host(), {10, Role::kSub, "L3/0"});
      for (uint64_t i = 1; i <= 30; ++i) {
        parent.push(dispatch(0, i, i * 100, i * 100 + prng.below(300)));
        child.push(task(1 + prng.below(30), prng.below(4000), prng.below(4000)));
        other.push(task(i, i * 100 + 50, i * 100 + 60));
      }
      child.begin(1, dispatch(0, 3, 5, 6));
    }
    // Single words, or whole stretches, so that some of what is left still holds together.
    const size_t first = 64;
    for (uint64_t n = prng.below(200); n > 0; --n) {
      const size_t at = first + prng.below(bytes.size() - first - 8);
      const uint64_t word = prng.chance(1, 2) ? prng.next() : prng.below(64);
      std::memcpy(bytes.data() + at / 4 * 4, &word, prng.chance(1, 2) ? 4 : 8);
    }
    if (prng.chance(1, 4)) {
      const uint32_t claimed = static_cast<uint32_t>(prng.next());
      std::memcpy(bytes.data() + offsetof(layout::RegionHeader, claimed), &claimed, 4);
    }
    ASSERT_NO_FATAL_FAILURE(expect_sound(written(memory.region(), 5'000)));
  }
}

}  // namespace
}  // namespace strata::trace
