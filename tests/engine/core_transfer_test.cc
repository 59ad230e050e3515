// How tensors get to workers that copy or map, and what these hear of freed buffers.
#include "core_rig.h"
#include "model/args.h"

namespace strata::engine {
namespace {

constexpr Transfer kMap = Transfer::kMap;
constexpr Transfer kCopy = Transfer::kCopy;

// One worker in the pool of the next level.
struct TransferRig : CoreRig {
  explicit TransferRig(uint32_t transfers) : CoreRig(0) {
    auto endpoint = std::make_unique<FakeEndpoint>();
    fakes.push_back(endpoint.get());
    core.start_worker(core.add_worker(std::move(endpoint), {Pool::kNext, ~0u, false, transfers}),
                      now);
    settle();
    gemm = register_callable("gemm");
    run = core.open_run();
  }
  // "" or the refusal.
  std::string submit_text(const TaskArgs& args) {
    error.reset();
    const Core::Submitted submitted =
        core.submit(*run, {gemm, {Pool::kNext, -1}, {}}, args, &ref, &error);
    if (submitted == Core::Submitted::kDone) return "";
    return error ? std::string(name_of(error->code())) + ": " + error->message() : "full";
  }
  // The transfers of the oldest task that the worker has.
  std::vector<uint8_t> posted() {
    step();
    model::ArgsDecoder decoder;
    EXPECT_TRUE(decoder.decode(fake().queue.front().args, [](uint32_t) {
      return model::MappedSegment{nullptr, ~uint64_t{0} >> 1};
    }));
    std::vector<uint8_t> out;
    for (const strata_tensor& t : decoder.tensors()) out.push_back(t.transfer);
    refs.assign(decoder.refs().begin(), decoder.refs().end());
    return out;
  }

  std::shared_ptr<RunRecord> run;
  std::vector<model::DecodedRef> refs;
};

TEST(CoreTransfer, ChipsCopyUnlessAskedToMapAndAreToldTheBuffers) {
  TransferRig rig(kCanCopy | kCanMap);
  const Core::NewBuffer a = rig.buffer(4096);
  const Core::NewBuffer b = rig.buffer(4096);
  rig.core.make_read_only(b.index);
  EXPECT_EQ(rig.submit_text(TaskArgs()
                                .add_tensor(tensor_of(a, 0, 64), INOUT)
                                .add_tensor(tensor_of(a, 64, 64), INPUT, kCopy)
                                .add_tensor(tensor_of(b, 128, 64), INPUT, kMap)),
            "");
  EXPECT_EQ(rig.posted(), (std::vector<uint8_t>{model::kTransferCopy, model::kTransferCopy,
                                                model::kTransferMap}));
  ASSERT_EQ(rig.refs.size(), 3u);
  EXPECT_EQ(rig.refs[2].uid, b.uid);
  EXPECT_EQ(rig.refs[2].buffer_offset, b.heap_offset);
  EXPECT_EQ(rig.refs[2].buffer_bytes, 4096u);
  EXPECT_EQ(rig.refs[2].offset, 128u);
  EXPECT_TRUE(rig.refs[2].read_only);
  EXPECT_FALSE(rig.refs[0].read_only);
}

TEST(CoreTransfer, WhatCannotBeIsRefusedWithItsReason) {
  TransferRig rig(kCanCopy | kCanMap);
  const Core::NewBuffer a = rig.buffer(4096);
  const Core::NewBuffer closed = rig.buffer(4096);
  rig.core.make_read_only(closed.index);
  const auto text = [&](const Core::NewBuffer& buffer, TensorArgType tag, Transfer transfer) {
    return rig.submit_text(TaskArgs().add_tensor(tensor_of(buffer), tag, transfer));
  };
  EXPECT_EQ(text(a, NO_DEP, Transfer::kDefault),
            "INVALID_ARGUMENT: tensor 0 is NO_DEP, which says nothing of what to copy: use "
            "Transfer::kMap, or a tag");
  EXPECT_EQ(text(a, NO_DEP, kMap), "");
  EXPECT_EQ(text(closed, NO_DEP, kMap), "");
  EXPECT_EQ(text(closed, INPUT, kMap), "");
  EXPECT_EQ(text(closed, OUTPUT, kMap),
            "INVALID_ARGUMENT: tensor 0 is OUTPUT, a map for writing, and its buffer is read-only "
            "(Buffer::make_read_only)");
  EXPECT_EQ(text(closed, INOUT, kCopy),
            "INVALID_ARGUMENT: tensor 0 is INOUT, and its buffer is read-only "
            "(Buffer::make_read_only)");
}

TEST(CoreTransfer, AMapToATargetThatIsNotHereIsRefused) {
  TransferRig rig(kCanCopy);
  const Core::NewBuffer a = rig.buffer(4096);
  EXPECT_EQ(rig.submit_text(TaskArgs().add_tensor(tensor_of(a), INPUT, kMap)),
            "UNSUPPORTED: tensor 0 is to be mapped, and its target cannot reach this host's "
            "memory: use Transfer::kCopy");
  EXPECT_EQ(rig.submit_text(TaskArgs().add_tensor(tensor_of(a), INPUT)), "");
}

TEST(CoreTransfer, WorkersInPlaceTakeNoCopy) {
  TransferRig rig(kInPlace);
  const Core::NewBuffer a = rig.buffer(4096);
  EXPECT_EQ(rig.submit_text(TaskArgs().add_tensor(tensor_of(a), INPUT, kCopy)),
            "UNSUPPORTED: tensor 0 asks for a copy, and child Workers work in place: leave its "
            "transfer at the default");
  EXPECT_EQ(rig.submit_text(TaskArgs().add_tensor(tensor_of(a), NO_DEP)), "");
  EXPECT_EQ(rig.posted(), (std::vector<uint8_t>{model::kTransferMap}));
}

TEST(CoreTransfer, ATaskMapsNoByteThatItCopies) {
  TransferRig rig(kCanCopy | kCanMap);
  const Core::NewBuffer a = rig.buffer(4096);
  const auto text = [&](uint64_t begin) {
    return rig.submit_text(TaskArgs()
                               .add_tensor(tensor_of(a, 0, 100), INOUT, kMap)
                               .add_tensor(tensor_of(a, begin, 100), INPUT));
  };
  EXPECT_EQ(text(99),
            "INVALID_ARGUMENT: tensor 0 maps bytes that tensor 1 copies: give both the same "
            "transfer");
  EXPECT_EQ(text(100), "");
}

TEST(CoreTransfer, WorkersThatMapHearOfTheEndOfWhatWasMappedAlone) {
  TransferRig rig(kCanCopy | kCanMap);
  const Core::NewBuffer copied = rig.buffer(4096);
  const Core::NewBuffer mapped = rig.buffer(4096);
  EXPECT_EQ(rig.submit_text(TaskArgs()
                                .add_tensor(tensor_of(copied), INPUT)
                                .add_tensor(tensor_of(mapped), INPUT, kMap)),
            "");
  rig.fake().commands.clear();
  rig.core.release_buffer(copied.index);
  rig.core.release_buffer(mapped.index);
  rig.step();
  EXPECT_TRUE(rig.fake().commands.empty());  // the task holds both
  rig.drain();
  rig.step();
  EXPECT_EQ(rig.fake().commands,
            (std::vector<uint32_t>{static_cast<uint32_t>(Command::kDropMapping)}));
  EXPECT_FALSE(rig.core.idle());
  ASSERT_EQ(rig.fake().posted_control->request.size(), 16u);
  uint64_t uid[2];
  std::memcpy(uid, rig.fake().posted_control->request.data(), sizeof uid);
  EXPECT_EQ(uid[0], mapped.uid.high);
  EXPECT_EQ(uid[1], mapped.uid.low);
  rig.settle();
  EXPECT_TRUE(rig.core.idle());
}

TEST(CoreTransfer, ALostWorkerIsToldNothingAndOwesNoAnswer) {
  TransferRig rig(kCanCopy | kCanMap);
  const Core::NewBuffer first = rig.buffer(4096);
  const Core::NewBuffer second = rig.buffer(4096);
  for (const Core::NewBuffer& buffer : {first, second}) {
    EXPECT_EQ(rig.submit_text(TaskArgs().add_tensor(tensor_of(buffer), INPUT, kMap)), "");
  }
  rig.drain();
  rig.core.release_buffer(first.index);
  rig.step();
  EXPECT_FALSE(rig.core.idle());
  rig.core.lose_worker(0, "killed");
  rig.core.release_buffer(second.index);
  rig.step();
  EXPECT_TRUE(rig.core.idle());
}

}  // namespace
}  // namespace strata::engine
