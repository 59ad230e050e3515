// What a child is told at its start comes over as it was, and nothing else does.
#include "runtime/child_spec.h"

#include <gtest/gtest.h>

namespace strata::runtime {
namespace {

ChildSpec nested() {
  ChildSpec spec;
  spec.path = "L5/1";
  spec.heap_bytes = {1 << 20, 1 << 21};
  spec.spin = {1, 2, 3};
  WorkerSpec host;
  host.level = 3;
  host.sub_workers = 2;
  host.start = StartMethod::kInline;
  host.library_path = {"/opt/a", "/opt/b"};
  host.inherit_fds = {5, 6};
  host.limits = {11, 12, 13, 14, 15};
  host.timeouts = {21, 22, 23, 24, 25, 26, 27};
  host.restart = Restart::kOnFailure;
  host.restart_limit = 9;
  WorkerSpec rack;
  rack.level = 4;
  rack.allow_threads = true;
  rack.workers = {host, host};
  rack.workers[1].sub_workers = 9;
  spec.worker = rack;
  return spec;
}

TEST(ChildSpec, ComesOverWhole) {
  const ChildSpec got = decode_child_spec(encode(nested())).value();
  EXPECT_EQ(got.path, "L5/1");
  EXPECT_EQ(got.heap_bytes, (std::vector<uint64_t>{1 << 20, 1 << 21}));
  EXPECT_EQ(got.spin.polls_without_pause, 3);
  ASSERT_TRUE(got.worker.has_value());
  EXPECT_EQ(got.worker->level, 4);
  EXPECT_TRUE(got.worker->allow_threads);
  ASSERT_EQ(got.worker->workers.size(), 2u);
  const WorkerSpec& host = got.worker->workers[1];
  EXPECT_EQ(host.level, 3);
  EXPECT_EQ(host.sub_workers, 9);
  EXPECT_EQ(host.start, StartMethod::kInline);
  EXPECT_EQ(host.library_path, (std::vector<std::string>{"/opt/a", "/opt/b"}));
  EXPECT_EQ(host.inherit_fds, (std::vector<int>{5, 6}));
  EXPECT_EQ(host.limits.slots, 11u);
  EXPECT_EQ(host.limits.heap_bytes, 15u);
  EXPECT_EQ(host.timeouts.child_ready_ms, 21u);
  EXPECT_EQ(host.timeouts.deadline_grace_ms, 26u);
  EXPECT_EQ(host.timeouts.stall_report_ms, 27u);
  EXPECT_EQ(host.restart, Restart::kOnFailure);
  EXPECT_EQ(host.restart_limit, 9u);
  // Byte for byte: nothing that encode writes is left unread.
  EXPECT_EQ(encode(got), encode(nested()));
}

TEST(ChildSpec, ThatIsCutOrTooLongIsRefused) {
  std::vector<std::byte> bytes = encode(nested());
  for (size_t n = 0; n < bytes.size(); ++n) {
    ASSERT_FALSE(decode_child_spec(std::span(bytes).first(n)).ok()) << n;
  }
  bytes.push_back({});
  EXPECT_FALSE(decode_child_spec(bytes).ok());
}

TEST(ChildSpec, WithMoreThanItsBoundsIsRefused) {
  ChildSpec spec = nested();
  spec.heap_bytes.assign(kHeapsMax + 1, 4096);
  EXPECT_FALSE(decode_child_spec(encode(spec)).ok());
  spec.heap_bytes.clear();
  EXPECT_FALSE(decode_child_spec(encode(spec)).ok());
  spec = nested();
  WorkerSpec deep;
  for (int i = 0; i < 3; ++i) {
    WorkerSpec up;
    up.workers = {deep};
    deep = up;
  }
  spec.worker = deep;
  EXPECT_TRUE(decode_child_spec(encode(spec)).ok());
  WorkerSpec deeper;
  deeper.workers = {deep};
  spec.worker = deeper;
  EXPECT_FALSE(decode_child_spec(encode(spec)).ok());
}

}  // namespace
}  // namespace strata::runtime
