// The shared heap of a Worker at its bound.
#include <gtest/gtest.h>

#include "strata/strata.h"

namespace strata {
namespace {

TEST(Heap, AnIdleSlabMakesWayForABufferOfTheWholeHeap) {
  WorkerSpec spec;
  spec.start = StartMethod::kInline;
  spec.sub_workers = 1;
  spec.limits.heap_bytes = 8 << 20;
  auto worker = Worker::create(spec).value();
  ASSERT_TRUE(worker->init().ok());
  { const Buffer small = worker->create_buffer(64).value(); }
  {
    const Result<Buffer> whole = worker->create_buffer(8 << 20);
    EXPECT_TRUE(whole.ok()) << (whole ? "" : whole.error().to_string());
  }
  EXPECT_TRUE(worker->close().ok());
}

}  // namespace
}  // namespace strata
