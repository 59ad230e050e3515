// DeviceMemory: which ranges of a device's memory are taken. First fit in the order of addresses;
// neighbours that are free are one range.
//
// Never touches the bytes. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

namespace strata::device {

class DeviceMemory {
 public:
  static constexpr uint64_t kAlignBytes = 64;  // of every range; host buffers have the same

  explicit DeviceMemory(uint64_t bytes);
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // Offset of a range of at least `bytes`; none where no gap is that large.
  std::optional<uint64_t> allocate(uint64_t bytes);
  // A range that allocate gave.
  void free(uint64_t offset);

  uint64_t bytes() const { return bytes_; }
  uint64_t used() const { return used_; }
  uint64_t peak() const { return peak_; }
  uint64_t largest_gap() const;

 private:
  uint64_t bytes_;
  uint64_t used_ = 0;
  uint64_t peak_ = 0;
  std::map<uint64_t, uint64_t> free_;  // offset to bytes
  std::map<uint64_t, uint64_t> taken_;
};

}  // namespace strata::device
