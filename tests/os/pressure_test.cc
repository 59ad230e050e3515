// What a machine of files says of memory: what is left, and who was killed for lack of it.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "os/machine.h"

namespace strata::os {
namespace {

class Pressure : public ::testing::Test {
 protected:
  Pressure() {
    std::string pattern = std::filesystem::temp_directory_path() / "pressure_XXXXXX";
    root_ = ::mkdtemp(pattern.data());
    file("/proc/meminfo", "MemTotal: 4000 kB\nMemAvailable: 1000 kB\n");
  }
  ~Pressure() override { std::filesystem::remove_all(root_); }
  void file(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_ + path).substr(0, (root_ + path).rfind('/')));
    std::ofstream(root_ + path) << text;
  }
  void version_2() {
    file("/proc/self/mountinfo", "30 23 0:26 / /cg rw - cgroup2 cgroup2 rw\n");
    file("/proc/self/cgroup", "0::/job/step\n");
  }
  void version_1() {
    file("/proc/self/mountinfo", "31 23 0:27 / /cg rw - cgroup cgroup rw,memory\n");
    file("/proc/self/cgroup", "4:memory:/job\n0::/\n");
  }
  SystemFiles files() const { return SystemFiles(root_); }
  std::string root_;
};

TEST_F(Pressure, WhatIsLeftIsTheMachinesWhereNoGroupBoundsIt) {
  EXPECT_EQ(memory_left(files()), 1000u * 1024);
  version_2();
  file("/cg/job/step/memory.max", "max\n");
  EXPECT_EQ(memory_left(files()), 1000u * 1024);
  file("/proc/meminfo", "");
  EXPECT_EQ(memory_left(files()), UINT64_MAX);
}

TEST_F(Pressure, WhatIsLeftOfAGroupCountsFilesThatGoAsFree) {
  version_2();
  file("/cg/job/memory.max", "600000\n");
  file("/cg/job/step/memory.current", "500000\n");
  EXPECT_EQ(memory_left(files()), 100'000u);
  file("/cg/job/step/memory.stat", "anon 1\ninactive_file 300000\n");
  EXPECT_EQ(memory_left(files()), 400'000u);
  file("/cg/job/step/memory.current", "2000000\n");
  EXPECT_EQ(memory_left(files()), 0u);
  version_1();
  file("/cg/job/memory.limit_in_bytes", "600000\n");
  file("/cg/job/memory.usage_in_bytes", "500000\n");
  file("/cg/job/memory.stat", "inactive_file 7\ntotal_inactive_file 1000\n");
  EXPECT_EQ(memory_left(files()), 101'000u);
}

TEST_F(Pressure, KillsAreCountedInTheGroupOfEitherVersionAndOnTheHost) {
  EXPECT_FALSE(oom_kills(files()).group.has_value());
  EXPECT_FALSE(oom_kills(files()).host.has_value());
  file("/proc/vmstat", "oom_kill 7\nother 1\n");
  EXPECT_EQ(oom_kills(files()).host, 7u);
  version_2();
  file("/cg/job/step/memory.events", "low 0\noom 9\noom_kill 3\n");
  EXPECT_EQ(oom_kills(files()).group, 3u);
  EXPECT_EQ(oom_kills(files()).path, "/job/step");
  version_1();
  file("/cg/job/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 4\n");
  EXPECT_EQ(oom_kills(files()).group, 4u);
  EXPECT_EQ(oom_kills(files()).path, "/job");
}

TEST(OomText, NamesTheGroupThenTheHostThenNothing) {
  CgroupLimits limits;
  limits.memory_bytes = 4096;
  EXPECT_EQ(oom_text({}, {}, limits), "");
  EXPECT_EQ(oom_text({3, "/job", 5}, {3, "/job", 5}, limits), "");
  const std::string group = oom_text({3, "/job", 5}, {4, "/job", 6}, limits);
  EXPECT_NE(group.find("control group /job, whose limit is 4096 bytes, ran out of memory"),
            std::string::npos)
      << group;
  const std::string host = oom_text({3, "/job", 5}, {3, "/job", 6}, limits);
  EXPECT_NE(host.find("the host ran out of memory"), std::string::npos) << host;
}

}  // namespace
}  // namespace strata::os
