// Workers of other hosts, which here are daemons of this one: real processes, real sockets.
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <thread>

#include "tests/runtime/worker_test_util.h"

namespace strata {
namespace {

using namespace test;  // NOLINT

// A `strata serve` of this test, on a port that the kernel chose.
class Daemon {
 public:
  explicit Daemon(std::vector<std::string> more = {}, const std::string& listen = "127.0.0.1:0") {
    int out[2];
    EXPECT_EQ(::pipe2(out, O_CLOEXEC), 0);
    std::vector<std::string> words = {
        STRATA_TEST_COMMAND, "serve", "--listen", listen, "--allow-library", STRATA_TEST_LIBRARIES};
    words.insert(words.end(), more.begin(), more.end());
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::dup2(out[1], STDOUT_FILENO);
      std::vector<char*> argv;
      for (std::string& word : words) argv.push_back(word.data());
      argv.push_back(nullptr);
      ::execv(argv[0], argv.data());
      ::_exit(127);
    }
    ::close(out[1]);
    // "listening on 127.0.0.1:4711", one line.
    std::string line;
    char c;
    while (::read(out[0], &c, 1) == 1 && c != '\n') line += c;
    ::close(out[0]);
    const size_t at = line.rfind("127.0.0.1:");
    EXPECT_NE(at, std::string::npos) << line;
    if (at != std::string::npos) {
      endpoint_ = line.substr(at, line.find_first_not_of("0123456789.:", at) - at);
    }
  }
  ~Daemon() { stop(); }
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  void stop(int number = SIGTERM) {
    if (pid_ <= 0) return;
    ::kill(pid_, number);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  int pid() const { return pid_; }
  const std::string& endpoint() const { return endpoint_; }
  RemoteWorkerSpec spec(int subs = 1) const {
    RemoteWorkerSpec out;
    out.endpoint = endpoint_;
    out.num_sub_workers = subs;
    out.limits.heap_bytes = 64 << 20;
    out.limits.slots = 256;
    return out;
  }

 private:
  int pid_ = -1;
  std::string endpoint_;
};

class Remote : public ::testing::Test {
 protected:
  std::unique_ptr<Worker> parent(int local_subs = 0) {
    WorkerSpec spec = spec_of(StartMethod::kFork, local_subs);
    spec.level = 4;
    return Worker::create(spec).value();
  }
  static CallableHandle far(Worker& worker, const char* symbol) {
    auto made = worker.register_callable(NativeImport{"libnative_far.so", symbol});
    EXPECT_TRUE(made.ok()) << (made ? "" : made.error().to_string());
    return made.value();
  }
  static Result<void> run(Worker& worker, const CallableHandle& callable, TaskArgs args = {},
                          TaskRef* task = nullptr, std::unique_ptr<RunHandle>* handle = nullptr,
                          const CallConfig& config = {}) {
    TaskRef ref;
    auto submitted = worker.submit([&](Orchestrator& orch) -> Result<void> {
      auto got = orch.submit_next_level(callable, args, config);
      if (!got) return got.error();
      ref = *got;
      return {};
    });
    if (!submitted) return submitted.error();
    Result<void> out = submitted->wait();
    if (task != nullptr) *task = ref;
    if (handle != nullptr) *handle = std::make_unique<RunHandle>(*std::move(submitted));
    return out;
  }
  template <class T>
  static T result_of(Worker& worker, const CallableHandle& callable, const TaskArgs& args = {}) {
    TaskRef task;
    std::unique_ptr<RunHandle> handle;
    const Result<void> ran = run(worker, callable, args, &task, &handle);
    EXPECT_TRUE(ran.ok()) << (ran ? "" : ran.error().to_string());
    if (!ran) return {};
    return handle->result_as<T>(task).value();
  }
};

TEST_F(Remote, AWorkerAddedBeforeInitRunsTasksWithTheirArguments) {
  const Daemon daemon;
  auto worker = parent();
  ASSERT_EQ(worker->add_remote_worker(daemon.spec()).value(), 0);
  const auto begun = worker->init();
  ASSERT_TRUE(begun.ok()) << begun.error().to_string();
  const auto sum = far(*worker, "far_sum");
  Buffer buffer = worker->create_buffer(8 * 100).value();
  for (int64_t i = 0; i < 100; ++i) buffer.as<int64_t>()[i] = i;
  EXPECT_EQ(
      result_of<int64_t>(
          *worker, sum,
          TaskArgs().add_tensor(buffer.tensor<int64_t>({100}), INPUT).add_scalar(int64_t{1000})),
      4950 + 1000);
  const auto pid = far(*worker, "far_pid");
  EXPECT_EQ(result_of<int64_t>(*worker, pid), worker->next_level_children()[0].pid);
  EXPECT_TRUE(worker->close().ok());
}

}  // namespace
}  // namespace strata
