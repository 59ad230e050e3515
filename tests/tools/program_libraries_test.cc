#include "tools/program_libraries.h"

#include <elf.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/prng.h"

namespace strata::tools {
namespace {

namespace fs = std::filesystem;

class Programs : public testing::Test {
 protected:
  Programs() {
    std::string pattern = (fs::temp_directory_path() / "test_elf_XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
  }
  ~Programs() override { fs::remove_all(folder_); }

  std::string put(const std::string& name, const std::string& bytes) const {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  static std::string bytes_of(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  static Code refusal(const std::string& path) {
    const auto read = read_program_libraries(path);
    return read.ok() ? Code{} : read.error().code();
  }

  std::string folder_;
};

TEST_F(Programs, ThisOneNeedsTheCLibraryAndHasABuildId) {
  const auto read = read_program_libraries("/proc/self/exe");
  ASSERT_TRUE(read.ok()) << read.error().to_string();
  EXPECT_TRUE(read->has_build_id);
  const auto libc = std::find_if(read->libraries.begin(), read->libraries.end(),
                                 [](const Library& l) { return l.name == "libc.so.6"; });
  ASSERT_NE(libc, read->libraries.end());
  EXPECT_TRUE(fs::exists(libc->path)) << libc->path;
  for (const Library& library : read->libraries) EXPECT_FALSE(library.path.empty()) << library.name;
}

TEST_F(Programs, WhatALibraryNeedsIsFoundThroughIt) {
  const auto read = read_program_libraries(STRATA_PROGRAM);
  ASSERT_TRUE(read.ok()) << read.error().to_string();
  const auto& all = read->libraries;
  const auto hwloc = std::find_if(all.begin(), all.end(),
                                  [](const Library& l) { return l.name.starts_with("libhwloc"); });
  ASSERT_NE(hwloc, all.end());
  EXPECT_EQ(hwloc->needed_by, "strata");
  const auto by_hwloc = std::find_if(
      all.begin(), all.end(), [&](const Library& l) { return l.needed_by.starts_with("lib"); });
  EXPECT_NE(by_hwloc, all.end());
  // The command itself may be forked: OpenBLAS is its children's.
  EXPECT_TRUE(std::none_of(all.begin(), all.end(),
                           [](const Library& l) { return l.name.starts_with("libopenblas"); }));
}

TEST_F(Programs, WhatIsNoProgramIsRefused) {
  EXPECT_EQ(refusal(folder_ + "/none"), Code::kNotFound);
  EXPECT_EQ(refusal(folder_), Code::kUnsupported);
  EXPECT_EQ(refusal(put("script", "#!/bin/sh\nexit 0\n" + std::string(100, '#'))),
            Code::kUnsupported);
  EXPECT_EQ(refusal(put("short",
                        "\x7f"
                        "ELF")),
            Code::kUnsupported);
  std::string other = bytes_of("/bin/true");
  other[offsetof(Elf64_Ehdr, e_machine)] = EM_AARCH64 & 0xff;
  EXPECT_EQ(refusal(put("other", other)), Code::kUnsupported);
}

TEST_F(Programs, TablesThatLeadOutOfTheFileAreCorrupt) {
  std::string bytes = bytes_of("/bin/true");
  Elf64_Ehdr header;
  std::memcpy(&header, bytes.data(), sizeof header);
  header.e_phoff = ~uint64_t{0} - 8;
  std::memcpy(bytes.data(), &header, sizeof header);
  EXPECT_EQ(refusal(put("far", bytes)), Code::kCorrupt);
  EXPECT_EQ(refusal(put("cut", bytes_of("/bin/true").substr(0, 100))), Code::kCorrupt);
}

TEST_F(Programs, BytesThatAreChangedAtWillNeverLeadAstray) {
  const std::string sound = bytes_of("/bin/true");
  base::Prng random(7);
  for (int i = 0; i < 300; ++i) {
    std::string bytes = sound;
    // Headers and the dynamic section are what is read.
    for (int k = 0; k < 8; ++k) bytes[random.below(1024)] = static_cast<char>(random.below(256));
    (void)read_program_libraries(put("changed", bytes));
  }
}

}  // namespace
}  // namespace strata::tools
