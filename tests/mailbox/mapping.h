// A zeroed piece of memory, page-aligned, in place of a mapping.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>

namespace strata::mailbox {

template <size_t Bytes>
class Mapping {
 public:
  Mapping() : bytes_(static_cast<std::byte*>(std::aligned_alloc(4096, Bytes))) {
    std::memset(bytes_.get(), 0, Bytes);
  }
  std::byte* data() const { return bytes_.get(); }
  std::span<std::byte> span() const { return {bytes_.get(), Bytes}; }

 private:
  struct Free {
    void operator()(void* at) const { std::free(at); }
  };
  std::unique_ptr<std::byte, Free> bytes_;
};

}  // namespace strata::mailbox
