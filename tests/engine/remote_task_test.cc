// Arguments to a TASK and back into the form of a mailbox.
#include "engine/remote_task.h"

#include <gtest/gtest.h>

#include <numeric>

#include "base/prng.h"
#include "wire/codec.h"

namespace strata::engine {
namespace {

constexpr uint64_t kHeapBytes = 1 << 20;

// A parent's heap, the arguments that name it, and what a Worker of another host makes of them.
class RemoteTask : public ::testing::Test {
 protected:
  RemoteTask() : heap_(kHeapBytes / 4), arena_(kRemoteArenaBytes) {
    std::iota(heap_.begin(), heap_.end(), 0u);
  }

  static Tensor tensor(uint64_t offset, std::initializer_list<uint64_t> shape) {
    Tensor t = Tensor::without_storage<uint32_t>(shape);
    t.uid = {7, 1};
    t.buffer_index = 0;
    t.offset = offset;
    return t;
  }

  Result<void> send(const TaskArgs& args, const mailbox::TaskPost& post = {.block_dim = 1}) {
    std::vector<std::byte> local(model::encoded_bytes(args, true));
    model::encode_args(
        args,
        [](const Tensor&) {
          return model::Placement{0, 0, model::kTransferCopy, kHeapBytes, false};
        },
        local.data(), true);
    model::ArgsDecoder sender;
    auto* const base = reinterpret_cast<std::byte*>(heap_.data());
    auto decoded = sender.decode(local, [&](uint32_t) {
      return model::MappedSegment{base, kHeapBytes};
    });
    if (!decoded) return decoded;
    wire::Task task;
    if (auto packed = pack_task(post, sender, base::sha256({}), &task); !packed) return packed;
    std::vector<std::byte> bytes;
    if (auto encoded = wire::encode(task, &bytes); !encoded) return encoded;
    auto got = wire::decode<wire::Task>(bytes);
    if (!got) return got.error();
    return take(*got);
  }
  Result<void> take(const wire::Task& task) {
    if (auto done = unpack_task(task, arena_, &uid_, &post_, &local_); !done) return done;
    return receiver_.decode(local_, [&](uint32_t index) {
      return index == 0 ? model::MappedSegment{arena_.data(), arena_.size()}
                        : model::MappedSegment{};
    });
  }
  std::vector<uint32_t> values(size_t i) const {
    const strata_tensor& t = receiver_.tensors()[i];
    uint64_t n = 1;
    for (int d = 0; d < t.rank; ++d) n *= t.shape[d];
    const auto* const at = static_cast<const uint32_t*>(t.data);
    return {at, at + n};
  }

  std::vector<uint32_t> heap_;
  std::vector<std::byte> arena_;
  Uid uid_{42, 1};
  mailbox::TaskPost post_;
  std::vector<std::byte> local_;
  model::ArgsDecoder receiver_;
};

TEST_F(RemoteTask, TakesScalarsInlineBytesAndTensorsAlong) {
  TaskArgs args;
  args.add_tensor(tensor(400, {2, 3}), INPUT).add_tensor(tensor(0, {5}), INPUT);
  args.add_scalar(uint64_t{17}).add_scalar(2.5);
  const std::string text = "thirteen byte";
  args.set_inline(std::as_bytes(std::span(text)));
  const Result<void> sent = send(args, {.flags = 2, .block_dim = 3, .deadline_ms = 99});
  ASSERT_TRUE(sent.ok()) << sent.error().to_string();
  EXPECT_EQ(values(0), (std::vector<uint32_t>{100, 101, 102, 103, 104, 105}));
  EXPECT_EQ(values(1), (std::vector<uint32_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(receiver_.scalars()[0], 17u);
  EXPECT_EQ(receiver_.inline_bytes().size(), text.size());
  EXPECT_EQ(std::memcmp(receiver_.inline_bytes().data(), text.data(), text.size()), 0);
  EXPECT_EQ(post_.flags, 2u);
  EXPECT_EQ(post_.block_dim, 3);
  EXPECT_EQ(post_.deadline_ms, 99u);
  EXPECT_EQ(uid_, (Uid{42, 3})) << "each tensor has a uid of its own";
  EXPECT_TRUE(receiver_.refs()[1].read_only);
}

TEST_F(RemoteTask, AViewGoesAsItsElementsOneAfterTheOther) {
  TaskArgs args;
  args.add_tensor(tensor(0, {10, 10}).block(2, 3, 2, 4), INPUT);
  Tensor backwards = tensor(36, {10});
  backwards.stride[0] = -1;
  args.add_tensor(backwards, INPUT);
  Tensor turned = tensor(0, {2, 2});
  turned.stride = {1, 10};
  args.add_tensor(turned, INPUT);
  const Result<void> sent = send(args);
  ASSERT_TRUE(sent.ok()) << sent.error().to_string();
  EXPECT_EQ(values(0), (std::vector<uint32_t>{23, 24, 25, 26, 33, 34, 35, 36}));
  EXPECT_EQ(values(1), (std::vector<uint32_t>{9, 8, 7, 6, 5, 4, 3, 2, 1, 0}));
  EXPECT_EQ(values(2), (std::vector<uint32_t>{0, 10, 1, 11}));
}

TEST_F(RemoteTask, WithoutElementsOrRankGoesToo) {
  TaskArgs args;
  args.add_tensor(tensor(8, {0, 4}), INPUT).add_tensor(tensor(8, {}), INPUT);
  const Result<void> sent = send(args);
  ASSERT_TRUE(sent.ok()) << sent.error().to_string();
  EXPECT_TRUE(values(0).empty());
  EXPECT_EQ(values(1), std::vector<uint32_t>{2});
  ASSERT_TRUE(send({}).ok());
  EXPECT_TRUE(receiver_.tensors().empty());
}

TEST_F(RemoteTask, GoesUpTo64KiBAndNoFurther) {
  TaskArgs most;
  most.add_tensor(tensor(0, {TaskArgs::kInlineBytesMax / 4}), INPUT);
  EXPECT_EQ(why_not_remote(most), "");
  EXPECT_TRUE(send(most).ok());
  for (const uint64_t n : {TaskArgs::kInlineBytesMax / 4 + 1, uint64_t{1} << 62}) {
    TaskArgs more;
    more.add_tensor(Tensor::without_storage<uint32_t>({n}), INPUT);
    EXPECT_NE(why_not_remote(more).find("65536 bytes"), std::string::npos) << n;
  }
  TaskArgs both;
  both.add_tensor(tensor(0, {1}), INPUT).set_inline(std::vector<std::byte>(65'533));
  EXPECT_NE(why_not_remote(both), "");
  const Result<void> sent = send(both);
  ASSERT_FALSE(sent.ok());
  EXPECT_EQ(sent.error().code(), Code::kInvalidArgument);
}

TEST_F(RemoteTask, AnythingButAnInputIsRefusedWithWhatToDo) {
  for (const TensorArgType tag : {OUTPUT, INOUT, OUTPUT_EXISTING, NO_DEP}) {
    TaskArgs args;
    args.add_tensor(tensor(0, {1}), INPUT).add_tensor(tensor(0, {4}), tag);
    EXPECT_NE(why_not_remote(args).find("tensor 1"), std::string::npos);
    EXPECT_NE(why_not_remote(args).find("set_result"), std::string::npos);
    const Result<void> sent = send(args);
    ASSERT_FALSE(sent.ok());
    EXPECT_EQ(sent.error().code(), Code::kInvalidArgument);
  }
}

TEST_F(RemoteTask, WhatAPeerMadeOfItselfIsHeldToItsBytes) {
  base::Prng prng(3);
  int taken = 0;
  for (int round = 0; round < 2'000; ++round) {
    wire::Task task;
    task.inline_bytes.resize(prng.below(300));
    for (uint64_t i = prng.below(4); i > 0; --i) {
      wire::TaskTensor& t = task.tensors.emplace_back();
      t.dtype = static_cast<DType>(1 + prng.below(15));
      t.rank = static_cast<uint8_t>(prng.below(3));
      for (int d = 0; d < t.rank; ++d) {
        t.shape[d] = prng.below(9);
        t.stride[d] = static_cast<int64_t>(prng.below(9)) - 2;
      }
      t.desc.space = wire::Space::kHostInline;
      t.desc.inline_offset = static_cast<uint32_t>(prng.below(300));
      t.desc.inline_len = static_cast<uint32_t>(prng.below(300));
    }
    std::vector<std::byte> bytes;
    if (!wire::encode(task, &bytes)) continue;  // what the wire refuses does not get here
    ++taken;
    const Result<void> done = take(task);
    EXPECT_TRUE(done.ok()) << done.error().to_string();
  }
  EXPECT_GT(taken, 100);
}

}  // namespace
}  // namespace strata::engine
