// Core as the engine of a child Worker: imports and their rights; and as the parent of one: inner
// registrations, a worker that says why it cannot start, several inline workers.
#include "core_rig.h"

namespace strata::engine {
namespace {

ImportedArg argument(uint64_t low, uint64_t begin, uint64_t bytes, TensorArgType tag) {
  ImportedArg arg;
  arg.tensor.uid = {5, low};
  arg.tensor.dtype = DType::kU8;
  arg.tensor.rank = 1;
  arg.tensor.offset = begin;
  arg.tensor.shape[0] = bytes;
  arg.tensor.stride[0] = 1;
  arg.tag = tag;
  arg.segment = 2;
  arg.buffer_offset = 4096 * low;
  arg.buffer_bytes = 256;
  return arg;
}

Tensor passed_on(const ImportedArg& arg, uint32_t index) {
  Tensor out = arg.tensor;
  out.buffer_index = index;
  return out;
}

struct ImportRig : CoreRig {
  explicit ImportRig(std::vector<ImportedArg> with) : args(std::move(with)) {
    run = core.open_run();
    EXPECT_TRUE(core.begin_imports(args, &indices).ok());
  }
  Core::Submitted use(size_t argument, TensorArgType tag) {
    TaskArgs out;
    out.add_tensor(passed_on(args[argument], indices[argument]), tag);
    return try_submit(*run, out);
  }
  void end() {
    core.seal_run(*run, std::nullopt);
    drain();
    EXPECT_TRUE(run->done);
    core.end_imports();
  }
  std::vector<ImportedArg> args;
  std::vector<uint32_t> indices;
  std::shared_ptr<RunRecord> run;
};

TEST(CoreImports, ATaskGetsTheMemoryAboveInTheSegmentItIsIn) {
  ImportRig rig({argument(1, 16, 32, INOUT)});
  EXPECT_EQ(rig.use(0, INOUT), Core::Submitted::kDone);
  rig.step();
  model::ArgsTensor tensor;
  std::memcpy(&tensor, rig.fake().queue.front().args.data() + sizeof(model::ArgsHeader),
              sizeof tensor);
  EXPECT_EQ(tensor.segment, 2u);
  EXPECT_EQ(tensor.offset, 4096u + 16u);
  EXPECT_EQ(tensor.nbytes, 32u);
  rig.end();
  EXPECT_EQ(rig.core.buffers().used(), 0u);
}

TEST(CoreImports, ArgumentsOfOneBufferShareAnImportAndOrderTheirTasks) {
  ImportRig rig({argument(1, 0, 32, INOUT), argument(1, 16, 32, INOUT), argument(2, 0, 8, INPUT)});
  EXPECT_EQ(rig.indices[0], rig.indices[1]);
  EXPECT_NE(rig.indices[0], rig.indices[2]);
  EXPECT_EQ(rig.use(0, OUTPUT), Core::Submitted::kDone);
  EXPECT_EQ(rig.use(1, INPUT), Core::Submitted::kDone);
  EXPECT_EQ(rig.run->dependencies, 1u);
  rig.end();
}

TEST(CoreImports, RightsAreThoseOfTheArgumentThatHoldsTheBytes) {
  ImportRig rig(
      {argument(1, 0, 32, INPUT), argument(1, 64, 32, OUTPUT), argument(1, 0, 16, OUTPUT)});
  EXPECT_EQ(rig.use(0, INPUT), Core::Submitted::kDone);
  EXPECT_EQ(rig.use(0, OUTPUT), Core::Submitted::kRefused);
  EXPECT_NE(rig.error->message().find("right to write"), std::string::npos);
  EXPECT_EQ(rig.use(1, OUTPUT), Core::Submitted::kDone);
  EXPECT_EQ(rig.use(1, INPUT), Core::Submitted::kRefused);
  EXPECT_NE(rig.error->message().find("right to read"), std::string::npos);
  // One argument gives the right to read, another that to write.
  EXPECT_EQ(rig.use(2, INOUT), Core::Submitted::kDone);
  EXPECT_EQ(rig.use(2, NO_DEP), Core::Submitted::kDone);
  rig.end();
}

TEST(CoreImports, PoisonAndOrderOfOneTaskAreGoneForTheNext) {
  ImportRig rig({argument(1, 0, 32, INOUT)});
  EXPECT_EQ(rig.use(0, OUTPUT), Core::Submitted::kDone);
  rig.step();
  rig.fake().fail("broken");
  rig.end();
  EXPECT_FALSE(rig.core.scheduler().has_ready());
  rig.run = rig.core.open_run();
  ASSERT_TRUE(rig.core.begin_imports(rig.args, &rig.indices).ok());
  EXPECT_EQ(rig.use(0, INPUT), Core::Submitted::kDone);
  rig.end();
  EXPECT_EQ(rig.run->progress.succeeded, 1u);
}

TEST(CoreImports, ArgumentsThatDoNotHoldTogetherLeaveNothing) {
  CoreRig rig(1);
  std::vector<uint32_t> indices;
  ImportedArg elsewhere = argument(1, 0, 8, INPUT);
  elsewhere.buffer_offset += 64;
  const ImportedArg placed[] = {argument(1, 0, 8, INPUT), elsewhere};
  EXPECT_EQ(rig.core.begin_imports(placed, &indices).error().code(), Code::kCorrupt);
  EXPECT_EQ(rig.core.buffers().used(), 0u);
  const ImportedArg outside[] = {argument(1, 250, 8, INPUT)};
  EXPECT_EQ(rig.core.begin_imports(outside, &indices).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(rig.core.buffers().used(), 0u);
}

TEST(CoreNested, InnerRegistrationsGoToWorkersAloneAndComeToThemLater) {
  CoreRig rig(0);
  registry::PreparePayload inner = native("scale");
  inner.inner = true;
  EXPECT_TRUE(rig.core.begin_register(inner, rig.now).ok());
  ASSERT_TRUE(rig.core.take_register_outcome().value().ok());
  const uint32_t nested = rig.add_worker({.pool = Pool::kNext, .nested = true});
  rig.core.start_worker(nested, rig.now);
  rig.settle();
  const uint32_t helper = rig.add_ready_worker();
  EXPECT_EQ(rig.fake(nested).commands.size(), 3u);  // the greeting, PREPARE, COMMIT
  EXPECT_EQ(rig.fake(helper).commands.size(), 1u);
  // The same callable for tasks is another entry, and goes to both.
  const registry::EntryRef own = rig.register_callable("scale");
  EXPECT_NE(rig.core.registry().find(rig.core.registry().info(own.index)->digest, true)->index,
            own.index);
  EXPECT_EQ(rig.fake(nested).commands.size(), 5u);
  EXPECT_EQ(rig.fake(helper).commands.size(), 3u);
}

TEST(CoreNested, ControlsOfAWorkerHaveTheTimeOfWhatIsBelowIt) {
  CoreRig rig(0);
  const auto limit = base::Duration::from_ms(rig.core.options().timeouts.control_ms);
  const uint32_t nested =
      rig.add_worker({.pool = Pool::kNext, .nested = true, .control_more_ms = 1000});
  rig.core.start_worker(nested, rig.now);
  rig.step();
  // Its greeting waits for its children: that is bounded by whoever starts it.
  rig.now = rig.now + limit + base::Duration::from_s(3600);
  rig.step();
  EXPECT_EQ(rig.core.next_deadline(), base::Instant::never());
  EXPECT_FALSE(rig.core.has_chores());
  rig.settle();
  ASSERT_TRUE(rig.core.begin_register(native("gemm"), rig.now).ok());
  rig.step();
  rig.now = rig.now + limit + base::Duration::from_ms(1000);
  rig.step();
  EXPECT_FALSE(rig.core.has_chores());
  rig.now = rig.now + base::Duration::from_ms(2);
  rig.step();
  EXPECT_NE(rig.kill_reason().find("did not answer a control within 31000 ms"), std::string::npos);
}

TEST(CoreNested, AWorkerThatSaysWhyItCannotStartIsLostForThatReason) {
  CoreRig rig(1);
  const uint32_t worker = rig.add_worker();
  rig.core.start_worker(worker, rig.now);
  rig.step();
  rig.fake(worker).answer(static_cast<uint32_t>(Code::kSystem), "no room below");
  rig.step();
  EXPECT_EQ(rig.kill_reason(), "no room below");
  rig.core.lose_worker(worker, "exit status 4");
  EXPECT_EQ(rig.core.loss_reason(worker), "no room below; exit status 4");
  EXPECT_FALSE(rig.core.wants_time());
}

TEST(CoreNested, TheReasonIsReadAlsoWhereTheEndIsToldFirst) {
  CoreRig rig(1);
  const uint32_t worker = rig.add_worker();
  rig.core.start_worker(worker, rig.now);
  rig.step();
  rig.fake(worker).answer(static_cast<uint32_t>(Code::kSystem), "no room below");
  rig.core.lose_worker(worker, "exit status 4");
  EXPECT_EQ(rig.core.loss_reason(worker), "no room below; exit status 4");
  EXPECT_FALSE(rig.core.wants_time());
}

TEST(CoreNested, InlineWorkersAreServedInTheOrderOfTheirNumbers) {
  Core core({.path = "L4", .limits = {.slots = 8, .buffers = 8}, .timeouts = {}, .uid_high = 77});
  std::vector<int> order;
  for (int i = 0; i < 3; ++i) {
    const uint32_t worker = core.add_worker(std::make_unique<InlineEndpoint>(
        InlineEndpoint::Runner{[&order, i](const auto&, auto, const auto&) {
                                 order.push_back(i);
                                 return InlineOutcome{};
                               },
                               [](uint32_t, std::span<const std::byte>) {
                                 return std::pair(0u, std::vector<std::byte>());
                               }}));
    core.start_worker(worker, base::Instant{1});
  }
  const auto settle = [&] {
    for (;;) {
      core.step(base::Instant{1});
      InlineEndpoint* const endpoint = core.inline_work();
      if (endpoint == nullptr) return;
      endpoint->take();
      endpoint->run();
      endpoint->put();
    }
  };
  settle();
  ASSERT_TRUE(core.begin_register(native("gemm"), base::Instant{1}).ok());
  settle();
  const registry::EntryRef gemm = core.take_register_outcome().value().value();
  const auto run = core.open_run();
  TaskRef ref;
  std::optional<Error> error;
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(core.submit(*run, {gemm, {}, {}}, TaskArgs(), &ref, &error), Core::Submitted::kDone);
  }
  core.seal_run(*run, std::nullopt);
  settle();
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2}));
  EXPECT_TRUE(run->done);
}

}  // namespace
}  // namespace strata::engine
