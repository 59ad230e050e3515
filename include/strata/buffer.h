// Buffer: shared host memory that every local child of its Worker can read and write in place.
//
//   auto x = worker->create_buffer(1024 * sizeof(double));
//   x->as<double>()[0] = 1.0;
//   args.add_tensor(x->tensor<double>({32, 32}), strata::INOUT);
//
// A move-only owner. Destroying it frees the memory once the last submitted task that names it is
// terminal. data() is the plain memory: reading it while a task writes it is a race of the user's;
// wait for the task first. Any thread; one Buffer object at a time.
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <span>

#include "strata/export.h"
#include "strata/result.h"
#include "strata/tensor.h"

namespace strata {

class STRATA_PUBLIC Buffer {
 public:
  Buffer();
  Buffer(Buffer&&) noexcept;
  Buffer& operator=(Buffer&&) noexcept;

  explicit operator bool() const { return impl_ != nullptr; }
  std::byte* data() const;
  size_t size() const;  // bytes
  Uid uid() const;

  // From here on submit refuses every tag that writes it, at every level; tasks that were submitted
  // before go on. For good. data() of this process can be written as before.
  Result<void> make_read_only();

  template <class T>
  std::span<T> as() const {
    return {reinterpret_cast<T*>(data()), size() / sizeof(T)};
  }

  // A contiguous view of `shape` elements from byte `offset`; submit refuses what leaves the
  // buffer.
  Tensor tensor(DType dtype, std::span<const uint64_t> shape, uint64_t offset = 0) const;
  template <class T>
  Tensor tensor(std::initializer_list<uint64_t> shape, uint64_t offset = 0) const {
    return tensor(DTypeOf<T>::value, std::span<const uint64_t>(shape.begin(), shape.size()),
                  offset);
  }

  struct Impl;
  explicit Buffer(std::unique_ptr<Impl> impl);
  ~Buffer();

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace strata
