// Imports of the BufferTable: memory of a Worker above, by its own uid.
#include <gtest/gtest.h>

#include "buffer/buffer_table.h"

namespace strata::buffer {
namespace {

constexpr uint64_t kHigh = 0xfeedfacecafebeefull;

Tensor tensor_of(const BufferTable& table, uint32_t index) {
  Tensor t;
  t.uid = table.at(index).uid;
  t.buffer_index = index;
  return t;
}

TEST(BufferImports, KeepTheirUidAndAreFoundByIt) {
  BufferTable table(kHigh, 10);
  const uint32_t own = table.create({64, 0, 0}).value();
  const uint32_t import = table.create_import({7, 3}, {128, 2, 4096}, 5).value();
  EXPECT_EQ(table.at(own).import, BufferTable::kOwn);
  const BufferTable::Entry* entry = table.find(tensor_of(table, import));
  ASSERT_NE(entry, nullptr);
  EXPECT_EQ(entry->uid, (Uid{7, 3}));
  EXPECT_EQ(entry->import, 5u);
  EXPECT_EQ(entry->segment, 2u);
  EXPECT_EQ(entry->segment_offset, 4096u);
}

TEST(BufferImports, EndWithTheirLastTaskAndTellThatTheMemoryIsNotTheirs) {
  BufferTable table(kHigh, 10);
  const uint32_t import = table.create_import({7, 3}, {128, 2, 4096}, 0).value();
  table.acquire(import);
  table.release_owner(import);
  EXPECT_FALSE(table.has_freed());
  table.release(import);
  std::vector<BufferTable::Freed> freed;
  table.take_freed(&freed);
  ASSERT_EQ(freed.size(), 1u);
  EXPECT_TRUE(freed[0].import);
  const uint32_t own = table.create({64, 0, 0}).value();
  EXPECT_EQ(own, import);  // the place is used again
  EXPECT_EQ(table.at(own).import, BufferTable::kOwn);
}

TEST(BufferImports, AreRefusedOnceTheyHaveEnded) {
  BufferTable table(kHigh, 10);
  const uint32_t import = table.create_import({7, 3}, {128, 2, 4096}, 0).value();
  const Tensor old = tensor_of(table, import);
  table.release_owner(import);
  EXPECT_EQ(table.find(old), nullptr);
  EXPECT_NE(table.why_not(old).message().find("argument of a task that has ended"),
            std::string::npos);
  // Nor do an own buffer's tensors find an import in its place.
  std::vector<BufferTable::Freed> freed;
  table.take_freed(&freed);
  const uint32_t own = table.create({64, 0, 0}).value();
  const Tensor mine = tensor_of(table, own);
  table.release_owner(own);
  table.take_freed(&freed);
  EXPECT_EQ(table.create_import({7, 4}, {128, 2, 4096}, 0).value(), own);
  EXPECT_EQ(table.find(mine), nullptr);
  EXPECT_NE(table.why_not(mine).message().find("was freed"), std::string::npos);
}

TEST(BufferImports, OfTheWorkersOwnUidsOrOfNoneAreRefused) {
  BufferTable table(kHigh, 10);
  EXPECT_FALSE(table.create_import({kHigh, 1}, {64, 1, 0}, 0).ok());
  EXPECT_FALSE(table.create_import({}, {64, 1, 0}, 0).ok());
  EXPECT_EQ(table.used(), 0u);
}

TEST(BufferImports, CountAgainstTheLimit) {
  BufferTable table(kHigh, 2);
  table.create_import({7, 1}, {64, 1, 0}, 0).value();
  table.create_import({7, 2}, {64, 1, 0}, 1).value();
  EXPECT_EQ(table.create_import({7, 3}, {64, 1, 0}, 2).error().code(), Code::kResourceExhausted);
}

}  // namespace
}  // namespace strata::buffer
