#include <sched.h>
#include <sys/mman.h>

#include <atomic>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <thread>

#include "os/build_id.h"
#include "os/clock.h"
#include "os/fd.h"
#include "os/process.h"
#include "os_test_util.h"

namespace strata::os {
namespace {

TEST(Clock, ReadingsNeverGoBack) {
  MonotonicClock monotonic;
  BootClock boot;
  for (env::Clock* clock :
       {static_cast<env::Clock*>(&monotonic), static_cast<env::Clock*>(&boot)}) {
    base::Instant last = clock->now();
    EXPECT_GT(last.ns, 0);
    for (int i = 0; i < 1000; ++i) {
      const base::Instant now = clock->now();
      EXPECT_GE(now, last);
      last = now;
    }
  }
  EXPECT_GE(boottime_now().ns + 1'000'000'000, monotonic_now().ns);
}

TEST(CycleClock, AgreesWithTheMonotonicClock) {
  const CycleClock clock = CycleClock::measured();
  EXPECT_GT(clock.ns_per_tick(), 0.0);
  // Whatever happens in between, the ticks lie within the outer readings and around the inner ones.
  const int64_t outer_start = monotonic_now().ns;
  const uint64_t start = clock.now();
  const int64_t inner_start = monotonic_now().ns;
  while (monotonic_now().ns - inner_start < 5'000'000) {
  }
  const int64_t inner_end = monotonic_now().ns;
  const uint64_t end = clock.now();
  const int64_t outer_end = monotonic_now().ns;
  const auto ns = static_cast<double>(clock.to_ns(end - start));
  // The measured length of a tick is good to a part in a thousand.
  EXPECT_GE(ns * 1.001, static_cast<double>(inner_end - inner_start));
  EXPECT_LE(ns * 0.999, static_cast<double>(outer_end - outer_start));
}

TEST(Process, ThreadsAreCounted) {
  const int before = thread_count().value();
  std::atomic<bool> stop{false};
  std::thread other([&stop] { stop.wait(false); });
  EXPECT_GE(thread_count().value(), before + 1);
  EXPECT_GE(fork_hazards().value().other_threads, 1);
  stop.store(true);
  stop.notify_all();
  other.join();
}

TEST(Process, FreshProcessHasNoHazard) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(fork_hazards().value().any() ? 1 : 0);
  int status = -1;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0);
}

TEST(Process, CoresFollowTheAffinityMask) {
  cpu_set_t before;
  ASSERT_EQ(::sched_getaffinity(0, sizeof before, &before), 0);
  EXPECT_EQ(cores_in_affinity_mask(), CPU_COUNT(&before));
  int first = 0;
  while (!CPU_ISSET(first, &before)) ++first;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(cores_in_affinity_mask(), 1);
  ASSERT_EQ(::sched_setaffinity(0, sizeof before, &before), 0);
}

TEST(Process, PythonIsKnownByItsNames) {
  for (const char* path : {"/usr/bin/python3", "/usr/bin/python3.11", "/opt/python/bin/python3.13t",
                           "/usr/lib/x86_64-linux-gnu/libpython3.11.so.1.0", "/x/python",
                           "/usr/bin/python3.11 (deleted)", "/x/pypy3", "/x/libpypy3-c.so"}) {
    EXPECT_TRUE(is_python_path(path)) << path;
  }
  for (const char* path :
       {"/usr/lib/python3/dist-packages/numpy/core.so", "/usr/bin/python3-config", "/x/pythonic",
        "/x/libpython_notes.txt", "/x/py", "/x/pyp", "", "/", "/x/mypython3"}) {
    EXPECT_FALSE(is_python_path(path)) << path;
  }
}

TEST(Process, UcxIsKnownByItsTransportModules) {
  EXPECT_TRUE(is_ucx_module_path("/usr/lib/ucx/libuct_ib.so.0.0.0"));
  EXPECT_FALSE(is_ucx_module_path("/usr/lib/libucp.so.0"));
  EXPECT_FALSE(is_ucx_module_path("/usr/lib/libuct.so.0"));
}

TEST(Process, MappedFilesAreHazards) {
  const ForkHazards before = fork_hazards().value();
  EXPECT_EQ(before.python, "");
  EXPECT_EQ(before.ucx, "");
  std::string folder = std::filesystem::temp_directory_path() / "strata-os-XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  void* mapped[2];
  int i = 0;
  for (const char* name : {"libpython3.11.so.1.0", "libuct_cma.so.0"}) {
    std::FILE* file = std::fopen((folder + "/" + name).c_str(), "w+e");
    ASSERT_NE(file, nullptr);
    std::fputs("some bytes", file);
    std::fflush(file);
    mapped[i] = ::mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE, ::fileno(file), 0);
    ASSERT_NE(mapped[i++], MAP_FAILED);
    std::fclose(file);
  }
  const ForkHazards hazards = fork_hazards().value();
  EXPECT_EQ(hazards.python, folder + "/libpython3.11.so.1.0");
  EXPECT_EQ(hazards.ucx, folder + "/libuct_cma.so.0");
  EXPECT_TRUE(hazards.any());
  EXPECT_NE(hazards.to_string().find("the Python interpreter " + folder), std::string::npos);
  for (void* at : mapped) ::munmap(at, 4096);
  std::filesystem::remove_all(folder);
  EXPECT_EQ(fork_hazards().value().python, "");
}

TEST(Process, HazardsAreToldInWords) {
  EXPECT_FALSE(ForkHazards{}.any());
  EXPECT_EQ(ForkHazards{}.to_string(), "");
  EXPECT_EQ((ForkHazards{.other_threads = 1, .python = {}, .ucx = {}}.to_string()),
            "1 other thread");
  EXPECT_EQ((ForkHazards{.other_threads = 2, .python = "/p", .ucx = "/u"}.to_string()),
            "2 other threads; the Python interpreter /p; an initialised UCX (/u)");
}

int some_function(int x) {
  return x + 1;
}

TEST(CodeAddress, FunctionOfThisProgramGoesThereAndBack) {
  const auto* address = reinterpret_cast<const void*>(&some_function);
  const CodeAddress code = code_address_of(address).value();
  EXPECT_GE(code.build_id.size(), 8u);
  EXPECT_EQ(code.load_base + code.offset, reinterpret_cast<uintptr_t>(address));
  EXPECT_EQ(code_at(code.build_id, code.offset).value(), address);
}

TEST(CodeAddress, FunctionOfALibraryGoesThereAndBack) {
  const auto* address = reinterpret_cast<const void*>(&::opendir);
  const Result<CodeAddress> code = code_address_of(address);
  ASSERT_TRUE(code.ok()) << code.error().to_string();
  EXPECT_EQ(code_at(code->build_id, code->offset).value(), address);
}

TEST(CodeAddress, DataAndStrangersAreRefused) {
  static int data = 1;
  int on_stack = 0;
  EXPECT_EQ(code_address_of(&data).error().code(), Code::kNotFound);
  EXPECT_EQ(code_address_of(&on_stack).error().code(), Code::kNotFound);
  EXPECT_EQ(code_address_of(nullptr).error().code(), Code::kNotFound);
  const CodeAddress code = code_address_of(reinterpret_cast<const void*>(&some_function)).value();
  EXPECT_EQ(code_at(code.build_id, UINT64_MAX).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(
      code_at(code.build_id, reinterpret_cast<uintptr_t>(&data) - code.load_base).error().code(),
      Code::kInvalidArgument);
  std::vector<std::byte> other = code.build_id;
  other.back() ^= std::byte{1};
  EXPECT_EQ(code_at(other, code.offset).error().code(), Code::kNotFound);
  EXPECT_EQ(code_at({}, code.offset).error().code(), Code::kNotFound);
}

}  // namespace
}  // namespace strata::os
