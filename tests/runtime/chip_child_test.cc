// One chip process behind its mailbox, without a Worker.
#include <signal.h>

#include <fstream>
#include <iterator>

#include "base/bytes.h"
#include "device/chip_note.h"
#include "engine/core_types.h"
#include "engine/local_mailbox_endpoint.h"
#include "mailbox/hub.h"
#include "mailbox/plain_memory.h"
#include "model/args.h"
#include "os/event_fd.h"
#include "os/futex.h"
#include "os/shared_region.h"
#include "registry/payload.h"
#include "runtime/child_main.h"
#include "runtime/child_spec.h"
#include "tests/runtime/worker_test_util.h"

namespace strata::runtime {
namespace {

using test::await;

struct Wake {
  void operator()(const uint32_t* word) const {
    os::futex_wake(reinterpret_cast<const std::atomic<uint32_t>*>(word), 1);
  }
};

class ChipChild : public ::testing::Test, private engine::EndpointSink {
 protected:
  static constexpr uint64_t kHeapBytes = 16 << 20;
  static constexpr uint64_t kBlobAt = 8 << 20;

  void SetUp() override {
    mailbox::Hub<mailbox::PlainMemory>({}, hub_.data()).format();
    server_ = os::ForkServer::start({&child_main, {}}).value();
    const os::EventFd wake = os::EventFd::create().value();
    ChildSpec spec;
    spec.path = "L3/0";
    spec.heap_bytes = {kHeapBytes};
    spec.chip = ChipSpec{};
    const int fds[] = {region_.fd(), hub_.fd(), wake.fd(), heap_.fd(), note_.fd()};
    server_->spawn(0, encode(spec), fds).value();
  }

  device::ChipNote& note() { return *reinterpret_cast<device::ChipNote*>(note_.data()); }
  int64_t* words() { return reinterpret_cast<int64_t*>(heap_.data()); }

  void on_completion(const mailbox::Completion& c) override {
    done_ = true;
    outcome_ = c.outcome;
    text_ = {reinterpret_cast<const char*>(c.text.data()), c.text.size()};
  }
  void on_reply(uint32_t, uint32_t code, std::span<const std::byte> bytes) override {
    done_ = true;
    code_ = code;
    text_ = {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  void on_abandoned(uint64_t, uint64_t, bool) override {}

  bool await_done() {
    if (endpoint_.needs_wake()) endpoint_.wake();
    return await([this] { return endpoint_.poll(*this).ok() && done_; });
  }

  uint32_t control(engine::Command command, std::span<const std::byte> rest = {}) {
    base::ByteWriter request;
    request.put(uint64_t{1});
    request.put(uint32_t{0});
    request.put(uint32_t{1});
    request.put_bytes(rest);
    done_ = false;
    EXPECT_TRUE(endpoint_.control(static_cast<uint32_t>(command), request.bytes()));
    EXPECT_TRUE(await_done());
    return code_;
  }

  uint32_t prepare(const std::string& entry, std::optional<model::Digest> digest = {}) {
    std::ifstream file(STRATA_TEST_KERNELS "/chip_kernels.so", std::ios::binary);
    const std::string blob{std::istreambuf_iterator<char>(file), {}};
    std::memcpy(heap_.data() + kBlobAt, blob.data(), blob.size());
    registry::PreparePayload payload;
    payload.name = entry;
    payload.descriptor = model::ChipCallableDescriptor{
        "cpu", entry, "", digest.value_or(base::sha256(test::bytes_of(blob)))};
    payload.blob_offset = kBlobAt;
    payload.blob_bytes = blob.size();
    return control(engine::Command::kPrepare, registry::encode_payload(payload).value());
  }

  void post(const TaskArgs& args, int32_t blocks) {
    std::vector<uint64_t> bytes(model::encoded_bytes(args, true) / 8);
    model::encode_args(
        args,
        [](const Tensor&) {
          return model::Placement{0, 0, model::kTransferCopy, 4096};
        },
        reinterpret_cast<std::byte*>(bytes.data()), true);
    done_ = false;
    EXPECT_TRUE(endpoint_.dispatch({7, 0, 0, blocks, 0}, std::as_bytes(std::span(bytes))));
  }

  static Tensor tensor(uint64_t n) {
    Tensor t;
    t.uid = {1, 1};
    t.dtype = DType::kI64;
    t.rank = 1;
    t.shape[0] = n;
    t.stride[0] = 1;
    return t;
  }

  os::SharedRegion heap_ = os::SharedRegion::create("heap", kHeapBytes).value();
  os::SharedRegion region_ = os::SharedRegion::create("mailbox", mailbox::kRegionBytes).value();
  os::SharedRegion hub_ = os::SharedRegion::create("hub", mailbox::kHubBytes).value();
  os::SharedRegion note_ = os::SharedRegion::create("note", device::ChipNote::kBytes).value();
  engine::LocalMailboxEndpoint<mailbox::PlainMemory, Wake> endpoint_{{}, region_.data(), {}};
  std::unique_ptr<os::ForkServer> server_;
  bool done_ = false;
  uint32_t code_ = 0;
  mailbox::Outcome outcome_{};
  std::string text_;
};

TEST_F(ChipChild, RunsAKernelOverItsBlocks) {
  ASSERT_EQ(prepare("chip_scale"), 0u) << text_;
  ASSERT_EQ(control(engine::Command::kCommit), 0u) << text_;
  for (int64_t i = 0; i < 100; ++i) words()[i] = i;
  post(TaskArgs().add_tensor(tensor(100), INOUT).add_scalar(int64_t{3}), 7);
  ASSERT_TRUE(await_done());
  EXPECT_EQ(outcome_, mailbox::Outcome::kOk) << text_;
  for (int64_t i = 0; i < 100; ++i) EXPECT_EQ(words()[i], 3 * i);
  EXPECT_EQ(note().copied_in, 800u);
  EXPECT_EQ(note().copied_out, 800u);
  EXPECT_EQ(note().used_bytes, 0u);
}

TEST_F(ChipChild, ASignalLeavesKernelAndBlockInItsNote) {
  ASSERT_EQ(prepare("chip_signal"), 0u) << text_;
  ASSERT_EQ(control(engine::Command::kCommit), 0u) << text_;
  post(TaskArgs().add_scalar(int32_t{2}).add_scalar(int32_t{SIGFPE}), 5);
  if (endpoint_.needs_wake()) endpoint_.wake();
  std::string end;
  ASSERT_TRUE(await([&] {
    const auto event = server_->next_event().value();
    if (event && event->kind == os::ServerEvent::kExited) end = event->text;
    return !end.empty();
  }));
  EXPECT_EQ(end, "killed by signal 8 (Floating point exception)");
  EXPECT_EQ(note().where(), " in kernel 'chip_signal', block 2 of 5");
}

TEST_F(ChipChild, RefusesBytesOfAnotherDigest) {
  EXPECT_EQ(prepare("chip_scale", model::Digest{}), static_cast<uint32_t>(Code::kCorrupt));
  EXPECT_NE(text_.find("do not have the SHA-256"), std::string::npos) << text_;
}

}  // namespace
}  // namespace strata::runtime
