// Programs that cannot be forked, as their users start them.
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "os/process.h"
#include "tests/runtime/worker_test_util.h"

namespace strata {
namespace {

#ifdef STRATA_TEST_BLAS_DRIVER

struct Ended {
  int status;
  std::string out;
};

// By the shell, with stderr beside stdout.
Ended run(const std::string& command) {
  std::FILE* const pipe = ::popen(("" + command + " 2>&1").c_str(), "re");
  if (pipe == nullptr) return {-1, "popen"};
  Ended out{};
  char buffer[4096];
  for (size_t n; (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) out.out.append(buffer, n);
  const int status = ::pclose(pipe);
  out.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return out;
}

bool has(const Ended& ended, std::string_view piece) {
  return ended.out.find(piece) != std::string::npos;
}

// It starts none where there is one core.
class ProgramWithThreadedBlas : public ::testing::Test {
 protected:
  void SetUp() override {
    if (os::cores_in_affinity_mask() < 2) GTEST_SKIP() << "OpenBLAS starts no thread on one core";
  }
};

const std::string kDriver = STRATA_TEST_BLAS_DRIVER;

TEST_F(ProgramWithThreadedBlas, ComesUpByExecAndRunsItsOwnFunctions) {
  const Ended ended = run(kDriver + " entry");
  EXPECT_EQ(ended.status, 0) << ended.out;
  EXPECT_TRUE(has(ended, "exec: a fork of this process is not safe with: ")) << ended.out;
  EXPECT_TRUE(has(ended, "14 20 30 44 ")) << ended.out;
}

TEST_F(ProgramWithThreadedBlas, ComesUpByTheCommandWithoutItsOwnFunctions) {
  const std::string server = std::string("STRATA_CHILD_SERVER=") + STRATA_TEST_COMMAND + " ";
  const Ended ended = run(server + kDriver + " plain " + STRATA_TEST_LIBRARIES);
  EXPECT_EQ(ended.status, 0) << ended.out;
  EXPECT_TRUE(has(ended, "exec: a fork of this process is not safe with: ")) << ended.out;
  EXPECT_TRUE(has(ended, "'multiply' is a LocalFunction")) << ended.out;
  EXPECT_TRUE(has(ended, "14 14 14 14 ")) << ended.out;
}

TEST_F(ProgramWithThreadedBlas, IsToldEveryPlaceWhereNoServerWas) {
  const Ended ended = run("env -u STRATA_CHILD_SERVER " + kDriver + " plain /nowhere");
  EXPECT_EQ(ended.status, 1);
  for (const char* piece :
       {"WorkerSpec::child_server is empty", "does not begin with strata::child_entry",
        "STRATA_CHILD_SERVER is not set", "/strata (No such file", "/bin/strata (No such file",
        "not safe with"}) {
    EXPECT_TRUE(has(ended, piece)) << piece << " in: " << ended.out;
  }
}

TEST_F(ProgramWithThreadedBlas, RunsFromAnotherFolderAndWithStdioClosed) {
  EXPECT_EQ(run("sh -c 'cd / && exec " + kDriver + " entry'").status, 0);
  EXPECT_EQ(run("sh -c 'exec " + kDriver + " entry <&- >&- 2>&-'").status, 0);
}

TEST(ChildServerByHand, SaysThatThereIsNothingToRun) {
  const std::string command = STRATA_TEST_COMMAND;
  const Ended alone = run(command + " child-server");
  EXPECT_EQ(alone.status, 2);
  EXPECT_TRUE(has(alone, "nothing to run by hand")) << alone.out;
  const Ended forged = run(command + " child-server --strata-channel=0 < /dev/null");
  EXPECT_EQ(forged.status, 1);
  EXPECT_TRUE(has(forged, "nothing to run by hand")) << forged.out;
}

#else
TEST(ProgramWithThreadedBlas, IsNotHere) {
  GTEST_SKIP() << "OpenBLAS is not installed";
}
#endif

}  // namespace
}  // namespace strata
