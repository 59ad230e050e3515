// Helpers of the tests of the runtime: Workers, tasks that stand at a gate, and looks at processes.
//
// The tasks are plain functions of this program, run in children as LocalFunction. A deadline here
// only ends a test that has failed already.
#pragma once

#include <dirent.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "os/clock.h"
#include "strata/strata.h"
#include "tests/runtime/by_processes.h"

namespace strata::test {

#if defined(__SANITIZE_THREAD__)
inline constexpr bool kThreadSanitizer = true;  // it has a thread of its own in each process
#else
inline constexpr bool kThreadSanitizer = false;
#endif

inline constexpr base::Duration kTestDeadline = base::Duration::from_s(60);
// What tells of a lost child must do so within this.
inline constexpr base::Duration kLossBound = base::Duration::from_s(2);

inline WorkerSpec spec_of(StartMethod start, int children) {
  WorkerSpec spec;
  spec.sub_workers = children;
  spec.start = start == StartMethod::kFork ? by_processes() : start;
  spec.allow_threads = kThreadSanitizer;
  spec.limits.heap_bytes = 256 << 20;
  return spec;
}

// Waits until `ready()`; false, and a failed test, once the deadline has passed.
template <class Ready>
bool await(Ready&& ready, base::Duration limit = kTestDeadline) {
  const base::Instant deadline = os::monotonic_now() + limit;
  while (!ready()) {
    if (os::monotonic_now() > deadline) {
      ADD_FAILURE() << "what the test waits for did not come within " << limit.seconds() << " s";
      return false;
    }
    ::poll(nullptr, 0, 1);
  }
  return true;
}

// ---------------------------------------------------------------- tasks

inline std::atomic_ref<uint32_t> word(const TensorView<uint32_t>& view, uint32_t i) {
  return std::atomic_ref<uint32_t>(view.data()[i]);
}

// x[i] = x[i] * scalar 0 + scalar 1, where x is tensor 0.
inline void scale_add(Call& call) {
  const auto x = call.tensor<int64_t>(0);
  for (int64_t& v : x.span()) v = v * call.scalar<int64_t>(0) + call.scalar<int64_t>(1);
}

// Tensor 1 [i] = tensor 0 [i] + scalar 0.
inline void copy_add(Call& call) {
  const auto from = call.tensor<int64_t>(0);
  const auto to = call.tensor<int64_t>(1);
  for (uint64_t i = 0; i < to.size(); ++i) to(i) = from(i) + call.scalar<int64_t>(0);
}

// Writes scalar 0 to every element of tensor 0.
inline void fill(Call& call) {
  for (int64_t& v : call.tensor<int64_t>(0).span()) v = call.scalar<int64_t>(0);
}

// The sum of all tensors' elements is the result.
inline void sum_all(Call& call) {
  int64_t sum = 0;
  for (uint32_t t = 0; t < call.tensor_count(); ++t) {
    for (const int64_t v : call.tensor<int64_t>(t).span()) sum += v;
  }
  call.set_result(sum);
}

inline void nothing(Call&) {}
inline void result_pid(Call& call) {
  call.set_result(static_cast<int64_t>(::getpid()));
}
inline void throw_text(Call& call) {
  const auto text = call.inline_bytes();
  throw std::runtime_error(std::string(reinterpret_cast<const char*>(text.data()), text.size()));
}

// A Gate's words, which tasks take as tensor 0 with NO_DEP.
enum GateWord : uint32_t { kOpen = 0, kStarted = 1, kEnded = 2, kPid = 3, kCancelSeen = 4 };
inline constexpr uint32_t kGateWords = 64;  // those from 8 on are the test's
inline constexpr uint32_t kFirstFree = 8;

// Says that it runs, then stays until the gate is open or the call is cancelled.
inline void stand_at_gate(Call& call) {
  const auto gate = call.tensor<uint32_t>(0);
  word(gate, kPid) = static_cast<uint32_t>(::getpid());
  ++word(gate, kStarted);
  while (word(gate, kOpen) == 0) {
    if (call.cancelled()) {
      ++word(gate, kCancelSeen);
      break;
    }
    ::poll(nullptr, 0, 1);
  }
  ++word(gate, kEnded);
}

// Counts its call in the word that scalar 0 names.
inline void count_call(Call& call) {
  ++word(call.tensor<uint32_t>(0), call.scalar<uint32_t>(0));
}

// ---------------------------------------------------------------- around a Worker

class Gate {
 public:
  explicit Gate(Worker& worker) : buffer_(worker.create_buffer(kGateWords * 4).value()) {}
  ~Gate() { open(); }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  uint32_t get(uint32_t i) const { return std::atomic_ref<uint32_t>(buffer_.as<uint32_t>()[i]); }
  void set(uint32_t i, uint32_t v) { std::atomic_ref<uint32_t>(buffer_.as<uint32_t>()[i]) = v; }
  void open() { set(kOpen, 1); }
  bool await_started(uint32_t n) {
    return await([&] { return get(kStarted) >= n; });
  }
  TensorArg arg() const { return {buffer_.tensor<uint32_t>({kGateWords}), TensorArgType::kNoDep}; }
  TaskArgs args() const { return TaskArgs().add_tensor(arg().tensor, NO_DEP); }

 private:
  Buffer buffer_;
};

inline std::unique_ptr<Worker> started(const WorkerSpec& spec) {
  auto worker = Worker::create(spec).value();
  worker->init().value();
  return worker;
}

inline std::unique_ptr<Worker> started(StartMethod start, int children) {
  return started(spec_of(start, children));
}

template <void (*fn)(Call&)>
CallableHandle registered(Worker& worker, const char* name) {
  return worker.register_callable(local_function<fn>(name)).value();
}

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

// One failed task's error, by its code and a piece of its text.
inline void expect_error(const Result<void>& result, Code code, std::string_view piece) {
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(name_of(result.error().code()), name_of(code)) << result.error().to_string();
  EXPECT_NE(result.error().to_string().find(piece), std::string::npos)
      << result.error().to_string();
}
template <class T>
void expect_error(const Result<T>& result, Code code, std::string_view piece) {
  expect_error(result.ok() ? Result<void>() : Result<void>(result.error()), code, piece);
}

// ---------------------------------------------------------------- processes

// The numbers of this process's open descriptors.
inline std::set<int> open_fds() {
  std::set<int> out;
  DIR* folder = ::opendir("/proc/self/fd");
  if (folder == nullptr) return out;
  while (const dirent* entry = ::readdir(folder)) {
    if (entry->d_name[0] != '.') out.insert(std::atoi(entry->d_name));
  }
  out.erase(::dirfd(folder));
  ::closedir(folder);
  return out;
}

// State letter and parent of a process; {'X', 0} where it is not there.
inline std::pair<char, int> state_and_parent(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text);
  const size_t end = text.rfind(')');
  if (end == std::string::npos || end + 4 > text.size()) return {'X', 0};
  return {text[end + 2], std::atoi(text.c_str() + end + 4)};
}

// All descendants of a process, in any generation, also those that nobody has reaped yet.
inline std::set<int> descendants(int root = ::getpid()) {
  std::map<int, int> parents;
  DIR* folder = ::opendir("/proc");
  if (folder == nullptr) return {};
  while (const dirent* entry = ::readdir(folder)) {
    const int pid = std::atoi(entry->d_name);
    if (pid > 0) parents[pid] = state_and_parent(pid).second;
  }
  ::closedir(folder);
  std::set<int> out;
  for (const auto& [pid, parent] : parents) {
    for (int up = parent; up > 1; up = parents.contains(up) ? parents.at(up) : 0) {
      if (up != root) continue;
      out.insert(pid);
      break;
    }
  }
  return out;
}

class Pidfd {
 public:
  explicit Pidfd(int pid) : fd_(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))) {}
  ~Pidfd() {
    if (fd_ >= 0) ::close(fd_);
  }
  Pidfd(const Pidfd&) = delete;
  Pidfd& operator=(const Pidfd&) = delete;
  // The process has ended; at once, or within the limit.
  bool ended(base::Duration limit) const {
    if (fd_ < 0) return true;
    pollfd p{.fd = fd_, .events = POLLIN, .revents = 0};
    return ::poll(&p, 1, static_cast<int>(limit.ns / 1'000'000)) == 1;
  }

 private:
  int fd_;
};

}  // namespace strata::test
