#include "transport/socket/key_ring.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "base/text.h"
#include "tests/transport/channel_rig.h"

namespace strata::transport {
namespace {

namespace fs = std::filesystem;

class KeyFile : public testing::Test {
 protected:
  KeyFile() {
    std::string pattern = (fs::temp_directory_path() / "test_key_XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
  }
  ~KeyFile() override { fs::remove_all(folder_); }
  std::string path(const char* name) const { return (folder_ / name).string(); }
  std::string text_of(const char* name) const {
    std::ifstream in(folder_ / name);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  std::string write(const char* name, std::string_view text, mode_t mode = 0600) const {
    std::ofstream(folder_ / name) << text;
    ::chmod(path(name).c_str(), mode);
    return path(name);
  }
  fs::path folder_;
};

std::string key_text(char digit) {
  return std::string("strata key 1\nid ") + std::string(16, digit) + "\nsecret " +
         std::string(64, digit) + "\n";
}

TEST_F(KeyFile, ANewOneIsItsOwnersAloneAndReadsBack) {
  const mode_t before = ::umask(0777);
  Result<std::string> id = create_key_file(path("key"));
  ::umask(before);
  ASSERT_TRUE(id) << id.error().to_string();
  struct stat info {};
  ASSERT_EQ(::stat(path("key").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0600u);
  Result<KeyRing> ring = KeyRing::read_files({path("key")});
  ASSERT_TRUE(ring) << ring.error().to_string();
  ASSERT_EQ(ring->keys().size(), 1u);
  EXPECT_EQ(ring->keys()[0].id, *id);
  EXPECT_EQ(ring->encode().view(), text_of("key"));
}

TEST_F(KeyFile, TwoNewOnesDiffer) {
  ASSERT_TRUE(create_key_file(path("a")));
  ASSERT_TRUE(create_key_file(path("b")));
  const KeyRing both = KeyRing::read_files({path("a"), path("b")}).value();
  EXPECT_NE(both.keys()[0].id, both.keys()[1].id);
  EXPECT_NE(base::hex(both.keys()[0].secret.bytes()), base::hex(both.keys()[1].secret.bytes()));
}

TEST_F(KeyFile, OneThatIsThereIsNotTouched) {
  ASSERT_TRUE(create_key_file(path("key")));
  const std::string before = text_of("key");
  Result<std::string> again = create_key_file(path("key"));
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code(), Code::kInvalidArgument);
  EXPECT_EQ(text_of("key"), before);
  fs::create_symlink(path("elsewhere"), folder_ / "link");
  EXPECT_FALSE(create_key_file(path("link")));
  EXPECT_FALSE(fs::exists(path("elsewhere")));
}

TEST_F(KeyFile, ThatOthersMayReadIsRefused) {
  for (const mode_t mode : {0640u, 0604u, 0620u, 0777u}) {
    Result<KeyRing> ring = KeyRing::read_files({write("key", key_text('a'), mode)});
    ASSERT_FALSE(ring) << mode;
    EXPECT_NE(ring.error().message().find("its mode is"), std::string::npos);
  }
}

TEST_F(KeyFile, OfAnotherUserIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "ONLY ROOT CAN GIVE A FILE AWAY";
  const std::string file = write("key", key_text('a'));
  ASSERT_EQ(::chown(file.c_str(), 12345, 12345), 0);
  Result<KeyRing> ring = KeyRing::read_files({file});
  ASSERT_FALSE(ring);
  EXPECT_NE(ring.error().message().find("belongs to user 12345"), std::string::npos);
}

TEST_F(KeyFile, ThatIsNoFileIsRefused) {
  EXPECT_EQ(KeyRing::read_files({path("none")}).error().code(), Code::kNotFound);
  EXPECT_FALSE(KeyRing::read_files({folder_.string()}));
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_FALSE(KeyRing::read_files({path("pipe")}));
}

TEST_F(KeyFile, OfAnotherFormIsRefusedAndNothingOfItIsTold) {
  const std::string good = key_text('a');
  std::vector<std::string> bad = {"",
                                  "\n",
                                  "strata key 2\n" + good.substr(13),
                                  "x" + good,
                                  good + "\n",
                                  good + good,
                                  good + key_text('b') + key_text('c'),
                                  std::string(kKeyFileBytesMax + 1, 'a'),
                                  key_text('A')};
  for (size_t cut = 1; cut + 1 < good.size(); ++cut) bad.push_back(good.substr(0, cut));
  for (const std::string& text : bad) {
    Result<KeyRing> ring = KeyRing::read_files({write("key", text)});
    ASSERT_FALSE(ring) << text;
    EXPECT_EQ(ring.error().code(), Code::kInvalidArgument) << text;
    EXPECT_EQ(ring.error().message().find("aaaaaaaaaaaaaaaaa"), std::string::npos);
  }
}

TEST_F(KeyFile, TwoKeysMayStandInOneFileAndNoMoreThanTwoInAll) {
  const std::string both = write("both", key_text('a') + key_text('b'));
  const std::string third = write("third", key_text('c'));
  const KeyRing ring = KeyRing::read_files({both}).value();
  EXPECT_EQ(ring.ids(), std::string(16, 'a') + " and " + std::string(16, 'b'));
  EXPECT_NE(ring.find(std::string(16, 'b')), nullptr);
  EXPECT_EQ(ring.find("b"), nullptr);
  EXPECT_FALSE(KeyRing::read_files({both, third}));
  EXPECT_FALSE(KeyRing::read_files({third, third}));
  EXPECT_FALSE(KeyRing::read_files({}));
}

// The bytes by RFC 5869, computed once by another program: they may never change.
TEST(Derive, GivesEachRoleItsOwnBytesForEver) {
  const ClusterKey key = key_of(0x0b);
  EXPECT_EQ(base::hex(derive(key.secret, "bootstrap").value().bytes()),
            "5a420a8a78a4d38094ba90b2be68ace6265d49aa909656c07f81603a17e89bf4");
  EXPECT_EQ(base::hex(derive(key.secret, "command").value().bytes()),
            "b34b065610c6be7beb8aba29917102d9e41f8f6ea28980b54a6875abc7fb6048");
}

TEST(SecretTest, IsZeroAfterTheWipe) {
  Secret secret = key_of(5).secret;
  wipe(secret.bytes());
  for (const std::byte byte : secret.bytes()) EXPECT_EQ(byte, std::byte{0});
}

}  // namespace
}  // namespace strata::transport
