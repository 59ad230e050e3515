#include "buffer/buffer_table.h"

#include <gtest/gtest.h>

#include <map>

#include "base/prng.h"

namespace strata::buffer {
namespace {

constexpr uint64_t kHigh = 0xfeedfacecafebeefull;

Tensor tensor_of(const BufferTable& table, uint32_t index) {
  Tensor t;
  t.uid = table.at(index).uid;
  t.buffer_index = index;
  return t;
}

uint32_t create(BufferTable& table, uint64_t bytes = 64) {
  return table.create({bytes, 3, 4096}).value();
}

std::vector<BufferTable::Freed> take(BufferTable& table) {
  std::vector<BufferTable::Freed> out;
  table.take_freed(&out);
  return out;
}

TEST(BufferTable, ResolvesWhatItMade) {
  BufferTable table(kHigh, 10);
  const uint32_t a = create(table), b = create(table, 128);
  const BufferTable::Entry* entry = table.resolve(tensor_of(table, b)).value();
  EXPECT_EQ(entry->uid, (Uid{kHigh, 2}));
  EXPECT_EQ(entry->bytes, 128u);
  EXPECT_EQ(entry->segment, 3u);
  EXPECT_EQ(entry->segment_offset, 4096u);
  EXPECT_EQ(entry->generation, 1u);
  EXPECT_NE(table.find(tensor_of(table, a)), entry);
  EXPECT_EQ(table.used(), 2u);
  EXPECT_EQ(table.bytes_used(), 192u);
}

TEST(BufferTable, FreesAtOnceWhenNoTaskHoldsIt) {
  BufferTable table(kHigh, 10);
  const uint32_t a = create(table);
  const Tensor t = tensor_of(table, a);
  table.release_owner(a);
  const auto freed = take(table);
  ASSERT_EQ(freed.size(), 1u);
  EXPECT_EQ(freed[0].index, a);
  EXPECT_EQ(freed[0].segment, 3u);
  EXPECT_EQ(freed[0].segment_offset, 4096u);
  EXPECT_EQ(freed[0].bytes, 64u);
  EXPECT_FALSE(table.has_freed());
  EXPECT_EQ(table.resolve(t).error().message(), "buffer 1 was freed");
  EXPECT_EQ(table.used(), 0u);
}

TEST(BufferTable, FreeWaitsForTheLastReference) {
  BufferTable table(kHigh, 10);
  const uint32_t a = create(table);
  const Tensor t = tensor_of(table, a);
  table.acquire(a);
  table.acquire(a);
  table.release_owner(a);
  EXPECT_FALSE(table.has_freed());
  EXPECT_EQ(table.find(t), nullptr);
  EXPECT_NE(table.resolve(t).error().message().find("2 references"), std::string::npos);
  table.release(a);
  EXPECT_FALSE(table.has_freed());
  EXPECT_EQ(table.used(), 1u);
  table.release(a);
  EXPECT_EQ(take(table).size(), 1u);
}

TEST(BufferTable, ReusedIndexHasALargerGenerationAndRefusesStaleTensors) {
  BufferTable table(kHigh, 10);
  const uint32_t a = create(table);
  const Tensor old = tensor_of(table, a);
  table.release_owner(a);
  const uint32_t b = create(table);
  EXPECT_EQ(b, a);
  EXPECT_EQ(table.at(b).generation, 2u);
  EXPECT_TRUE(table.resolve(tensor_of(table, b)).ok());
  const Error stale = table.resolve(old).error();
  EXPECT_EQ(stale.code(), Code::kNotFound);
  EXPECT_EQ(stale.scope(), Scope::kBuffer);
  EXPECT_EQ(stale.message(),
            "a stale tensor: its buffer 1 was freed, and its place is that of buffer 2 now");
}

TEST(BufferTable, RefusesTensorsThatItNeverHad) {
  BufferTable table(kHigh, 10);
  const uint32_t a = create(table);
  const Tensor good = tensor_of(table, a);
  EXPECT_EQ(table.resolve(Tensor{}).error().message(), "a tensor without a buffer");
  for (const auto& change :
       {+[](Tensor& t) { t.uid.high ^= 1; }, +[](Tensor& t) { t.uid.low = 2; },
        +[](Tensor& t) { t.uid.low = 0; }, +[](Tensor& t) { t.buffer_index = 1; },
        +[](Tensor& t) { t.buffer_index = ~0u; }}) {
    Tensor bad = good;
    change(bad);
    EXPECT_EQ(table.find(bad), nullptr);
    EXPECT_NE(table.resolve(bad).error().message().find("never had"), std::string::npos);
  }
  create(table);
  Tensor swapped = good;
  swapped.uid.low = 2;
  EXPECT_EQ(table.resolve(swapped).error().code(), Code::kInvalidArgument);
}

TEST(BufferTable, LimitIsACleanError) {
  BufferTable table(kHigh, 2);
  const uint32_t a = create(table);
  create(table);
  EXPECT_EQ(table.check_room().error().code(), Code::kResourceExhausted);
  const auto more = table.create({});
  EXPECT_NE(more.error().message().find("Limits::buffers"), std::string::npos);
  table.acquire(a);
  table.release_owner(a);
  EXPECT_FALSE(table.create({}).ok());  // it still takes its memory
  table.release(a);
  EXPECT_TRUE(table.create({}).ok());
}

TEST(BufferTableDeathTest, BrokenPairsStopTheProcess) {
  BufferTable table(kHigh, 2);
  const uint32_t a = create(table);
  EXPECT_DEATH(table.release(a), "broken invariant");
  table.release_owner(a);
  EXPECT_DEATH(table.release_owner(a), "broken invariant");
  EXPECT_DEATH(table.acquire(a), "broken invariant");
}

// Against a map: every buffer is freed once, after its owner and its last task, never before.
TEST(BufferTable, RandomLivesMatchTheModel) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    base::Prng prng(seed);
    BufferTable table(kHigh, 20);
    struct Model {
      Tensor tensor;
      uint32_t references = 0;
      bool owned = true;
    };
    std::map<uint64_t, Model> live;  // by the count in the uid
    std::vector<Tensor> dead;
    std::map<uint32_t, uint32_t> generations;
    for (int step = 0; step < 2000; ++step) {
      const auto pick = [&] {
        auto it = live.begin();
        std::advance(it, static_cast<std::ptrdiff_t>(prng.below(live.size())));
        return it;
      };
      const uint64_t what = prng.below(4);
      if (what == 0) {
        const Result<uint32_t> index = table.create({prng.between(1, 100), 0, 0});
        ASSERT_EQ(index.ok(), live.size() < 20);
        if (index.ok()) {
          const Tensor t = tensor_of(table, *index);
          ASSERT_GT(table.at(*index).generation, generations[*index]);
          generations[*index] = table.at(*index).generation;
          ASSERT_TRUE(live.emplace(t.uid.low, Model{t}).second);
        }
      } else if (!live.empty()) {
        const auto it = pick();
        Model& model = it->second;
        const uint32_t index = model.tensor.buffer_index;
        if (what == 1 && model.owned) {
          table.acquire(index);
          ++model.references;
        } else if (what == 2 && model.references > 0) {
          table.release(index);
          --model.references;
        } else if (what == 3 && model.owned) {
          table.release_owner(index);
          model.owned = false;
        }
        const std::vector<BufferTable::Freed> freed = take(table);
        if (!model.owned && model.references == 0) {
          ASSERT_EQ(freed.size(), 1u);
          ASSERT_EQ(freed[0].index, index);
          dead.push_back(model.tensor);
          live.erase(it);
        } else {
          ASSERT_TRUE(freed.empty());
        }
      }
      ASSERT_EQ(table.used(), live.size());
      for (const auto& [low, model] : live) {
        ASSERT_EQ(table.find(model.tensor) != nullptr, model.owned);
        ASSERT_EQ(table.at(model.tensor.buffer_index).references, model.references);
      }
      if (!dead.empty()) {
        ASSERT_FALSE(table.resolve(dead[prng.below(dead.size())]).ok());
      }
    }
  }
}

}  // namespace
}  // namespace strata::buffer
