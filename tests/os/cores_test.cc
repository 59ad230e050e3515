// Masks of cores, and what a quota leaves of them.
#include "os/cores.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "os/process.h"

namespace strata::os {
namespace {

TEST(Cores, TextNamesRunsOfThem) {
  EXPECT_EQ(cores_text({}), "none");
  EXPECT_EQ(cores_text(std::vector<int>{3}), "3");
  EXPECT_EQ(cores_text(std::vector<int>{8, 1, 0, 2, 2, 5, 6}), "0-2,5-6,8");
}

TEST(Cores, BindingHoldsAndComesBack) {
  const std::vector<int> before = cores_allowed();
  ASSERT_FALSE(before.empty());
  EXPECT_EQ(static_cast<int>(before.size()), cores_in_affinity_mask());
  ASSERT_TRUE(bind_to_cores(std::span(before).last(1)).ok());
  EXPECT_EQ(cores_allowed(), std::vector<int>{before.back()});
  EXPECT_EQ(usable_cores(), 1);
  ASSERT_TRUE(bind_to_cores(before).ok());
  EXPECT_EQ(cores_allowed(), before);
}

TEST(Cores, BindingToNoneOrToWhatIsNotThereIsAnError) {
  EXPECT_EQ(bind_to_cores({}).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(bind_to_cores(std::vector<int>{-1}).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(bind_to_cores(std::vector<int>{kCoresMax}).error().code(), Code::kInvalidArgument);
  const std::vector<int> before = cores_allowed();
  const Result<void> far = bind_to_cores(std::vector<int>{kCoresMax - 1});
  ASSERT_FALSE(far.ok());
  EXPECT_NE(far.error().message().find("65535"), std::string::npos) << far.error().message();
  EXPECT_EQ(cores_allowed(), before);
}

TEST(UsableCores, AreTheMaskUnlessTheQuotaRoundedUpIsLess) {
  EXPECT_EQ(usable_cores(8, std::nullopt), 8);
  EXPECT_EQ(usable_cores(8, 16.0), 8);
  EXPECT_EQ(usable_cores(8, 8.0), 8);
  EXPECT_EQ(usable_cores(8, 7.5), 8);
  EXPECT_EQ(usable_cores(8, 2.01), 3);
  EXPECT_EQ(usable_cores(8, 2.0), 2);
  EXPECT_EQ(usable_cores(8, 0.1), 1);
  EXPECT_EQ(usable_cores(0, std::nullopt), 1);
}

// A machine of files: its control group's quota is what counts, or that of a group above.
class QuotaFiles : public ::testing::Test {
 protected:
  QuotaFiles() {
    std::string pattern = std::filesystem::temp_directory_path() / "cores_XXXXXX";
    root_ = ::mkdtemp(pattern.data());
  }
  ~QuotaFiles() override { std::filesystem::remove_all(root_); }
  void file(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_ + path).substr(0, (root_ + path).rfind('/')));
    std::ofstream(root_ + path) << text;
  }
  std::string root_;
};

TEST_F(QuotaFiles, OfBothVersionsAreHeeded) {
  file("/proc/self/mountinfo",
       "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n");
  file("/proc/self/cgroup", "0::/job/step\n");
  file("/sys/fs/cgroup/job/step/cpu.max", "max 100000\n");
  EXPECT_EQ(usable_cores(SystemFiles(root_)), cores_in_affinity_mask());
  file("/sys/fs/cgroup/job/cpu.max", "50000 100000\n");
  EXPECT_EQ(usable_cores(SystemFiles(root_)), 1);
  file("/proc/self/mountinfo",
       "31 23 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n");
  file("/proc/self/cgroup", "4:cpu,cpuacct:/job\n");
  file("/sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "-1\n");
  file("/sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(usable_cores(SystemFiles(root_)), cores_in_affinity_mask());
  file("/sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "90000\n");
  EXPECT_EQ(usable_cores(SystemFiles(root_)), 1);
}

// The real one, where this machine lets a group be made.
TEST(UsableCores, OfThisProcessFollowAGroupThatItIsPutInto) {
  const std::string v1 = "/sys/fs/cgroup/cpu/strata-cores-test." + std::to_string(::getpid());
  const std::string v2 = "/sys/fs/cgroup/strata-cores-test." + std::to_string(::getpid());
  const bool old = ::access("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", F_OK) == 0;
  const std::string folder = old ? v1 : v2;
  if (::mkdir(folder.c_str(), 0700) != 0) GTEST_SKIP() << "no control group can be made here";
  const auto write = [&](const std::string& name, const std::string& text) {
    std::ofstream out(folder + name);
    out << text << std::flush;
    return static_cast<bool>(out);
  };
  const bool set = old ? write("/cpu.cfs_quota_us", "50000") : write("/cpu.max", "50000 100000");
  int status = -1;
  if (set) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      std::ofstream(folder + "/cgroup.procs") << ::getpid() << std::flush;
      const auto limits = cgroup_limits();
      if (!limits.cpus.has_value()) ::_exit(99);
      ::_exit(usable_cores());
    }
    ::waitpid(pid, &status, 0);
  }
  ::rmdir(folder.c_str());
  if (!set) GTEST_SKIP() << "no quota can be set here";
  EXPECT_EQ(WEXITSTATUS(status), 1);
}

}  // namespace
}  // namespace strata::os
