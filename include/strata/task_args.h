// TaskArgs and CallConfig: what a task is called with. Values; build them where you like, on any
// thread; submit copies what it needs before it returns.
//
//   strata::TaskArgs args;
//   args.add_tensor(a, strata::INPUT).add_tensor(c, strata::INOUT).add_scalar(alpha);
//
// At most 256 tensors, 256 scalars and 64 KiB of inline bytes; submit refuses more.
#pragma once

#include <bit>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "strata/inline_vector.h"
#include "strata/tensor.h"

namespace strata {

struct TensorArg {
  Tensor tensor;
  TensorArgType tag;
  Transfer transfer = Transfer::kDefault;
};

class TaskArgs {
 public:
  static constexpr size_t kTensorsMax = 256;
  static constexpr size_t kScalarsMax = 256;
  static constexpr size_t kInlineBytesMax = 64 * 1024;

  TaskArgs& add_tensor(const Tensor& tensor, TensorArgType tag,
                       Transfer transfer = Transfer::kDefault) {
    tensors_.push_back({tensor, tag, transfer});
    return *this;
  }

  // The tensor behind argument i, after a submit that gave it storage for example.
  const Tensor& tensor(size_t i) const { return tensors_.data()[i].tensor; }
  void set_tensor(size_t i, const Tensor& tensor) { tensors_.data()[i].tensor = tensor; }

  // Any trivially copyable value of at most 8 bytes, read back by Call::scalar<T>.
  template <class T>
  TaskArgs& add_scalar(T value) {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 8);
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    scalars_.push_back(bits);
    return *this;
  }

  TaskArgs& set_inline(std::span<const std::byte> bytes) {
    inline_.assign(bytes.begin(), bytes.end());
    return *this;
  }

  // Empties it and keeps its memory, for use in a loop.
  void clear() {
    tensors_.clear();
    scalars_.clear();
    inline_.clear();
  }

  std::span<const TensorArg> tensors() const { return tensors_; }
  std::span<const uint64_t> scalars() const { return scalars_; }
  std::span<const std::byte> inline_bytes() const { return inline_; }

 private:
  InlineVector<TensorArg, 4> tensors_;
  InlineVector<uint64_t, 8> scalars_;
  std::vector<std::byte> inline_;
};

struct CallConfig {
  int32_t block_dim = 1;  // blocks of a chip kernel; 1 for plain callables
  uint32_t flags = 0;     // bit 1 dump arguments; the timeline is the WorkerSpec's to ask for
  // From the start of execution; 0: none. When it has passed Call::cancelled() says so, and the
  // task fails with Code::kDeadline, whatever it returns then. Where it does not end within
  // Timeouts::deadline_grace_ms more its child is ended, a child Worker with all below it. Of a
  // call in this process (StartMethod::kInline) the end is awaited.
  uint32_t deadline_ms = 0;
};

}  // namespace strata
