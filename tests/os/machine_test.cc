#include "os/machine.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace strata::os {
namespace {

namespace fs = std::filesystem;

// A folder that stands for another machine's /.
class Machine : public testing::Test {
 protected:
  Machine() {
    std::string pattern = (fs::temp_directory_path() / "test_machine_XXXXXX").string();
    root_ = mkdtemp(pattern.data());
  }
  ~Machine() override { fs::remove_all(root_); }

  void put(const std::string& path, const std::string& text) const {
    const fs::path file(root_ + path);
    fs::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  SystemFiles files() const { return SystemFiles(root_); }

  std::string root_;
};

TEST_F(Machine, FilesAreReadAsTextNumberChoiceAndField) {
  put("/a", "41 and more\n\n");
  put("/b", "always [madvise] never\n");
  put("/c", "MemTotals: 1\nMemTotal:\t  7 kB\nplain 9\n");
  EXPECT_EQ(files().text("/a"), "41 and more");
  EXPECT_EQ(files().number("/a"), 41u);
  EXPECT_EQ(files().number("/b"), std::nullopt);
  EXPECT_EQ(files().choice("/b"), "madvise");
  EXPECT_EQ(files().choice("/a"), std::nullopt);
  EXPECT_EQ(files().field("/c", "MemTotal"), 7u);
  EXPECT_EQ(files().field("/c", "plain"), 9u);
  EXPECT_EQ(files().field("/c", "Mem"), std::nullopt);
  EXPECT_EQ(files().text("/none"), std::nullopt);
}

TEST_F(Machine, AFileOverTheLimitIsCut) {
  put("/long", std::string(SystemFiles::kBytesMax + 5000, 'x'));
  EXPECT_EQ(files().text("/long")->size(), SystemFiles::kBytesMax);
}

TEST_F(Machine, MemoryIsInBytes) {
  put("/proc/meminfo",
      "MemTotal: 1000 kB\nMemFree: 10 kB\nMemAvailable: 500 kB\nSwapTotal: 4 kB\n"
      "HugePages_Total: 3\nHugePages_Free: 2\nHugepagesize: 2048 kB\n");
  const MemoryState memory = memory_state(files());
  EXPECT_EQ(memory.total, 1000u * 1024);
  EXPECT_EQ(memory.available, 500u * 1024);
  EXPECT_EQ(memory.swap_total, 4096u);
  EXPECT_EQ(memory.huge_page_bytes, 2u << 20);
  EXPECT_EQ(memory.huge_pages_free, 2u);
}

TEST_F(Machine, AGroupOfVersionTwoHasTheTightestLimitsOfItsAncestors) {
  put("/proc/self/mountinfo", "30 20 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n");
  put("/proc/self/cgroup", "0::/outer/inner\n");
  put("/sys/fs/cgroup/outer/cpu.max", "50000 100000\n");
  put("/sys/fs/cgroup/outer/inner/cpu.max", "max 100000\n");
  put("/sys/fs/cgroup/outer/memory.max", "max\n");
  put("/sys/fs/cgroup/outer/inner/memory.max", "1048576\n");
  put("/sys/fs/cgroup/outer/inner/memory.current", "4096\n");
  put("/sys/fs/cgroup/outer/pids.max", "90\n");
  const CgroupLimits limits = cgroup_limits(files());
  EXPECT_EQ(limits.version, 2);
  EXPECT_EQ(limits.path, "/outer/inner");
  EXPECT_EQ(limits.cpus, 0.5);
  EXPECT_EQ(limits.memory_bytes, 1048576u);
  EXPECT_EQ(limits.memory_used, 4096u);
  EXPECT_EQ(limits.processes, 90u);
}

TEST_F(Machine, AGroupOfVersionOneIsFoundThroughTheMountThatShowsAPartOfTheTree) {
  put("/proc/self/mountinfo",
      "30 20 0:26 /docker/x /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n"
      "31 20 0:27 /docker/x /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n");
  put("/proc/self/cgroup", "4:cpu,cpuacct:/docker/x\n5:memory:/docker/x\n");
  put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "150000\n");
  put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  const CgroupLimits limits = cgroup_limits(files());
  EXPECT_EQ(limits.version, 1);
  EXPECT_EQ(limits.cpus, 1.5);
  EXPECT_EQ(limits.memory_bytes, std::nullopt);
}

TEST_F(Machine, AQuotaThatIsNoneAndAGroupOutsideTheMountAreNoLimits) {
  put("/proc/self/mountinfo",
      "30 20 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
      "31 20 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n");
  put("/proc/self/cgroup", "0::/../../elsewhere\n2:cpu:/\n");
  put("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  put("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  put("/sys/fs/cgroup/memory.max", "77\n");
  const CgroupLimits limits = cgroup_limits(files());
  EXPECT_EQ(limits.cpus, std::nullopt);
  EXPECT_EQ(limits.memory_bytes, 77u);
  EXPECT_EQ(limits.version, 2);
}

TEST_F(Machine, KernelSettingsAreThoseOfTheFiles) {
  put("/proc/sys/kernel/pid_max", "32768\n");
  put("/proc/self/status", "Name:\tx\nSeccomp:\t2\nSeccomp_filters:\t1\n");
  put("/proc/cpuinfo", "flags\t: fpu hypervisor lahf_lm\n");
  put("/proc/stat", "cpu  1 2 3 4 5 6 7 88 9 0\ncpu0 1 2 3 4 5 6 7 8 9 0\n");
  put("/sys/kernel/mm/transparent_hugepage/shmem_enabled", "always within_size [never]\n");
  const KernelSettings kernel = kernel_settings(files());
  EXPECT_EQ(kernel.pid_max, 32768u);
  EXPECT_EQ(kernel.seccomp, 2u);
  EXPECT_EQ(kernel.stolen_ticks, 88u);
  EXPECT_EQ(kernel.shm_huge_pages, "never");
  EXPECT_TRUE(kernel.is_virtual);
  EXPECT_EQ(kernel.max_map_count, std::nullopt);
}

TEST_F(Machine, OfAMachineThatHidesEverythingNothingIsKnown) {
  EXPECT_EQ(cgroup_limits(files()).version, 0);
  EXPECT_EQ(memory_state(files()).total, 0u);
  EXPECT_EQ(kernel_settings(files()).stolen_ticks, std::nullopt);
  EXPECT_EQ(file_system_space(root_ + "/none"), std::nullopt);
}

TEST_F(Machine, ThisOneHasMemoryAndLimits) {
  EXPECT_GT(memory_state().total, 0u);
  EXPECT_FALSE(kernel_settings().release.empty());
  EXPECT_GT(file_system_space("/")->total, 0u);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_CORE, &before), 0);
  const rlimit low{0, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_CORE, &low), 0);
  EXPECT_EQ(soft_limit(RLIMIT_CORE), 0u);
  ::setrlimit(RLIMIT_CORE, &before);
}

}  // namespace
}  // namespace strata::os
