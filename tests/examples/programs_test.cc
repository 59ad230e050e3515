// `ridge`, `ridge_pod` and `ridge_reference` as a user meets them: exit codes, and one line for
// each failure.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <zlib.h>

#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

namespace {

namespace fs = std::filesystem;

class Programs : public testing::Test {
 protected:
  struct Outcome {
    int code;
    std::string out, err;
  };

  Programs() {
    std::string pattern = (fs::temp_directory_path() / "ridge_programs_XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
  }
  ~Programs() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  static std::string bytes_of(const std::string& file) {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  Outcome run(const std::string& program, const std::string& arguments) const {
    const std::string command = "'" + program + "' " + arguments + " >'" + path("out") + "' 2>'" +
                                path("err") + "' </dev/null";
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, bytes_of(path("out")),
            bytes_of(path("err"))};
  }

  // `text` in gzip, as a file of that name.
  std::string gzip(const std::string& name, const std::string& text) const {
    gzFile gz = gzopen(path(name).c_str(), "wb");
    EXPECT_EQ(gzwrite(gz, text.data(), static_cast<unsigned>(text.size())),
              static_cast<int>(text.size()));
    EXPECT_EQ(gzclose(gz), Z_OK);
    return path(name);
  }

  static std::string line_of(int pixel, int digit) {
    std::string line;
    for (int p = 0; p < 64; ++p) line += std::to_string(pixel) + ",";
    return line + std::to_string(digit) + "\n";
  }

  // 90 images of three kinds, dark, grey and bright, each with a pixel of its own: all are
  // recognized, moved or not.
  std::string small() const {
    std::string text;
    for (int i = 0; i < 90; ++i) {
      const int digit = i / 3 % 3;
      for (int p = 0; p < 64; ++p) text += std::to_string(p == i % 64 ? 4 : 8 * digit) + ",";
      text += std::to_string(digit) + "\n";
    }
    return gzip("small", text);
  }

  fs::path folder_;
};

TEST_F(Programs, ReferenceOfThreeLinesIsWhatPaperSays) {
  // Learned: all pixels 0, and all pixels 16, at squared distance 64. Predicted: as the second.
  const std::string data = gzip("data", line_of(0, 3) + line_of(16, 7) + line_of(16, 7));
  const Outcome outcome = run(RIDGE_REFERENCE, "'" + data + "'");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  ASSERT_EQ(outcome.out.size(), 2 * sizeof(uint64_t) + 3 * sizeof(double) + 1);
  uint64_t sizes[2];
  double factor[3];
  std::memcpy(sizes, outcome.out.data(), sizeof sizes);
  std::memcpy(factor, outcome.out.data() + sizeof sizes, sizeof factor);
  EXPECT_EQ(sizes[0], 2u);
  EXPECT_EQ(sizes[1], 1u);
  const double diagonal = 1.001, k = std::exp(-0.05 * 64);
  EXPECT_NEAR(factor[0], std::sqrt(diagonal), 1e-15);
  EXPECT_NEAR(factor[1], k / std::sqrt(diagonal), 1e-15);
  EXPECT_NEAR(factor[2], std::sqrt(diagonal - k * k / diagonal), 1e-15);
  EXPECT_EQ(outcome.out.back(), 7);
}

TEST_F(Programs, ReferenceWithAugmentSolvesForTheShiftsToo) {
  const std::string data = gzip("data", line_of(0, 3) + line_of(16, 7) + line_of(16, 7));
  const Outcome outcome = run(RIDGE_REFERENCE, "'" + data + "' --augment");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  ASSERT_EQ(outcome.out.size(), 2 * sizeof(uint64_t) + 55 * sizeof(double) + 5);
  EXPECT_EQ(outcome.out.substr(outcome.out.size() - 5), std::string(5, 7));
  EXPECT_EQ(run(RIDGE_REFERENCE, "'" + data + "' --argument").code, 2);
}

TEST_F(Programs, ReferenceRefusesBadDataWithCodeTwo) {
  const Outcome missing = run(RIDGE_REFERENCE, "/nowhere");
  EXPECT_EQ(missing.code, 2);
  EXPECT_EQ(missing.out, "");
  EXPECT_EQ(missing.err,
            "ridge_reference: /nowhere: cannot be opened: No such file or directory\n");
  EXPECT_EQ(run(RIDGE_REFERENCE, "").code, 2);
}

#ifdef RIDGE

class Ridge : public Programs {
 protected:
  // A failure with exactly one line on stderr, which begins with the program's name.
  void expect_complaint(const std::string& arguments, int code, const std::string& part) const {
    const Outcome outcome = run(RIDGE, arguments);
    EXPECT_EQ(outcome.code, code) << arguments << "\n" << outcome.out << outcome.err;
    std::string last = outcome.err.substr(0, outcome.err.size() - !outcome.err.empty());
    if (code == 1) last = last.substr(last.rfind('\n') + 1);  // after the lines of progress
    EXPECT_EQ(last.find('\n'), std::string::npos) << outcome.err;
    EXPECT_EQ(last.find("ridge: "), 0u) << outcome.err;
    EXPECT_NE(last.find(part), std::string::npos) << outcome.err;
  }
};

TEST_F(Ridge, BadArgumentsAreALineAndCodeTwo) {
  expect_complaint("--tile 8", 2, "--tile");
  expect_complaint("--tile 257", 2, "--tile");
  expect_complaint("--tile x", 2, "--tile");
  expect_complaint("--workers 0", 2, "--workers");
  expect_complaint("--start spawn", 2, "--start");
  expect_complaint("--gamma 1", 2, "--gamma");
  expect_complaint("more", 2, "more");
}

TEST_F(Ridge, BadDataAreALineAndCodeTwo) {
  expect_complaint("--data /nowhere", 2, "/nowhere: cannot be opened");
  expect_complaint("--data '" + gzip("bad", line_of(1, 2) + line_of(17, 2)) + "'", 2,
                   "bad: line 2: pixel 1 is '17'");
  expect_complaint("--data '" + gzip("two", line_of(1, 2) + line_of(3, 4)) + "'", 2,
                   "fewer than three");
  std::ofstream(path("plain")) << line_of(1, 2);
  expect_complaint("--data '" + path("plain") + "'", 2, "plain: it is not a gzip file");
}

TEST_F(Ridge, AnAccuracyBelowTheLimitIsALineAndCodeOne) {
  const std::string data = gzip("wrong", line_of(0, 3) + line_of(16, 7) + line_of(16, 1));
  for (const char* start : {"fork", "inline"}) {
    expect_complaint("--data '" + data + "' --start " + start, 1, "accuracy is below");
  }
}

TEST_F(Ridge, HelpTellsTheOptionsAndTheExitCodes) {
  const Outcome outcome = run(RIDGE, "--help");
  EXPECT_EQ(outcome.code, 0);
  for (const char* word : {"--data", "--workers", "--tile", "--start", "Exit codes"}) {
    EXPECT_NE(outcome.out.find(word), std::string::npos) << word;
  }
  EXPECT_EQ(outcome.err, "");
}

TEST_F(Ridge, AugmentedSamplesAreSolvedAndJudged) {
  const Outcome outcome = run(RIDGE, "--augment --tile 16 --start inline --data '" + small() + "'");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  for (const char* part : {"450 samples, 300 to learn from, 150 to predict",
                           "reference: 0 of 150 predictions differ"}) {
    EXPECT_NE(outcome.out.find(part), std::string::npos) << outcome.out;
  }
}

class RidgePod : public Programs {
 protected:
  // The numbers of the last line "in all ...: A tasks of the L4, B below it: C in L4/0, D in L4/1".
  struct Counts {
    unsigned long long l4 = 0, below = 0, first = 0, second = 0;
  };
  static Counts counts_of(const std::string& out) {
    Counts counts;
    const size_t at = out.find("in all ");
    if (at == std::string::npos) return counts;
    EXPECT_EQ(std::sscanf(out.c_str() + at,
                          "in all %*f s: %llu tasks of the L4, %llu below it: %llu in L4/0, %llu",
                          &counts.l4, &counts.below, &counts.first, &counts.second),
              4)
        << out;
    return counts;
  }
};

TEST_F(RidgePod, BothHostsWorkAndTheReferenceAgrees) {
  const std::string data = small();
  for (const char* start : {"fork", "inline"}) {
    for (const char* augment : {"--augment", "--no-augment"}) {
      const Outcome outcome = run(
          RIDGE_POD, "--tile 16 --panel 1 --data '" + data + "' --start " + start + " " + augment);
      const std::string all = std::string(start) + augment + "\n" + outcome.out + outcome.err;
      ASSERT_EQ(outcome.code, 0) << all;
      EXPECT_NE(outcome.out.find("reference: 0 of "), std::string::npos) << all;
      const Counts counts = counts_of(outcome.out);
      EXPECT_EQ(counts.below, counts.first + counts.second) << all;
      // Whatever the timing, what is directed gives each at least this.
      const bool more = std::string(augment) == "--augment";
      EXPECT_GT(counts.first, more ? 50u : 5u) << all;
      EXPECT_GT(counts.second, more ? 50u : 5u) << all;
      // Tiles: n of what is learned, m of what is predicted.
      const uint64_t n = more ? 19 : 4, m = more ? 10 : 2;
      const uint64_t factor = n * (n + 1) * (n + 2) / 6, triangle = n * (n + 1) / 2;
      EXPECT_EQ(counts.below, triangle + factor + 2 * triangle + m * n + 2 * m + m) << all;
    }
  }
}

TEST_F(RidgePod, OneHostAndMoreThanThereIsWorkForAreFine) {
  const std::string data = small();
  for (const char* hosts : {"1", "5"}) {
    const Outcome outcome =
        run(RIDGE_POD, "--no-augment --tile 32 --panel 3 --start inline --data '" + data +
                           "' --hosts " + hosts);
    EXPECT_EQ(outcome.code, 0) << hosts << "\n" << outcome.out << outcome.err;
  }
}

TEST_F(RidgePod, ATimelineIsWrittenWhereItIsSaid) {
  const std::string file = path("timeline.perfetto-trace");
  const Outcome outcome =
      run(RIDGE_POD, "--no-augment --tile 32 --data '" + small() + "' --timeline '" + file + "'");
  ASSERT_EQ(outcome.code, 0) << outcome.out << outcome.err;
  EXPECT_NE(outcome.out.find("timeline: " + file), std::string::npos) << outcome.out;
  const std::string bytes = bytes_of(file);
  for (const char* word : {"update_panel", "gemm", "L4/1"}) {
    EXPECT_NE(bytes.find(word), std::string::npos) << word;
  }
}

TEST_F(RidgePod, AKilledHostIsAnErrorWithItsPathAndNothingIsLeft) {
  const std::string command =
      std::string("exec '") + RIDGE_POD + "' --tile 64 2>'" + path("err") + "' </dev/null";
  FILE* const out = popen(command.c_str(), "r");
  ASSERT_NE(out, nullptr);
  char line[512] = {};
  int pid = 0;
  while (pid == 0 && std::fgets(line, sizeof line, out) != nullptr) {
    std::sscanf(line, "an L4 Worker over L4/0 (pid %d)", &pid);
  }
  EXPECT_GT(pid, 1) << bytes_of(path("err"));
  // The work of this many samples lasts longer than the way from that line to here.
  if (pid > 1) {
    EXPECT_EQ(kill(pid, SIGKILL), 0);
  }
  // Its end comes when the last process that holds it has ended.
  while (std::fgets(line, sizeof line, out) != nullptr) continue;
  const int status = pclose(out);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 1) << status;
  const std::string err = bytes_of(path("err"));
  EXPECT_NE(err.find("L4/0"), std::string::npos) << err;
  EXPECT_EQ(kill(pid, 0), -1);
}

TEST_F(RidgePod, TheFirstSignalEndsItAfterTheGraphThatRunsTheSecondAtOnce) {
  for (const int signals : {1, 2}) {
    const std::string command = std::string("echo $$; exec '") + RIDGE_POD + "' --tile 64 2>'" +
                                path("err") + "' </dev/null";
    FILE* const out = popen(command.c_str(), "r");
    ASSERT_NE(out, nullptr);
    char line[512] = {};
    ASSERT_NE(std::fgets(line, sizeof line, out), nullptr);
    const int program = std::atoi(line);
    ASSERT_GT(program, 1);
    int host = 0;
    while (host == 0 && std::fgets(line, sizeof line, out) != nullptr) {
      std::sscanf(line, "an L4 Worker over L4/0 (pid %d)", &host);
    }
    EXPECT_GT(host, 1) << bytes_of(path("err"));
    EXPECT_EQ(kill(program, SIGINT), 0);
    // Of the same kind two that wait would be one; which of two kinds comes first is the kernel's.
    if (signals == 2) {
      EXPECT_EQ(kill(program, SIGTERM), 0);
    }
    std::string rest;
    while (std::fgets(line, sizeof line, out) != nullptr) rest += line;
    const int status = pclose(out);
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    EXPECT_TRUE(code == 130 || (signals == 2 && code == 143)) << status;
    EXPECT_EQ(rest.find("accuracy"), std::string::npos) << rest;
    const std::string err = bytes_of(path("err"));
    EXPECT_NE(err.find("strata: SIG"), std::string::npos) << err;
    EXPECT_EQ(err.find("after SIGINT: the program is to end") != std::string::npos, signals == 1)
        << err;
  }
}

TEST_F(RidgePod, BadArgumentsAndBadDataAreALineAndCodeTwo) {
  for (const char* arguments :
       {"--hosts 0", "--hosts 17", "--panel 0", "--tile 8", "--flat", "--data /nowhere"}) {
    const Outcome outcome = run(RIDGE_POD, arguments);
    EXPECT_EQ(outcome.code, 2) << arguments;
    EXPECT_EQ(outcome.err.find("ridge_pod: "), 0u) << outcome.err;
    EXPECT_EQ(outcome.err.find('\n'), outcome.err.size() - 1) << outcome.err;
  }
}

#endif

}  // namespace
