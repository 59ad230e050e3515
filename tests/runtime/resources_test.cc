// Memory that is not there, kills for lack of it, huge pages, and what children get of descriptors.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstring>
#include <fstream>

#include "os/machine.h"
#include "tests/runtime/worker_test_util.h"

namespace strata::test {
namespace {

// Runs `body` in a process of its own; its exit status, or minus its signal.
template <class Body>
int in_a_process(Body&& body) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    body();
    ::_exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

Result<void> run_sub(Worker& worker, const CallableHandle& callable, const TaskArgs& args) {
  return worker.run([&](Orchestrator& orch) -> Result<void> {
    const Result<TaskRef> task = orch.submit_sub(callable, args);
    return task ? Result<void>() : Result<void>(task.error());
  });
}

// ---------------------------------------------------------------- descriptors

void result_stdin(Call& call) {
  char byte = 0;
  call.set_result(static_cast<int64_t>(::read(0, &byte, 1)));
}
// The result: whether a descriptor leads to a file of that name.
void result_has_file(Call& call) {
  const auto name = call.inline_bytes();
  const std::string wanted(reinterpret_cast<const char*>(name.data()), name.size());
  int64_t found = 0;
  for (const int fd : open_fds()) {
    char target[256] = {};
    const std::string link = "/proc/self/fd/" + std::to_string(fd);
    if (::readlink(link.c_str(), target, sizeof target - 1) < 0) continue;
    found += std::string(target).find(wanted) != std::string::npos;
  }
  call.set_result(found);
}

int64_t result_of(Worker& worker, const CallableHandle& callable, const TaskArgs& args) {
  TaskRef task;
  auto run =
      worker.submit([&](Orchestrator& orch) { task = orch.submit_sub(callable, args).value(); });
  run->wait().value();
  return run->result_as<int64_t>(task).value();
}

TEST(Descriptors, OfChildrenAreTheirOwnAndThoseToInheritAndStdinIsEmpty) {
  EXPECT_EQ(
      in_a_process([] {
        int ends[2];
        ASSERT_EQ(::pipe(ends), 0);
        ::dup2(ends[0], 0);  // a stdin that would block a reader for ever
        const int kept = ::memfd_create("for-the-children", 0);
        const int secret = ::memfd_create("not-for-the-children", 0);
        ASSERT_GE(std::min(kept, secret), 3);
        auto spec = spec_of(StartMethod::kFork, 1);
        spec.inherit_fds = {kept};
        const auto worker = started(spec);
        const auto read_stdin = registered<result_stdin>(*worker, "stdin");
        const auto has = registered<result_has_file>(*worker, "has");
        EXPECT_EQ(result_of(*worker, read_stdin, TaskArgs()), 0);
        TaskArgs names;
        EXPECT_EQ(result_of(*worker, has, names.set_inline(bytes_of("memfd:for-the-children"))), 1);
        EXPECT_EQ(result_of(*worker, has, names.set_inline(bytes_of("memfd:not-for"))), 0);
        EXPECT_EQ(result_of(*worker, has, names.set_inline(bytes_of("anon_inode:[eventpoll]"))), 0);
        worker->close().value();
      }),
      0);
}

void print_much(Call& call) {
  for (int i = 0; i < 1000; ++i) std::printf("to stdout %d\n", i);
  std::fprintf(stderr, "to stderr\n");
  for (int64_t& v : call.tensor<int64_t>(0).span()) v += 1;
}

// What Strata makes must not become the program's stdout, which then writes into the heap.
TEST(Descriptors, OfAProgramWithoutStandardOnesAreNotStratasMemory) {
  EXPECT_EQ(in_a_process([] {
              for (const int fd : {0, 1, 2}) ::close(fd);
              const auto worker = started(StartMethod::kFork, 1);
              const auto print = registered<print_much>(*worker, "print");
              const Buffer x = worker->create_buffer(1 << 20).value();
              for (int i = 0; i < 1000; ++i) std::printf("into the void %d\n", i);
              std::fflush(nullptr);
              const TaskArgs args =
                  TaskArgs().add_tensor(x.tensor<int64_t>({(1 << 20) / 8}), INOUT);
              if (!run_sub(*worker, print, args)) ::_exit(10);
              for (size_t i = 0; i < (1 << 20) / 8; ++i) {
                if (x.as<int64_t>()[i] != 1) ::_exit(11);
              }
              struct stat info {};
              for (const int fd : {0, 1, 2}) {
                if (::fstat(fd, &info) != 0 || !S_ISCHR(info.st_mode)) ::_exit(12);
              }
              if (!worker->close()) ::_exit(13);
            }),
            0);
}

// ---------------------------------------------------------------- memory

// Bytes that the heaps of this process take.
uint64_t heap_bytes_there() {
  uint64_t bytes = 0;
  for (const int fd : open_fds()) {
    char target[256] = {};
    const std::string link = "/proc/self/fd/" + std::to_string(fd);
    if (::readlink(link.c_str(), target, sizeof target - 1) < 0) continue;
    struct stat info {};
    if (std::string(target).find("strata-heap") == std::string::npos) continue;
    if (::stat(link.c_str(), &info) == 0) bytes += static_cast<uint64_t>(info.st_blocks) * 512;
  }
  return bytes;
}

TEST(ReservedMemory, IsThereWithTheBufferAndItsLackIsAnErrorThatNamesTheOption) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer leaves too few addresses";
#endif
  auto spec = spec_of(StartMethod::kInline, 1);
  spec.limits.heap_bytes = 1ull << 42;
  {
    const auto lazy = started(spec);
    const Buffer untouched = lazy->create_buffer(8 << 20).value();
    EXPECT_LT(heap_bytes_there(), untouched.size());
    EXPECT_TRUE(lazy->create_buffer(os::memory_left() * 2).ok()) << "pages come with the touch";
  }
  spec.limits.reserve_memory = true;
  const auto worker = started(spec);
  const Buffer small = worker->create_buffer(8 << 20).value();
  EXPECT_GE(heap_bytes_there(), small.size());
  expect_error(worker->create_buffer(os::memory_left() * 2), Code::kResourceExhausted,
               "Limits::reserve_memory");
  EXPECT_TRUE(worker->create_buffer(8 << 20).ok()) << "and the Worker goes on";
  Result<void> built = worker->run([&](Orchestrator& orch) -> Result<void> {
    const auto much = orch.temporary<uint8_t>({os::memory_left() * 2});
    return much ? Result<void>() : Result<void>(much.error());
  });
  expect_error(built, Code::kResourceExhausted, "Limits::reserve_memory");
}

// A control group with that limit on memory; empty where none can be made here.
class MemoryGroup {
 public:
  explicit MemoryGroup(uint64_t bytes) {
    const std::string name = "/strata-resources-test." + std::to_string(::getpid());
    const bool old = ::access("/sys/fs/cgroup/memory/memory.limit_in_bytes", F_OK) == 0;
    const std::string folder = (old ? "/sys/fs/cgroup/memory" : "/sys/fs/cgroup") + name;
    if (::mkdir(folder.c_str(), 0700) != 0) return;
    folder_ = folder;
    if (write(old ? "/memory.limit_in_bytes" : "/memory.max", std::to_string(bytes))) return;
    ::rmdir(folder.c_str());
    folder_.clear();
  }
  ~MemoryGroup() {
    if (!folder_.empty()) await([&] { return ::rmdir(folder_.c_str()) == 0 || errno != EBUSY; });
  }
  bool there() const { return !folder_.empty(); }
  bool join() const { return write("/cgroup.procs", std::to_string(::getpid())); }

 private:
  bool write(const std::string& name, const std::string& text) const {
    std::ofstream out(folder_ + name);
    out << text << std::flush;
    return static_cast<bool>(out);
  }
  std::string folder_;
};

void take_memory_without_end(Call&) {
  constexpr size_t kPiece = 16 << 20;
  for (;;) {
    void* const at =
        ::mmap(nullptr, kPiece, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) ::_exit(77);
    std::memset(at, 1, kPiece);
  }
}

void kill_itself(Call&) {
  ::raise(SIGKILL);
}

TEST(OutOfMemory, AKillForItIsToldApartFromAnotherKill) {
  const MemoryGroup group(512 << 20);
  if (!group.there()) GTEST_SKIP() << "no control group with a limit on memory can be made here";
  EXPECT_EQ(in_a_process([&] {
              ASSERT_TRUE(group.join());
              const auto worker = started(StartMethod::kFork, 2);
              const auto take = registered<take_memory_without_end>(*worker, "take");
              const Result<void> ran = run_sub(*worker, take, TaskArgs());
              expect_error(ran, Code::kEndpointFailed, "ran out of memory");
              expect_error(ran, Code::kEndpointFailed, "strata-resources-test");
              expect_error(ran, Code::kEndpointFailed, "536870912 bytes");
              // The other child kills itself: that is no lack of memory.
              const auto die = registered<kill_itself>(*worker, "die");
              const Result<void> after = run_sub(*worker, die, TaskArgs());
              expect_error(after, Code::kEndpointFailed, "signal 9");
              EXPECT_EQ(after.error().to_string().find("ran out of memory"), std::string::npos)
                  << after.error().to_string();
              static_cast<void>(worker->close());
            }),
            0);
}

TEST(OutOfMemory, OfTheGroupIsAnErrorOfCreateBufferWhereMemoryIsReserved) {
  const MemoryGroup group(256 << 20);
  if (!group.there()) GTEST_SKIP() << "no control group with a limit on memory can be made here";
  EXPECT_EQ(in_a_process([&] {
              ASSERT_TRUE(group.join());
              auto spec = spec_of(StartMethod::kInline, 1);
              spec.limits.heap_bytes = 4ull << 30;
              spec.limits.reserve_memory = true;
              const auto worker = started(spec);
              expect_error(worker->create_buffer(512 << 20), Code::kResourceExhausted,
                           "Limits::reserve_memory");
              EXPECT_TRUE(worker->create_buffer(16 << 20).ok());
            }),
            0);
}

// ---------------------------------------------------------------- huge pages

TEST(HugePages, TransparentOnesServeOrThatIsTold) {
  const std::string given = os::kernel_settings().shm_huge_pages;
  const bool none = given.empty() || given == "never" || given == "deny";
  ::testing::internal::CaptureStderr();
  auto spec = spec_of(StartMethod::kFork, 1);
  spec.limits.huge_pages = HugePages::kTransparent;
  const auto worker = started(spec);
  const std::string err = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(err.find("Limits::huge_pages kTransparent") != std::string::npos, none) << err;
  const auto scale = registered<scale_add>(*worker, "scale");
  const Buffer x = worker->create_buffer(64 << 20).value();
  EXPECT_TRUE(run_sub(*worker, scale,
                      TaskArgs()
                          .add_tensor(x.tensor<int64_t>({(64 << 20) / 8}), INOUT)
                          .add_scalar(int64_t{1})
                          .add_scalar(int64_t{3}))
                  .ok());
  EXPECT_EQ(x.as<int64_t>()[12345], 3);
  EXPECT_TRUE(worker->close().ok());
}

TEST(HugePages, ExplicitOnesAreOfThePoolAndItsEndIsAnError) {
  const os::MemoryState memory = os::memory_state();
  auto spec = spec_of(StartMethod::kFork, 1);
  spec.limits.huge_pages = HugePages::kExplicit;
  if (memory.huge_pages_total == 0) {
    expect_error(Worker::create(spec), Code::kUnsupported, "vm.nr_hugepages");
    GTEST_SKIP() << "this host has no pool of huge pages: only its lack is tested";
  }
  spec.limits.heap_bytes = (memory.huge_pages_free + 8) * memory.huge_page_bytes;
  const auto worker = started(spec);
  const auto scale = registered<scale_add>(*worker, "scale");
  const Buffer x = worker->create_buffer(4 * memory.huge_page_bytes).value();
  const uint64_t n = 4 * memory.huge_page_bytes / 8;
  EXPECT_TRUE(run_sub(*worker, scale,
                      TaskArgs()
                          .add_tensor(x.tensor<int64_t>({n}), INOUT)
                          .add_scalar(int64_t{1})
                          .add_scalar(int64_t{3}))
                  .ok());
  EXPECT_EQ(x.as<int64_t>()[n - 1], 3);
  EXPECT_LE(os::memory_state().huge_pages_free, memory.huge_pages_free - 4);
  expect_error(worker->create_buffer((memory.huge_pages_free + 1) * memory.huge_page_bytes),
               Code::kResourceExhausted, "vm.nr_hugepages");
  EXPECT_TRUE(worker->close().ok());
}

}  // namespace
}  // namespace strata::test
