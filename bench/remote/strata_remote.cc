// What a Worker on another host costs, which here is a `strata serve` of this one.
//
//   strata_remote clear | tls              both sides look before they sleep
//   strata_remote clear | tls blocking     each side on a core of its own, where it does not look
#include <fcntl.h>
#include <signal.h>
#include <strata/strata.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <string_view>
#include <vector>

#include "bench/cores.h"
#include "bench/figure.h"

namespace {

using namespace strata::bench;
using strata::TaskArgs;
using strata::Worker;
using strata::WorkerSpec;

constexpr double kLimitMs = 4'000;

[[noreturn]] void fail(std::string_view what, std::string_view why) {
  std::fprintf(stderr, "strata_remote: %.*s: %.*s\n", static_cast<int>(what.size()), what.data(),
               static_cast<int>(why.size()), why.data());
  std::fflush(nullptr);
  _exit(1);
}

template <class T>
T need(strata::Result<T> result, std::string_view what) {
  if (!result) fail(what, result.error().to_string());
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

// A daemon; where it listens. It ends with this process.
std::string serve(const std::string& key, bool blocking) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) fail("pipe", "none to be had");
  const pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (blocking) stay_on_core(1);
    dup2(ends[1], STDOUT_FILENO);
    std::vector<const char*> words = {STRATA_COMMAND, "serve",           "--listen",
                                      "127.0.0.1:0",  "--allow-library", STRATA_FAR_FOLDER,
                                      "--log",        "/dev/null"};
    if (!key.empty()) words.insert(words.end(), {"--key", key.c_str()});
    words.push_back(nullptr);
    execv(words[0], const_cast<char**>(words.data()));
    _exit(127);
  }
  close(ends[1]);
  std::string line;
  char c;
  while (read(ends[0], &c, 1) == 1 && c != '\n') line += c;
  close(ends[0]);
  const size_t at = line.rfind("127.0.0.1:");
  if (at == std::string::npos) fail("serve", "it did not say where it listens");
  return line.substr(at, line.find_first_not_of("0123456789.:", at) - at);
}

std::string make_key() {
  const std::string file = "/tmp/bench-key-" + std::to_string(getpid());
  const std::string command = std::string(STRATA_COMMAND) + " key new " + file + " > /dev/null";
  if (std::system(command.c_str()) != 0) fail("key", "none was made");
  return file;
}

WorkerSpec pod() {
  WorkerSpec spec;
  spec.level = 4;
  spec.start = strata::StartMethod::kFork;
  return spec;
}

class Question {
 public:
  Question(std::string name, const std::string& key, bool blocking)
      : name_(std::move(name)), endpoint_(serve(key, blocking)), key_(key), blocking_(blocking) {}

  void ask() {
    if (blocking_) stay_on_core(0);
    auto worker = need(Worker::create(pod()), "create");
    need(worker->init(), "init");
    if (!blocking_) until_ready(*worker);
    need(worker->add_remote_worker(spec(0)), "add_remote_worker");
    sessions(*worker);
    need(worker->close(), "close");
  }

 private:
  void until_ready(Worker& worker) {
    figure("strata." + name_ + ".ready",
           median_of(scaled(30, 10), kLimitMs,
                     [&] {
                       const double begun = now_us();
                       const int id = need(worker.add_remote_worker(spec(1)), "add_remote_worker");
                       const double took = (now_us() - begun) / 1e3;
                       need(worker.remove_remote_worker(id), "remove_remote_worker");
                       return took;
                     }),
           "ms");
  }
  strata::RemoteWorkerSpec spec(int subs) {
    strata::RemoteWorkerSpec out;
    out.endpoint = endpoint_;
    out.num_sub_workers = subs;
    out.key_file = key_;
    // Each time another one: the session before holds its own until its process has ended.
    if (subs > 0) out.device_ids = {device_++ % 1024};
    return out;
  }
  static strata::NativeImport import() { return {"libbench_far.so", "far_nothing"}; }

  void registering(Worker& worker) {
    figure("strata." + name_ + ".register",
           median_of(scaled(200, 50), kLimitMs,
                     [&] {
                       const double begun = now_us();
                       const auto handle = need(worker.register_callable(import()), "register");
                       const double took = now_us() - begun;
                       need(worker.unregister_callable(handle), "unregister");
                       return took;
                     }),
           "us");
  }
  void sessions(Worker& worker) {
    if (!blocking_) registering(worker);
    const auto nothing = need(worker.register_callable(import()), "register");
    const auto once = [&] {
      const double begun = now_us();
      need(worker.run([&](strata::Orchestrator& orch) {
        need(orch.submit_next_level(nothing, TaskArgs()), "submit");
      }),
           "run");
      return now_us() - begun;
    };
    if (blocking_) {
      figure("strata." + name_ + ".asleep", median_of(scaled(20'000, 4'000), kLimitMs, once), "us");
      return;
    }
    figure("strata." + name_ + ".awake", median_of(scaled(20'000, 4'000), kLimitMs, once), "us");
    figure("strata." + name_ + ".rested",
           median_of(scaled(1'000, 300), kLimitMs,
                     [&] {
                       sleep_us(1'000);
                       return once();
                     }),
           "us");
    const int tasks = scaled(20'000, 5'000);
    std::vector<double> rates;
    for (int i = 0; i < 3; ++i) {
      const double begun = now_us();
      need(worker.run([&](strata::Orchestrator& orch) {
        for (int t = 0; t < tasks; ++t) {
          need(orch.submit_next_level(nothing, TaskArgs()), "submit");
        }
      }),
           "run");
      rates.push_back(tasks / (now_us() - begun) * 1e6);
    }
    figure("strata." + name_ + ".rate", median(rates), "tasks/s");
  }

  std::string name_, endpoint_, key_;
  bool blocking_;
  int device_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  const std::string_view mode = argc >= 2 ? argv[1] : "";
  const bool blocking = argc == 3 && std::string_view(argv[2]) == "blocking";
  if ((mode != "clear" && mode != "tls") || argc != (blocking ? 3 : 2)) {
    fail("usage", "clear | tls [blocking]");
  }
  const std::string key = mode == "tls" ? make_key() : "";
  Question(mode == "tls" ? "tls" : "tcp", key, blocking).ask();
  if (!key.empty()) unlink(key.c_str());
  return 0;
}
