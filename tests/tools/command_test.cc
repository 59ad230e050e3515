// The real program as a user meets it: exit codes, what is on stdout and what on stderr.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "strata/version.h"

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// From now on the kernel answers this process's pidfd_open with EPERM.
bool forbid_pidfd_open() {
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pidfd_open, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{std::size(code), code};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

class Command : public testing::Test {
 protected:
  struct Outcome {
    int code;
    std::string out, err;
    Json json() const { return Json::parse(out, nullptr, false); }
  };

  Command() {
    std::string pattern = (fs::temp_directory_path() / "test_command_XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
  }
  ~Command() override { fs::remove_all(folder_); }

  std::string bytes_of(const std::string& name) const {
    std::ifstream in(folder_ / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  // `before` stands before the program in the shell's line.
  Outcome run(const std::string& arguments, const std::string& before = "") const {
    const std::string to = "'" + folder_.string() + "/";
    const std::string line = before + " '" STRATA_PROGRAM "' " + arguments + " >" + to + "out' 2>" +
                             to + "err' </dev/null";
    const int status = std::system(line.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, bytes_of("out"), bytes_of("err")};
  }
  static bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  }

  fs::path folder_;
};

TEST_F(Command, WithoutACommandTellsWhichThereAre) {
  const Outcome outcome = run("");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.out, "");
  for (const char* name : {"demo", "doctor", "info", "version", "sim", "First steps"}) {
    EXPECT_TRUE(has(outcome.err, name)) << name;
  }
}

TEST_F(Command, BadArgumentsAreALineAndCodeTwo) {
  for (const char* arguments :
       {"dance", "info --jason", "version more", "doctor --check chair", "doctor --deadline-ms 0",
        "doctor --program /nowhere", "sim --seed x"}) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, 2) << arguments;
    EXPECT_EQ(outcome.out, "") << arguments;
    EXPECT_EQ(outcome.err.find("strata: "), 0u) << outcome.err;
    EXPECT_EQ(outcome.err.find('\n'), outcome.err.size() - 1) << outcome.err;
  }
}

TEST_F(Command, HelpOfEachTellsItsExitCodesAndAnExample) {
  for (const std::string name : {"demo", "doctor", "info", "version"}) {
    const Outcome outcome = run(name + " --help");
    EXPECT_EQ(outcome.code, 0) << name;
    EXPECT_EQ(outcome.err, "") << name;
    for (const char* part : {"--json", "Exit codes:"}) {
      EXPECT_TRUE(has(outcome.out, part)) << name << ": " << outcome.out;
    }
  }
}

TEST_F(Command, VersionIsThatOfTheHeaders) {
  const Outcome text = run("version");
  EXPECT_EQ(text.code, 0);
  EXPECT_EQ(text.out.find("strata " STRATA_VERSION "\n"), 0u) << text.out;
  const Json json = run("version --json").json();
  ASSERT_TRUE(json.is_object());
  EXPECT_EQ(json["version"], STRATA_VERSION);
  EXPECT_TRUE(has(text.out, json["layout_id"]));
}

TEST_F(Command, InfoShowsTheMachineAndTheSameNumbersInJson) {
  const Outcome text = run("info");
  EXPECT_EQ(text.code, 0);
  EXPECT_EQ(text.err, "");
  for (const char* part : {"machine", "memory", "limits in force", "open files", "transports"}) {
    EXPECT_TRUE(has(text.out, part)) << part;
  }
  const Json json = run("info --json").json();
  ASSERT_TRUE(json.is_object());
  EXPECT_GE(json["machine"]["pus"], 1);
  EXPECT_TRUE(json["start_methods"]["fork"]["possible"]);
}

TEST_F(Command, InfoTellsTheLimitsThatItRunsUnder) {
  const Outcome outcome = run("info --json", "ulimit -Sn 100;");
  ASSERT_TRUE(outcome.json().is_object()) << outcome.err;
  EXPECT_EQ(outcome.json()["limits"]["nofile"]["value"], 100);
  EXPECT_TRUE(has(outcome.json()["limits"]["nofile"]["meaning"], "room for 21 children"));
}

TEST_F(Command, TheDoctorFindsThisMachineFitAndItsExitCodeSaysWhatItFound) {
  const Outcome outcome = run("doctor --json --deadline-ms 120000");
  const Json json = outcome.json();
  ASSERT_TRUE(json.is_object()) << outcome.out << outcome.err;
  EXPECT_EQ(outcome.code, json["problem_count"] == 0 ? 0 : 1);
  EXPECT_EQ(json["ok"], outcome.code == 0);
  EXPECT_EQ(json["findings"].size(), 20u);
  for (const Json& finding : json["findings"]) {
    const std::string name = finding["check"];
    // The rest depends on the machine.
    for (const char* must : {"memfd", "pidfd", "syscalls", "fork", "forkserver", "worker"}) {
      if (name == must) {
        EXPECT_EQ(finding["level"], "ok") << finding.dump();
      }
    }
  }
}

TEST_F(Command, TheDoctorSeesTooFewDescriptorsAndEndsWithCodeOne) {
  const Outcome outcome = run("doctor --check descriptors", "ulimit -Sn 14;");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_EQ(outcome.out.find("problem  descriptors"), 0u) << outcome.out;
  EXPECT_TRUE(has(outcome.out, "0 ok, 0 warnings, 1 problem,")) << outcome.out;
  EXPECT_EQ(run("doctor --check descriptors", "ulimit -Sn 64;").code, 0);
  EXPECT_EQ(run("doctor --check descriptors --strict", "ulimit -Sn 64;").code, 1);
}

TEST_F(Command, AFilterThatForbidsPidfdsIsSeenByAllThatNeedThemAndNothingHangs) {
  const std::string file = (folder_ / "out").string();
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::close(1);
    if (::open(file.c_str(), O_WRONLY | O_CREAT, 0600) != 1 || !forbid_pidfd_open()) ::_exit(99);
    ::execl(STRATA_PROGRAM, "strata", "doctor", "--json", nullptr);
    ::_exit(98);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  ASSERT_EQ(WEXITSTATUS(status), 1);
  const Json json = Json::parse(bytes_of("out"), nullptr, false);
  ASSERT_TRUE(json.is_object()) << bytes_of("out");
  for (const Json& finding : json["findings"]) {
    const std::string name = finding["check"];
    if (name == "syscalls") {
      EXPECT_TRUE(has(finding["found"], "pidfd_open")) << finding.dump();
      EXPECT_TRUE(has(finding["advice"], "seccomp")) << finding.dump();
    }
    for (const char* must : {"pidfd", "syscalls", "forkserver", "worker"}) {
      if (name == must) {
        EXPECT_EQ(finding["level"], "problem") << finding.dump();
      }
    }
    if (name == "memfd") {
      EXPECT_EQ(finding["level"], "ok") << finding.dump();
    }
  }
}

TEST_F(Command, TheDoctorListsWhatItCanCheck) {
  const Outcome outcome = run("doctor --list");
  EXPECT_EQ(outcome.code, 0);
  for (const char* name : {"memfd", "worker", "leftovers", "program"}) {
    EXPECT_TRUE(has(outcome.out, name)) << name;
  }
}

#ifdef RIDGE_REFERENCE

TEST_F(Command, TheDoctorNamesTheLibraryThatForbidsAFork) {
  // This one links OpenBLAS, whose threads begin before main; on one core it starts none.
  const Outcome outcome = run("doctor --json --check program --program '" RIDGE_REFERENCE "'",
                              "OPENBLAS_NUM_THREADS=2");
  const Json json = outcome.json();
  ASSERT_TRUE(json.is_object()) << outcome.out << outcome.err;
  const std::string found = json["findings"][0]["found"];
  EXPECT_TRUE(has(found, "openblas")) << found;
  EXPECT_EQ(run("doctor --check program --program '" STRATA_PROGRAM "'").code, 0);
}

TEST_F(Command, TheDemonstrationAgreesWithItsReference) {
  const Outcome outcome = run("demo --json --flat --tile 256");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json json = outcome.json();
  ASSERT_TRUE(json.is_object()) << outcome.out;
  EXPECT_TRUE(json["ok"]);
  EXPECT_EQ(json["tile"], 256);
  EXPECT_EQ(json["steps"].size(), 3u);
  EXPECT_EQ(json["reference"]["predictions_differ"], 0);
  EXPECT_GT(json["accuracy"], 0.985);
}

TEST_F(Command, TheDemonstrationRunsOnATreeOfWorkers) {
  const Outcome outcome = run("demo --json --no-augment --tile 64 --panel 2");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json json = outcome.json();
  ASSERT_TRUE(json.is_object()) << outcome.out;
  EXPECT_FALSE(json["flat"]);
  EXPECT_EQ(json["hosts"], 2);
  EXPECT_EQ(json["reference"]["predictions_differ"], 0);
  for (size_t host = 0; host < 2; ++host) {
    uint64_t below = 0;
    for (const Json& step : json["steps"]) below += step["tasks_below"][host].get<uint64_t>();
    EXPECT_GT(below, 50u) << host;
  }
}

TEST_F(Command, TheDemonstrationRefusesBadDataWithCodeTwo) {
  const Outcome outcome = run("demo --json --data /nowhere");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_FALSE(outcome.json()["ok"]);
  EXPECT_TRUE(has(outcome.err, "strata demo: /nowhere: cannot be opened")) << outcome.err;
  EXPECT_EQ(run("demo --tile 8").code, 2);
}

#endif

}  // namespace
