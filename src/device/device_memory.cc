#include "device/device_memory.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"

namespace strata::device {

DeviceMemory::DeviceMemory(uint64_t bytes) : bytes_(bytes / kAlignBytes * kAlignBytes) {
  if (bytes_ > 0) free_.emplace(0, bytes_);
}

std::optional<uint64_t> DeviceMemory::allocate(uint64_t bytes) {
  if (bytes > bytes_) return std::nullopt;
  const uint64_t size =
      std::max((bytes + kAlignBytes - 1) / kAlignBytes, uint64_t{1}) * kAlignBytes;
  for (auto gap = free_.begin(); gap != free_.end(); ++gap) {
    if (gap->second < size) continue;
    const auto [offset, length] = *gap;
    free_.erase(gap);
    if (length > size) free_.emplace(offset + size, length - size);
    taken_.emplace(offset, size);
    used_ += size;
    peak_ = std::max(peak_, used_);
    return offset;
  }
  return std::nullopt;
}

void DeviceMemory::free(uint64_t offset) {
  const auto found = taken_.find(offset);
  STRATA_CHECK(found != taken_.end());
  const uint64_t size = found->second;
  taken_.erase(found);
  used_ -= size;
  const auto next = free_.lower_bound(offset);
  auto it = free_.emplace_hint(next, offset, size);
  if (next != free_.end() && offset + size == next->first) {
    it->second += next->second;
    free_.erase(next);
  }
  if (it == free_.begin()) return;
  const auto before = std::prev(it);
  if (before->first + before->second != offset) return;
  before->second += it->second;
  free_.erase(it);
}

uint64_t DeviceMemory::largest_gap() const {
  uint64_t largest = 0;
  for (const auto& [offset, bytes] : free_) largest = std::max(largest, bytes);
  return largest;
}

}  // namespace strata::device
