// The author's side of a native callable, header only: Call wraps strata_call, STRATA_EXPORT writes
// the C entry and the ABI number. Objects built with it do not link libstrata.
//
//   #include <strata/callable.h>
//   static void scale(strata::Call& call) {
//     auto x = call.tensor<double>(0);
//     for (double& v : x.span()) v *= call.scalar<double>(0);
//   }
//   STRATA_EXPORT(scale)      // exports `extern "C" int32_t scale(const strata_call*)`
//
// An exception that leaves the function is a task failure with its text. One thread runs a call;
// a Call must not outlive it.
#pragma once

#include <cstddef>
#include <cstring>
#include <exception>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

#include "strata/call.h"
#include "strata/tensor.h"
#include "strata/types.h"

namespace strata {

class InnerOrchestrator;  // strata/inner.h

// A tensor argument seen as elements of T. Shape and strides in elements, outermost first.
template <class T>
class TensorView {
 public:
  explicit TensorView(const strata_tensor& tensor) : tensor_(&tensor) {}

  T* data() const { return static_cast<T*>(tensor_->data); }
  int rank() const { return tensor_->rank; }
  uint64_t shape(int d) const { return tensor_->shape[d]; }
  int64_t stride(int d) const { return tensor_->stride[d]; }
  uint64_t size() const {
    uint64_t n = 1;
    for (int d = 0; d < rank(); ++d) n *= shape(d);
    return n;
  }
  bool contiguous() const {
    int64_t expect = 1;
    for (int d = rank() - 1; d >= 0; --d) {
      if (shape(d) > 1 && stride(d) != expect) return false;
      expect *= static_cast<int64_t>(shape(d));
    }
    return true;
  }
  // All elements in order. Throws std::invalid_argument where they are not contiguous.
  std::span<T> span() const {
    if (!contiguous()) throw std::invalid_argument("span() of a tensor that is not contiguous");
    return {data(), size()};
  }
  T& operator()(uint64_t i) const { return data()[static_cast<int64_t>(i) * stride(0)]; }
  T& operator()(uint64_t i, uint64_t j) const {
    return data()[static_cast<int64_t>(i) * stride(0) + static_cast<int64_t>(j) * stride(1)];
  }

 private:
  const strata_tensor* tensor_;
};

class Call {
 public:
  explicit Call(const strata_call* raw) : raw_(raw) {}

  uint32_t tensor_count() const { return raw_->tensor_count; }
  uint32_t scalar_count() const { return raw_->scalar_count; }

  // Throws std::out_of_range for a missing argument, std::invalid_argument for another dtype.
  template <class T>
  TensorView<T> tensor(uint32_t i) const {
    if (i >= raw_->tensor_count) throw std::out_of_range("no tensor " + std::to_string(i));
    const strata_tensor& t = raw_->tensors[i];
    if (t.dtype != static_cast<uint8_t>(DTypeOf<std::remove_const_t<T>>::value)) {
      throw std::invalid_argument("tensor " + std::to_string(i) + " has another element type");
    }
    return TensorView<T>(t);
  }

  template <class T>
  T scalar(uint32_t i) const {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 8);
    if (i >= raw_->scalar_count) throw std::out_of_range("no scalar " + std::to_string(i));
    T value;
    std::memcpy(&value, &raw_->scalars[i], sizeof value);
    return value;
  }

  std::span<const std::byte> inline_bytes() const {
    return {static_cast<const std::byte*>(raw_->inline_bytes), raw_->inline_nbytes};
  }

  // At most 64 KiB; throws std::length_error beyond. The last call counts.
  void set_result(std::span<const std::byte> bytes) const {
    if (raw_->set_result(raw_, bytes.data(), bytes.size()) != 0) {
      throw std::length_error("a result has at most 65536 bytes");
    }
  }
  template <class T>
  requires std::is_trivially_copyable_v<T>
  void set_result(const T& value) const { set_result(std::as_bytes(std::span(&value, 1))); }

  // True once the run was cancelled or the deadline has passed: return soon.
  bool cancelled() const { return raw_->cancelled(raw_) != 0; }
  void log(int level, std::string_view text) const {
    raw_->log(raw_, level, text.data(), text.size());
  }
  int32_t block_dim() const { return raw_->block_dim; }
  // Which block of a chip kernel this call is; 0 elsewhere.
  int32_t block_idx() const { return has(offsetof(strata_call, block_idx)) ? raw_->block_idx : 0; }
  // In a task of a child Worker: what it submits to the Workers below it; include strata/inner.h.
  // Throws std::logic_error in a SUB or chip task.
  InnerOrchestrator orchestrator() const;
  // In a task of a child Worker: the tensor behind argument i, to pass it on to inner tasks. It
  // keeps its uid. Throws std::logic_error elsewhere.
  Tensor ref(uint32_t i) const {
    if (i >= raw_->tensor_count) throw std::out_of_range("no tensor " + std::to_string(i));
    if (!has(offsetof(strata_call, refs)) || raw_->refs == nullptr) {
      throw std::logic_error("ref() is for tasks of a child Worker; this is a SUB or chip task");
    }
    const strata_tensor& t = raw_->tensors[i];
    const strata_tensor_ref& r = raw_->refs[i];
    Tensor out;
    out.uid = {r.uid_high, r.uid_low};
    out.buffer_index = r.buffer_index;
    out.dtype = static_cast<DType>(t.dtype);
    out.rank = t.rank;
    out.offset = r.offset;
    for (int d = 0; d < t.rank; ++d) {
      out.shape[d] = t.shape[d];
      out.stride[d] = t.stride[d];
    }
    return out;
  }
  const strata_call* raw() const { return raw_; }

 private:
  // The caller's Strata knows the field that begins there.
  bool has(size_t offset) const { return raw_->size > offset; }
  const strata_call* raw_;
};

namespace detail {

inline int32_t fail(const strata_call* raw, std::string_view text) {
  raw->set_error(raw, text.data(), text.size());
  return 1;
}

template <class Fn>
int32_t guarded(const strata_call* raw, Fn&& fn) {
  try {
    Call call(raw);
    fn(call);
    return 0;
  } catch (const std::exception& e) {
    return fail(raw, e.what());
  } catch (...) {
    return fail(raw, "an exception that is no std::exception");
  }
}

// The C entry of a plain C++ function, as a function of its own.
template <void (*kFn)(Call&)>
int32_t entry(const strata_call* raw) {
  return guarded(raw, kFn);
}

}  // namespace detail
}  // namespace strata

// The ABI number of the object, however many entries it exports. Weak, and not `inline`: that would
// make it one symbol for the whole process, and each object must answer for itself.
extern "C" {
__attribute__((visibility("default"), weak)) extern const uint32_t strata_abi;
const uint32_t strata_abi = STRATA_ABI;
}

// Exports `fn`, a `void fn(strata::Call&)`, under its own name as a C entry. Once for each
// function, at namespace scope.
#define STRATA_EXPORT(fn)                                                               \
  extern "C" {                                                                          \
  __attribute__((visibility("default"))) int32_t fn(const strata_call* raw) {           \
    return ::strata::detail::guarded(raw, static_cast<void (*)(::strata::Call&)>(&fn)); \
  }                                                                                     \
  }                                                                                     \
  static_assert(true, "a semicolon may follow")
