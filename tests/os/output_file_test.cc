// The file that a child's stdout is: appended to, read behind, given back, never cut.
#include "os/output_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>

namespace strata::os {
namespace {

void put(const OutputFile& file, const std::string& text) {
  ASSERT_EQ(::write(file.fd(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
}

TEST(OutputFile, HoldsWhatIsAppendedBehindItsHeader) {
  const OutputFile file = OutputFile::create("test-output").value();
  EXPECT_EQ(file.end().value(), OutputFile::kBegin);
  EXPECT_EQ(file.tail(100), "");
  put(file, "one\n");
  // Each descriptor appends, wherever another one stands.
  const int other = ::dup(file.fd());
  ASSERT_EQ(::lseek(other, 0, SEEK_SET), 0);
  ASSERT_EQ(::write(other, "two\n", 4), 4);
  ::close(other);
  EXPECT_EQ(file.end().value(), OutputFile::kBegin + 8);
  std::string text(100, '?');
  text.resize(file.read(OutputFile::kBegin, text).value());
  EXPECT_EQ(text, "one\ntwo\n");
  EXPECT_EQ(file.tail(100), "one\ntwo\n");
  EXPECT_EQ(file.tail(6), "two\n") << "a part of a line is left out";
  file.header().task_begin = OutputFile::kBegin + 4;
  EXPECT_EQ(file.tail(100), "two\n");
}

TEST(OutputFile, TheTailOfOneLongLineIsItsEnd) {
  const OutputFile file = OutputFile::create("test-output").value();
  put(file, std::string(5000, 'a') + "end");
  EXPECT_EQ(file.tail(5), "aaend");
}

TEST(OutputFile, GivesPagesBackAndKeepsTheRest) {
  OutputFile file = OutputFile::create("test-output").value();
  file.header().task_begin = 77;
  put(file, std::string(1 << 20, 'x'));
  const auto blocks = [&] {
    struct stat info {};
    ::fstat(file.fd(), &info);
    return info.st_blocks;
  };
  const auto before = blocks();
  const uint64_t keep = file.end().value() - 10;
  ASSERT_TRUE(file.forget_before(keep).ok());
  EXPECT_LT(blocks(), before / 50);
  EXPECT_EQ(file.header().task_begin, 77u);
  std::string text(10, '?');
  ASSERT_EQ(file.read(keep, text).value(), 10u);
  EXPECT_EQ(text, std::string(10, 'x'));
  EXPECT_TRUE(file.forget_before(0).ok());
}

TEST(OutputFile, CannotBeCutAndOnlySuchAnOneIsAdopted) {
  const OutputFile file = OutputFile::create("test-output").value();
  EXPECT_NE(::ftruncate(file.fd(), 0), 0);
  EXPECT_EQ(errno, EPERM);
  EXPECT_TRUE(OutputFile::adopt(Fd(::dup(file.fd()))).ok());
  const int plain = ::memfd_create("plain", MFD_ALLOW_SEALING);
  ASSERT_EQ(::ftruncate(plain, 8192), 0);
  EXPECT_EQ(OutputFile::adopt(Fd(plain)).error().code(), Code::kCorrupt);
  EXPECT_EQ(OutputFile::adopt(Fd(::open("/dev/null", O_RDWR))).error().code(), Code::kCorrupt);
}

TEST(OutputFile, WithoutADescriptorIsAnErrorThatLeavesNothing) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const int next = ::dup(0);
  ::close(next);
  const rlimit none{static_cast<rlim_t>(next), before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const Result<OutputFile> file = OutputFile::create("test-output");
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.error().code(), Code::kResourceExhausted);
  EXPECT_EQ(::dup(0), next) << "nothing was left open";
  ::close(next);
}

}  // namespace
}  // namespace strata::os
