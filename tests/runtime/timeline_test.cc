// Timelines of real Workers: the file is read back, by Python's json too.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/runtime/chip_test_util.h"
#include "tests/runtime/nested_util.h"
#include "tests/runtime/worker_test_util.h"

namespace strata::test {
namespace {

using Json = nlohmann::json;

class TimelineTest : public ::testing::Test {
 protected:
  TimelineTest() {
    char name[] = "/tmp/test_timeline_XXXXXX";
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

TEST_P(TimelineOfBothStarts, ShowsWorkersInWorkersEachBelowTheTaskThatUsesThem) {
  WorkerSpec tree = pod(GetParam(), 2, 1);
  tree.timeline = path("trace.json");
  {
    auto worker = Worker::create(tree).value();
    const auto stage = registered<scale_in_subs>(*worker, "scale_in_subs");
    worker->register_inner(local_function<scale_add>("scale_add")).value();
    worker->init().value();
    const Buffer x = worker->create_buffer(8 * 64).value();
    worker
        ->run([&](Orchestrator& orch) {
          for (uint64_t i = 0; i < 8; ++i) {
            submit_next(orch, stage,
                        TaskArgs()
                            .add_tensor(x.tensor<int64_t>({8}, i * 64), INOUT)
                            .add_scalar(int64_t{3})
                            .add_scalar(int64_t{1}))
                .value();
          }
        })
        .value();
    worker->close().value();
  }
  const Trace trace(path("trace.json"));
  const std::set<std::string> forked = {"L4 Worker", "L4/0 Worker", "L4/1 Worker", "L4/0/0 SUB",
                                        "L4/1/0 SUB"};
  const std::set<std::string> inlined = {"L4 Worker", "L4/0 Worker", "L4/1 Worker"};
  EXPECT_EQ(trace.processes(), GetParam() == StartMethod::kFork ? forked : inlined);
  const std::vector<Json> tasks = trace.all("task");
  EXPECT_EQ(names_of(tasks).count("scale_in_subs"), 8u);
  EXPECT_EQ(names_of(tasks).count("scale_add"), 8u);
  for (const Json& task : tasks) EXPECT_TRUE(task.contains("bind_id")) << task;
  // Each inner task lies within an outer one.
  for (const Json& inner : tasks) {
    if (inner["name"] != "scale_add") continue;
    bool within = false;
    for (const Json& outer : tasks) {
      const double begin = outer["ts"], end = begin + outer["dur"].get<double>();
      within = within || (outer["name"] == "scale_in_subs" && inner["ts"] >= begin &&
                          inner["ts"].get<double>() + inner["dur"].get<double>() <= end + 0.001);
    }
    EXPECT_TRUE(within) << inner;
  }
}

void kill_own_process(Call&) {
  ::kill(::getpid(), SIGKILL);
}

TEST_F(TimelineTest, ShowsTheTaskThatRanWhenItsChildWasKilled) {
  {
    auto worker = started(spec(StartMethod::kFork, 2));
    const CallableHandle dies = registered<kill_own_process>(*worker, "kill_own_process");
    const Result<void> ended =
        worker->run([&](Orchestrator& orch) { orch.submit_sub(dies, {}).value(); });
    expect_error(ended, Code::kEndpointFailed, "killed");
    worker->close().value();
  }
  const Trace trace(path("trace.json"));
  const std::vector<Json> tasks = trace.all("task");
  ASSERT_EQ(tasks.size(), 1u);
  EXPECT_EQ(tasks[0]["name"], "kill_own_process (lost)");
  EXPECT_EQ(tasks[0]["args"]["outcome"], "lost");
  EXPECT_TRUE(tasks[0].contains("bind_id"));
  ASSERT_EQ(trace.all("completion").size(), 1u);
  EXPECT_EQ(trace.all("completion")[0]["args"]["outcome"], "lost");
  const auto gone = names_of(trace.all("gone"));
  EXPECT_EQ(gone.count("worker 0 ended (lost)") + gone.count("worker 1 ended (lost)"), 1u);
  // It ends when the parent learns of it, not with the file.
  const double end = tasks[0]["ts"].get<double>() + tasks[0]["dur"].get<double>();
  EXPECT_LE(end,
            trace.all("run")[0]["ts"].get<double>() + trace.all("run")[0]["dur"].get<double>());
}

TEST_F(TimelineTest, ShowsWhatACancelSkipped) {
  {
    auto worker = started(spec(StartMethod::kFork, 1));
    Gate gate(*worker);
    const CallableHandle stand = registered<stand_at_gate>(*worker, "stand_at_gate");
    RunHandle run = worker
                        ->submit([&](Orchestrator& orch) {
                          for (int i = 0; i < 3; ++i) orch.submit_sub(stand, gate.args()).value();
                        })
                        .value();
    ASSERT_TRUE(gate.await_started(1));
    run.cancel();
    EXPECT_FALSE(run.wait().ok());
    worker->close().value();
  }
  const Trace trace(path("trace.json"));
  EXPECT_EQ(names_of(trace.all("cancel")), (std::multiset<std::string>{"cancel run 1"}));
  EXPECT_EQ(names_of(trace.all("run")), (std::multiset<std::string>{"run 1 (cancelled)"}));
  EXPECT_EQ(trace.all("task").size(), 1u);
  const auto skips = names_of(trace.all("skip"));
  EXPECT_EQ(skips.count("stand_at_gate (cancelled)"), 2u);
}

TEST_F(TimelineTest, TheEnvironmentAsksForOneFileForEachWorker) {
  ::setenv("STRATA_TIMELINE", path("env %p.json").c_str(), 1);
  const std::string stem = "env " + std::to_string(::getpid());
  for (int i = 0; i < 2; ++i) started(StartMethod::kFork, 1)->close().value();
  started(spec(StartMethod::kFork, 1))->close().value();  // its own option comes first
  const std::set<std::string> found = files();
  ASSERT_EQ(found.size(), 3u);
  EXPECT_TRUE(found.contains("trace.json"));
  for (const std::string& name : found) {
    const Trace trace(path(name));
    EXPECT_EQ(trace.processes().size(), 2u);
    if (name == "trace.json") continue;
    EXPECT_EQ(name.rfind(stem, 0), 0u) << name;
  }
  ::setenv("STRATA_TIMELINE", "", 1);
  started(StartMethod::kFork, 1)->close().value();
  EXPECT_EQ(files().size(), 3u);
}

TEST_F(TimelineTest, AFileThatCannotBeWrittenIsToldAtOnce) {
  WorkerSpec spec = spec_of(StartMethod::kFork, 1);
  spec.timeline = path("no/such/folder.json");
  expect_error(Worker::create(spec), Code::kSystem, "WorkerSpec::timeline");
  expect_error(Worker::create(spec), Code::kSystem, spec.timeline);
  spec.timeline = folder_;
  expect_error(Worker::create(spec), Code::kInvalidArgument, "not a regular file");
  spec.timeline = "/dev/null";
  expect_error(Worker::create(spec), Code::kInvalidArgument, "not a regular file");
  spec.timeline.clear();
  ::setenv("STRATA_TIMELINE", path("no/such/folder.json").c_str(), 1);
  expect_error(Worker::create(spec), Code::kSystem, "STRATA_TIMELINE");
  ::unsetenv("STRATA_TIMELINE");
  WorkerSpec tree = pod(StartMethod::kFork, 1, 0);
  tree.workers[0].timeline = path("trace.json");
  expect_error(Worker::create(tree), Code::kInvalidArgument, "WorkerSpec::timeline");
  EXPECT_TRUE(files().empty());
}

TEST_F(TimelineTest, OneFileIsOfOneWorkerAtATime) {
  auto first = started(spec(StartMethod::kFork, 1));
  expect_error(Worker::create(spec(StartMethod::kFork, 1)), Code::kWrongState, "trace.json");
  first->close().value();
  started(spec(StartMethod::kFork, 1))->close().value();
  EXPECT_EQ(files(), (std::set<std::string>{"trace.json"}));
}

TEST_F(TimelineTest, AWorkerThatNeverRanLeavesNoFile) {
  { auto worker = Worker::create(spec(StartMethod::kFork, 1)).value(); }
  {
    auto worker = Worker::create(spec(StartMethod::kFork, 1)).value();
    worker->close().value();
    EXPECT_TRUE(files().empty());
  }
  std::ofstream(path("trace.json")) << "an older one";
  { auto worker = Worker::create(spec(StartMethod::kFork, 1)).value(); }
  EXPECT_EQ(text_of(path("trace.json")), "an older one");
  started(spec(StartMethod::kFork, 1))->close().value();
  EXPECT_EQ(Trace(path("trace.json")).processes().size(), 2u);
}

TEST_F(TimelineTest, AFileForWhichThereIsNoRoomIsAnErrorOfClose) {
  auto worker = started(spec(StartMethod::kFork, 1));
  run_some(*worker, 200);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{.rlim_cur = 4096, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const Result<void> closed = worker->close();
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  ASSERT_FALSE(closed.ok());
  EXPECT_NE(closed.error().to_string().find("WorkerSpec::timeline"), std::string::npos);
  EXPECT_NE(closed.error().to_string().find(path("trace.json")), std::string::npos)
      << closed.error().to_string();
  EXPECT_TRUE(files().empty());
}

TEST_F(TimelineTest, ChangesOfTheFolderDoNotMoveTheFile) {
  char before[4096];
  ASSERT_NE(::getcwd(before, sizeof before), nullptr);
  ASSERT_EQ(::chdir(folder_.c_str()), 0);
  WorkerSpec relative = spec_of(StartMethod::kFork, 1);
  relative.timeline = "relative.json";
  auto worker = started(relative);
  ASSERT_EQ(::chdir(before), 0);
  worker->close().value();
  EXPECT_EQ(files(), (std::set<std::string>{"relative.json"}));
}

TEST_F(TimelineTest, ShowsTheBlocksOfAChipsTask) {
  {
    WorkerSpec with = chip_spec(StartMethod::kFork, 1);
    with.timeline = path("trace.json");
    auto worker = started(with);
    const CallableHandle scale = loaded(*worker, "chip_scale");
    const Buffer x = worker->create_buffer(100 * 8).value();
    const TaskArgs args =
        TaskArgs().add_tensor(x.tensor<int64_t>({100}), INOUT).add_scalar(int64_t{3});
    run_on_chip(*worker, scale, args, {.block_dim = 5}).value();
    worker->close().value();
  }
  const Trace trace(path("trace.json"));
  EXPECT_EQ(trace.processes(), (std::set<std::string>{"L3 Worker", "L3/0 chip"}));
  const std::vector<Json> tasks = trace.all("task", "L3/0 chip");
  ASSERT_EQ(tasks.size(), 1u);
  EXPECT_TRUE(tasks[0].contains("bind_id"));
  const std::vector<Json> blocks = trace.all("block", "L3/0 chip");
  ASSERT_EQ(blocks.size(), 5u);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(blocks[static_cast<size_t>(i)]["args"]["block"], i);
    EXPECT_GE(blocks[static_cast<size_t>(i)]["ts"], tasks[0]["ts"]);
  }
}

}  // namespace
}  // namespace strata::test
