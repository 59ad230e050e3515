// What the tests of the device room share: host memory in a memfd, a cpu chip over it, and the
// bytes of the test kernels.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "device/chip_backend.h"
#include "device/transfers.h"
#include "os/shared_region.h"
#include "strata/task_args.h"

namespace strata::device {

inline std::vector<std::byte> kernel_bytes(const std::string& object) {
  std::ifstream file(std::string(STRATA_TEST_KERNELS) + "/" + object + ".so", std::ios::binary);
  EXPECT_TRUE(file.is_open()) << object;
  const std::vector<char> raw{std::istreambuf_iterator<char>(file), {}};
  const auto bytes = std::as_bytes(std::span(raw));
  return {bytes.begin(), bytes.end()};
}

// A heap with one buffer at kBegin, and a chip.
class Rig {
 public:
  static constexpr uint64_t kHeapBytes = 1 << 20;
  static constexpr uint64_t kBegin = 8192;
  static constexpr uint64_t kBufferBytes = 64 * 1024;

  explicit Rig(uint64_t device_bytes = 1 << 20)
      : heap_(os::SharedRegion::create("test-heap", kHeapBytes).value()) {
    std::vector<HostSegment> host;
    host.push_back({os::Fd(::dup(heap_.fd())), kHeapBytes});
    backend = make_backend({"cpu", device_bytes}, std::move(host), note).value();
    transfers = std::make_unique<Transfers>(*backend);
  }

  int64_t* words() const { return reinterpret_cast<int64_t*>(heap_.data() + kBegin); }

  static Tensor tensor(uint64_t first, std::initializer_list<uint64_t> shape,
                       std::initializer_list<int64_t> stride, uint64_t uid = 1) {
    Tensor t;
    t.uid = {1, uid};
    t.dtype = DType::kI64;
    t.rank = static_cast<uint8_t>(shape.size());
    t.offset = 8 * first;
    std::copy(shape.begin(), shape.end(), t.shape.begin());
    std::copy(stride.begin(), stride.end(), t.stride.begin());
    return t;
  }

  // As a child finds them.
  Result<void> decode(const TaskArgs& args, bool read_only = false) {
    words_.assign(model::encoded_bytes(args, true) / 8, 0);
    size_t next = 0;
    model::encode_args(
        args,
        [&](const Tensor&) {
          const bool map = args.tensors()[next++].transfer == Transfer::kMap;
          return model::Placement{0, kBegin, map ? model::kTransferMap : model::kTransferCopy,
                                  kBufferBytes, read_only};
        },
        reinterpret_cast<std::byte*>(words_.data()), true);
    return decoder.decode(std::as_bytes(std::span(words_)), [](uint32_t) {
      return model::MappedSegment{nullptr, kHeapBytes};
    });
  }
  Result<void> begin(const TaskArgs& args, bool read_only = false) {
    EXPECT_TRUE(decode(args, read_only).ok());
    return transfers->begin(decoder, &tensors);
  }
  int64_t* on_device(size_t i) const { return static_cast<int64_t*>(tensors[i].data); }

  ChipNote note{};
  std::unique_ptr<ChipBackend> backend;
  std::unique_ptr<Transfers> transfers;
  model::ArgsDecoder decoder;
  std::vector<strata_tensor> tensors;

 private:
  os::SharedRegion heap_;
  std::vector<uint64_t> words_;
};

}  // namespace strata::device
