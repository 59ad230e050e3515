// Workers of other hosts beside those of this one: which tasks may go there.
#include "core_rig.h"

namespace strata::engine {
namespace {

// Worker 0 shares this host's memory, worker 1 does not.
class CoreRemote : public ::testing::Test {
 protected:
  CoreRemote() {
    for (const bool remote : {false, true}) {
      const uint32_t worker =
          rig.add_worker({.pool = Pool::kNext, .nested = true, .remote = remote});
      rig.core.start_worker(worker, rig.now);
      rig.settle();
    }
    gemm = rig.register_callable("gemm");
    buffer = rig.buffer(1 << 20);
    run = rig.core.open_run();
  }
  Core::Submitted submit(const TaskArgs& args, int32_t worker = -1) {
    rig.error.reset();
    return rig.core.submit(*run, {gemm, {Pool::kNext, worker}, {}}, args, &rig.ref, &rig.error);
  }
  TaskArgs args(TensorArgType tag, uint64_t bytes) {
    Tensor tensor = tensor_of(buffer);
    tensor.dtype = DType::kU8;
    tensor.rank = 1;
    tensor.shape = {bytes};
    tensor.stride = {1};
    TaskArgs out;
    out.add_tensor(tensor, tag);
    return out;
  }
  size_t queued(uint32_t worker) { return rig.fake(worker).queue.size(); }

  CoreRig rig{0};
  registry::EntryRef gemm;
  Core::NewBuffer buffer;
  std::shared_ptr<RunRecord> run;
};

TEST_F(CoreRemote, SmallInputsGoToEither) {
  for (int i = 0; i < 2; ++i) ASSERT_EQ(submit(args(INPUT, 1000)), Core::Submitted::kDone);
  rig.step();
  EXPECT_EQ(queued(0), 1u);
  EXPECT_EQ(queued(1), 1u);
  ASSERT_EQ(submit(args(INPUT, 65'536), 1), Core::Submitted::kDone);
  rig.step();
  EXPECT_EQ(queued(1), 2u);
}

TEST_F(CoreRemote, WhatWritesOrIsLargeStaysOnThisHost) {
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(submit(args(INPUT, 65'537)), Core::Submitted::kDone);
    ASSERT_EQ(submit(args(NO_DEP, 8)), Core::Submitted::kDone);
  }
  rig.step();
  EXPECT_EQ(queued(0), 4u);
  EXPECT_EQ(queued(1), 0u);
}

TEST_F(CoreRemote, DirectedThereItIsRefusedWithTheReasonAndWhatToDo) {
  EXPECT_EQ(submit(args(INOUT, 8), 1), Core::Submitted::kRefused);
  EXPECT_EQ(rig.error->code(), Code::kInvalidArgument);
  for (const char* piece : {"cannot go to worker", "INOUT", "another host", "set_result"}) {
    EXPECT_NE(rig.error->message().find(piece), std::string::npos) << piece;
  }
  EXPECT_EQ(submit(args(INOUT, 8), 0), Core::Submitted::kDone);
}

TEST_F(CoreRemote, WhereNobodyElseIsLeftTheRefusalSaysSo) {
  rig.core.lose_worker(0, "gone");
  rig.step();
  EXPECT_EQ(submit(args(OUTPUT, 8)), Core::Submitted::kRefused);
  EXPECT_NE(rig.error->message().find("no worker of this host"), std::string::npos)
      << rig.error->message();
  EXPECT_EQ(submit(args(INPUT, 8)), Core::Submitted::kDone);
  rig.step();
  EXPECT_EQ(queued(1), 1u);
}

TEST_F(CoreRemote, AGroupGoesWhereAllItsMembersMay) {
  const TaskArgs small = args(INPUT, 8);
  TaskArgs large = args(INPUT, 65'537);
  const std::vector<TaskArgs> both{small, small}, one_large{small, large};
  const auto group = [&](const std::vector<TaskArgs>& members, std::vector<int32_t> workers = {}) {
    rig.error.reset();
    return rig.core.submit_group(*run, {gemm, {Pool::kNext, -1}, {}}, members, workers, &rig.ref,
                                 &rig.error);
  };
  EXPECT_EQ(group(one_large), Core::Submitted::kRefused) << "one worker of this host for two";
  EXPECT_EQ(group(one_large, {0, 1}), Core::Submitted::kRefused);
  EXPECT_NE(rig.error->message().find("cannot go to worker"), std::string::npos);
  EXPECT_EQ(group(both), Core::Submitted::kDone);
  rig.step();
  EXPECT_EQ(queued(0), 1u);
  EXPECT_EQ(queued(1), 1u);
}

}  // namespace
}  // namespace strata::engine
