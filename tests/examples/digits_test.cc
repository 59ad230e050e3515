// The loader of the digits: the shipped file, and every kind of file that is not one.
#include "digits.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <zlib.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace {

namespace fs = std::filesystem;

std::string line_of(int pixel, int digit) {
  std::string line;
  for (size_t p = 0; p < ridge::kPixels; ++p) line += std::to_string(pixel) + ",";
  return line + std::to_string(digit) + "\n";
}

class Digits : public testing::Test {
 protected:
  Digits() {
    std::string pattern = (fs::temp_directory_path() / "ridge_digits_XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
  }
  ~Digits() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  std::string raw(const std::string& name, const std::string& bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name);
  }

  std::string gzip(const std::string& text) const {
    const std::string file = path("digits.gz");
    gzFile gz = gzopen(file.c_str(), "wb");
    EXPECT_EQ(gzwrite(gz, text.data(), static_cast<unsigned>(text.size())),
              static_cast<int>(text.size()));
    EXPECT_EQ(gzclose(gz), Z_OK);
    return file;
  }

  static std::string bytes_of(const std::string& file) {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  // The loader's text about `file`, which must be one line that begins with the file's name.
  static std::string complaint(const std::string& file) {
    const auto digits = ridge::load_digits(file);
    if (digits) return "no complaint";
    EXPECT_EQ(digits.error().find(file + ": "), 0u) << digits.error();
    EXPECT_EQ(digits.error().find('\n'), std::string::npos) << digits.error();
    return digits.error().substr(std::min(digits.error().size(), file.size() + 2));
  }

  fs::path folder_;
};

TEST_F(Digits, TheShippedFileLoads) {
  const auto digits = ridge::load_digits(RIDGE_DATA);
  ASSERT_TRUE(digits) << digits.error();
  ASSERT_EQ(digits->size(), 1797u);
  EXPECT_EQ(digits->front().label, 0);
  EXPECT_EQ(digits->front().pixels[2], 5);
  EXPECT_EQ(digits->back().label, 8);
  int counts[ridge::kClasses] = {};
  for (const ridge::Digit& digit : *digits) {
    ASSERT_LT(digit.label, ridge::kClasses);
    ++counts[digit.label];
    for (const uint8_t pixel : digit.pixels) ASSERT_LE(pixel, ridge::kPixelMax);
  }
  for (const int count : counts) EXPECT_GT(count, 170);
}

TEST_F(Digits, TheLastLineMayLackItsNewline) {
  std::string text = line_of(1, 2) + line_of(16, 9);
  text.pop_back();
  const auto digits = ridge::load_digits(gzip(text));
  ASSERT_TRUE(digits) << digits.error();
  ASSERT_EQ(digits->size(), 2u);
  EXPECT_EQ(digits->at(1).label, 9);
  EXPECT_EQ(digits->at(1).pixels[63], 16);
}

TEST_F(Digits, AMissingFileIsNamed) {
  EXPECT_EQ(complaint(path("nowhere")), "cannot be opened: No such file or directory");
}

TEST_F(Digits, AFolderIsRefused) {
  EXPECT_EQ(complaint(folder_.string()), "cannot be read: Is a directory");
}

TEST_F(Digits, PlainTextIsNotGzip) {
  EXPECT_EQ(complaint(raw("plain", line_of(1, 2))), "it is not a gzip file");
}

TEST_F(Digits, AnEmptyFileIsNotGzip) {
  EXPECT_EQ(complaint(raw("empty", "")), "it is not a gzip file");
}

TEST_F(Digits, EveryCutOfAGzipFileIsRefused) {
  const std::string whole = bytes_of(gzip(line_of(3, 1) + line_of(7, 5)));
  for (size_t size = 2; size < whole.size(); ++size) {
    EXPECT_EQ(complaint(raw("cut", whole.substr(0, size))), "the gzip data are cut off") << size;
  }
}

TEST_F(Digits, ACutOfTheShippedFileIsRefused) {
  const std::string whole = bytes_of(RIDGE_DATA);
  for (const size_t size : {whole.size() / 3, whole.size() / 2, whole.size() - 1}) {
    const std::string text = complaint(raw("cut", whole.substr(0, size)));
    EXPECT_EQ(text, "the gzip data are cut off") << size;
  }
}

TEST_F(Digits, ADamagedByteOfTheShippedFileNeverLoads) {
  const std::string whole = bytes_of(RIDGE_DATA);
  for (size_t at = 30; at < whole.size(); at += 1009) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    EXPECT_NE(complaint(raw("damaged", damaged)), "no complaint") << at;
  }
}

TEST_F(Digits, AnEmptyTextIsRefused) {
  EXPECT_EQ(complaint(gzip("")), "it holds no line");
}

TEST_F(Digits, AnEmptyLineIsNamed) {
  EXPECT_EQ(complaint(gzip(line_of(1, 2) + "\n" + line_of(1, 2))), "line 2: the line is empty");
}

TEST_F(Digits, AWrongColumnCountIsNamed) {
  EXPECT_EQ(complaint(gzip(line_of(1, 2) + line_of(1, 2) + "1,2,3\n")),
            "line 3: it has 3 columns, not 65");
  EXPECT_EQ(complaint(gzip("0," + line_of(1, 2))), "line 1: it has 66 columns, not 65");
  EXPECT_EQ(complaint(gzip("garbage\n")), "line 1: it has 1 columns, not 65");
}

TEST_F(Digits, APixelOutsideItsRangeIsNamed) {
  for (const char* bad : {"17", "-1", "256", "99999999999999999999", "", " 5", "5 ", "+5", "5.0",
                          "0x1", "nan", "five"}) {
    const std::string text = bad + line_of(1, 2).substr(1);
    EXPECT_EQ(complaint(gzip(line_of(0, 0) + text)),
              "line 2: pixel 1 is '" + std::string(bad) + "', not a whole number from 0 to 16");
  }
}

TEST_F(Digits, ADigitOutsideItsRangeIsNamed) {
  for (const char* bad : {"10", "-1", "", "a", "3.5", "9 "}) {
    std::string text = line_of(1, 2);
    text.resize(text.size() - 2);
    EXPECT_EQ(complaint(gzip(text + bad)),
              "line 1: the digit is '" + std::string(bad) + "', not a whole number from 0 to 9");
  }
}

TEST_F(Digits, AWindowsLineEndIsShownAsWhatItIs) {
  std::string text = line_of(1, 2);
  text.insert(text.size() - 1, "\r");
  EXPECT_EQ(complaint(gzip(text)), "line 1: the digit is '2?', not a whole number from 0 to 9");
}

TEST_F(Digits, BinaryGarbageIsQuotedShortAndPrintable) {
  std::string text = line_of(1, 2);
  text.replace(0, 1, std::string("\x01\x1b[31m\0\xff", 8) + std::string(40, 'x'));
  EXPECT_EQ(complaint(gzip(text)),
            "line 1: pixel 1 is '??[31m??xxxxxxxxxxxxxxxx...', not a whole "
            "number from 0 to 16");
}

TEST_F(Digits, ALineThatNeverEndsIsCutShort) {
  EXPECT_EQ(complaint(gzip(line_of(1, 2) + std::string(1'000'000, '1'))),
            "line 2: it is longer than any good line");
}

TEST_F(Digits, MoreLinesThanTheLimitAreRefused) {
  std::string text;
  for (size_t i = 0; i <= ridge::kLinesMax; ++i) text += line_of(0, 0);
  EXPECT_EQ(complaint(gzip(text)), "line 20001: more than 20000 lines");
}

// ---------------------------------------------------------------- samples

ridge::Digit numbered(uint8_t label) {
  ridge::Digit digit{{}, label};
  for (size_t p = 0; p < ridge::kPixels; ++p) digit.pixels[p] = static_cast<uint8_t>(1 + p % 16);
  return digit;
}

TEST(Samples, AShiftMovesTheImageAndFillsWithZeros) {
  const ridge::Digit digit = numbered(7);
  const ridge::Digit right = ridge::shifted(digit, 1, 0), up = ridge::shifted(digit, 0, -1);
  EXPECT_EQ(right.label, 7);
  for (size_t row = 0; row < 8; ++row) {
    for (size_t column = 0; column < 8; ++column) {
      const size_t at = row * 8 + column;
      EXPECT_EQ(right.pixels[at], column == 0 ? 0 : digit.pixels[at - 1]) << at;
      EXPECT_EQ(up.pixels[at], row == 7 ? 0 : digit.pixels[at + 8]) << at;
    }
  }
  EXPECT_EQ(ridge::shifted(digit, 0, 0).pixels, digit.pixels);
}

TEST(Samples, EveryThirdImageIsPredictedWithAllItsShifts) {
  std::vector<ridge::Digit> digits;
  for (uint8_t label = 0; label < 7; ++label) digits.push_back(numbered(label));
  const ridge::Samples plain = ridge::split(digits, false);
  EXPECT_EQ(plain.size(), 7u);
  EXPECT_EQ(plain.predicted.size(), 2u);
  EXPECT_EQ(plain.predicted_as_they_were, 2u);

  const ridge::Samples more = ridge::split(digits, true);
  EXPECT_EQ(more.size(), 35u);
  ASSERT_EQ(more.predicted.size(), 10u);
  EXPECT_EQ(more.predicted_as_they_were, 2u);
  for (size_t i = 0; i < more.predicted.size(); ++i) {
    EXPECT_EQ(more.predicted[i].label, i % 2 == 0 ? 2 : 5);
    EXPECT_EQ(more.predicted[i].pixels == digits[0].pixels, i < 2) << i;
  }
  for (const ridge::Digit& digit : more.learned) EXPECT_TRUE(digit.label % 3 != 2);
}

TEST(Samples, TheShippedDigitsWithTheirShiftsAreNearlyNineThousand) {
  const ridge::Samples samples = ridge::split(*ridge::load_digits(RIDGE_DATA), true);
  EXPECT_EQ(samples.learned.size(), 5990u);
  EXPECT_EQ(samples.predicted.size(), 2995u);
}

}  // namespace
