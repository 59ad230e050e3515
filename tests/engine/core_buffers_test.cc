// Core and its buffers: lives, scopes, the heap's bounds, pages to give back.
#include "core_rig.h"

namespace strata::engine {
namespace {

constexpr uint64_t kMiB = 1 << 20;

TEST(CoreBuffers, ABufferIsFreedWhenItsOwnerAndItsLastTaskLetGo) {
  CoreRig rig(1);
  const Core::NewBuffer a = rig.buffer();
  const auto run = rig.core.open_run();
  rig.submit(*run, {{tensor_of(a), OUTPUT}, {tensor_of(a), NO_DEP}});
  rig.submit(*run, {{tensor_of(a), INPUT}});
  EXPECT_EQ(rig.core.buffers().at(a.index).references, 3u);
  rig.core.release_buffer(a.index);
  EXPECT_EQ(rig.core.buffers().used(), 1u);
  rig.step();
  rig.fake().end();
  rig.step();
  EXPECT_EQ(rig.core.buffers().used(), 1u);
  rig.fake().end();
  rig.step();
  EXPECT_EQ(rig.core.buffers().used(), 0u);
  TaskArgs args;
  args.add_tensor(tensor_of(a), INPUT);
  EXPECT_EQ(rig.try_submit(*run, args), Core::Submitted::kRefused);
}

TEST(CoreBuffers, ATaskThatIsSkippedLetsItsBuffersGo) {
  CoreRig rig(1);
  const Core::NewBuffer a = rig.buffer();
  const auto run = rig.core.open_run();
  rig.submit(*run, {{tensor_of(a), OUTPUT}});
  rig.submit(*run, {{tensor_of(a), INPUT}});
  rig.core.release_buffer(a.index);
  rig.step();
  rig.fake().fail("broken");
  rig.step();
  EXPECT_EQ(run->progress.skipped, 1u);
  EXPECT_EQ(rig.core.buffers().used(), 0u);
}

TEST(CoreBuffers, ANewBufferInAnOldPlaceHasNoPoisonOfTheOld) {
  CoreRig rig(1);
  const Core::NewBuffer a = rig.buffer();
  const auto run = rig.core.open_run();
  rig.submit(*run, {{tensor_of(a), OUTPUT}});
  rig.step();
  rig.fake().fail("broken");
  rig.core.release_buffer(a.index);
  rig.step();
  const Core::NewBuffer b = rig.buffer();
  EXPECT_EQ(b.index, a.index);
  EXPECT_NE(b.uid, a.uid);
  rig.submit(*run, {{tensor_of(b), INPUT}});
  rig.drain();
  EXPECT_EQ(run->tasks[1], TaskState::kOk);
  TaskArgs stale;
  stale.add_tensor(tensor_of(a), INPUT);
  EXPECT_EQ(rig.try_submit(*run, stale), Core::Submitted::kRefused);
  EXPECT_NE(rig.error->message().find("stale"), std::string::npos);
}

TEST(CoreBuffers, ClearErrorLetsReadersRun) {
  CoreRig rig(1);
  const Core::NewBuffer a = rig.buffer();
  const auto run = rig.core.open_run();
  rig.submit(*run, {{tensor_of(a), OUTPUT}});
  rig.step();
  rig.fake().fail("broken");
  rig.step();
  rig.core.clear_error(a.index);
  rig.submit(*run, {{tensor_of(a), INPUT}});
  rig.drain();
  EXPECT_EQ(run->tasks[1], TaskState::kOk);
}

TEST(CoreBuffers, BuffersDoNotOverlapInTheHeap) {
  CoreRig rig(1);
  std::vector<Core::NewBuffer> buffers;
  for (const uint64_t bytes : {uint64_t{1}, uint64_t{64}, uint64_t{5000}, kMiB, 9 * kMiB}) {
    buffers.push_back(rig.buffer(bytes));
  }
  EXPECT_FALSE(buffers.back().dirty);
  for (const Core::NewBuffer& x : buffers) {
    for (const Core::NewBuffer& y : buffers) {
      if (x.index == y.index) continue;
      EXPECT_TRUE(x.heap_offset + x.bytes <= y.heap_offset ||
                  y.heap_offset + y.bytes <= x.heap_offset);
    }
  }
}

TEST(CoreBuffers, AReusedPlaceIsDirty) {
  CoreRig rig(1);
  const Core::NewBuffer a = rig.buffer(64);
  rig.core.release_buffer(a.index);
  const Core::NewBuffer b = rig.buffer(64);
  EXPECT_EQ(b.heap_offset, a.heap_offset);
  EXPECT_TRUE(b.dirty);
}

// ---------------------------------------------------------------- scopes

TEST(CoreBuffers, ATemporaryLivesUntilItsScopeEndsAndItsTasksAreTerminal) {
  CoreRig rig(1);
  const auto run = rig.core.open_run();
  const auto scope = rig.core.begin_scope();
  ASSERT_TRUE(scope.ok());
  const auto inner = rig.core.create_temporary(64);
  ASSERT_TRUE(inner.ok());
  rig.submit(*run, {{tensor_of(inner.value()), OUTPUT}});
  rig.core.end_scope(*scope);
  EXPECT_EQ(rig.core.buffers().used(), 1u) << "a task holds it";
  TaskArgs args;
  args.add_tensor(tensor_of(inner.value()), INPUT);
  EXPECT_EQ(rig.try_submit(*run, args), Core::Submitted::kRefused);
  rig.drain();
  EXPECT_EQ(rig.core.buffers().used(), 0u);
}

TEST(CoreBuffers, MemoryIsToComeWhileATaskOfAnEndedScopeHoldsSome) {
  CoreRig rig(1, {.slots = 64, .buffers = 64, .heap_bytes = 1 << 20});
  const auto run = rig.core.open_run();
  const auto scope = rig.core.begin_scope();
  ASSERT_TRUE(scope.ok());
  const auto all = rig.core.create_temporary(1 << 20);
  ASSERT_TRUE(all.ok());
  rig.submit(*run, {{tensor_of(all.value()), OUTPUT}});
  EXPECT_FALSE(rig.core.create_temporary(1 << 20).ok());
  EXPECT_FALSE(rig.core.memory_to_come()) << "its scope is open";
  rig.core.end_scope(*scope);
  EXPECT_FALSE(rig.core.create_temporary(2 << 20).ok());
  EXPECT_FALSE(rig.core.memory_to_come()) << "no heap of this size holds it";
  EXPECT_FALSE(rig.core.create_temporary(1 << 20).ok());
  EXPECT_TRUE(rig.core.memory_to_come());
  rig.drain();
  EXPECT_TRUE(rig.core.create_temporary(1 << 20).ok());
  EXPECT_FALSE(rig.core.memory_to_come());
}

TEST(CoreBuffers, TheEndOfTheFunctionEndsAllScopes) {
  CoreRig rig(1);
  const auto run = rig.core.open_run();
  ASSERT_TRUE(rig.core.create_temporary(64).ok());
  ASSERT_TRUE(rig.core.begin_scope().ok());
  ASSERT_TRUE(rig.core.create_temporary(64).ok());
  rig.core.seal_run(*run, std::nullopt);
  EXPECT_EQ(rig.core.buffers().used(), 0u);
  const auto next = rig.core.open_run();
  EXPECT_TRUE(rig.core.create_temporary(64).ok());
}

TEST(CoreBuffers, ScopesNestToABound) {
  CoreRig rig(1);
  rig.core.open_run();
  uint64_t scope = 0;
  for (size_t i = 0; i < Core::kScopesMax; ++i) {
    const auto begun = rig.core.begin_scope();
    ASSERT_TRUE(begun.ok());
    scope = *begun;
  }
  const auto refused = rig.core.begin_scope();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), Code::kResourceExhausted);
  rig.core.end_scope(scope);
  EXPECT_TRUE(rig.core.begin_scope().ok());
}

// ---------------------------------------------------------------- bounds

TEST(CoreBuffers, AFullHeapNamesTheOption) {
  CoreRig rig(1, {.slots = 4, .buffers = 64, .heap_bytes = 8 * kMiB});
  const Core::NewBuffer a = rig.buffer(8 * kMiB);
  for (const uint64_t bytes : {uint64_t{1}, kMiB, 9 * kMiB}) {
    const auto refused = rig.core.create_buffer(bytes);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code(), Code::kResourceExhausted);
    EXPECT_NE(refused.error().message().find("Limits::heap_bytes"), std::string::npos);
  }
  EXPECT_EQ(rig.core.buffers().used(), 1u);
  rig.core.release_buffer(a.index);
}

TEST(CoreBuffers, AFullTableOfBuffersNamesTheOptionAndTakesNoMemory) {
  CoreRig rig(1, {.slots = 4, .buffers = 2});
  rig.buffer();
  rig.buffer();
  const auto refused = rig.core.create_buffer(64 * kMiB);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), Code::kResourceExhausted);
  EXPECT_NE(refused.error().message().find("Limits::buffers"), std::string::npos);
}

TEST(CoreBuffers, ABufferOfNoBytesIsRefused) {
  CoreRig rig(1);
  EXPECT_EQ(rig.core.create_buffer(0).error().code(), Code::kInvalidArgument);
}

TEST(CoreBuffers, TheSpaceOfALargeBufferIsUsedAgainOnceItsPagesAreGivenBack) {
  CoreRig rig(1, {.slots = 4, .buffers = 64, .heap_bytes = 8 * kMiB});
  const Core::NewBuffer a = rig.buffer(8 * kMiB);
  rig.core.release_buffer(a.index);
  EXPECT_TRUE(rig.core.has_chores());
  const std::vector<Punch> punches = rig.core.take_punches();
  ASSERT_EQ(punches.size(), 1u);
  EXPECT_EQ(punches.front().heap_offset, a.heap_offset);
  EXPECT_EQ(punches.front().bytes, 8 * kMiB);
  const Core::NewBuffer b = rig.buffer(8 * kMiB);
  EXPECT_NE(b.heap_offset, a.heap_offset) << "its pages still hold old bytes";
  rig.core.release_buffer(b.index);
  rig.core.segment_punched(punches.front());
  const Core::NewBuffer c = rig.buffer(8 * kMiB);
  EXPECT_EQ(c.heap_offset, a.heap_offset);
  EXPECT_FALSE(c.dirty);
}

TEST(CoreBuffers, AnIdleSlabMakesWayForALargeBufferAndItsPagesAreGivenBack) {
  CoreRig rig(1, {.slots = 4, .buffers = 64, .heap_bytes = 8 * kMiB});
  const Core::NewBuffer small = rig.buffer(64);
  rig.core.release_buffer(small.index);
  EXPECT_FALSE(rig.core.has_chores()) << "the slab is kept for the next small buffer";
  rig.buffer(8 * kMiB);
  const std::vector<Punch> punches = rig.core.take_punches();
  ASSERT_EQ(punches.size(), 1u) << "else the heap holds more pages than its bound";
  EXPECT_EQ(punches.front().heap_offset, small.heap_offset);
}

}  // namespace
}  // namespace strata::engine
