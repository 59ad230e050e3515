#include "device/transfers.h"

#include "tests/device/device_rig.h"

namespace strata::device {
namespace {

constexpr Transfer kMap = Transfer::kMap;
constexpr Transfer kCopy = Transfer::kCopy;

TEST(Transfers, CopyWhatIsReadAndBringBackWhatIsWritten) {
  Rig rig;
  for (int64_t i = 0; i < 8; ++i) rig.words()[i] = i;
  const Tensor in = Rig::tensor(0, {4}, {1});
  const Tensor out = Rig::tensor(4, {4}, {1});
  ASSERT_TRUE(rig.begin(TaskArgs().add_tensor(in, INPUT, kCopy).add_tensor(out, OUTPUT, kCopy)));
  EXPECT_EQ(rig.note.copied_in, 32u);  // the output's bytes did not come
  for (int64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(rig.on_device(0)[i], i);
    rig.on_device(0)[i] = -1;
    rig.on_device(1)[i] = 100 + i;
  }
  EXPECT_EQ(rig.words()[4], 4);
  ASSERT_TRUE(rig.transfers->write_back());
  EXPECT_EQ(rig.words()[0], 0);  // an input does not go back
  for (int64_t i = 0; i < 4; ++i) EXPECT_EQ(rig.words()[4 + i], 100 + i);
  EXPECT_EQ(rig.note.copied_out, 32u);
  rig.transfers->end();
  EXPECT_EQ(rig.note.used_bytes, 0u);
}

TEST(Transfers, OverlappingViewsOfABufferShareDeviceBytesAndOthersDoNot) {
  Rig rig;
  const Tensor a = Rig::tensor(0, {8}, {1});
  const Tensor b = Rig::tensor(4, {8}, {1});
  const Tensor far = Rig::tensor(1000, {8}, {1});
  ASSERT_TRUE(rig.begin(TaskArgs()
                            .add_tensor(b, INPUT, kCopy)
                            .add_tensor(far, INPUT, kCopy)
                            .add_tensor(a, INOUT, kCopy)));
  EXPECT_EQ(rig.on_device(2) + 4, rig.on_device(0));
  EXPECT_EQ(rig.note.used_bytes, 128 + 64u);
  rig.transfers->end();
}

TEST(Transfers, OnlyTheBytesOfAWrittenViewGoBack) {
  Rig rig;
  for (int64_t i = 0; i < 64; ++i) rig.words()[i] = i;
  const Tensor block = Rig::tensor(9, {4, 2}, {8, 1});
  ASSERT_TRUE(rig.begin(TaskArgs().add_tensor(block, INOUT, kCopy)));
  int64_t* const device = rig.on_device(0);
  for (int64_t i = 0; i < 26; ++i) device[i] = -1;  // gaps too
  for (int64_t i = 0; i < 64; ++i) rig.words()[i] += 1000;
  ASSERT_TRUE(rig.transfers->write_back());
  for (int64_t i = 0; i < 64; ++i) {
    const bool inside = i % 8 >= 1 && i % 8 <= 2 && i / 8 >= 1 && i / 8 <= 4;
    EXPECT_EQ(rig.words()[i], inside ? -1 : i + 1000) << i;
  }
  rig.transfers->end();
}

TEST(Transfers, AViewOfManyShortRowsIsReadOnceWithItsGaps) {
  Rig rig;
  for (int64_t i = 0; i < 400; ++i) rig.words()[i] = i;
  const Tensor dense = Rig::tensor(0, {20, 4}, {8, 1});
  ASSERT_TRUE(rig.begin(TaskArgs().add_tensor(dense, INPUT, kCopy)));
  EXPECT_EQ(rig.note.copied_in, 8u * (19 * 8 + 4));
  EXPECT_EQ(rig.on_device(0)[19 * 8 + 3], 19 * 8 + 3);
  rig.transfers->end();
  const Tensor sparse = Rig::tensor(0, {20, 1}, {20, 1});
  ASSERT_TRUE(rig.begin(TaskArgs().add_tensor(sparse, INPUT, kCopy)));
  EXPECT_EQ(rig.note.copied_in, 8u * (19 * 8 + 4) + 160);
  EXPECT_EQ(rig.on_device(0)[19 * 20], 19 * 20);
  rig.transfers->end();
}

TEST(Transfers, DeviceMemoryThatDoesNotSufficeIsToldAndFreedAgain) {
  Rig rig(4096);
  const Tensor small = Rig::tensor(0, {256}, {1});
  const Tensor large = Rig::tensor(1024, {300}, {1});
  const Result<void> refused =
      rig.begin(TaskArgs().add_tensor(small, INPUT, kCopy).add_tensor(large, INPUT, kCopy));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kResourceExhausted);
  EXPECT_EQ(refused.error().message(),
            "no device memory for 2400 bytes: 2048 of 4096 bytes are in use, the largest gap has "
            "2048; ChipSpec::memory_bytes enlarges it");
  rig.transfers->end();
  EXPECT_EQ(rig.note.used_bytes, 0u);
  EXPECT_TRUE(rig.begin(TaskArgs().add_tensor(small, INPUT, kCopy)));
  rig.transfers->end();
}

TEST(Transfers, AMapIsTheHostsOwnBytesAndStaysForLaterTasks) {
  Rig rig;
  const TaskArgs args = TaskArgs().add_tensor(Rig::tensor(3, {8}, {1}), INOUT, kMap);
  ASSERT_TRUE(rig.begin(args));
  int64_t* const first = rig.on_device(0);
  first[0] = 42;
  EXPECT_EQ(rig.words()[3], 42);
  ASSERT_TRUE(rig.transfers->write_back());
  rig.transfers->end();
  ASSERT_TRUE(rig.begin(args));
  EXPECT_EQ(rig.on_device(0), first);
  rig.transfers->end();
  EXPECT_EQ(rig.note.mappings_made, 1u);
  EXPECT_EQ(rig.note.mappings, 1u);
  EXPECT_EQ(rig.note.mapped_bytes, Rig::kBufferBytes);
  EXPECT_EQ(rig.note.copied_in + rig.note.copied_out, 0u);
  EXPECT_EQ(rig.note.peak_bytes, 0u);
  rig.transfers->drop({1, 2});
  EXPECT_EQ(rig.note.mappings, 1u);
  rig.transfers->drop({1, 1});
  EXPECT_EQ(rig.note.mappings, 0u);
  EXPECT_EQ(rig.note.mapped_bytes, 0u);
}

// The rights of the mapping that holds `at`, as /proc tells them.
std::string rights_of(const void* at) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    unsigned long begin = 0;
    unsigned long end = 0;
    char rights[8] = {};
    if (std::sscanf(line.c_str(), "%lx-%lx %7s", &begin, &end, rights) != 3) continue;
    const auto address = reinterpret_cast<unsigned long>(at);
    if (begin <= address && address < end) return rights;
  }
  return "none";
}

TEST(Transfers, AMapHasNoMoreRightsThanItsTag) {
  Rig rig;
  const Tensor t = Rig::tensor(0, {8}, {1});
  ASSERT_TRUE(rig.begin(TaskArgs()
                            .add_tensor(t, INPUT, kMap)
                            .add_tensor(t, OUTPUT, kMap)
                            .add_tensor(t, NO_DEP, kMap)));
  EXPECT_EQ(rights_of(rig.on_device(0)), "r--s");
  EXPECT_EQ(rights_of(rig.on_device(1)), "rw-s");
  EXPECT_EQ(rig.on_device(1), rig.on_device(2));
  rig.transfers->end();
  ASSERT_TRUE(rig.begin(TaskArgs().add_tensor(t, NO_DEP, kMap), true));
  EXPECT_EQ(rights_of(rig.on_device(0)), "r--s");
  rig.transfers->end();
  const Result<void> refused = rig.begin(TaskArgs().add_tensor(t, OUTPUT, kMap), true);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message().find("read-only"), std::string::npos);
  rig.transfers->end();
}

TEST(Transfers, TheMappingUsedLongestAgoMakesWay) {
  Rig rig;
  const auto use = [&](uint64_t uid) {
    ASSERT_TRUE(rig.begin(TaskArgs().add_tensor(Rig::tensor(0, {8}, {1}, uid), INPUT, kMap)));
    rig.transfers->end();
  };
  for (uint64_t uid = 1; uid <= Transfers::kMappingsMax; ++uid) use(uid);
  use(1);
  use(Transfers::kMappingsMax + 1);  // in place of 2
  EXPECT_EQ(rig.note.mappings, Transfers::kMappingsMax);
  use(1);
  EXPECT_EQ(rig.note.mappings_made, Transfers::kMappingsMax + 1);
  use(2);
  EXPECT_EQ(rig.note.mappings_made, Transfers::kMappingsMax + 2);
  EXPECT_EQ(rig.note.mappings, Transfers::kMappingsMax);
}

TEST(Transfers, ATensorWithoutATagIsNotCopied) {
  Rig rig;
  const Result<void> refused =
      rig.begin(TaskArgs().add_tensor(Rig::tensor(0, {8}, {1}), NO_DEP, kCopy));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message(), "tensor 0 has no tag that says what to copy");
  rig.transfers->end();
}

TEST(Transfers, ATensorWithoutElementsHasNoStorage) {
  Rig rig;
  ASSERT_TRUE(rig.begin(TaskArgs().add_tensor(Rig::tensor(0, {0}, {1}), INOUT, kCopy)));
  EXPECT_EQ(rig.tensors[0].data, nullptr);
  ASSERT_TRUE(rig.transfers->write_back());
  rig.transfers->end();
}

}  // namespace
}  // namespace strata::device
