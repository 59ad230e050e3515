// InlineVector: a vector of plain values whose first N need no allocation. For the arguments of
// tasks, which are made by the million; not a general container.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <type_traits>

namespace strata {

template <class T, size_t N>
class InlineVector {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

 public:
  InlineVector() {}
  InlineVector(const InlineVector& other) { *this = other; }
  InlineVector(InlineVector&& other) noexcept { *this = std::move(other); }
  InlineVector& operator=(const InlineVector& other) {
    if (this == &other) return *this;
    size_ = 0;
    reserve(other.size_);
    if (other.size_ > 0)
      std::memcpy(static_cast<void*>(data()), other.data(), other.size_ * sizeof(T));
    size_ = other.size_;
    return *this;
  }
  InlineVector& operator=(InlineVector&& other) noexcept {
    if (this == &other) return *this;
    if (other.heap_ == nullptr) {
      heap_.reset();
      capacity_ = N;
      if (other.size_ > 0)
        std::memcpy(static_cast<void*>(data()), other.data(), other.size_ * sizeof(T));
    } else {
      heap_ = std::move(other.heap_);
      capacity_ = other.capacity_;
      other.capacity_ = N;
    }
    size_ = other.size_;
    other.size_ = 0;
    return *this;
  }

  void push_back(const T& value) {
    if (size_ == capacity_) {
      const T copy = value;  // it may lie in here
      reserve(2 * capacity_);
      std::memcpy(static_cast<void*>(data() + size_), &copy, sizeof(T));
    } else {
      std::memcpy(static_cast<void*>(data() + size_), &value, sizeof(T));
    }
    ++size_;
  }
  void clear() { size_ = 0; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T* data() { return reinterpret_cast<T*>(heap_ == nullptr ? inline_ : heap_.get()); }
  const T* data() const {
    return reinterpret_cast<const T*>(heap_ == nullptr ? inline_ : heap_.get());
  }
  operator std::span<const T>() const { return {data(), size_}; }

 private:
  void reserve(size_t capacity) {
    if (capacity <= capacity_) return;
    std::unique_ptr<std::byte[]> larger(new std::byte[capacity * sizeof(T)]);
    if (size_ > 0) std::memcpy(larger.get(), data(), size_ * sizeof(T));
    heap_ = std::move(larger);
    capacity_ = capacity;
  }

  size_t size_ = 0;
  size_t capacity_ = N;
  std::unique_ptr<std::byte[]> heap_;
  alignas(T) std::byte inline_[N * sizeof(T)];
};

}  // namespace strata
