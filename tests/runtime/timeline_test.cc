// Timelines of real Workers: the file is read back, by Python's json too.
#include <dirent.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "tests/runtime/worker_test_util.h"

namespace strata::test {
namespace {

using Json = nlohmann::json;

class TimelineTest : public ::testing::Test {
 protected:
  TimelineTest() {
    char name[] = "/tmp/strata_timeline_XXXXXX";
    folder_ = ::mkdtemp(name);
  }
  ~TimelineTest() override {
    ::unsetenv("STRATA_TIMELINE");
    std::filesystem::remove_all(folder_);
  }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  WorkerSpec spec(StartMethod start, int children) const {
    WorkerSpec out = spec_of(start, children);
    out.timeline = path("trace.json");
    return out;
  }
  std::set<std::string> files() const {
    std::set<std::string> out;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      out.insert(entry.path().filename());
    }
    return out;
  }

  std::string folder_;
};

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream out;
  out << file.rdbuf();
  return out.str();
}

// The file's events, after the general checks of timeline_check.py.
class Trace {
 public:
  explicit Trace(const std::string& path) {
    const std::string command = "python3 '" STRATA_TIMELINE_CHECK "' '" + path + "' >&2";
    EXPECT_EQ(std::system(command.c_str()), 0) << path;
    json_ = Json::parse(text_of(path), nullptr, false);
    EXPECT_FALSE(json_.is_discarded());
    for (const Json& event : json_["traceEvents"]) {
      if (event["name"] == "process_name") processes_[event["pid"]] = event["args"]["name"];
    }
  }
  // All of a category, and of a process where one is named.
  std::vector<Json> all(const std::string& category, const std::string& process = "") const {
    std::vector<Json> out;
    for (const Json& event : json_["traceEvents"]) {
      if (event.value("cat", "") != category) continue;
      if (!process.empty() && processes_.at(event["pid"]) != process) continue;
      out.push_back(event);
    }
    return out;
  }
  std::set<std::string> processes() const {
    std::set<std::string> out;
    for (const auto& [pid, name] : processes_) out.insert(name);
    return out;
  }
  const Json& other(const std::string& key) const { return json_["otherData"][key]; }

 private:
  Json json_;
  std::map<int64_t, std::string> processes_;
};

std::multiset<std::string> names_of(const std::vector<Json>& events) {
  std::multiset<std::string> out;
  for (const Json& event : events) out.insert(event["name"]);
  return out;
}

// `tasks` tasks in two runs, of which the last fails and one more is skipped for it.
void run_some(Worker& worker, int tasks) {
  const CallableHandle add = registered<scale_add>(worker, "scale_add");
  const CallableHandle bad = registered<throw_text>(worker, "throw_text");
  const Buffer buffer = worker.create_buffer(1024 * 8).value();
  for (int run = 0; run < 2; ++run) {
    const Result<void> ended = worker.run([&](Orchestrator& orch) {
      for (int i = 0; i < tasks / 2; ++i) {
        const Tensor x = buffer.tensor<int64_t>({4}, static_cast<uint64_t>(i % 8) * 32);
        orch.submit_sub(
                add, TaskArgs().add_tensor(x, INOUT).add_scalar<int64_t>(2).add_scalar(int64_t{1}))
            .value();
      }
      if (run == 0) return;
      const Tensor y = buffer.tensor<int64_t>({4}, 512);
      orch.submit_sub(bad, TaskArgs().add_tensor(y, OUTPUT).set_inline(bytes_of("no \"way\"")))
          .value();
      orch.submit_sub(add,
                      TaskArgs().add_tensor(y, INOUT).add_scalar<int64_t>(2).add_scalar(int64_t{1}))
          .value();
    });
    EXPECT_EQ(ended.ok(), run == 0);
  }
}

class TimelineOfBothStarts : public TimelineTest,
                             public ::testing::WithParamInterface<StartMethod> {};
INSTANTIATE_TEST_SUITE_P(Start, TimelineOfBothStarts,
                         ::testing::Values(StartMethod::kInline, StartMethod::kFork),
                         [](const auto& test) {
                           return test.param == StartMethod::kInline ? "Inline" : "Fork";
                         });

TEST_P(TimelineOfBothStarts, HasEveryTaskWithItsDispatchAndItsOutcome) {
  constexpr int kTasks = 200;
  {
    auto worker = started(spec(GetParam(), 2));
    run_some(*worker, kTasks);
    EXPECT_FALSE(files().contains("trace.json"));
    worker->close().value();
  }
  EXPECT_EQ(files(), (std::set<std::string>{"trace.json"}));
  const Trace trace(path("trace.json"));
  const bool fork = GetParam() == StartMethod::kFork;
  EXPECT_EQ(trace.processes(), fork ? (std::set<std::string>{"L3 Worker", "L3/0 SUB", "L3/1 SUB"})
                                    : (std::set<std::string>{"L3 Worker"}));
  const std::vector<Json> tasks = trace.all("task");
  ASSERT_EQ(tasks.size(), kTasks + 1u);
  std::set<std::pair<int, int>> seen;
  for (const Json& task : tasks) {
    const Json& args = task["args"];
    EXPECT_TRUE(seen.emplace(args["run"], args["task"]).second);
    const bool failed = args["run"] == 2 && args["task"] == kTasks / 2;
    EXPECT_EQ(task["name"], failed ? "throw_text (failed)" : "scale_add");
    EXPECT_EQ(args["outcome"], failed ? "failed" : "ok");
    EXPECT_TRUE(task.contains("bind_id"));
  }
  EXPECT_EQ(trace.all("submit").size(), kTasks + 2u);
  EXPECT_EQ(trace.all("completion").size(), kTasks + 1u);
  ASSERT_EQ(trace.all("skip").size(), 1u);
  EXPECT_EQ(trace.all("skip")[0]["args"], (Json{{"run", 2}, {"task", kTasks / 2 + 1}}));
  EXPECT_EQ(names_of(trace.all("run")), (std::multiset<std::string>{"run 1", "run 2 (failed)"}));
  EXPECT_EQ(trace.all("build").size(), 2u);
  const auto controls = names_of(trace.all("control"));
  EXPECT_EQ(controls.count("prepare scale_add"), fork ? 2u : 1u);
  EXPECT_EQ(controls.count("commit throw_text"), fork ? 2u : 1u);
  EXPECT_EQ(trace.other("dropped_events"), 0);
  EXPECT_EQ(trace.other("bad_events"), 0);
  EXPECT_EQ(names_of(trace.all("gone")),
            fork ? (std::multiset<std::string>{"worker 0 ended", "worker 1 ended"})
                 : std::multiset<std::string>{});
}

}  // namespace
}  // namespace strata::test
