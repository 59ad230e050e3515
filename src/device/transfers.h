// Transfers: brings the tensors of one task to a chip and back: copies through device memory, or
// maps of the host's pages.
//
// Copied views of one buffer that overlap share device bytes: there is one device span for each
// range that they cover together. Mappings are kept for later tasks until their buffer is dropped;
// device spans last for one task. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <tuple>
#include <vector>

#include "device/chip_backend.h"
#include "device/runs.h"
#include "model/args.h"
#include "strata/tensor.h"

namespace strata::device {

class Transfers {
 public:
  // Mappings that are kept; beyond it the one used longest ago goes.
  static constexpr size_t kMappingsMax = 1024;

  explicit Transfers(ChipBackend& backend) : backend_(backend) {}
  ~Transfers();
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;

  // The tensors of `args` with data pointers of this device, what they read in place. Holds until
  // end(), which follows in any case.
  Result<void> begin(const model::ArgsDecoder& args, std::vector<strata_tensor>* tensors);
  // After the kernel has succeeded: the bytes of written views, and no others, go back.
  Result<void> write_back();
  void end();

  // The buffer is gone, or is to be mapped no longer.
  void drop(Uid buffer);

 private:
  struct View {
    size_t tensor;
    uint32_t segment;
    uint64_t first;  // offset of the first element in the segment
    Runs runs;
    TensorArgType tag;
    size_t span;
  };
  struct Span {
    uint32_t segment;
    uint64_t begin;
    uint64_t end;
    std::byte* device;
  };
  using MapKey = std::tuple<uint64_t, uint64_t, bool>;  // uid, writable
  struct Mapping {
    HostRange range;
    std::byte* at;
    uint64_t used_at;  // number of the task that used it last
  };

  Result<void> add_copy(const strata_tensor& tensor, size_t index, const model::DecodedRef& ref);
  Result<void> add_map(strata_tensor* tensor, size_t index, const model::DecodedRef& ref);
  Result<Mapping*> mapping(const MapKey& key, const HostRange& range);
  Result<void> make_spans();
  Result<void> read(const View& view);
  std::byte* device_of(const View& view, uint64_t offset) const;
  void forget_oldest();

  ChipBackend& backend_;
  std::vector<View> views_;  // of the task, by begin once the spans are made
  std::vector<Span> spans_;
  std::map<MapKey, Mapping> mappings_;
  uint64_t task_ = 0;
};

}  // namespace strata::device
